"""Solutions of the surrogate's problem: solved, kept in the cache next to their bank, solved again."""

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
from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.cache import Cache, Slot
from whence.core.progress import gap_bar
from whence.errors import StoreError
from whence.features import FeatureBank, taken, teller
from whence.features.rows import row_lengths, unit_rows
from whence.model.heads import Head
from whence.surrogate.shards import solver
from whence.svm import CChoice, choose_C
from whence.svm.inputs import length
from whence.svm.pairs import spread_rows
from whence.tasks import Task


class SurrogateSolution(NamedTuple):
    """What an explainer needs of a solution: λ (N, K), W (K, d[+1]), and how they were reached.

    ``note`` says where it comes from: computed, and why; reused; solved again.
    """

    lam: csr_array
    weight: Doubles
    C: float
    gap: float
    choice: CChoice | None
    constant: float
    note: str = "computed"

    @property
    def support(self) -> Ints:
        """The samples (S,) with λ_i ≠ 0, ascending."""
        return np.flatnonzero(np.diff(self.lam.indptr))


@dataclass(frozen=True)
class SolverOptions:
    """Hyper-parameters of a method that its solver needs; ``DualDA`` says what each means."""

    bias: bool
    tol: float
    seed: int
    n_threads: int | None
    max_seconds: float | None
    show_progress: bool
    normalise: bool = False


@dataclass(frozen=True)
class SurrogateSolver(ABC):
    """Solves the problem of a task with the options of a method."""

    task: Task
    options: SolverOptions

    loss: ClassVar[str]
    """Tells solutions in the cache apart."""

    def of_features(
        self, features: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        """Choose C where it is "auto", and solve on the samples whose label is known."""
        known = self.task.known(labels)
        solution = self._fit(taken(features, known), labels[known], head, C)
        return solution._replace(lam=spread_rows(solution.lam, np.flatnonzero(known), len(known)))

    def again(
        self, features: Floats, labels: Array, lam: csr_array, C: float, constant: float | None
    ) -> SurrogateSolution:
        """Solve on the samples whose label is known, from the λ (N, K) of a similar problem.

        ``constant`` carries the bias; None computes it as a fit does.
        """
        known = self.task.known(labels)
        solution = self._refit(taken(features, known), labels[known], lam[known], C, constant)
        return solution._replace(
            lam=spread_rows(solution.lam, np.flatnonzero(known), len(known)), note="solved again"
        )

    @abstractmethod
    def _fit(
        self, X: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        """Do the work of ``of_features``, all of whose labels are known."""

    @abstractmethod
    def _refit(
        self, X: Floats, labels: Array, lam: csr_array, C: float, constant: float | None
    ) -> SurrogateSolution:
        """Do the work of ``again``, all of whose labels are known."""

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

        if cache_dir is None or not bank.checksum:  # without which nobody could tell whose solution it is
            return now()
        hyper = self.options
        options = {"loss": self.loss, "C": C, "bias": hyper.bias, "tol": hyper.tol, "seed": hyper.seed}
        options["normalise"] = hyper.normalise
        parts = {**bank.parts, "data features": f"{bank.features.shape} {bank.checksum}"}
        parts |= {name: str(value) for name, value in options.items()}
        solver = fingerprint.source("whence.svm", "whence.surrogate.solving", "whence.features.rows")
        parts |= fingerprint.anatomy(self.task.problem, "problem")
        parts |= {name: str(value) for name, value in self.task.saved.items()}
        parts["code the solver"] = f"source {solver}"
        title = f"{type(bank.extractor.model).__qualname__}, {len(features):,} × {features.shape[1]}, " + (
            ", ".join(f"{name} {value}" for name, value in options.items())
        )
        return self._from_cache(Cache(cache_dir).slot("solution", parts), title, now)

    def _from_cache(
        self, slot: Slot, title: str, solve: Callable[[], SurrogateSolution]
    ) -> SurrogateSolution:
        """Take the solution from its place in the cache, or solve and put it there.

        A solution that did not reach ``tol`` is not kept: a longer run would have done better.
        """
        say = teller(self.options.show_progress)
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
                    note += f"; not kept ({error})"
                    say(f"Solution: {note}.")
        return solved._replace(note=note)

    def _constant(self, features: Floats) -> float:
        """Return what carries the bias, 0 without one.

        As long as the features: in any units, and with any offset common to all, the bias then costs as much,
        and counts as much in products of features, as the features do.
        """
        return length(features) if self.options.bias else 0.0


@dataclass(frozen=True)
class HingeSolver(SurrogateSolver):
    """Solves the support vector machine of a task."""

    loss: ClassVar[str] = "hinge"

    def _fit(
        self, X: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        lengths, choice = row_lengths(X) if self.options.normalise else None, None
        X = self._read(X)
        constant = self._constant(X)
        if C == "auto":
            choice = choose_C(
                X, labels, head=head, lengths=lengths, show_progress=self.options.show_progress,
                **self._common(constant) | {"problem": self.task.problems},
            )  # fmt: skip
            C = choice.C
        chosen = replace(self, task=self.task.with_choice(choice))
        return chosen._solve(X, labels, C, None, constant)._replace(choice=choice)

    def _refit(
        self, X: Floats, labels: Array, lam: csr_array, C: float, constant: float | None
    ) -> SurrogateSolution:
        X = self._read(X)
        return self._solve(X, labels, C, lam, self._constant(X) if constant is None else constant)

    def _solve(
        self, features: Floats, labels: Array, C: float, start: csr_array | None, constant: float
    ) -> SurrogateSolution:
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
        return SurrogateSolution(solution.lam, solution.weight, solution.C, solution.gap, None, constant)

    def _read(self, features: Floats) -> Floats:
        """Return features (N, d) as the surrogate reads them."""
        return unit_rows(features) if self.options.normalise else features

    def _common(self, constant: float) -> dict[str, Any]:
        task = {"problem": self.task.problem, "n_classes": self.task.n_outputs, "bias": constant or False}
        return {**task, "seed": self.options.seed, "n_threads": self.options.n_threads}


def _write(path: Path, solved: SurrogateSolution) -> None:
    lam = solved.lam
    arrays = {"data": lam.data, "indices": lam.indices, "indptr": lam.indptr, "weight": solved.weight}
    choice = None if solved.choice is None else dataclasses.asdict(solved.choice)
    manifest = {"shape": lam.shape, "C": solved.C, "gap": solved.gap, "constant": solved.constant}
    store.write(path, arrays, {**manifest, "choice": choice})


@dataclass(frozen=True)
class SolutionManifest:
    """What a solution in the cache has besides its arrays."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    shape: tuple[int, int]
    C: float
    gap: float
    constant: float
    choice: CChoice | None


def read_solution(path: Path) -> SurrogateSolution:
    """Read a solution from the cache, or raise StoreError."""
    arrays, values = store.read(path)
    manifest = contents.manifest(SolutionManifest, values)
    n, K = manifest.shape
    if manifest.C <= 0 or manifest.constant < 0 or n < 0:
        raise contents.refused("'C' must be above 0, and 'constant' and 'shape' nowhere below 0")
    contents.check_names(arrays, {"data", "indices", "indptr", "weight"})
    contents.check_floats(arrays, {"weight": (K, "columns")}, {})
    contents.check_rows(arrays, "", n, K)
    lam = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n, K))
    return SurrogateSolution(
        lam, arrays["weight"], manifest.C, manifest.gap, manifest.choice, manifest.constant
    )
