"""What if, as JSON: the question, the answer for one test, and the tests that change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from whence.explanation.view import Class, Index
from whence.ui.schema.tested import Row
from whence.ui.schema.trained import Search

To = Annotated[
    Class | Literal["suggested"] | None,
    Field(description="A new label, the one that is suggested; or none, and the samples are removed"),
]


class OfSamples(BaseModel):
    """All training samples with a label, or that a search finds, or both."""

    model_config = ConfigDict(extra="forbid")

    by: Literal["samples"]
    label: Class | None = None
    search: Search = ""
    to: Class | None = None


class OfAudit(BaseModel):
    """All training samples whose labels are likelier wrong than right."""

    model_config = ConfigDict(extra="forbid")

    by: Literal["wrong labels"]
    to: To = None


Group = Annotated[OfSamples | OfAudit, Field(discriminator="by")]


class Changes(BaseModel):
    """Training samples to take away, and new labels of others: one by one, and in groups."""

    model_config = ConfigDict(extra="forbid")

    remove: Annotated[list[Index], Field(max_length=1000)] = []
    relabel: Annotated[dict[int, Class], Field(max_length=1000)] = {}
    groups: Annotated[list[Group], Field(max_length=20)] = []


class Question(Changes):
    """What if, asked of one test."""

    test: Index
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


class State(BaseModel):
    """The surrogate on one side of the question, over all tests."""

    accuracy: float
    n_support: int
    gap: float


class ChangedTest(BaseModel):
    """A test whose class by the surrogate changes, with the logit of the class that it had.

    ``tau`` is what the changed samples make of that logit, before; ``foretold`` how much effects say that it
    will change, to first order, and None where they are not fitted yet.
    """

    row: Row
    came: Class
    became: Class
    logits: tuple[float, float]
    tau: float
    foretold: float | None


class Outcome(BaseModel):
    """The tests that change where training samples do, the surrogate being solved exactly.

    Of the ``changed_tests`` the first are listed; ``mended`` of them become right, ``broken`` wrong.
    """

    n_removed: int
    n_relabelled: int
    before: State
    after: State
    n_tests: int
    changed_tests: int
    mended: int
    broken: int
    changed: list[ChangedTest]
    seconds: float
