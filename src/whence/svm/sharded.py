"""A solution over samples in shards: each shard moves its own samples, and shards exchange W.

Rounds of CoCoA+ raise the dual of all samples at once. Where they would take long to the end, the samples
that are or may become support vectors come together and are solved in one place; a pass over all shards then
shows which others belong to them. Either way the certificate is that of ``solve``, over all samples.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.machine import free_memory, thread_pools
from whence.errors import ConvergenceWarning, InvalidInputError, LostError, WorkerError
from whence.svm.crammer_singer.problem import CrammerSinger
from whence.svm.pairs import spread_rows
from whence.svm.passes import Notes, Probe, in_threads, look_at_all, most_listed, weight_of
from whence.svm.problem import Makes, Moving
from whence.svm.solver import Solution, Status, check_options, solve, warn_of_gap

_KEPT = 8  # rounds between copies of λ, to which all shards return when one is lost
_LOSSES = 5  # losses in a row, after which an error is raised
_FIRST = 6  # rounds before the number of rounds is predicted
_FEW = 12  # remaining rounds that are worth waiting for
_PATIENCE, _MOST = 40, 1000  # rounds without a better gap, and in all, after which the search stops
_WIDE = 0.1  # distance from the margin of samples that are solved together with the support vectors
_TIGHTER = 0.3  # share of the tolerance for samples that are solved together
_ROOM = 4  # free memory required, as a multiple of the size of their features


@dataclass(frozen=True)
class Mapped:
    """Rows of a file, which is opened on demand; its path must be the same on every machine."""

    path: str
    dtype: str
    offset: int  # offset of the first row, in bytes
    shape: tuple[int, int]

    @classmethod
    def of(cls, rows: Floats) -> Self | None:
        """Return the place of a memory map's rows; None if it is not a named file."""
        if not isinstance(rows, np.memmap) or rows.filename is None or not rows.flags.c_contiguous:
            return None
        n, d = rows.shape
        # A slice has the offset of the whole map.
        first: Any = rows.base if isinstance(rows.base, np.ndarray) else rows
        start = rows.offset + rows.__array_interface__["data"][0] - first.__array_interface__["data"][0]
        return cls(os.fspath(rows.filename), rows.dtype.str, start, (n, d))

    def open(self) -> Floats:
        """Map the rows, or raise if this machine does not see the file."""
        try:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"'cache_dir' must be on storage that all machines of the cluster share. {self.path} cannot "
                f"be read on one of them: {error}."
            ) from error


@dataclass(frozen=True)
class Part:
    """The data of a shard: its rows, and the problem's parameters, as for ``solve``."""

    features: Floats | Mapped  # (n, d), or their place in a file
    targets: Array  # (n, …)
    problem: Makes
    n_classes: int
    C: float  # C for all samples
    bias: bool | float
    seed: int  # seed of the order in which samples are moved
    threads: int  # threads of a pass over all rows


