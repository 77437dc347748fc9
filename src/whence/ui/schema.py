"""The types of the explorer's interface, from which its documentation is made."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Class = Annotated[int, Field(ge=0, description="A class by its number")]
Index = Annotated[int, Field(ge=0, description="A sample's place")]


class Shown(BaseModel):
    """A sample: a picture, tokens, or values."""

    kind: Literal["image", "text", "values"]
    src: str | None = None
    width: int | None = None
    height: int | None = None
    tokens: list[str] | None = None
    values: list[float] | None = None


class Map(BaseModel):
    """Relevance: of a picture a signed byte a pixel in base 64, 127 standing for ``most``; else values."""

    width: int | None = None
    height: int | None = None
    most: float | None = None
    data: str | None = None
    values: list[float] | None = None


class Info(BaseModel):
    """What holds for all tests."""

    title: str
    kind: Literal["image", "text", "values"]
    classes: list[str]
    n_train: int
    n_tests: int
    n_support: int
    C: float
    Cs: list[float]
    gap: float
    accuracy: float
    agreement: float


class Row(BaseModel):
    """A test sample in the list."""

    index: Index
    truth: Class
    predicted: Class
    probability: float
    surrogate_class: Class
    sample: Shown


class Rows(BaseModel):
    """A page of the list."""

    total: int
    rows: list[Row]


class Pair(BaseModel):
    """A training sample and what it contributes; positive is evidence for the target class."""

    index: Index
    label: Class
    score: float
    share: float
    coefficient: float
    sample: Shown
    test_map: Map
    train_map: Map


class Full(BaseModel):
    """The relevance of the full colour in each row of maps."""

    logit: float
    test: float
    train: float


class Explained(BaseModel):
    """Where one prediction comes from; ``test`` is None for an input of the user's own."""

    test: Index | None
    C: float
    sample: Shown
    logit_map: Map
    full: Full
    pairs: list[Pair]
    predicted: Class
    probability: float
    surrogate_class: Class
    truth: int | None
    target: Class
    logit: float
    bias: float
    evidence_for: float
    evidence_against: float
    share_for: float
    share_against: float
    sums: dict[str, float]
    method: str
    n_train: int
    n_support: int
    gap: float
    waterfall: list[tuple[int, float]]
    sparsity: list[tuple[int, float]]


class Part(BaseModel):
    """A concept's part of a pair's score."""

    name: str
    score: float
    test_activation: float
    train_activation: float
    test_map: Map
    train_map: Map
    indices: list[Index]
    samples: list[Shown]


class Strip(BaseModel):
    """The concepts of a pair."""

    index: Index
    score: float
    bias: float
    is_basis: bool
    full: dict[str, float]
    train: Shown
    test: Shown
    parts: list[Part]


class Suspect(BaseModel):
    """A training sample whose label may be wrong.

    ``disagreeing`` of its nearest training samples have another label; the first of them are shown.
    """

    index: Index
    label: Class
    suggested: Class
    score: float
    disagreeing: int
    sample: Shown
    neighbours: list[Index]
    neighbour_labels: list[Class]
    neighbour_samples: list[Shown]


class Suspects(BaseModel):
    """A page of the audit queue; ``looked_at`` neighbours of each sample were looked at."""

    total: int
    ranking: str
    looked_at: int
    rows: list[Suspect]


class ClassFacts(BaseModel):
    """One class of the surrogate."""

    name: str
    n_train: int
    n_support: int
    bounded: float
    top: list[Index]
    samples: list[Shown]


class Question(BaseModel):
    """Training samples to take away, and new labels of others."""

    model_config = ConfigDict(extra="forbid")

    test: Index
    remove: Annotated[list[Index], Field(max_length=1000)] = []
    relabel: Annotated[dict[int, Class], Field(max_length=1000)] = {}
    target: Class | None = None


class Side(BaseModel):
    """The surrogate's answer on one side of the question."""

    predicted: Class
    logits: list[float]
    logit: float
    n_support: int
    gap: float


class Answer(BaseModel):
    """The surrogate before and after, each solved exactly."""

    test: Index
    target: Class
    before: Side
    after: Side
    changed_tests: int
    n_tests: int
    seconds: float
