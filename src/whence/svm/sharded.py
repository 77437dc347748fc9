"""A solution over samples that are divided into shards: each moves its own, and W is what they exchange.

Rounds of CoCoA+ raise the dual of all samples at once. Where they would take long to the end, the samples
that are or may become support vectors come together and are solved in one place; a pass over all shards then
says which others belong to them. Either way the certificate is that of ``solve``, over all samples.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array, vstack

from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.machine import free_memory
from whence.errors import ConvergenceWarning, LostError, WorkerError
from whence.svm.crammer_singer import CrammerSinger
from whence.svm.problem import Makes
from whence.svm.shard import Mapped, Near, Part, Seen, Shard
from whence.svm.solve import Solution, Status, check_options, solve, warn_of_gap

_KEPT = 8  # rounds between copies of λ, to which all shards go back when one is lost
_LOSSES = 5  # in a row, after which something else must be wrong
_FIRST = 6  # rounds before their number is foretold
_FEW = 12  # rounds to the end that are waited for
_PATIENCE, _MOST = 40, 1000  # rounds without a better gap, and at all, after which the search gives up
_WIDE = 0.1  # of the margin: how near to it a sample is that is solved together with the support vectors
_TIGHTER = 0.3  # of the tolerance, for samples that are solved together
_ROOM = 4  # times the size of their features that must be free


class Shards(Protocol):
    """Shards, wherever they are; a ``whence.engine.Group`` of them is one."""

    def __len__(self) -> int:
        """How many."""

    def call(self, method: str, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Return what a method of each gave, in order; LostError where some were lost and begun anew."""


Hold = Callable[[Callable[[Part], Shard], list[Part]], Shards]
"""Makes a shard of each part, where it stays: here, or in another process."""


def solve_shards(
    features: Floats,
    targets: Array,
    n_shards: int,
    hold: Hold,
    *,
    problem: Makes = CrammerSinger,
    n_classes: int,
    C: float,
    bias: bool | float = True,
    tol: float = 1e-5,
    max_seconds: float | None = None,
    warm_start: csr_array | None = None,
    seed: int = 0,
    n_threads: int | None = None,
    callback: Callable[[float, float], object] | None = None,
) -> Solution:
    """Solve as ``solve`` does, with the samples divided into shards of neighbours.

    W is that of ``solve`` as far as the gap tells. λ is as good; it may be shared out otherwise among copies
    of a sample in different shards, and among classes without samples.

    Parameters
    ----------
    features : (N, d) array or memory map
        Of a map of a file only the places of rows are sent; its path must lead to it everywhere.
    targets : (N, …)
    n_shards : no more than there are samples are made
    hold
        Makes the shards where they stay.
    n_classes : K, the outputs
    problem, C, bias, tol, max_seconds, seed, callback
        As for ``solve``.
    warm_start : λ (N, K) of a similar problem, optional
    n_threads
        Of a shard, and of what is solved in one place; all cores by default.

    Examples
    --------
    >>> import numpy as np
    >>> from whence.engine import Local
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 200)
    >>> X = np.eye(3)[y] + 0.3 * rng.normal(size=(200, 3))
    >>> bool(solve_shards(X, y, 2, Local().group, n_classes=3, C=0.1).gap <= 1e-5)
    True
    """
    check_options(tol, max_seconds, n_threads, seed)
    started = time.perf_counter()
    cuts = np.linspace(0, len(features), min(n_shards, len(features)) + 1).astype(int).tolist()
    threads = n_threads or os.cpu_count() or 1
    parts = []
    for first, end in pairwise(cuts):
        rows = features[first:end]
        where = Mapped.of(rows) or np.ascontiguousarray(rows)
        parts.append(Part(where, targets[first:end], problem, n_classes, C, bias, seed, threads))
    deadline = np.inf if max_seconds is None else started + max_seconds
    search = _Search(parts, hold(Part.open, parts), tol, deadline, warm_start)
    history: list[tuple[float, float]] = []
    status: Status = "converged"
    try:
        for gap in search.rounds():
            history.append((time.perf_counter() - started, min(gap, 1.0)))
            if callback is not None:
                callback(*history[-1])
        if search.gap > tol:
            status = "time limit" if time.perf_counter() > deadline else "stalled"
    except KeyboardInterrupt:
        status = "interrupted"
    if search.gap > tol:
        search.settle()
    seconds = time.perf_counter() - started
    history.append((seconds, search.gap))
    warn_of_gap(status, search.gap, tol)
    lam, weight = csr_array(vstack(search.kept, format="csr")), search.W.copy()
    weight[:, features.shape[1] :] *= float(bias)
    return Solution(
        lam, weight, search.primal, search.dual, search.gap, status, search.n_iter, seconds, C, float(bias),
        history,
    )  # fmt: skip


