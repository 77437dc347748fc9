"""Some of a problem's samples, with their α: what is asked of each shard of a solution that is divided."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.resources import thread_pools
from whence.errors import InvalidInputError
from whence.svm.passes import Notes, Probe, in_threads, look_at_all, most_listed, weight_of
from whence.svm.problem import Makes, Moving, Problem


@dataclass(frozen=True)
class Mapped:
    """Rows of a file, which is opened where they are needed.

    Attributes
    ----------
    path : of the file, the same on every machine
    dtype, offset, shape : of the rows in it
    """

    path: str
    dtype: str
    offset: int
    shape: tuple[int, int]

    @classmethod
    def of(cls, rows: Floats) -> Self | None:
        """Return where the rows of a memory map lie; None where that is no file with a name."""
        if not isinstance(rows, np.memmap) or rows.filename is None or not rows.flags.c_contiguous:
            return None
        n, d = rows.shape
        # A slice keeps the offset of the whole map.
        first: Any = rows.base if isinstance(rows.base, np.ndarray) else rows
        start = rows.offset + rows.__array_interface__["data"][0] - first.__array_interface__["data"][0]
        return cls(os.fspath(rows.filename), rows.dtype.str, start, (n, d))

    def open(self) -> Floats:
        """Map the rows, or raise where this machine does not see the file."""
        try:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"'cache_dir' must be on storage that all machines of the cluster share. {self.path} cannot "
                f"be read on one of them: {error}."
            ) from error


@dataclass(frozen=True)
class Part:
    """What a shard is made of: its rows, and the problem's parameters.

    Attributes
    ----------
    features : (n, d), or where they lie
    targets : (n, …)
    problem, n_classes, C, bias : as for ``solve``
    seed : of the order in which samples are moved
    threads : of a pass over all rows
    """

    features: Floats | Mapped
    targets: Array
    problem: Makes
    n_classes: int
    C: float
    bias: bool | float
    seed: int
    threads: int

    def open(self) -> Shard:
        """Make the shard, where it stays."""
        rows = self.features.open() if isinstance(self.features, Mapped) else self.features
        problem = self.problem.make(rows, self.targets, self.n_classes, self.C, self.bias)
        return Shard(problem, self.seed, self.threads)


class Seen(NamedTuple):
    """What a pass tells of a shard.

    Attributes
    ----------
    loss : Σ of its samples' losses
    linear : D(λ) + ½‖W‖², its samples' part
    """

    loss: float
    linear: float


class Near(NamedTuple):
    """Samples that are, or may become, support vectors.

    Attributes
    ----------
    rows : (n,) their places in the shard, ascending
    features, lam : (n, d) and (n, K)
    """

    rows: Ints
    features: Floats
    lam: csr_array


class Shard:
    """Some of the samples and their α. Of the others it knows what W says.

    Parameters
    ----------
    problem
        Of these samples alone, with the C of all.
    seed
        Of the order in which they are moved.
    threads
        Of a pass over all of them.
    """

    def __init__(self, problem: Problem, seed: int, threads: int) -> None:
        self._problem, self._pool = problem, ThreadPoolExecutor(threads)
        self._parallel = in_threads(self._pool, threads, problem)
        self._rng = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        self._probe, self._notes, self._most = Probe(problem), Notes.of(problem), most_listed(problem)
        self._W: Doubles = np.zeros(problem.shape)
        self._near: Ints = np.empty(0, np.int64)
        self._slack = np.inf  # until the first pass that follows a move
        self._moving: Moving | None = None
        self.begin(csr_array((len(problem.features), problem.n_outputs)))

    def begin(self, lam: csr_array) -> None:
        """Take over a λ (n, K) of its samples, scaled down where it is not feasible."""
        self._kept, most = self._problem.begin(lam)
        if most > self._problem.C:
            self._kept.alpha *= self._problem.C / most
        self._problem.complete(self._kept)
        self._moving = None

    def look(self, W: Doubles, moved: bool) -> Seen:
        """Score all samples with W, in float64, and list what may move.

        Where W has moved, samples may move next whose scores are within half of the mean change of doing so.
        """
        self._W = np.array(W)
        change = self._probe.change(self._problem, self._W)
        if moved:
            self._slack = 0.5 * change
        slack = self._slack if np.isfinite(self._slack) else 0.0
        with thread_pools().limit(limits=1, user_api="blas"):
            self._kept, found = look_at_all(
                self._problem, self._W, self._kept.trimmed(), slack, self._most, self._notes, self._parallel
            )
        self._moving = found.moving
        return Seen(found.losses.loss, self._problem.linear(self._kept)[0])

    def move(self, shards: int) -> Doubles:
        """Maximise the shard's part of the dual from the W it saw last, and give the change of W.

        CoCoA+ adds the changes of all shards. That they do not overshoot together, each takes its own for as
        many times what it is: max Σ_i λ_{i,y_i} − W·ΔW − (S/2)‖ΔW‖² over its λ, ΔW = Σ_i Δλ_i f_iᵀ. In S·λ
        this is the problem with S·C instead of C, whose moves the problem has.
        """
        problem, moving, slack, kept = self._problem, self._moving, self._slack, self._kept
        assert moving is not None  # a look comes before every move
        N, K = len(kept), problem.n_outputs
        epochs = 1 if np.isinf(slack) else min(max(2 * N * K // max(moving.used, 1), 5), 1000)
        scaled, W = replace(kept, alpha=shards * kept.alpha), self._W.copy()
        replace(problem, C=shards * problem.C).descend(moving, scaled, W, epochs, slack, self._rng)
        kept.alpha[:] = scaled.alpha / shards
        problem.complete(kept)
        return (W - self._W) / shards

    def settle(self) -> tuple[csr_array, Doubles]:
        """Take over λ (n, K) made exactly feasible, and give it with Σ_i λ_i f_iᵀ in float64."""
        lam = self._problem.sparse(self._kept)
        self.begin(lam)
        return lam, weight_of(self._problem, lam, self._parallel)

    def count(self, slack: float) -> int:
        """Find the samples with λ_i ≠ 0, and those whose scores are within a slack of making them so."""
        chosen = np.diff(self._problem.sparse(self._kept).indptr) > 0
        self._near = np.flatnonzero(chosen | (self._notes.near < slack))
        return len(self._near)

    def near(self) -> Near:
        """Return the samples that were counted."""
        lam, rows = self._problem.sparse(self._kept), self._near
        return Near(rows, np.asarray(self._problem.features[rows]), csr_array(lam[rows]))
