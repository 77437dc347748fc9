"""Solutions of the surrogate's problem, with a cache, and re-solving."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from whence.core import contents, fingerprint, store
from whence.core.arrays import Array, Doubles, Floats, Ints, Mask
from whence.core.cache import Cache, Slot
from whence.core.progress import gap_bar
from whence.errors import StoreError
from whence.features import FeatureBank, make_printer, taken
from whence.features.metric import (
    MAP_ARRAYS,
    FeatureMap,
    LearnsMap,
    MapFacts,
    MetricName,
    choose_metric,
    learn_map,
    saved_metric,
)
from whence.features.rows import blocks
from whence.model.heads import Head
from whence.surrogate.shards import solver
from whence.svm import CChoice, choose_C
from whence.svm.inputs import length
from whence.svm.pairs import spread_rows
from whence.tasks import Task


class SurrogateSolution(NamedTuple):
    """A solution: λ (N, K), W (K, d[+1]), and how they were computed.

    ``metric`` is the map of the features; ``means`` (1, d), or (1 + K, d) for classes, are the mean of the
    transformed features, and the mean of each class. ``note`` says where the solution comes from:
    computed, and why; reused; re-solved.
    """

    lam: csr_array
    weight: Doubles
    C: float
    gap: float
    choice: CChoice | None
    constant: float
    metric: FeatureMap
    means: Doubles
    note: str = "computed"

    @property
    def support(self) -> Ints:
        """The samples (S,) with λ_i ≠ 0, ascending."""
        return np.flatnonzero(np.diff(self.lam.indptr))


class Solved(NamedTuple):
    """A solution on transformed features; fields are those of ``SurrogateSolution``."""

    lam: csr_array
    weight: Doubles
    C: float
    gap: float
    choice: CChoice | None
    constant: float


class ReadRows(NamedTuple):
    """The rows to solve on: transformed and raw features (M, d), and labels."""

    read: Floats
    raw: Floats
    labels: Array


@dataclass(frozen=True)
class SolverOptions:
    """Hyper-parameters of a method for its solver; see ``DualDA``."""

    bias: bool
    tol: float
    seed: int
    n_threads: int | None
    max_seconds: float | None
    show_progress: bool
    metric: MetricName | LearnsMap = "raw"


@dataclass(frozen=True)
class SurrogateSolver(ABC):
    """Solves the problem of a task with the options of a method."""

    task: Task
    options: SolverOptions

    loss: ClassVar[str]
    """Name of the loss in the cache key."""

    def of_features(
        self, features: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        """Choose C if it is "auto", and solve on the samples with known labels."""
        known = self.task.known(labels)
        X, y = taken(features, known), labels[known]
        metric = learn_map(self._metric, X)
        Z = metric.rows(X)
        solved = self._fit(ReadRows(Z, X, y), head, C)
        return self._whole(solved, known, metric, Z, y)

    def again(
        self,
        features: Floats,
        labels: Array,
        lam: csr_array,
        C: float,
        constant: float | None = None,
        metric: FeatureMap | None = None,
    ) -> SurrogateSolution:
        """Solve on the samples with known labels, from the λ (N, K) of a similar problem.

        ``constant`` is the feature of the bias, and ``metric`` the map of the features; None computes them as
        in a fit.
        """
        known = self.task.known(labels)
        X, y = taken(features, known), labels[known]
        metric = learn_map(self._metric, X) if metric is None else metric
        Z = metric.rows(X)
        solved = self._refit(ReadRows(Z, X, y), lam[known], C, constant)
        return self._whole(solved, known, metric, Z, y)._replace(note="re-solved")

    @property
    def _metric(self) -> MetricName | LearnsMap:
        return choose_metric(self.options.metric, self.task.label_kind)

    def _whole(
        self, solved: Solved, known: Mask, metric: FeatureMap, Z: Floats, labels: Array
    ) -> SurrogateSolution:
        """Expand a solution on the samples with known labels to all samples."""
        lam = spread_rows(solved.lam, np.flatnonzero(known), len(known))
        return SurrogateSolution(
            lam, solved.weight, solved.C, solved.gap, solved.choice, solved.constant, metric,
            _means(self.task, Z, labels),
        )  # fmt: skip

    @abstractmethod
    def _fit(self, rows: ReadRows, head: Head | None, C: float | Literal["auto"]) -> Solved:
        """Solve for ``of_features``; all labels are known."""

    @abstractmethod
    def _refit(self, rows: ReadRows, lam: csr_array, C: float, constant: float | None) -> Solved:
        """Solve for ``again``; all labels are known."""

    def of_bank(
        self,
        bank: FeatureBank,
        features: Floats,
        C: float | Literal["auto"],
        cache_dir: str | PathLike[str] | None,
    ) -> SurrogateSolution:
        """Solve on a bank's ``features``, or take the solution from the cache."""

        def now() -> SurrogateSolution:
            solved = self.of_features(features, bank.labels, bank.head, C)
            bank.verify()
            return solved

        hyper = self.options
        metric = saved_metric(self._metric)
        # Without a checksum, or with a user's own metric, there is no cache key.
        if cache_dir is None or not bank.checksum or metric is None:
            return now()
        options = {"loss": self.loss, "C": C, "bias": hyper.bias, "tol": hyper.tol, "seed": hyper.seed}
        options["metric"] = metric
        parts = {**bank.parts, "data features": f"{bank.features.shape} {bank.checksum}"}
        parts |= {name: str(value) for name, value in options.items()}
        solver = fingerprint.source(
            "whence.svm", "whence.surrogate.solving", "whence.features.metric", "whence.features.rows"
        )
        problem = fingerprint.Digest()
        parts["data problem"] = problem.of(self.task.problem)
        parts |= {name: str(value) for name, value in self.task.saved.items()}
        parts["code the solver"] = f"source {solver}"
        title = f"{type(bank.extractor.model).__qualname__}, {len(features):,} × {features.shape[1]}, " + (
            ", ".join(f"{name} {value}" for name, value in options.items())
        )
        if problem.unread:  # of a task of the user's
            return now()
        return self._from_cache(Cache(cache_dir).slot("solution", parts), title, now)

    def _from_cache(
        self, slot: Slot, title: str, solve: Callable[[], SurrogateSolution]
    ) -> SurrogateSolution:
        """Read the solution from the cache, or solve and store it.

        A solution that did not reach ``tol`` is not stored: a longer run would improve it.
        """
        say = make_printer(self.options.show_progress)
        path = slot.path / "solution.safetensors"
        with slot.locked(say=say):
            note = "computed"
            if slot.complete:
                try:
                    solved = read_solution(path)
                except StoreError as error:
                    note = f"computed again, since the cached one is damaged: {error}"
                else:
                    say(f"Solution: reused ({slot.path}).")
                    return solved._replace(note="reused")
            elif why := slot.why_new():
                note = f"computed, since {why}"
            if note != "computed":
                say(f"Solution: {note}.")
            solved = solve()
            if solved.gap <= self.options.tol:
                try:
                    with slot.filling(title):
                        _write(path, solved)
                except (OSError, StoreError) as error:  # a full disk must not cost the solution itself
                    note += f"; not stored ({error})"
                    say(f"Solution: {note}.")
        return solved._replace(note=note)

    def _constant(self, features: Floats) -> float:
        """Return the constant feature of the bias, 0 without one.

        It is as long as the features, so that the bias has the same cost, and the same weight in products, as
        the features, in any units.
        """
        return length(features) if self.options.bias else 0.0


