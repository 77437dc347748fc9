"""Passes over samples in threads, with sums that do not depend on the threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm import loops
from whence.svm.pairs import Kept, Pairs, row_int
from whence.svm.problem import Losses, Moving, Problem, Seen

_SMALL = 1 << 20  # products in a pass that is too short for threads
_PART_BYTES = 1 << 20
_PROBED = 1 << 14  # scores that measure how far all of them moved
_FEWEST = 32  # minimum number of samples of these scores
_FASTER = 4  # speed-up of scores by a matrix product
_ALL_LISTED = 10  # number of outputs up to which all are listed
_LEAST_LISTED, _MOST_LISTED = 4, 32  # listed outputs besides those with α, if there are more
_PER_LISTED = 64  # features per listed output; half as many if outputs are
_PER_PASS = 256  # outputs per listed one, so that passes take longer than the work with a list


@dataclass(frozen=True)
class Parallel:
    """A map over items in threads, or sequential without a pool; results are in order."""

    pool: Executor | None = None
    threads: int = 1

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return the results of a function for all items."""
        if self.pool is None:
            return [function(item) for item in items]
        return list(self.pool.map(function, items))


def in_threads(pool: Executor, threads: int, problem: Problem) -> Parallel:
    """Return a map in threads, or a sequential one if a pass is too short."""
    long = len(problem.features) * int(np.prod(problem.shape)) >= _SMALL
    return Parallel(pool, threads) if long and threads > 1 else Parallel()


def score(problem: Problem, W: Floats, rows: slice | Ints) -> Floats:
    """Compute W f_i for some rows, (n, K), in W's precision."""
    d = problem.features.shape[1]
    scores: Floats = problem.features[rows].astype(W.dtype, copy=False) @ W[:, :d].T
    if problem.bias:
        scores += np.asarray(problem.bias, W.dtype) * W[:, d]
    return scores