class Shard:
    """Some of the samples and their α. Other samples are known only through W."""

    def __init__(self, part: Part) -> None:
        rows = part.features.open() if isinstance(part.features, Mapped) else part.features
        self._problem = problem = part.problem.make(rows, part.targets, part.n_classes, part.C, part.bias)
        self._pool = ThreadPoolExecutor(part.threads)
        self._parallel = in_threads(self._pool, part.threads, problem)
        self._rng = np.random.default_rng(part.seed).integers(1, 2**63, 1, dtype=np.uint64)
        self._probe, self._notes, self._most = Probe(problem), Notes.of(problem), most_listed(problem)
        self._W: Doubles = np.zeros(problem.shape)
        self._slack = np.inf  # until the first pass after a move
        self.begin(csr_array((len(rows), problem.n_outputs)))

    def begin(self, lam: csr_array) -> None:
        """Set λ (n, K) of its samples, scaled down if it is not feasible."""
        self._kept, most = self._problem.begin(lam)
        if most > self._problem.C:
            self._kept.alpha *= self._problem.C / most
        self._problem.complete(self._kept)
        self._moving: Moving | None = None

    def look(self, W: Doubles, moved: bool) -> tuple[float, float]:
        """Score all samples with W in float64 and list movable ones; return Σ loss, and D(λ) + ½‖W‖².

        After a move of W, samples are listed if their scores are within half of the mean change.
        """
        self._W = np.array(W)
        change = self._probe.change(self._problem, self._W)
        if moved:
            self._slack = 0.5 * change
        slack = self._slack if np.isfinite(self._slack) else 0.0
        with thread_pools().limit(limits=1, user_api="blas"):
            self._kept, result = look_at_all(
                self._problem, self._W, self._kept.trimmed(), slack, self._most, self._notes, self._parallel
            )
        self._moving = result.moving
        return result.losses.loss, self._problem.linear(self._kept)[0]

    def move(self, shards: int) -> Doubles:
        """Maximise the shard's part of the dual from the last W, and return the change of W.

        CoCoA+ adds the changes of all shards. That they do not overshoot together, each takes its own for as
        many times what it is: max Σ_i λ_{i,y_i} − W·ΔW − (S/2)‖ΔW‖² over its λ, ΔW = Σ_i Δλ_i f_iᵀ. In S·λ
        this is the problem with S·C instead of C, whose moves the problem has.
        """
        problem, moving, slack, kept = self._problem, self._moving, self._slack, self._kept
        assert moving is not None  # every move follows a pass
        N, K = len(kept), problem.n_outputs
        epochs = 1 if np.isinf(slack) else min(max(2 * N * K // max(moving.used, 1), 5), 1000)
        scaled, W = replace(kept, alpha=shards * kept.alpha), self._W.copy()
        replace(problem, C=shards * problem.C).descend(moving, scaled, W, epochs, slack, self._rng)
        kept.alpha[:] = scaled.alpha / shards
        problem.complete(kept)
        return (W - self._W) / shards

    def settle(self) -> tuple[csr_array, Doubles]:
        """Set an exactly feasible λ (n, K), and return it with Σ_i λ_i f_iᵀ in float64."""
        lam = self._problem.sparse(self._kept)
        self.begin(lam)
        return lam, weight_of(self._problem, lam, self._parallel)

    def count(self, slack: float) -> int:
        """Return the number of samples of ``near``."""
        return len(self._near(slack, self._problem.sparse(self._kept)))

    def near(self, slack: float) -> tuple[Ints, Floats, csr_array]:
        """Return the samples with λ_i ≠ 0, and those whose scores are within a slack of that.

        These are indices in the shard (n,), ascending, features (n, d) and λ (n, K).
        """
        lam = self._problem.sparse(self._kept)
        rows = self._near(slack, lam)
        return rows, np.asarray(self._problem.features[rows]), csr_array(lam[rows])

    def _near(self, slack: float, lam: csr_array) -> Ints:
        return np.flatnonzero((np.diff(lam.indptr) > 0) | (self._notes.near < slack))


class Shards(Protocol):
    """Shards in any place; ``whence.engine.Group`` is an implementation."""

    def __len__(self) -> int: ...

    def call(self, method: str, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Return the results of a method of all, in order; raise LostError if some were lost and remade."""


Hold = Callable[[Callable[[Part], Shard], list[Part]], Shards]
"""Function that makes a shard of each part in its place: here, or in another process."""


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

    W is that of ``solve`` as far as the gap shows. λ is as good; it may be shared out otherwise among copies
    of a sample in different shards, and among classes without samples.

    Parameters
    ----------
    features : (N, d) array or memory map
        For a memory map of a file only the indices of rows are sent; its path must be valid everywhere.
    targets : (N, …)
    n_shards : no more than there are samples are made
    hold
        Function that makes the shards.
    n_classes : K, the outputs
    problem, C, bias, tol, max_seconds, seed, callback
        As for ``solve``.
    warm_start : λ (N, K) of a similar problem, optional
    n_threads
        Threads of a shard, and of the part that is solved in one place; all cores by default.

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
    search = _Search(parts, hold(Shard, parts), tol, deadline, warm_start)
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
    kept : the last stored λ of each shard
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
        """Move until the certified gap is at most the tolerance or no longer falls; yields it every round."""
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
        """Make λ exactly feasible, and recompute W and the values in float64."""
        lams, weights = zip(*self.shards.call("settle"), strict=True)
        self._look(np.sum(weights, axis=0), moved=False)
        self.kept = list(lams)
        return True

    def _do(self, step: Callable[[], bool]) -> bool:
        """Do a step; if a shard is lost meanwhile, all return to the stored λ and repeat it."""
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
        """Start all shards from the stored λ."""
        self.shards.call("begin", each=self.kept)
        return self.settle()

    def _look(self, W: Doubles, moved: bool) -> None:
        """Score all samples with W = W(λ): primal and dual value."""
        loss, linear = np.sum(self.shards.call("look", W, moved), axis=0).tolist()
        square = float(np.vdot(W, W))
        self.W = W
        self.primal = 0.5 * square + self.parts[0].C * loss
        self.dual = linear - 0.5 * square
        self.gap = (self.primal - self.dual) / self.primal

    def _round(self) -> bool:
        """Do one round of CoCoA+."""
        changes = self.shards.call("move", len(self.shards))
        self._look(self.W + np.sum(changes, axis=0), moved=True)
        return True

    def _long(self, gaps: list[float]) -> bool:
        """Return whether many rounds remain, judged by the last gaps."""
        if len(gaps) < _FIRST:
            return False
        rate = np.log(gaps[-_FIRST] / gaps[-1]) / (_FIRST - 1)
        return bool(np.log(gaps[-1] / self.tol) > _FEW * rate)

    def _solve_together(self) -> bool:
        """Solve the samples near the margin in one place, if there is memory for them."""
        first = self.parts[0]
        n = sum(self.shards.call("count", _WIDE))
        free, row = free_memory(), first.features.shape[1] * 4
        if free is not None and n * row * _ROOM > free:
            return False
        rows, features, lams = zip(*self.shards.call("near", _WIDE), strict=True)
        targets = [part.targets[near] for part, near in zip(self.parts, rows, strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # there is a warning for the full solution
            lam = solve(
                np.concatenate(features), np.concatenate(targets), problem=first.problem,
                n_classes=first.n_classes, C=first.C, bias=first.bias, tol=_TIGHTER * self.tol,
                max_seconds=self._left(), warm_start=csr_array(vstack(lams, format="csr")), seed=first.seed,
                n_threads=first.threads,
            ).lam  # fmt: skip
        ends = np.cumsum([len(near) for near in rows])
        parts = [
            spread_rows(csr_array(lam[end - len(near) : end]), near, n)
            for near, end, n in zip(rows, ends, self.sizes, strict=True)
        ]
        self.shards.call("begin", each=parts)
        return self.settle()

    def _left(self) -> float | None:
        return None if np.isinf(self.deadline) else max(self.deadline - time.perf_counter(), 1e-3)

    def _late(self) -> bool:
        return time.perf_counter() > self.deadline


def _given_up(gaps: list[float]) -> bool:
    """Return whether the gap no longer falls."""
    return len(gaps) >= _MOST or (len(gaps) > _PATIENCE and min(gaps[-_PATIENCE:]) > min(gaps[:-_PATIENCE]))
