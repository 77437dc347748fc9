"""Run a protocol: every finished cell is stored, and a stopped run resumes."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from whence.core import contents, store
from whence.core.arrays import Array
from whence.core.cache import Cache, Slot
from whence.core.fingerprint import Digest, source
from whence.core.naming import import_named
from whence.engine import limited
from whence.errors import StoreError, WhenceError
from whence_studies.scenes import networks
from whence_studies.scenes.datasets import SOURCES
from whence_studies.scenes.workshop import Scene, Workshop
from whence_studies.suite import results
from whence_studies.suite.case import Case
from whence_studies.suite.costs import Meter, cell_seconds, scene_seconds, training_seconds
from whence_studies.suite.metric import Metric
from whence_studies.suite.protocol import Method, Protocol
from whence_studies.suite.results import COSTS, ERROR, Results, Row

_PACKAGES = [
    "attribution",
    "audit",
    "core",
    "data",
    "gradients",
    "methods",
    "metrics",
    "features",
    "model",
    "relevance",
    "surrogate",
    "svm",
    "tasks",
]
"""Packages whose code the numbers depend on."""


def run(
    protocol: Protocol,
    folder: Path,
    out: Path,
    *,
    show_progress: bool = True,
    say: Callable[[str], Any] = print,
) -> Results:
    """Run a protocol and write its results to ``out/results.parquet``.

    Parameters
    ----------
    protocol
        The protocol.
    folder
        Folder with the data sets.
    out
        Folder for results, finished cells, models and features; finished parts are not computed again.
    show_progress
        Show a progress bar.
    say
        Function that prints a line when a scene starts, when a method fails, and, without a progress bar, at
        every tenth of the work.
    """
    out.mkdir(parents=True, exist_ok=True)
    with limited(protocol.threads):
        results_of_run = _Runner(protocol, folder, out, show_progress, say).run()
    results.write(out / "results.parquet", results_of_run)
    return results_of_run


class Cells:
    """Cache of the rows of a metric and a method.

    Parameters
    ----------
    cache
        The cache.
    common
        Dependencies of all cells: data, seed, training, code, versions.
    """

    def __init__(self, cache: Cache, common: Mapping[str, Any]) -> None:
        self.cache, self.common = cache, common

    def slot(self, parts: Mapping[str, Any]) -> Slot:
        """Return the cache slot of a cell; ``parts`` identify it."""
        both = {**self.common, **parts}
        texts = {name: json.dumps(value, sort_keys=True, default=str) for name, value in both.items()}
        return self.cache.slot("cell", texts)

    def read(self, parts: Mapping[str, Any]) -> list[Row] | None:
        """Return a cell's rows; None if it is unfinished or damaged."""
        slot = self.slot(parts)
        try:
            text = (slot.path / "rows.json").read_text(encoding="utf-8") if slot.complete else ""
            return contents.manifest(list[Row], json.loads(text))
        except (OSError, ValueError, RecursionError, StoreError):
            return None

    def scores(self, parts: Mapping[str, Any]) -> Array | None:
        """Return the scores that were stored with a cell, if any."""
        try:
            arrays, _ = store.read(self.slot(parts).path / "scores.safetensors")
        except FileNotFoundError:
            return None
        contents.check_names(arrays, {"scores"})
        return arrays["scores"]

    def write(self, rows: list[Row], parts: Mapping[str, Any], title: str, scores: Array | None) -> None:
        """Store a cell's rows, and scores if needed later; a failed cell is not stored and tried again."""
        if any(row.quantity == ERROR for row in rows):
            return
        slot = self.slot(parts)
        with slot.locked(), slot.filling(title) as folder:
            store.write_text(folder / "rows.json", json.dumps(rows, allow_nan=False))
            if scores is not None:
                store.write(folder / "scores.safetensors", {"scores": np.asarray(scores)}, {})


