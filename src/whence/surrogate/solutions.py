"""Solutions of the surrogate's problem: solved, kept in the cache beside their bank, solved again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from whence.attribution.progress import gap_bar
from whence.core import contents, fingerprint, store
from whence.core.arrays import Array, Doubles, Floats, Ints, Mask
from whence.core.cache import Cache, Slot
from whence.core.checks import check_is, check_places, shown
from whence.errors import InvalidInputError, StoreError
from whence.features import FeatureBank, taken, teller
from whence.features.unit import row_lengths, unit_rows
from whence.model.heads import Head
from whence.surrogate.shards import solver
from whence.svm import CChoice, choose_C
from whence.svm.inputs import length
from whence.tasks import Task

if TYPE_CHECKING:
    from whence.attribution.surrogate_attributor import SurrogateAttributor


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
class SurrogateSolver:
    """Solves the problem of a task by the parameters of a method."""

    task: Task
    by: SurrogateAttributor

    loss: ClassVar[str] = "hinge"
    """What solutions in the cache are told apart by."""

    def of_features(
        self, features: Floats, labels: Array, head: Head | None, C: float | Literal["auto"]
    ) -> SurrogateSolution:
        """Choose C where that is asked for, and solve on the samples whose label is known."""
        some, choice = self.task.known(labels), None
        X, y = taken(features, some), labels[some]
        lengths = row_lengths(X) if self.by.normalise else None
        X = self._read(X)
        constant = self._constant(X)
        if C == "auto":
            choice = choose_C(
                X, y, head=head, lengths=lengths, show_progress=self.by.show_progress,
                **self._common(constant) | {"problem": self.task.problems},
            )  # fmt: skip
            C = choice.C
        settled = replace(self, task=self.task.with_choice(choice))
        solved = settled._solve(X, y, C, None, constant)
        return solved._replace(lam=for_all(solved.lam, some), choice=choice)

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
        options = {"loss": self.loss, "C": C, "bias": self.by.bias, "tol": self.by.tol, "seed": self.by.seed}
        options["normalise"] = self.by.normalise
        parts = {**bank.parts, "data features": f"{bank.features.shape} {bank.checksum}"}
        parts |= {name: str(value) for name, value in options.items()}
        solver = fingerprint.source("whence.svm", "whence.surrogate.solutions", "whence.features.unit")
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
        say = teller(self.by.show_progress)
        path = slot.path / "solution.safetensors"
        with slot.locked(say=say):
            note = "computed"
            if slot.complete:
                try:
                    solved = _read(path)
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
            if solved.gap <= self.by.tol:
                try:
                    with slot.filling(title):
                        _write(path, solved)
                except (OSError, StoreError) as error:  # a full disk must not cost the solution itself
                    note += f"; not kept ({error})"
                    say(f"Solution: {note}.")
        return solved._replace(note=note)

    def again(
        self, features: Floats, labels: Array, lam: csr_array, C: float, constant: float | None
    ) -> SurrogateSolution:
        """Solve on the samples whose label is known, from the λ (N, K) of a similar problem.

        ``constant`` carries the bias; None makes it as a fit does.
        """
        some = self.task.known(labels)
        X = self._read(taken(features, some))
        constant = self._constant(X) if constant is None else constant
        solved = self._solve(X, labels[some], C, lam[some], constant)
        return solved._replace(lam=for_all(solved.lam, some), note="solved again")

    def _solve(
        self, features: Floats, labels: Array, C: float, start: csr_array | None, constant: float
    ) -> SurrogateSolution:
        with gap_bar(self.by.tol, self.by.show_progress) as bar:
            found = solver(features, self.task)(
                features,
                labels,
                C=C,
                tol=self.by.tol,
                max_seconds=self.by.max_seconds,
                warm_start=start,
                callback=bar,
                **self._common(constant),
            )
        return SurrogateSolution(found.lam, found.weight, found.C, found.gap, None, constant)

    def _read(self, features: Floats) -> Floats:
        """Return features (N, d) as the surrogate reads them."""
        return unit_rows(features) if self.by.normalise else features

    def _constant(self, features: Floats) -> float:
        """Return what carries the bias, 0 without one.

        As long as the features: in any units, and with any offset common to all, the bias then costs as much,
        and counts as much in products of features, as the features do.
        """
        return length(features) if self.by.bias else 0.0

    def _common(self, constant: float) -> dict[str, Any]:
        task = {"problem": self.task.problem, "n_classes": self.task.n_outputs}
        return {**task, "bias": constant or False, "seed": self.by.seed, "n_threads": self.by.n_threads}


def for_all(lam: csr_array, some: Mask) -> csr_array:
    """Return λ (N, K) of all samples by that of those where a mask (N,) is True; the others have 0."""
    entries = np.zeros(len(some) + 1, dtype=lam.indptr.dtype)
    entries[1:][some] = np.diff(lam.indptr)
    return csr_array((lam.data, lam.indices, np.cumsum(entries)), shape=(len(some), lam.shape[1]))


def changed_labels(
    task: Task, labels: Array, n_rows: int, remove: Sequence[int], relabel: Mapping[int, Any]
) -> Array:
    """Return labels (N, …) with some samples left out, which are blank, and some other labels, or raise."""
    changed, known = labels.copy(), task.known(labels)
    if n_rows != len(labels):
        raise InvalidInputError(
            f"'features' must be those of all {len(labels):,} training samples. Got {n_rows:,} rows."
        )
    what = "a mapping of training samples to classes, such as {3: 0}"
    check_is("relabel", relabel, Mapping, what)
    for argument, indices in (("remove", remove), ("relabel", list(relabel))):
        wrong = [i for i in check_places(argument, indices, len(labels)).tolist() if not known[i]]
        if wrong:
            raise InvalidInputError(
                f"'{argument}' must name training samples in [0, {len(labels)}) that took part in the fit. "
                f"Got {wrong[0]}."
            )
    for index, label in relabel.items():
        try:
            changed[index] = task.encode([label])[0]
            task.check(changed[[index]], np.array([index]), task.n_outputs, "")
        except InvalidInputError as error:
            raise InvalidInputError(
                f"'relabel' must give {task.labels}. Got {shown(label)} for sample {index}."
            ) from error
    changed[check_places("remove", remove, len(labels))] = task.blank(1)[0]
    if not task.known(changed).any():
        raise InvalidInputError("'remove' must leave a training sample. Got all of them.")
    return changed


def _write(path: Path, solved: SurrogateSolution) -> None:
    lam = solved.lam
    arrays = {"data": lam.data, "indices": lam.indices, "indptr": lam.indptr, "weight": solved.weight}
    choice = None if solved.choice is None else dataclasses.asdict(solved.choice)
    manifest = {"shape": lam.shape, "C": solved.C, "gap": solved.gap, "constant": solved.constant}
    store.write(path, arrays, {**manifest, "choice": choice})


def _read(path: Path) -> SurrogateSolution:
    from whence.attribution.saved import SolutionManifest  # pydantic takes a while to import

    arrays, values = store.read(path)
    manifest = contents.manifest(SolutionManifest, values)
    n, K = manifest.shape
    contents.check_names(arrays, {"data", "indices", "indptr", "weight"})
    contents.check_floats(arrays, {"weight": (K, "columns")}, {})
    contents.check_rows(arrays, "", n, K)
    lam = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n, K))
    return SurrogateSolution(
        lam, arrays["weight"], manifest.C, manifest.gap, manifest.choice, manifest.constant
    )
