"""The base class of evaluation metrics, their parts, and the registry of all metrics."""

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
"""The output of retrained models that LDS predicts."""
CLEAN = "clean"
"""The scene of the unchanged data."""


@dataclass(frozen=True)
class Column:
    """A column of the table of scores: what it measures, its unit, and which direction is better.

    Attributes
    ----------
    title, unit : title and unit of the column
    rising : whether higher is better
    first : show the loss at the smallest share instead of the metric's score
    ties : how ties are tested: "bootstrap" over the rows "each"; "runs", by logarithms of runs that all
        methods share; "given" in rows "tied_with_best"; "none"
    how : the test in words, for the page; {seeds} is the number of training seeds
    metric : metric of the rows that it shows; by default that of the metric itself
    """

    title: str
    unit: str
    rising: bool = True
    first: bool = False
    ties: Literal["bootstrap", "runs", "given", "none"] = "bootstrap"
    how: str = "bootstrap over the tests of one network: between networks differences may be larger"
    metric: str = ""


@dataclass(frozen=True)
class Curves:
    """Curves on the page, one panel per method, from rows with a share as their ``x``.

    Attributes
    ----------
    title, text : heading and description
    x, y : titles of the axes
    quantities : titles by quantity of the rows; the first is shown, the others are folded
    log : whether the axis of shares is logarithmic
    """

    title: str
    text: str
    x: str
    y: str
    quantities: Mapping[str, str]
    log: bool = False


@dataclass(frozen=True)
class Accuracies:
    """A table of the rows "accuracy" of retrained models, by share of the training samples.

    Attributes
    ----------
    title, better : heading, and which direction is better
    what : "Kept" or "Removed", for the share
    rising : whether higher is better
    """

    title: str
    better: str
    what: Literal["Kept", "Removed"]
    rising: bool


@dataclass(frozen=True)
class Numbers:
    """A table of other numbers: heading, description, and titles by quantity."""

    title: str
    text: str
    quantities: Mapping[str, str]


class Metric(Table):
    """A metric: its fields are its options, with defaults, which a protocol's table can set.

    A subclass defines ``name`` and ``measure``, and overrides other defaults. Register it with
    ``whence.register``, or name it as ``module:Name``, to use it in protocols, tables and pages.

    Attributes
    ----------
    name : its name in protocols and results
    columns : its columns in the table of scores
    sections : its other sections on the page
    swept : quantities that the page draws over the sweep, with title and unit; one line per ``x`` of rows
    scene : name of its scene; metrics of the scene "clean" share it
    sweeps : whether the methods of a sweep are measured too
    orders : whether it orders training samples, for which a method may use values instead of scores
    compares : whether ``compare`` compares all methods, by what ``to_compare`` returns for each
    train, test, steps : sizes of the scene, if they differ from the protocol's

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
        """Make the metric's scene from the unchanged data; ``scene`` names it."""
        return given.scene(given.train, given.test)

    def applies(self, method: Method) -> bool:
        """Return whether the metric can measure a method."""
        return True

    @classmethod
    def columns_for(cls, options: Mapping[str, Any]) -> tuple[Column, ...]:
        """Return the columns for these options."""
        return cls.columns

    def fittings(self, method: Method) -> int:
        """Return how often a method is fitted for the measurement."""
        return 1

    def depends(self, protocol: Protocol) -> Any:
        """Return what the numbers depend on in a protocol besides scene, method and options."""
        return None

    @property
    def chooses(self) -> bool:
        """Whether it tunes options of methods by ``choose``, on data that it does not score."""
        return False

    def choose(self, case: Case) -> list[Row]:
        """Tune a method's options; the row "chosen" has them as JSON in its note."""
        return []

    def to_compare(self, case: Case) -> npt.NDArray[Any]:
        """Return what ``compare`` needs for a method: its scores (test, train)."""
        return case.scores

    def compare(self, scene: Scene, scores: dict[str, npt.NDArray[Any]]) -> list[Row]:
        """Compare all methods by the results of ``to_compare``, by key."""
        return []

    def over(self, sweep: Sweep) -> Self:
        """Return the metric for methods of a sweep, or raise."""
        return self

    def trainings(self) -> int:
        """Return the number of models to train per method."""
        return 0

    def shared_trainings(self) -> int:
        """Return the number of models to train for all methods together, besides the explained one."""
        return 0


def register_variant(
    base: type[Metric], name: str, text: str, defaults: Mapping[str, Any], **of_class: Any
) -> None:
    """Register a variant of a metric with another name, other defaults, and other class attributes.

    Parameters
    ----------
    base
        The original metric.
    name
        Name of the variant in protocols and results.
    text
        Its docstring.
    defaults
        Defaults of options, by name.
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
