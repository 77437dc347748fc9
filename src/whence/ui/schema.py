"""The types of the explorer's interface, from which its documentation is made."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from whence.attributors import Effects
from whence.explanation import view
from whence.explanation.view import Class, Index, Small
from whence.tasks import Speech

Search = Annotated[
    str, Field(max_length=200, description="Places such as 3, 17, 40-60, or a part of a class's name or text")
]


class Info(BaseModel):
    """What was loaded, and what holds for all tests. ``size`` is that of the explainer's file in bytes."""

    title: str
    model: str
    n_parameters: int
    head: str
    data: str
    test: str
    kind: Literal["image", "text", "values"]
    speech: Speech
    classes: list[str]
    n_features: int
    normalise: bool
    n_train: int
    n_tests: int
    n_support: int
    n_wrong: int
    n_differing: int
    C: float
    Cs: list[float]
    gap: float
    accuracy: float
    agreement: float
    size: int | None


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
    strange: bool = False
    search: Annotated[str, Field(max_length=100, description="A place, or a part of a class's name")] = ""
    order: Literal["number", "least certain"] = "number"


class Rows(BaseModel):
    """A page of the list."""

    total: int
    rows: list[Row]


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
    """A page of the audit queue; ``looked_at`` neighbours of each sample were looked at.

    ``found`` of all are likelier wrong than right.
    """

    total: int
    found: int
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


class Confused(BaseModel):
    """So many tests of one class that the model takes for another."""

    truth: Class
    predicted: Class
    count: int


class Classes(BaseModel):
    """A page of the classes, and which of all are confused most often."""

    total: int
    rows: list[ClassFacts]
    confused: list[Confused]


class Telling(BaseModel):
    """A training sample that tells two classes apart.

    ``share`` is its part of what separates them, over all samples 1, and negative where it takes from that;
    ``margin`` is how far it is on its own label's side, 1 being far enough.
    """

    index: Index
    label: Class
    share: float
    margin: float
    sample: Small


class Sides(BaseModel):
    """What one class rests on beside another: the tests that have it, and training samples.

    ``mistaken`` of ``n_tests`` are taken for the other; ``n_border`` training samples of it are held apart
    from the other by the surrogate. ``telling`` separate the two most, ``border`` are nearest to the other.
    """

    n_tests: int
    mistaken: int
    n_border: int
    telling: list[Telling]
    border: list[Telling]


class Rival(BaseModel):
    """Another class that a class is held apart from, by so many training samples of the two."""

    other: Class
    n_border: int
    taken_for: int
    taken_from: int
    likeness: float


class Shared(BaseModel):
    """A concept that both classes use, with its part of the logit of either."""

    name: str
    parts: tuple[float, float]


class Comparison(BaseModel):
    """A class beside another, or beside all others where that is None.

    ``likeness`` is the cosine of the two classes' weights.
    """

    one: Class
    other: Class | None
    likeness: float | None
    sides: tuple[Sides, Sides]
    rivals: list[Rival]
    shared: list[Shared]


class Use(BaseModel):
    """How much of the mean logit of a class, over the tests that are given it, goes through a concept.

    ``shows`` tells whether these tests show the concept, or its opposite.
    """

    label: Class
    shows: bool
    part: float
    share: float


class Concept(BaseModel):
    """A direction of the features, with the support vectors that show it most, and most of its opposite."""

    name: str
    used: float
    uses: list[Use]
    most: list[Index]
    most_labels: list[Class]
    most_samples: list[Small]
    least: list[Index]
    least_labels: list[Class]
    least_samples: list[Small]


class Gallery(BaseModel):
    """A page of the concepts, those that the classes use most first."""

    total: int
    rows: list[Concept]


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