def most_listed(problem: Problem) -> int:
    """Return the maximum number of listed outputs per sample, besides those with α."""
    K = problem.n_outputs
    if K <= _ALL_LISTED:
        return K - 1
    wide = int(problem.features.shape[1]) // _PER_LISTED  # so that lists are short compared with the features
    return min(max(wide, min(K // _PER_PASS, 2 * wide), _LEAST_LISTED), _MOST_LISTED)


class Probe:
    """Estimates from some samples how far scores moved since the previous pass."""

    def __init__(self, problem: Problem) -> None:
        N, K = len(problem.features), problem.n_outputs
        n = min(N, max(_FEWEST, _PROBED // K))
        self._rows = np.linspace(0, N - 1, n).astype(np.int64)
        self._scores = np.zeros((n, K), np.float32)

    def change(self, problem: Problem, W: Floats) -> float:
        """Return the mean change of the scores since the last call; at first since W = 0."""
        before, self._scores = self._scores, score(problem, W, self._rows).astype(np.float32)
        return float(np.abs(self._scores - before).mean())


@dataclass(frozen=True)
class PassResult:
    """The result of a pass over all samples."""

    losses: Losses
    free: int  # samples between constraints
    pairs: int  # dimensions in which they can move
    moving: Moving


@dataclass
class Notes:
    """What a pass records for every sample."""

    traces: Floats  # (N, trace) data from which losses of multiples of W are computed
    near: Floats  # (N,) distance of each sample from a change, in g; −inf between constraints

    @classmethod
    def of(cls, problem: Problem) -> Notes:
        """Allocate the arrays."""
        N = len(problem.features)
        return cls(np.zeros((N, problem.trace), np.float32), np.zeros(N, np.float32))


def look_at_all(
    problem: Problem, W: Floats, kept: Kept, slack: float, most: int, notes: Notes, parallel: Parallel
) -> tuple[Kept, PassResult]:
    """Do one pass over all samples: score them in blocks, and keep outputs that may move, with their α."""

    def one(rows: slice) -> Seen:
        places = np.arange(rows.start, rows.stop)
        return problem.look(score(problem, W, rows), places, kept, slack, most, notes.traces, notes.near)

    parts: list[Seen] = parallel(one, problem.blocks())
    loss, slope, margin = np.array([part.losses for part in parts]).T
    losses = Losses(float(loss.sum()), float(slope.sum()), float(margin.min()))
    free, pairs = sum(part.free for part in parts), sum(part.pairs for part in parts)
    counts = np.concatenate([part.counts for part in parts])
    moving = np.concatenate([part.moving for part in parts])
    outputs = np.concatenate([part.outputs for part in parts])
    del parts
    new = kept.listed(counts, outputs)
    return new, PassResult(losses, free, pairs, moves(new.ptr, moving))


def moves(ptr: Ints, moving: npt.NDArray[np.int32]) -> Moving:
    """Return the samples whose last ``moving`` (n,) outputs may move."""
    rows = np.flatnonzero(moving).astype(row_int(len(moving)))
    stops = ptr[1:][rows].astype(row_int(int(ptr[-1])))
    return Moving(rows, stops - moving[rows], stops)


def add_up(
    problem: Problem, pairs: Pairs, coefficients: Doubles, shape: tuple[int, int], parallel: Parallel
) -> Doubles:
    """Compute Σ_i coefficients_i f_iᵀ, (U, D), of outputs in [0, U): threads share columns, not sums."""
    out = np.zeros(shape)
    add_to(out, problem, pairs, coefficients, parallel)
    return out


def add_to(out: Doubles, problem: Problem, pairs: Pairs, coefficients: Doubles, parallel: Parallel) -> None:
    """Add Σ_i coefficients_i f_iᵀ of some pairs to an array like W, (U, D)."""
    shape = out.shape
    cuts = np.linspace(0, shape[1], min(parallel.threads, shape[1]) + 1).astype(int).tolist()

    def one(columns: tuple[int, int]) -> None:
        loops.add_weight(problem.features, *pairs, coefficients, problem.bias, *columns, out)

    parallel(one, list(pairwise(cuts)))


def relative(primal: float, dual: float) -> float:
    """Return (P − D)/P; 0 if both are 0, since W = 0 then has no loss."""
    return (primal - dual) / primal if primal else 0.0


@dataclass(frozen=True)
class Certificate:
    """A feasible λ, its W = Σ λ_i f_iᵀ, W's primal value, λ's dual value and W's least margin, in float64."""

    lam: csr_array
    weight: Doubles
    primal: float
    dual: float
    margin: float

    @property
    def gap(self) -> float:
        """The relative gap (P − D)/P."""
        return relative(self.primal, self.dual)


def certify(
    problem: Problem, lam: csr_array, parallel: Parallel, losses_of: Callable[[Doubles], Losses]
) -> Certificate:
    """Compute the certificate of a feasible λ, given a function for the losses of a W."""
    weight = weight_of(problem, lam, parallel)
    square = problem.inner(weight, weight)
    losses = losses_of(weight)
    linear, _ = problem.linear(problem.begin(lam)[0])
    primal, dual = 0.5 * square + problem.C * losses.loss, linear - 0.5 * square
    return Certificate(lam, weight, primal, dual, losses.margin)


def weight_of(problem: Problem, lam: csr_array, parallel: Parallel) -> Doubles:
    """Compute W = Σ λ_i f_iᵀ in float64."""
    pairs = Pairs(np.arange(lam.shape[0]), lam.indptr, lam.indices)
    return add_up(problem, pairs, lam.data, problem.shape, parallel)


@dataclass
class Rows:
    """Some pairs of samples and outputs; products run in parallel over parts of the samples."""

    problem: Problem
    pairs: Pairs
    parallel: Parallel

    def __post_init__(self) -> None:
        there = np.zeros(self.problem.n_outputs, bool)
        there[self.pairs.outputs] = True
        # (U,) outputs of any sample here, ascending: W is (U, D) below
        self.used: Ints = np.flatnonzero(there)
        # (P,) each pair's output as an index into ``used``
        self.place: npt.NDArray[np.int32] = (np.cumsum(there, dtype=np.int32) - 1)[self.pairs.outputs]
        n, width = len(self.pairs.rows), max(64, _PART_BYTES // (8 * self.problem.shape[1]))
        self.parts = [slice(start, min(start + width, n)) for start in range(0, n, width)]
        # If a sample has most of the outputs, scoring all of them is faster.
        self._whole = len(self.used) * n <= _FASTER * len(self.place)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W here."""
        return len(self.used), self.problem.shape[1]

    def inner(self, A: Doubles, B: Doubles) -> float:
        """Return the inner product of two arrays like W here."""
        return self.problem.inner(A, B, self.used)

    def block(self, rows: Ints) -> Doubles:
        """Return the features of some rows in float64, including the bias column."""
        d = self.problem.features.shape[1]
        block = np.full((len(rows), self.problem.shape[1]), self.problem.bias)
        block[:, :d] = self.problem.features[rows]
        return block

    def scores(self, W: Doubles) -> Doubles:
        """Compute w_c·f_i of the pairs, (P,)."""
        out = np.empty(len(self.place))

        def one(part: slice) -> None:
            rows, ptr = self.pairs.rows[part], self.pairs.ptr[part.start : part.stop + 1]
            if self._whole:
                scores = self.block(rows) @ W.T
                span = slice(ptr[0], ptr[-1])
                out[span] = scores[self._within(ptr), self.place[span]]
            else:
                problem = self.problem
                loops.gather_all(problem.features, rows, ptr, self.place, problem.bias, W, out)

        self.parallel(one, self.parts)
        return out

    def combine(self, coefficients: Doubles) -> Doubles:
        """Compute Σ_i coefficients_i f_iᵀ, (U, D), for one coefficient per pair."""
        if not self._whole:
            pairs = Pairs(self.pairs.rows, self.pairs.ptr, self.place)
            return add_up(self.problem, pairs, coefficients, self.shape, self.parallel)

        def one(part: slice) -> Doubles:
            ptr = self.pairs.ptr[part.start : part.stop + 1]
            span = slice(ptr[0], ptr[-1])
            dense = np.zeros((len(ptr) - 1, len(self.used)))
            dense[self._within(ptr), self.place[span]] = coefficients[span]
            return np.asarray(dense.T @ self.block(self.pairs.rows[part]))

        out = np.zeros(self.shape)
        for piece in self.parallel(one, self.parts):
            out += piece
        return out

    @staticmethod
    def _within(ptr: Ints) -> Ints:
        """The row of each pair, counted within a part."""
        return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
