"""Classes as JSON: what each rests on, one beside another, and the concepts that they use."""

from __future__ import annotations

from pydantic import BaseModel

from whence.explanation.view import Class, Index, Small


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