class _Runner:
    """Runs scenes, methods and metrics; a scene is only made if a cell is missing."""

    def __init__(
        self, protocol: Protocol, folder: Path, out: Path, show_progress: bool, say: Callable[[str], Any]
    ) -> None:
        self.protocol, self.say = protocol, say
        kept, self.code = Cache(out / "cache"), source(*(f"whence.{package}" for package in _PACKAGES))
        common = {
            "data": [protocol.data.name, protocol.data.held_out, protocol.seed],
            "training": protocol.model,
            "code": self.code,
            "code of data and training": _own_code(protocol),
            "torch": version("torch"),
        }
        self.cells = Cells(kept, common)
        self.workshop = Workshop(protocol, folder, kept, show_progress)
        self.chosen: dict[str, dict[str, Any]] = {}
        self.meter = Meter(protocol, show_progress, say)

    def run(self) -> Results:
        rows: list[Row] = []
        with self.meter:
            for metrics in self.protocol.scenes().values():
                with (
                    self.meter.part(scene_seconds(self.protocol, metrics)),
                    self.meter.training(training_seconds(self.protocol, metrics[0])),
                ):
                    rows += self._scene_rows(metrics)
        rows = _first_costs(rows)
        order = {method.key: place for place, method in enumerate(self.protocol.methods)}
        rows.sort(key=lambda row: (row.metric, order.get(row.method, len(order))))
        made_by = {**results.versions(), "code": self.code}
        return Results(tuple(rows), self.protocol.as_dict(), made_by)

    def _scene_rows(self, metrics: list[str]) -> list[Row]:
        """Measure all methods in the scene of some metrics."""
        scene = cache(partial(self._scene, metrics[0]))
        rows: list[Row] = []
        for metric in metrics:
            for method in self.protocol.methods if self.protocol.metrics[metric].chooses else ():
                rows += self._choose(scene, metric, method) if method.tune else []
        for method in self.protocol.methods:
            rows += self._method(scene, metrics, method)
        return rows + self._whole(scene, metrics)

    def _scene(self, metric: str) -> Scene:
        scene, name = self.workshop.scene(metric), self.protocol.scene(metric).name
        self.say(f"{name}: {len(scene.inputs):,} samples; {self.meter.share:.0%} of the work is done")
        return scene

    def _guarded(self, metric: str, method: Method, work: Callable[[], list[Row]]) -> list[Row]:
        """Do the work of a cell, and record an error and warnings in its rows."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                rows = [_finite(row) for row in work()]
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                self.say(f"{method.label} failed at {metric}: {reason}")
                rows = [Row(metric, method.key, ERROR, None, None, reason)]
        texts = dict.fromkeys(str(warning.message) for warning in caught)
        return [*rows, *(Row(metric, method.key, "warning", None, None, text) for text in texts)]

    def _choose(self, scene: Callable[[], Scene], name: str, method: Method) -> list[Row]:
        """Tune a method's options, for all scenes."""
        metric = self.protocol.metrics[name]
        parts = {**self._parts(name, method), "method": method, "what": "tuning"}
        rows = self.cells.read(parts)
        if rows is None:
            rows = self._guarded(
                "tuning", method, lambda: metric.choose(Case(scene(), method, method.options))
            )
            self.cells.write(rows, parts, f"{method.label}, tuned by {name}", None)
        notes = [row.note for row in rows if row.quantity == "chosen"]
        if notes:
            self.chosen[method.key] = json.loads(notes[0])
        return rows

    def _method(self, scene: Callable[[], Scene], metrics: list[str], method: Method) -> list[Row]:
        """Measure one method by all metrics of a scene, with one fit."""
        rows: list[Row] = []
        case: Case | None = None
        for name in metrics:
            if not self.protocol.takes_part(name, method):
                continue
            parts = self._parts(name, method)
            with self.meter.part(cell_seconds(self.protocol, name, method)):
                of_cell = self.cells.read(parts)
                if of_cell is None:
                    case = case or Case(scene(), method, self._options(method))
                    metric = self.protocol.metric(name, method)
                    of_cell = self._guarded(metric.name, method, partial(self._measure, case, metric))
                    worked = all(row.quantity != ERROR for row in of_cell)
                    kept = metric.to_compare(case) if metric.compares and worked else None
                    self.cells.write(of_cell, parts, f"{metric.name}, {method.label}", kept)
            rows += of_cell
        return rows

    def _measure(self, case: Case, metric: Metric) -> list[Row]:
        if case.method.tune and case.method.key not in self.chosen:
            raise WhenceError("the tuning of its options failed")
        rows = [*metric.measure(case), *case.resources()]
        kappa = getattr(case.fitted, "kappa_", None)
        return rows if kappa is None else [*rows, case.row(metric.name, "kappa", kappa)]

    def _whole(self, scene: Callable[[], Scene], names: list[str]) -> list[Row]:
        """Return facts about the scene, and comparisons of all methods by metrics."""
        methods = [method for method in self.protocol.methods if not method.sweep]
        metrics = {name: self.protocol.metrics[name] for name in names}
        compared: dict[str, dict[str, Any]] = {}
        for name in (name for name, metric in metrics.items() if metric.compares):
            of_methods = {method.key: self.cells.scores(self._parts(name, method)) for method in methods}
            compared[name] = {key: scores for key, scores in of_methods.items() if scores is not None}
        # The comparison depends on which methods have scores.
        with_scores = {
            name: [[m.key, self._options(m)] for m in methods if m.key in scores]
            for name, scores in compared.items()
        }
        spec = self.protocol.scene(names[0])
        parts = {"what": "scene", "scene": spec, "metric": metrics, "method": with_scores}
        if spec.of is not None:
            parts["code of the scene"] = Digest().of(type(metrics[spec.of]))
        rows = self.cells.read(parts)
        if rows is None:
            rows = [Row("scene", spec.name, fact, None, float(v)) for fact, v in scene().facts.items()]
            for name, scores in compared.items():
                rows += metrics[name].compare(scene(), scores) if scores else []  # where all failed
            self.cells.write(rows, parts, f"the {spec.name} scene", None)
        return rows

    def _options(self, method: Method) -> dict[str, Any]:
        return {**method.options, **self.chosen.get(method.key, {})}

    def _parts(self, name: str, method: Method) -> dict[str, Any]:
        """Return what a cell depends on besides the common parts."""
        metric = self.protocol.metric(name, method)
        return {
            "what": "metric",
            "scene": self.protocol.scene(name),
            "metric": [name, metric, metric.depends(self.protocol)],
            "method": [method.key, self._options(method)],
            # For a user's own; our code is common to all cells.
            "code of metric and method": Digest().of([type(metric), method.kind]),
        }


def _first_costs(rows: list[Row]) -> list[Row]:
    """Keep the first costs of a method: every metric that needs its scores records them."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.metric == COSTS:
            first.setdefault((row.method, row.quantity), row)
    return [*(row for row in rows if row.metric != COSTS), *first.values()]


def _own_code(protocol: Protocol) -> str:
    """Return the digest of the code of the data source, the network and the training, which may be own."""
    name, train = protocol.data.name, protocol.model.train
    data = SOURCES.get(name) if name in SOURCES else import_named("data.name", name)
    network = networks.find(protocol.model.name)
    return Digest().of([data, network, None if train is None else import_named("model.train", train)])


def _finite(row: Row) -> Row:
    """Return a row whose value is finite or None, for JSON."""
    if row.value is None or math.isfinite(row.value):
        return row
    return row._replace(value=None, note=f"{row.note} not finite: {row.value}".strip())
