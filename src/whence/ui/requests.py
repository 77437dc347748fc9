"""The validated requests of the explorer's API: pages of lists, and what-if changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from whence.project import Action

Answer = dict[str, Any]
"""An answer of the API, in plain JSON types."""

Class = Annotated[int, Field(ge=0, description="The index of a class")]
Index = Annotated[int, Field(ge=0, description="The index of a sample")]
Search = Annotated[
    str, Field(max_length=200, description="Indices such as 3, 17, 40-60, or part of a class's name or text")
]
Name = Annotated[str, Field(max_length=80, description="The name of a slice")]
To = Annotated[
    Class | Literal["suggested"] | None,
    Field(description="A new label, or the suggested one; null removes the samples"),
]


Other = Annotated[
    Class | Literal["runner-up"] | None,
    Field(description="Another class: explain the evidence for the target over this class"),
]


class Paged(BaseModel):
    """A page of a list."""

    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 24


class TestFilters(BaseModel):
    """Which test samples are listed."""

    __test__ = False  # no test of pytest's

    label: Class | None = None
    predicted: Class | None = None
    wrong: bool = False
    disagree: bool = False
    novel: bool = False
    search: Annotated[str, Field(max_length=100, description="An index, or part of a class's name")] = ""
    slice: Name | None = None


class WantedComparison(Paged):
    """A page of the tests of two explainers, and what they are sorted by."""

    by: Literal["outputs", "samples", "number"] = "outputs"


class TrainingFilters(BaseModel):
    """Which training samples are listed."""

    label: Class | None = None
    search: Search = ""
    slice: Name | None = None


class Wanted(Paged, TestFilters):
    """A page of the list of test samples: its filters and order."""

    order: Literal["number", "least certain"] = "number"


class WantedTraining(Paged, TrainingFilters):
    """A page of the list of training samples, and its filters."""


class StrictRequest(BaseModel):
    """A request that refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid")


class BySamples(StrictRequest, TrainingFilters):
    """All training samples with a label, that a search finds, in a slice, or all of these."""

    by: Literal["samples"]


class ByAudit(StrictRequest):
    """All training samples whose labels are more likely wrong than right, or have a score above a value."""

    by: Literal["wrong labels"]
    above: Annotated[float | None, Field(allow_inf_nan=False)] = None


class OfSamples(BySamples):
    """A group of ``BySamples`` with its new label; null removes it."""

    to: Class | None = None


class OfAudit(ByAudit):
    """A group of ``ByAudit`` with its new label."""

    to: To = None


Group = Annotated[OfSamples | OfAudit, Field(discriminator="by")]
Which = Annotated[BySamples | ByAudit, Field(discriminator="by")]
"""A group of training samples, without what is done with it."""


class Changes(StrictRequest):
    """Training samples to remove and new labels for others: one by one, in groups, and the saved list."""

    remove: list[Index] = []
    relabel: dict[int, Class] = {}
    groups: Annotated[list[Group], Field(max_length=20)] = []
    saved: Annotated[
        bool,
        Field(description="Also what the change list removes and relabels; what is named here comes first"),
    ] = False


class WhatIfRequest(Changes):
    """What if, for one test."""

    test: Index
    target: Class | None = None


class Marking(StrictRequest):
    """An entry for the change list: samples, or a group of them."""

    action: Action
    label: Annotated[Class | Literal["suggested"] | None, Field(description="The new class, to relabel")] = (
        None
    )
    samples: list[Index] | str | None = None
    group: Which | None = None
    why: str = ""
    who: str | None = None


class OfTests(StrictRequest):
    """A slice of tests: samples, or all that filters of the list leave."""

    name: Name
    of: Literal["tests"]
    samples: list[Index] | str | None = None
    filters: TestFilters | None = None
    who: str | None = None


class OfTraining(StrictRequest):
    """A slice of training samples, likewise."""

    name: Name
    of: Literal["training"]
    samples: list[Index] | str | None = None
    filters: TrainingFilters | None = None
    who: str | None = None


NewSlice = Annotated[OfTests | OfTraining, Field(discriminator="of")]
