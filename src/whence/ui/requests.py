"""What the explorer's interface is asked, validated: pages of lists, and questions of what if."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Answer = dict[str, Any]
"""An answer of the interface, in plain types that JSON takes."""

Class = Annotated[int, Field(ge=0, description="A class by its number")]
Index = Annotated[int, Field(ge=0, description="A sample's place")]
Search = Annotated[
    str, Field(max_length=200, description="Places such as 3, 17, 40-60, or a part of a class's name or text")
]
To = Annotated[
    Class | Literal["suggested"] | None,
    Field(description="A new label, the suggested one, or none: the samples are removed"),
]


class Paged(BaseModel):
    """A page of a list."""

    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 24


class Wanted(Paged):
    """Which test samples are listed, in which order, and which page of them."""

    label: Class | None = None
    predicted: Class | None = None
    wrong: bool = False
    disagree: bool = False
    novel: bool = False
    search: Annotated[str, Field(max_length=100, description="A place, or a part of a class's name")] = ""
    order: Literal["number", "least certain"] = "number"


class WantedTraining(Paged):
    """Which training samples are listed, and which page of them."""

    label: Class | None = None
    search: Search = ""


class StrictRequest(BaseModel):
    """A request that refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid")


class OfSamples(StrictRequest):
    """All training samples with a label, or that a search finds, or both."""

    by: Literal["samples"]
    label: Class | None = None
    search: Search = ""
    to: Class | None = None


class OfAudit(StrictRequest):
    """All training samples whose labels are likelier wrong than right."""

    by: Literal["wrong labels"]
    to: To = None


Group = Annotated[OfSamples | OfAudit, Field(discriminator="by")]


class Changes(StrictRequest):
    """Training samples to remove, and new labels of others: one by one, and in groups."""

    remove: Annotated[list[Index], Field(max_length=1000)] = []
    relabel: Annotated[dict[int, Class], Field(max_length=1000)] = {}
    groups: Annotated[list[Group], Field(max_length=20)] = []


class WhatIf(Changes):
    """What if, asked of one test."""

    test: Index
    target: Class | None = None
