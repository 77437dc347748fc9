"""The metrics of the evaluation, each a function of one method fitted in one scene."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch

from whence import attributors
from whence.attributors import Attributor, DualDA
from whence.attributors.dual.surrogate import Faithfulness
from whence.attributors.points.representer import PointsAttributor
from whence.attributors.random import RandomAttributor
from whence.data import as_training_set
from whence.evaluate.metrics.arrays import Doubles
from whence.evaluate.metrics.faithfulness import (
    sparsified_faithfulness,
    support_counts,
    surrogate_faithfulness,
)
from whence.evaluate.metrics.resources import Measured, measure
from whence.evaluate.metrics.scores import (
    identical_class,
    identical_subclass,
    mislabeling_curve,
    mislabeling_placements,
    shortcut_ap,
)
from whence.evaluate.metrics.sparsity import sparsity_curve
from whence.evaluate.scenes import networks
from whence.evaluate.scenes.workshop import Scene
from whence.evaluate.suite.caught import caught_shortcuts
from whence.evaluate.suite.protocol import RANDOM, Method
from whence.evaluate.suite.results import Row
from whence.features import extract

# With features that are nowhere negative, only samples of the class can score above zero for it.
_BY_CONSTRUCTION = ("dualda", "representer", "hingerp", "similarity")
_SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_POINTS = 101  # of a curve that is drawn


class Case:
    """A method in a scene, fitted when it is first needed, and then once.

    Parameters
    ----------
    scene
        The training set, the tests and the model.
    method
        The method.
    options
        Of its constructor, with those that were chosen.
    common
        Options for every method that has them, such as a seed.
    sparse
        Options of the DualDA whose sparsity others are brought to.
    """

    def __init__(
        self,
        scene: Scene,
        method: Method,
        options: Mapping[str, Any],
        common: Mapping[str, Any],
        sparse: tuple[dict[str, Any], ...] = (),
    ) -> None:
        self.scene, self.method, self.options, self.common = scene, method, dict(options), dict(common)
        self.sparse = sparse

    cpu_seconds: float

    def fit(self) -> Attributor:
        """Make and fit the attributor."""
        kind = RandomAttributor if self.method.name == RANDOM else attributors.get(self.method.name)
        return _fitted(kind, {**self.common, **self.options}, self.scene)

    @cached_property
    def measured(self) -> Measured:
        """The fitted attributor, its scores for the class that the model predicts, and what both cost."""
        started = time.process_time()
        found = measure(self.fit, self.scene.tests, torch.from_numpy(self.scene.explained))
        self.cpu_seconds = time.process_time() - started
        return found

    @cached_property
    def scores(self) -> Doubles:
        """Scores (test, train)."""
        scores: Doubles = self.measured.scores.cpu().numpy()
        return scores

    @cached_property
    def attributor(self) -> Attributor:
        """The fitted attributor."""
        return self.measured.attributor if "measured" in self.__dict__ else self.fit()

    def row(
        self, metric: str, quantity: str, value: float | None, x: float | None = None, note: str = ""
    ) -> Row:
        """Give a row of results."""
        return Row(metric, self.method.key, quantity, x, value, note)

    def rows_of(self, metric: str, values: Doubles, note: str = "") -> list[Row]:
        """Give rows for a metric that is a mean over tests or samples: the mean, and each."""
        each = [self.row(metric, "each", float(v), i) for i, v in enumerate(values)]
        return [self.row(metric, "score", float(values.mean()), note=note), *each]

    def resources(self) -> list[Row]:
        """What the method cost."""
        found = self.measured.resources
        values = {
            "fit_seconds": found.fit_seconds,
            "explain_seconds": found.explain_seconds,
            "cpu_seconds": self.cpu_seconds,  # of both; other jobs on the machine do not count
            "cache_bytes": found.cache_bytes,
            "peak_bytes": found.peak_bytes,
            "peak_device_bytes": found.peak_device_bytes,
        }
        return [self.row("resources", name, v) for name, v in values.items() if v is not None]


def _fitted(kind: type[Attributor], options: Mapping[str, Any], scene: Scene) -> Attributor:
    taken = inspect.signature(kind).parameters
    attributor = kind(**{name: value for name, value in options.items() if name in taken})
    extra: dict[str, Any] = {}
    if kind.limits.needs_checkpoints:
        extra = {
            "checkpoints": scene.trained.checkpoints,
            "learning_rates": scene.trained.learning_rates,
        }
    return attributor.fit(scene.trained.model, scene.data, **extra)


def _identical_class(case: Case, options: Mapping[str, Any]) -> list[Row]:
    scene = case.scene
    note = ""
    values = identical_class(case.scores, scene.explained, scene.labels, options["k"])
    if case.method.name in _BY_CONSTRUCTION and _never_negative(scene):
        note = "by construction: features are nowhere negative, so no other class can score above zero"
        if values.min() < 1:
            note += f"; below 1 where fewer than {options['k']} samples of the class score at all"
    return [*case.rows_of("identical_class", values, note), *case.resources()]


def _identical_subclass(case: Case, options: Mapping[str, Any]) -> list[Row]:
    train, test = case.scene.subclasses
    return case.rows_of("identical_subclass", identical_subclass(case.scores, test, train, options["k"]))


def _mislabeling(case: Case, options: Mapping[str, Any]) -> list[Row]:
    influence = case.attributor.self_influence().cpu().numpy()
    constant = bool(np.ptp(influence) <= 1e-5 * np.abs(influence).max())
    if constant:  # what is left is rounding
        influence = np.ones_like(influence)
    placements = mislabeling_placements(influence, case.scene.marked)
    curve = mislabeling_curve(influence, case.scene.marked)
    x = np.linspace(0, 1, _POINTS)
    points = zip(x, np.interp(x, curve.inspected, curve.found), strict=True)
    note = "0.5 by construction: every sample has the same self-influence" if constant else ""
    return [
        *case.rows_of("mislabeling", placements, note),
        *(case.row("mislabeling", "curve", float(y), float(at)) for at, y in points),
    ]


def _too_weak(scene: Scene) -> str:
    """Say so where a shortcut fools fewer tests than a score should be measured on."""
    facts = scene.facts
    if facts["fooled"] >= facts["needed"]:
        return ""
    return (
        f"the shortcut fooled {facts['fooled']:.0%} of the tests of other classes "
        f"({facts['n_fooled']:.0f}), less than the {facts['needed']:.0%} wanted"
    )


def _keywords(case: Case, options: Mapping[str, Any]) -> list[Row]:
    """Average precision of the scores summed over all tests, as in the paper's experiment on texts."""
    score = shortcut_ap(case.scores.sum(axis=0, keepdims=True, dtype=np.float64), case.scene.marked)
    row = case.row("keywords", "score", float(score[0]), note=_too_weak(case.scene))
    return [row, *_caught(case, "keywords", options)]


