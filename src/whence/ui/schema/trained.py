"""Training samples as JSON: lists of them, and those whose labels may be wrong."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from whence.explanation.view import Class, Index, Small
from whence.ui.schema.tested import Paged

Search = Annotated[
    str, Field(max_length=200, description="Places such as 3, 17, 40-60, or a part of a class's name or text")
]


class WantedTraining(Paged):
    """Which training samples are listed, and which page of them."""

    label: Class | None = None
    search: Search = ""


class TrainingRow(BaseModel):
    """A training sample in a list; ``support`` tells whether it is a support vector."""

    index: Index
    label: Class
    support: bool
    sample: Small


class TrainingRows(BaseModel):
    """A page of the list."""

    total: int
    rows: list[TrainingRow]


class Suspect(BaseModel):
    """A training sample whose label may be wrong.

    ``disagreeing`` of its nearest training samples have another label; the first of them are shown.
    """

    index: Index
    label: Class
    suggested: Class
    score: float
    disagreeing: int
    sample: Small
    neighbours: list[Index]
    neighbour_labels: list[Class]
    neighbour_samples: list[Small]


class Suspects(BaseModel):
    """A page of the audit queue; ``looked_at`` neighbours of each sample were looked at.

    ``found`` of all are likelier wrong than right.
    """

    total: int
    found: int
    ranking: str
    looked_at: int
    rows: list[Suspect]
