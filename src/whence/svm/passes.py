"""Passes over samples: in threads, with sums that do not depend on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm import loops
from whence.svm.problem import Losses, Problem

Parallel = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]

_SMALL = 1 << 20  # products in a pass over all samples and outputs that end before threads have begun
_PART_BYTES = 1 << 20


def in_threads(pool: Executor, problem: Problem) -> Parallel:
    """Give what maps over items in threads, or in turn where a pass is too short; results come in order."""
    if len(problem.features) * int(np.prod(problem.shape)) < _SMALL:
        return lambda function, items: [function(item) for item in items]
    return lambda function, items: list(pool.map(function, items))


def score(problem: Problem, W: Floats, stored: Floats, parallel: Parallel) -> Losses:
    """Score every sample with W; the scores replace the stored ones (N, K), and ``change`` is their mean."""
    d = problem.features.shape[1]
    single = W.dtype == np.float32
    weight = np.ascontiguousarray(W[:, :d].T)

    def one(rows: slice) -> Losses:
        block = problem.features[rows]
        scores = (block if single else block.astype(np.float64, copy=False)) @ weight
        if problem.bias:
            scores += np.asarray(problem.bias, W.dtype) * W[:, d]
        return problem.losses(scores, rows, stored)

    parts = np.array(parallel(one, problem.blocks()))
    loss, slope, change, _ = parts.sum(axis=0)
    return Losses(float(loss), float(slope), float(change) / stored.size, float(parts[:, 3].min()))


def in_eight(
    n: int, shape: tuple[int, ...], add: Callable[[slice, Doubles], None], parallel: Parallel
) -> Doubles:
    """Σ over eight fixed parts of n rows, each of which ``add`` adds to an array of zeros."""
    cuts = np.linspace(0, n, 9).astype(int).tolist()

    def one(rows: slice) -> Doubles:
        out = np.zeros(shape)
        add(rows, out)
        return out

    total: Doubles = np.sum(parallel(one, [slice(s, e) for s, e in pairwise(cuts)]), axis=0)
    return total


def relative(primal: float, dual: float) -> float:
    """(P − D)/P; 0 where both are, since W = 0 then has no loss."""
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
        """(P − D)/P."""
        return relative(self.primal, self.dual)


def certify(problem: Problem, alpha: Doubles, stored: Floats, parallel: Parallel) -> Certificate:
    """The certificate of α's λ; the scores of its W replace the stored ones."""
    lam = problem.sparse(alpha)
    weight = weight_of(problem, lam, parallel)
    square = problem.inner(weight, weight)
    found = score(problem, weight, stored, parallel)
    primal, dual = 0.5 * square + problem.C * found.loss, problem.linear_of(lam) - 0.5 * square
    return Certificate(lam, weight, primal, dual, found.margin)


def weight_of(problem: Problem, lam: csr_array, parallel: Parallel) -> Doubles:
    """W = Σ λ_i f_iᵀ in float64."""

    def add(rows: slice, out: Doubles) -> None:
        indptr = lam.indptr[rows.start : rows.stop + 1]
        loops.weight_of_lam(problem.features[rows], indptr, lam.indices, lam.data, problem.bias, out)

    return in_eight(lam.shape[0], problem.shape, add, parallel)


@dataclass
class Rows:
    """Some rows of the features; products run over parts of them in parallel."""

    problem: Problem
    rows: Ints
    parallel: Parallel
    parts: list[Ints] = field(init=False)

    def __post_init__(self) -> None:
        width = max(64, _PART_BYTES // (8 * self.problem.shape[1]))
        self.parts = [self.rows[start : start + width] for start in range(0, len(self.rows), width)]

    def block(self, rows: Ints) -> Doubles:
        """The features of some rows in float64, bias column included."""
        d = self.problem.features.shape[1]
        block = np.full((len(rows), self.problem.shape[1]), self.problem.bias)
        block[:, :d] = self.problem.features[rows]
        return block

    def scores(self, W: Doubles) -> Doubles:
        """W f_i of the rows, (n, K)."""
        return np.concatenate(self.parallel(lambda part: self.block(part) @ W.T, self.parts))

    def combine(self, coefficients: Doubles) -> Doubles:
        """Σ_i coefficients_i f_iᵀ, (K, D)."""
        cuts = np.cumsum([len(part) for part in self.parts])[:-1]
        pairs = list(zip(np.split(coefficients, cuts), self.parts, strict=True))
        total = np.zeros(self.problem.shape)
        for piece in self.parallel(lambda pair: pair[0].T @ self.block(pair[1]), pairs):
            total += piece
        return total