@dataclass(frozen=True)
class HingeSolver(SurrogateSolver):
    """Solves the support vector machine of a task."""

    loss: ClassVar[str] = "hinge"

    def _fit(self, rows: ReadRows, head: Head | None, C: float | Literal["auto"]) -> Solved:
        Z, raw, labels = rows
        constant, choice = self._constant(Z), None
        if C == "auto":
            choice = choose_C(
                Z, labels, head=head, head_features=None if raw is Z else raw,
                show_progress=self.options.show_progress,
                **self._common(constant) | {"problem": self.task.problems},
            )  # fmt: skip
            C = choice.C
        chosen = replace(self, task=self.task.with_choice(choice))
        return chosen._solve(Z, labels, C, None, constant)._replace(choice=choice)

    def _refit(self, rows: ReadRows, lam: csr_array, C: float, constant: float | None) -> Solved:
        constant = self._constant(rows.read) if constant is None else constant
        return self._solve(rows.read, rows.labels, C, lam, constant)

    def _solve(
        self, features: Floats, labels: Array, C: float, start: csr_array | None, constant: float
    ) -> Solved:
        with gap_bar(self.options.tol, self.options.show_progress) as bar:
            solution = solver(features, self.task)(
                features,
                labels,
                C=C,
                tol=self.options.tol,
                max_seconds=self.options.max_seconds,
                warm_start=start,
                callback=bar,
                **self._common(constant),
            )
        return Solved(solution.lam, solution.weight, solution.C, solution.gap, None, constant)

    def _common(self, constant: float) -> dict[str, Any]:
        task = {"problem": self.task.problem, "n_classes": self.task.n_outputs, "bias": constant or False}
        return {**task, "seed": self.options.seed, "n_threads": self.options.n_threads}


