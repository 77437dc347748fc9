"""What a metric of the evaluation is, with all that it is made of, and the registry of all metrics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy.typing as npt
from pydantic import create_model

from whence.core.registry import Registry, register
from whence_studies.scenes.workshop import Materials, Scene
from whence_studies.suite.case import Case
from whence_studies.suite.results import Row
from whence_studies.tables import Count, Share, Table

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Method, Protocol, Sweep

__all__ = [
    "METRICS",
    "Accuracies",
    "Case",
    "Column",
    "Count",
    "Curves",
    "Materials",
    "Metric",
    "Numbers",
    "Output",
    "Row",
    "Scene",
    "Share",
    "register",
]


Output = Literal["logit", "log_prob"]
"""What LDS predicts of retrained models."""
CLEAN = "clean"
"""The scene of the data as they come."""


@dataclass(frozen=True)
class Column:
    """A column of the table of scores: what is measured, in what unit, and which way is better.

    Attributes
    ----------
    title, unit : of the column
    rising : whether more is better
    first : the loss at the smallest share instead of the metric's own score
    ties : how ties are judged: "bootstrap" over the rows "each"; "runs", the same for all methods, by
        the logarithms' spread; "given" in rows "tied_with_best"; "none"
    how : the same in words, for the page; {seeds} is the number of training seeds
    metric : of the rows that it shows; that of the metric itself where none is given
    """

    title: str
    unit: str
    rising: bool = True
    first: bool = False
    ties: Literal["bootstrap", "runs", "given", "none"] = "bootstrap"
    how: str = "bootstrap over the tests"
    metric: str = ""


@dataclass(frozen=True)
class Curves:
    """Curves that the page draws, one panel per method: of rows with a share as their ``x``.

    Attributes
    ----------
    title, text : heading, and what is seen
    x, y : titles of the axes
    quantities : of the rows, with what each is called; the first is in sight, the others unfold
    log : whether shares are on a logarithmic axis
    """

    title: str
    text: str
    x: str
    y: str
    quantities: Mapping[str, str]
    log: bool = False


@dataclass(frozen=True)
class Accuracies:
    """A table of the rows "accuracy", of models retrained, by the share of the training samples.

    Attributes
    ----------
    title, better : heading, and which way is better
    what : "Kept" or "Removed": what is done with the share
    rising : whether more is better
    """

    title: str
    better: str
    what: Literal["Kept", "Removed"]
    rising: bool


@dataclass(frozen=True)
class Numbers:
    """A table of other numbers: heading, what is seen, and the quantities with their titles."""

    title: str
    text: str
    quantities: Mapping[str, str]


class Metric(Table):
    """A metric: its fields are its options, with their defaults, as a protocol's table gives them.

    A subclass gives ``name`` and ``measure``, and what differs from the defaults of the rest. Registered with
    ``whence.register``, or named as ``module:Name``, it takes its place in protocols, tables and pages.

    Attributes
    ----------
    name : in protocols and results
    columns : of the table of scores
    sections : what the page shows next to the table
    swept : quantities that the page draws over the sweep, with title and unit; a line for each ``x`` of rows
    scene : name of the scene that it is measured in; metrics of the scene "clean" share it
    sweeps : whether the methods of a sweep are measured too
    orders : whether it puts training samples in order, for which a method may have values of its own
    compares : whether ``compare`` looks at all methods together, by what ``to_compare`` gives of each
    train, test, steps : sizes of the scene where they differ from the protocol's

    Examples
    --------
    >>> import whence
    >>> from whence_studies import Column, Metric
    >>> @whence.register
    ... class Negative(Metric):
    ...     name = "negative"
    ...     columns = (Column("Negative", "share of the scores"),)
    ...     below: float = 0.0
    ...
    ...     def measure(self, case):
    ...         return case.rows_of(self.name, (case.scores < self.below).mean(axis=1))
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]] = ()
    sections: ClassVar[tuple[Curves | Accuracies | Numbers, ...]] = ()
    swept: ClassVar[Mapping[str, tuple[str, str]]] = {}
    scene: ClassVar[str] = CLEAN
    sweeps: ClassVar[bool] = True
    orders: ClassVar[bool] = False
    compares: ClassVar[bool] = False

    train: Count | None = None
    test: Count | None = None
    steps: Count | None = None

    @abstractmethod
    def measure(self, case: Case) -> list[Row]:
        """Measure one method in one scene."""

    def stage(self, given: Materials) -> Scene:
        """Make the scene that it is measured in, of the data as they come; ``scene`` names it."""
        return given.scene(given.train, given.test)

    def applies(self, method: Method) -> bool:
        """Return whether a method can be measured by it."""
        return True

    @classmethod
    def columns_for(cls, options: Mapping[str, Any]) -> tuple[Column, ...]:
        """Return the columns of results that were made with these options."""
        return cls.columns

    def fittings(self, method: Method) -> int:
        """Count how often a method is fitted to be measured."""
        return 1

    def depends(self, protocol: Protocol) -> Any:
        """Return what else of a protocol its numbers depend on, besides scene, method and options."""
        return None

    @property
    def chooses(self) -> bool:
        """Whether it chooses options of methods by ``choose``, on what it does not score."""
        return False

    def choose(self, case: Case) -> list[Row]:
        """Choose a method's options; the row "chosen" has them as JSON in its note."""
        return []

    def to_compare(self, case: Case) -> npt.NDArray[Any]:
        """Return what ``compare`` needs of a method: its scores (test, train)."""
        return case.scores

    def compare(self, scene: Scene, scores: dict[str, npt.NDArray[Any]]) -> list[Row]:
        """Compare all methods by what was kept of them, by key."""
        return []

    def over(self, sweep: Sweep) -> Self:
        """Return the metric by which methods of a sweep are measured, or raise where it cannot be."""
        return self

    def trainings(self) -> int:
        """Count the models that are retrained for every method."""
        return 0

    def shared_trainings(self) -> int:
        """Count the models that are trained for all methods together, besides the one that is explained."""
        return 0


def register_variant(
    base: type[Metric], name: str, text: str, defaults: Mapping[str, Any], **of_class: Any
) -> None:
    """Register a metric that differs from another in its name, the defaults of options, and class attributes.

    Parameters
    ----------
    base
        The metric that it is a variant of.
    name
        Of the variant, in protocols and results.
    text
        What it measures, in a sentence.
    defaults
        Of options, by name.
    of_class
        Other class attributes, such as ``columns``.
    """
    kinds = {option: (base.model_fields[option].annotation, value) for option, value in defaults.items()}
    title = name.title().replace("_", "")
    made = create_model(title, __base__=base, __doc__=text, __module__=base.__module__, **kinds)  # type: ignore[call-overload]
    for attribute, value in {"name": name, **of_class}.items():
        setattr(made, attribute, value)
    register(made)


METRICS: Registry[type[Metric]] = Registry(
    "metric", lambda thing: isinstance(thing, type) and issubclass(thing, Metric)
)