class _Search:
    """The search for the dual's maximum over all shards.

    Attributes
    ----------
    W : (K, D), Σ λ_i f_iᵀ over all samples
    primal, dual, gap : of W and λ, by the last pass
    kept : λ of each shard when it was settled last
    n_iter : rounds
    """

    def __init__(
        self, parts: list[Part], shards: Shards, tol: float, deadline: float, start: csr_array | None
    ) -> None:
        self.parts, self.shards, self.tol, self.deadline = parts, shards, tol, deadline
        self.sizes = [len(part.targets) for part in parts]
        lam = csr_array((sum(self.sizes), parts[0].n_classes)) if start is None else start
        ends = np.cumsum(self.sizes)
        self.kept = [csr_array(lam[end - n : end]) for n, end in zip(self.sizes, ends, strict=True)]
        self.W: Doubles = np.zeros(0)
        self.primal = self.dual = 0.0
        self.gap = np.inf
        self.n_iter = self._lost = 0

    def rounds(self) -> Iterator[float]:
        """Move until the certified gap is at most the tolerance or no longer falls; gives it every round."""
        gaps: list[float] = []
        together = False
        self._do(self._begin)
        while self.gap > self.tol and not self._late() and not _given_up(gaps):
            together = together or self._long(gaps)
            if together:
                together = self._do(self._solve_together)
            if not together:
                self._do(self._round)
            self.n_iter += 1
            if self.gap <= self.tol or self.n_iter % _KEPT == 0:
                self._do(self.settle)
            gaps.append(self.gap)
            yield self.gap

    def settle(self) -> bool:
        """Make λ exactly feasible; W, the values and what is kept are then those of this λ, in float64."""
        found = self.shards.call("settle")
        self._look(np.sum([weight for _, weight in found], axis=0), moved=False)
        self.kept = [lam for lam, _ in found]
        return True

    def _do(self, step: Callable[[], bool]) -> bool:
        """Do a step; where a shard is lost meanwhile, all go back to the λ that is kept and do it again."""
        while True:
            try:
                if self._lost:
                    self._begin()
                done = step()
            except LostError as lost:
                self._lost += 1
                if self._lost > _LOSSES:
                    raise WorkerError(
                        f"Shards {lost.places} were lost {self._lost} times in a row: {lost}. Where they "
                        "need more memory than their machine has, use more of them."
                    ) from lost
            else:
                self._lost = 0
                return done

    def _begin(self) -> bool:
        """Let all shards begin with the λ that is kept."""
        self.shards.call("begin", each=self.kept)
        return self.settle()

    def _look(self, W: Doubles, moved: bool) -> None:
        """Score all samples with W = W(λ): the values of both."""
        seen = [Seen(*each) for each in self.shards.call("look", W, moved)]
        square = float(np.vdot(W, W))
        self.W = W
        self.primal = 0.5 * square + self.parts[0].C * sum(each.loss for each in seen)
        self.dual = sum(each.linear for each in seen) - 0.5 * square
        self.gap = (self.primal - self.dual) / self.primal

    def _round(self) -> bool:
        """One round of CoCoA+."""
        changes = self.shards.call("move", len(self.shards))
        self._look(self.W + np.sum(changes, axis=0), moved=True)
        return True

    def _long(self, gaps: list[float]) -> bool:
        """Whether the rounds to come are many, by how the gap fell in the last few."""
        if len(gaps) < _FIRST:
            return False
        rate = np.log(gaps[-_FIRST] / gaps[-1]) / (_FIRST - 1)
        return bool(np.log(gaps[-1] / self.tol) > _FEW * rate)

    def _solve_together(self) -> bool:
        """Solve the samples near the margin in one place, if there is room for them there."""
        first = self.parts[0]
        n = sum(self.shards.call("count", _WIDE))
        free, row = free_memory(), first.features.shape[1] * 4
        if free is not None and n * row * _ROOM > free:
            return False
        found = [Near(*each) for each in self.shards.call("near")]
        features = np.concatenate([each.features for each in found])
        targets = [part.targets[near.rows] for part, near in zip(self.parts, found, strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of the whole it is told
            solved = solve(
                features, np.concatenate(targets), problem=first.problem, n_classes=first.n_classes,
                C=first.C, bias=first.bias, tol=_TIGHTER * self.tol, max_seconds=self._left(),
                warm_start=csr_array(vstack([each.lam for each in found], format="csr")), seed=first.seed,
                n_threads=first.threads,
            )  # fmt: skip
        ends = np.cumsum([len(each.rows) for each in found])[:-1]
        parts = np.split(np.arange(len(features)), ends)
        each = [
            _spread(csr_array(solved.lam[part]), near.rows, n)
            for part, near, n in zip(parts, found, self.sizes, strict=True)
        ]
        self.shards.call("begin", each=each)
        return self.settle()

    def _left(self) -> float | None:
        return None if np.isinf(self.deadline) else max(self.deadline - time.perf_counter(), 1e-3)

    def _late(self) -> bool:
        return time.perf_counter() > self.deadline


def _spread(lam: csr_array, rows: Ints, n: int) -> csr_array:
    """λ of n samples, by that of some rows of them; the others have 0."""
    entries = np.zeros(n + 1, np.int64)
    entries[1 + rows] = np.diff(lam.indptr)
    return csr_array((lam.data, lam.indices, np.cumsum(entries)), shape=(n, lam.shape[1]))


def _given_up(gaps: list[float]) -> bool:
    """Whether the gap no longer falls."""
    return len(gaps) >= _MOST or (len(gaps) > _PATIENCE and min(gaps[-_PATIENCE:]) > min(gaps[:-_PATIENCE]))
