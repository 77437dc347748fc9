"""Cases: a method in a scene."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from whence.core.arrays import Doubles
from whence.methods import Attributor
from whence_studies.resources import Measured, measure
from whence_studies.scenes.workshop import Scene
from whence_studies.suite.results import COSTS, Row

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Method


class Case:
    """A method in a scene, fitted once, on first use.

    Parameters
    ----------
    scene
        The training set, the tests and the model.
    method
        The method.
    options
        Options of its constructor, including tuned ones.
    """

    def __init__(self, scene: Scene, method: Method, options: Mapping[str, Any]) -> None:
        self.scene, self.method, self.options = scene, method, dict(options)
        self.made: dict[str, Any] = {}  # cached results of metrics, by metric

    def explaining(self, model: int) -> Case:
        """Return the same method for another explained model of the scene."""
        scene = self.scene.explaining(model)
        return self if scene is self.scene else Case(scene, self.method, self.options)

    def with_options(self, options: Mapping[str, Any]) -> Case:
        """Return the same case with some options changed."""
        return Case(self.scene, self.method, {**self.options, **options})

    @cached_property
    def measured(self) -> Measured:
        """The fitted attributor, its scores for the predicted class, and the cost of both.

        Features and gradients that methods share are read once, and count for each method.
        """
        scene = self.scene
        attributor = scene.attributor(self.method.kind, self.options)
        before = [shared.spent for shared in scene.shared(attributor).values()]
        result = measure(partial(scene.fit, attributor), scene.tests, torch.from_numpy(scene.explained))
        return result._replace(resources=result.resources.after(*before))

    @cached_property
    def scores(self) -> Doubles:
        """Scores (test, train)."""
        return self.measured.scores.cpu().numpy()

    @cached_property
    def attributor(self) -> Attributor:
        """The fitted attributor."""
        if "measured" in self.__dict__:
            return self.measured.attributor
        return self.scene.fit(self.scene.attributor(self.method.kind, self.options))

    @property
    def fitted(self) -> Attributor | None:
        """The attributor if it was fitted already, else None."""
        needed = "measured" in self.__dict__ or "attributor" in self.__dict__
        return self.attributor if needed else None

    def row(
        self, metric: str, quantity: str, value: float | None, x: float | None = None, note: str = ""
    ) -> Row:
        """Return a row of results."""
        return Row(metric, self.method.key, quantity, x, value, note)

    def rows_of(self, metric: str, values: Doubles, note: str = "") -> list[Row]:
        """Return rows for a metric that is a mean over tests or samples: the mean, and each value."""
        single = [self.row(metric, "each", float(v), i) for i, v in enumerate(values)]
        return [self.row(metric, "score", float(values.mean()), note=note), *single]

    def curve(self, metric: str, quantity: str, x: Iterable[float], y: Iterable[float]) -> list[Row]:
        """Return rows for the points of a curve; values that are not finite become None."""
        points = ((float(at), float(value)) for at, value in zip(x, y, strict=True))
        return [self.row(metric, quantity, v if math.isfinite(v) else None, at) for at, v in points]

    def resources(self) -> list[Row]:
        """Return the cost of the method; no rows if its scores were not computed."""
        if "measured" not in self.__dict__:
            return []
        costs = vars(self.measured.resources).items()
        return [self.row(COSTS, name, v) for name, v in costs if name != "n_tests" and v is not None]
