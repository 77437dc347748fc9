"""The types of the explorer's interface, from which its documentation is made."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from whence.attributors import Effects
from whence.explanation import view
from whence.explanation.view import Class, Index, Small
from whence.tasks import Speech


class Info(BaseModel):
    """What holds for all tests."""

    title: str
    kind: Literal["image", "text", "values"]
    speech: Speech
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
    """A test sample in the list: what is said of it, and the classes or labels that are true or predicted.

    ``strange`` is None where it is not known yet whether the training set has anything like it.
    """

    index: Index
    verdict: view.Said
    truths: list[Class]
    predictions: list[Class]
    truth: Class | None
    predicted: Class | None
    probability: float | None
    surrogate_class: Class | None
    strange: bool | None
    sample: Small


class Wanted(BaseModel):
    """Which test samples are listed, and which page of them."""

    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 24
    label: Class | None = None
    predicted: Class | None = None
    wrong: bool = False
    disagree: bool = False
    strange: bool = False
    search: Annotated[str, Field(max_length=100, description="A place, or a part of a class's name")] = ""


class Rows(BaseModel):
    """A page of the list."""

    total: int
    rows: list[Row]


class Explained(view.Explained):
    """Where one prediction comes from, at one C; ``test`` is None for an input of the user's own.

    ``beside`` has the other question's answer for each of ``pairs``, τ beside effects, effects beside τ;
    None where effects are not fitted yet.
    """

    test: Index | None
    C: float
    beside: list[float] | None


class Progress(BaseModel):
    """How far work is: ``done`` of ``total`` of what is counted, where that is known."""

    seconds: float
    what: str = ""
    done: int = 0
    total: int = 0


class Foretelling(BaseModel):
    """The effects that questions of what would change are answered by, once they are fitted."""

    told: str
    seconds: float

    @classmethod
    def of(cls, fitted: Effects) -> Self:
        """Tell of effects that are fitted."""
        return cls(told=fitted.foretold_.told, seconds=fitted.fit_seconds_)


class Doubt(BaseModel):
    """How stable the strongest training samples of a test are.

    ``among`` has the number of halves, of all ``halves`` that hold the sample, in which it is among the ``k``
    strongest of its sign, by its place; ``reason`` is what that means for the whole explanation.
    """

    k: int
    halves: int
    among: dict[int, int]
    reason: view.Why | None


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
    samples: list[Small]


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


class FirstOrder(BaseModel):
    """The change of the target's logit by effects, to first order and by solving their surrogate again.

    ``parted`` says whether the two differ by more than a fifth.
    """

    foretold: float
    exact: float
    parted: bool


class Answer(BaseModel):
    """The surrogate before and after, each solved exactly.

    ``first_order`` is None where effects are not fitted yet, or where nothing was asked for.
    """

    test: Index
    target: Class
    before: Side
    after: Side
    changed_tests: int
    n_tests: int
    seconds: float
    first_order: FirstOrder | None