def _write(path: Path, solved: SurrogateSolution) -> None:
    lam = solved.lam
    arrays = {
        "data": lam.data,
        "indices": lam.indices,
        "indptr": lam.indptr,
        "weight": solved.weight,
        "means": solved.means,
        **solved.metric.arrays,
    }
    manifest = {"shape": lam.shape, "C": solved.C, "gap": solved.gap, "constant": solved.constant}
    choice = None if solved.choice is None else dataclasses.asdict(solved.choice)
    store.write(path, arrays, {**manifest, "choice": choice, "reading": solved.metric.facts})


@dataclass(frozen=True)
class SolutionManifest:
    """The manifest of a cached solution, besides its arrays."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    shape: tuple[int, int]
    C: float
    gap: float
    constant: float
    choice: CChoice | None
    reading: MapFacts


def read_solution(path: Path) -> SurrogateSolution:
    """Read a solution from the cache, or raise StoreError."""
    arrays, values = store.read(path)
    manifest = contents.manifest(SolutionManifest, values)
    n, K = manifest.shape
    if manifest.C <= 0 or manifest.constant < 0 or n < 0:
        raise contents.refused("'C' must be above 0, and 'constant' and 'shape' must not be negative")
    maps = {f"metric_{name}" for name in MAP_ARRAYS}
    contents.check_names(arrays, {"data", "indices", "indptr", "weight", "means"}, maps)
    sizes: contents.Sizes = {}
    contents.check_floats(arrays, {"weight": (K, "columns"), "means": ("means", "d")}, sizes)
    metric = FeatureMap.restored(arrays, manifest.reading, sizes["d"])
    contents.check_rows(arrays, "", n, K)
    lam = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n, K))
    return SurrogateSolution(
        lam, arrays["weight"], manifest.C, manifest.gap, manifest.choice, manifest.constant, metric,
        arrays["means"],
    )  # fmt: skip


def _means(task: Task, Z: Floats, labels: Array) -> Doubles:
    """Return the mean (1, d) of transformed features, followed by that of each class, if any."""
    n, d = Z.shape
    if not task.has_classes or task.of_documents:
        total = sum((block.sum(axis=0, dtype=np.float64) for block in blocks(Z)), np.zeros(d))
        return np.asarray(total / n)[None]
    counts = np.bincount(labels, minlength=task.n_outputs)
    sums = np.zeros((task.n_outputs, d))
    for block, classes in zip(blocks(Z), blocks(labels, Z), strict=True):
        m = len(block)
        of_class = csr_array((np.ones(m), (classes, np.arange(m))), shape=(task.n_outputs, m))
        sums += of_class @ block
    return np.vstack([sums.sum(axis=0)[None] / n, sums / np.maximum(counts, 1)[:, None]])
