"""Test samples as JSON: what was loaded, lists of tests, and what is said of one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from whence.explanation import view
from whence.explanation.view import Class, Index, Small
from whence.explanation.wording import Question
from whence.tasks import LabelKind
from whence.ui.reach import View


class Info(BaseModel):
    """What was loaded, and what holds for all tests.

    ``size`` is that of the explainer's file in bytes. Of an ensemble of several ``members``, ``C`` is None,
    and the head and the number of features are the first one's. ``questions`` can be asked, ``Cs`` chosen;
    ``compares`` tells whether it is known how usual tests are. ``withheld`` says of views why they are empty,
    and ``note`` of predictions what is not told; a language model ``writes``, at /write.
    """

    title: str
    model: str
    n_parameters: int
    head: str
    data: str
    test: str
    kind: Literal["image", "text", "values"]
    label_kind: LabelKind
    classes: list[str]
    n_features: int
    normalise: bool
    n_train: int
    n_tests: int
    n_support: int
    n_wrong: int
    n_differing: int
    members: int
    questions: list[Question]
    compares: bool
    withheld: dict[View, str]
    note: str
    writes: bool
    C: float | None
    Cs: list[float]
    gap: float
    accuracy: float
    agreement: float
    size: int | None


class Paged(BaseModel):
    """A page of a list."""

    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 24


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


class Wanted(Paged):
    """Which test samples are listed, in which order, and which page of them."""

    label: Class | None = None
    predicted: Class | None = None
    wrong: bool = False
    disagree: bool = False
    strange: bool = False
    search: Annotated[str, Field(max_length=100, description="A place, or a part of a class's name")] = ""
    order: Literal["number", "least certain"] = "number"


class Rows(BaseModel):
    """A page of the list."""

    total: int
    rows: list[Row]


class Explained(view.Explained):
    """Where one prediction comes from, at one C; ``test`` is None for an input of the user's own.

    ``C`` is None of an ensemble. ``beside`` has the other question's answer for each of ``pairs``, τ beside
    effects, effects beside τ; None where effects are not fitted yet.
    """

    test: Index | None
    C: float | None
    beside: list[float] | None


class Doubt(BaseModel):
    """How stable the strongest training samples of a test are.

    ``among`` has the number of halves, of all ``halves`` that hold the sample, in which it is among the ``k``
    strongest of its sign, by its place; ``reason`` is what that means for the whole explanation.
    """

    k: int
    halves: int
    among: dict[int, int]
    reason: view.Why | None
