"""The surrogate solved on random halves of the training set, as many as it takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, vstack

from whence import engine
from whence.attributors.effects.shift import Solved
from whence.core import contents, fingerprint, store
from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.core.cache import Cache, Parts
from whence.errors import ConvergenceWarning, StoreError
from whence.svm.linearised import Linearised
from whence.svm.subsets import Subsets

CHUNK = 16
"""Halves that are solved, and kept in the cache, at a time."""

TOL = 1e-6
"""Duality gap of a half: below it effects stay as they are."""


@dataclass(frozen=True, eq=False)
class Halves:
    """Solves a surrogate on random halves of its samples.

    Attributes
    ----------
    features : (N, d) float32
    labels : (N,) int64
    n_classes : K
    C : weight of the loss of a sample, the same in every half
    constant : what follows the features to carry the bias; 0 without one
    lam : (N, K) of the solution on all samples
    seed : draws the halves
    parts : fingerprint of the features; empty where nothing is kept
    cache_dir : where chunks of halves are kept, if anywhere
    show_progress : show how many are left
    """

    features: Floats
    labels: Ints
    n_classes: int
    C: float
    constant: float
    lam: csr_array
    seed: int
    parts: Parts
    cache_dir: str | PathLike[str] | None
    show_progress: bool

    def solved(self, chunk: int, size: int = CHUNK) -> list[Solved]:
        """Give the surrogates of one chunk of halves, linearised in all samples."""
        places = range(chunk * CHUNK, chunk * CHUNK + size)
        linearise = partial(_linearise, self.extended, self.labels, self.C, self.seed)
        items = list(zip(places, self._lams(list(places)), strict=True))
        title = f"Effects of halves {places[0] + 1} to {places[-1] + 1}"
        return engine.results(linearise, items, title=title, unit="half", show=self.show_progress)

    @cached_property
    def extended(self) -> Floats:
        """Features (N, D), with the constant where there is one."""
        return extended(self.features, self.constant)

    @cached_property
    def _subsets(self) -> Subsets:
        return Subsets(
            self.features,
            self.labels,
            n_classes=self.n_classes,
            C=self.C,
            bias=self.constant or False,
            tol=TOL,
            seed=self.seed,
            start=self.lam,
        )

    def _lams(self, places: list[int]) -> list[csr_array]:
        """λ of some halves, solved, or from the cache."""
        title = f"Halves {places[0] + 1} to {places[-1] + 1}"
        solve = partial(_solve, self._subsets, len(self.labels), self.seed)
        work = partial(engine.results, solve, places, title=title, unit="half", show=self.show_progress)
        if self.cache_dir is None or not self.parts:
            return work()
        code = fingerprint.source("whence.svm", __name__)
        options = f"C {self.C!r}, constant {self.constant!r}, seed {self.seed}, {places[0]} to {places[-1]}"
        parts = {**self.parts, "halves": options, "code the solver": f"source {code}"}
        return _kept(Cache(self.cache_dir), parts, options, work)


def extended(features: Floats, constant: float) -> Floats:
    """Append a constant to features (N, d), unless it is 0."""
    if not constant:
        return features
    column = np.full((len(features), 1), constant, features.dtype)
    return np.concatenate([features, column], axis=1)


def weight_of(lam: csr_array, features: Floats) -> Doubles:
    """W (K, D) of λ (N, K) and features (N, D)."""
    support = np.flatnonzero(np.diff(lam.indptr))
    weight: Doubles = lam[support].T @ features[support].astype(np.float64)
    return weight


def members(n: int, seed: int, place: int) -> Mask:
    """Draw a half of n samples, by its place among all halves."""
    return np.random.default_rng([seed, place]).permutation(n) < (n + 1) // 2


def _solve(subsets: Subsets, n: int, seed: int, place: int) -> csr_array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what it costs shows in the reliability
        return subsets.solve(members(n, seed, place)).lam


def _linearise(features: Floats, labels: Ints, C: float, seed: int, half: tuple[int, csr_array]) -> Solved:
    place, lam = half
    inside = members(len(labels), seed, place)
    return Solved(weight_of(lam, features), Linearised.of(features, labels, lam, C, inside, entering=True))


def _kept(cache: Cache, parts: Parts, title: str, solve: Callable[[], list[csr_array]]) -> list[csr_array]:
    """Take λ of some halves from their place in the cache, or solve and put them there."""
    slot = cache.slot("halves", parts)
    with slot.locked():
        if slot.complete:
            try:
                return _read(slot.path / "lam.safetensors")
            except StoreError:
                pass  # damaged: solved again
        lams = solve()
        with slot.filling(title) as folder:
            _write(folder / "lam.safetensors", lams)
        return lams


def _write(path: Path, lams: list[csr_array]) -> None:
    whole = vstack(lams, format="csr")
    arrays = {"data": whole.data, "indices": whole.indices, "indptr": whole.indptr}
    store.write(path, arrays, {"shape": [len(lams), *lams[0].shape]})


def _read(path: Path) -> list[csr_array]:
    arrays, values = store.read(path)
    M, N, K = contents.manifest(tuple[int, int, int], values.get("shape"))
    contents.check_names(arrays, {"data", "indices", "indptr"})
    contents.check_rows(arrays, "", M * N, K)
    whole = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(M * N, K))
    return [csr_array(whole[j * N : (j + 1) * N]) for j in range(M)]
