"""The validated requests of the explorer's API: pages of lists, and what-if changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Answer = dict[str, Any]
"""An answer of the API, in plain JSON types."""

Class = Annotated[int, Field(ge=0, description="The index of a class")]
Index = Annotated[int, Field(ge=0, description="The index of a sample")]
Search = Annotated[
    str, Field(max_length=200, description="Indices such as 3, 17, 40-60, or part of a class's name or text")
]
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


class Wanted(Paged):
    """A page of the list of test samples: its filters and order."""

    label: Class | None = None
    predicted: Class | None = None
    wrong: bool = False
    disagree: bool = False
    novel: bool = False
    search: Annotated[str, Field(max_length=100, description="An index, or part of a class's name")] = ""
    order: Literal["number", "least certain"] = "number"


class WantedComparison(Paged):
    """A page of the tests of two explainers, and what they are sorted by."""

    by: Literal["outputs", "samples", "number"] = "outputs"


class WantedTraining(Paged):
    """A page of the list of training samples, and its filters."""

    label: Class | None = None
    search: Search = ""


class StrictRequest(BaseModel):
    """A request that refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid")


class OfSamples(StrictRequest):
    """All training samples with a label, that a search finds, or both."""

    by: Literal["samples"]
    label: Class | None = None
    search: Search = ""
    to: Class | None = None


class OfAudit(StrictRequest):
    """All training samples whose labels are more likely wrong than right."""

    by: Literal["wrong labels"]
    to: To = None


Group = Annotated[OfSamples | OfAudit, Field(discriminator="by")]


class Changes(StrictRequest):
    """Training samples to remove and new labels for others, one by one and in groups."""

    remove: Annotated[list[Index], Field(max_length=1000)] = []
    relabel: Annotated[dict[int, Class], Field(max_length=1000)] = {}
    groups: Annotated[list[Group], Field(max_length=20)] = []


class WhatIfRequest(Changes):
    """What if, for one test."""

    test: Index
    target: Class | None = None
