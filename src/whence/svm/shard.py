"""Some of a problem's samples, with their α: what is asked of each shard of a solution that is divided."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.errors import InvalidInputError
from whence.svm.passes import in_threads, score, weight_of
from whence.svm.problem import Listed, Makes, Problem


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
        """Give where the rows of a memory map lie; None where that is no file with a name."""
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
        N, K = len(problem.features), problem.n_outputs
        self._problem, self._pool = problem, ThreadPoolExecutor(threads)
        self._parallel = in_threads(self._pool, problem)
        self._rng = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        self._alpha, self._stored = np.zeros((N, K)), np.zeros((N, K), np.float32)
        self._listed = Listed(np.empty(N, np.int32), np.empty(N + 1, np.int64), np.empty(N * K, np.int32))
        self._W: Doubles = np.zeros(problem.shape)
        self._near: Ints = np.empty(0, np.int64)
        self._slack = np.inf  # until the first pass that follows a move
        problem.complete(self._alpha)

    def begin(self, lam: csr_array) -> None:
        """Take over a λ (n, K) of its samples, scaled down where it is not feasible."""
        most = self._problem.begin(lam, self._alpha)
        if most > self._problem.C:
            self._alpha *= self._problem.C / most
        self._problem.complete(self._alpha)

    def look(self, W: Doubles, moved: bool) -> Seen:
        """Score all samples with W, in float64.

        Where W has moved, samples may move next whose scores are within half of the mean change of doing so.
        """
        self._W = np.array(W)
        with threadpool_limits(limits=1, user_api="blas"):
            found = score(self._problem, self._W, self._stored, self._parallel)
        if moved:
            self._slack = 0.5 * found.change
        return Seen(found.loss, self._problem.linear(self._alpha)[0])

    def move(self, shards: int) -> Doubles:
        """Maximise the shard's part of the dual from the W it saw last, and give the change of W.

        CoCoA+ adds the changes of all shards. That they do not overshoot together, each takes its own for as
        many times what it is: max Σ_i λ_{i,y_i} − W·ΔW − (S/2)‖ΔW‖² over its λ, ΔW = Σ_i Δλ_i f_iᵀ. In S·λ
        this is the problem with S·C in the place of C, whose moves the problem has.
        """
        problem, listed, slack = self._problem, self._listed, self._slack
        N, K = self._stored.shape
        found = problem.select(self._stored, self._alpha, slack, listed)
        epochs = 1 if np.isinf(slack) else min(max(2 * N * K // max(found.used, 1), 5), 1000)
        alpha, W = shards * self._alpha, self._W.copy()
        replace(problem, C=shards * problem.C).descend(listed, found.n, W, alpha, epochs, slack, self._rng)
        self._alpha = alpha / shards
        problem.complete(self._alpha)
        return (W - self._W) / shards

    def settle(self) -> tuple[csr_array, Doubles]:
        """Take over λ (n, K) made exactly feasible, and give it with Σ_i λ_i f_iᵀ in float64."""
        lam = self._problem.sparse(self._alpha)
        self.begin(lam)
        return lam, weight_of(self._problem, lam, self._parallel)

    def count(self, slack: float) -> int:
        """Find the samples with λ_i ≠ 0, and those whose scores are within a slack of making them so."""
        found = self._problem.select(self._stored, self._alpha, slack, self._listed)
        chosen = np.diff(self._problem.sparse(self._alpha).indptr) > 0
        chosen[self._listed.rows[: found.n]] = True
        self._near = np.flatnonzero(chosen)
        return len(self._near)

    def near(self) -> Near:
        """Give the samples that were counted."""
        lam, rows = self._problem.sparse(self._alpha), self._near
        return Near(rows, np.asarray(self._problem.features[rows]), csr_array(lam[rows]))