def _shortcut(case: Case, options: Mapping[str, Any]) -> list[Row]:
    note = _too_weak(case.scene)
    if not case.scene.facts["n_fooled"]:
        return [case.row("shortcut", "score", None, note=note)]
    rows = case.rows_of("shortcut", shortcut_ap(case.scores, case.scene.marked), note)
    return [*rows, *_caught(case, "shortcut", options)]


def _caught(case: Case, metric: str, options: Mapping[str, Any]) -> list[Row]:
    """Tell whether DualDA's pairs of caught shortcuts have their relevance on the shortcut."""
    fitted = case.attributor
    if not isinstance(fitted, DualDA) or case.method.sweep:
        return []
    found = caught_shortcuts(case.scene, fitted, case.scores, options["maps"])
    return [case.row(metric, one.quantity, one.value, one.x, one.note) for one in found]


def _sparsity(case: Case, options: Mapping[str, Any]) -> list[Row]:
    curve = sparsity_curve(case.scores, _SHARES)
    return [
        case.row("sparsity", kind, float(y) if np.isfinite(y) else None, float(x))
        for kind in ("absolute", "positive", "negative")
        for x, y in zip(curve.shares, getattr(curve, kind), strict=True)
    ]


def _faithfulness(case: Case, options: Mapping[str, Any]) -> list[Row]:
    """Compare the surrogate's layer with the model's; of Representer Points also at DualDA's sparsity."""
    scene, fitted = case.scene, case.attributor
    if not isinstance(fitted, DualDA | PointsAttributor):
        return []
    train = extract(scene.trained.model, as_training_set(scene.data), show_progress=False)
    empty = torch.zeros(len(scene.tests), dtype=torch.int64)
    test = extract(scene.trained.model, as_training_set((scene.tests, empty)), show_progress=False)
    head = train.extractor.head()
    pair = head.weight, head.bias
    rows = _faithful_rows(case.method.key, surrogate_faithfulness(fitted.coef_, pair, test.features))
    if isinstance(fitted, PointsAttributor) and case.method.name == "representer":
        for sparse in case.sparse:
            dense = _fitted(DualDA, {**case.common, **sparse}, scene)
            assert isinstance(dense, DualDA)
            counts = support_counts(dense.lam_)
            found = sparsified_faithfulness(
                fitted.alpha_, counts, train.features, pair, test.features, bias=fitted.bias
            )
            key = f"{case.method.key} sparsified as dualda(C={sparse['C']})"
            rows += _faithful_rows(key, found)
    return rows


def _faithful_rows(key: str, found: Faithfulness) -> list[Row]:
    names = ("agreement", "mcc", "weight_cosine", "logit_cosine")
    return [Row("faithfulness", key, name, None, getattr(found, name)) for name in names]


def _surrogate(case: Case, options: Mapping[str, Any]) -> list[Row]:
    """Tell how DualDA's surrogate fits, what it cost, and how many support vectors each class has."""
    fitted, scene = case.attributor, case.scene
    if not isinstance(fitted, DualDA):
        return []
    model = scene.trained.model
    known, unknown = fitted.predict(scene.inputs).cpu().numpy(), fitted.predict(scene.tests).cpu().numpy()
    said = networks.logits(model, scene.inputs).argmax(1).numpy()
    values = {
        "C": fitted.C_,
        "train_accuracy": (known == scene.labels).mean(),
        "test_accuracy": (unknown == scene.test_labels).mean(),
        "train_agreement": (known == said).mean(),
        "test_agreement": (unknown == scene.explained).mean(),
        "solve_seconds": fitted.seconds_["solution"],
        "support_vectors": len(fitted.support_),
        "gap": fitted.gap_,
    }
    a_class = np.bincount(scene.labels[fitted.support_], minlength=fitted.n_classes_)
    return [
        *(case.row("surrogate", name, float(v)) for name, v in values.items()),
        *(case.row("surrogate", "support_vectors_a_class", int(n), c) for c, n in enumerate(a_class)),
    ]


def _never_negative(scene: Scene) -> bool:
    features = extract(scene.trained.model, as_training_set(scene.data), show_progress=False).features
    return bool(np.asarray(features).min() >= 0)


MEASURES: dict[str, Callable[[Case, Mapping[str, Any]], list[Row]]] = {
    "identical_class": _identical_class,
    "identical_subclass": _identical_subclass,
    "mislabeling": _mislabeling,
    "shortcut": _shortcut,
    "keywords": _keywords,
    "sparsity": _sparsity,
    "faithfulness": _faithfulness,
    "surrogate": _surrogate,
}
"""Metrics that need no retraining, by name."""
