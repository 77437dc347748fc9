"""The search on a subset of the samples, from a solution on all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm import passes
from whence.svm.crammer_singer import proximal
from whence.svm.crammer_singer.problem import CrammerSinger
from whence.svm.pairs import Kept, Pairs, small_int
from whence.svm.passes import Certificate, Parallel, add_up, certify
from whence.svm.problem import Losses

_DOUBLE_BELOW = 1e-4  # the tolerance below which float32 does not carry the search
_DOUBLE_ABOVE = 5e4  # C·Σ‖f_i‖² above which it does not either
_STORED_BYTES = 1 << 28  # of a Gram matrix of all samples
_FEW, _WIDE, _MOST = 1000, 8, 8192  # rows that a Gram matrix is made for: always, by column, at most
_NEARLY = 0.7  # of the samples are near a change: then all may be
_SLACK = 0.25  # by which samples count as near a change, of the mean change of the scores
_STRENGTH = 0.7  # ρ against the fourth root of C·Σ‖f_i‖²
_SWEEPS = 400  # after which the search gives up
_STEEPEST = 5e5  # C·Σ‖f_i‖² above which so many are not enough
_CLOSE = 0.95  # of the gap that is asked for, since float32 is not exact

_IN_TURN = Parallel()


@dataclass
class Ground:
    """What all subsets share: the problem on all samples, and what is made of it when it is first needed."""

    problem: CrammerSinger
    tol: float

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what every process can make for itself."""
        return {"problem": self.problem, "tol": self.tol}

    @cached_property
    def features(self) -> Floats:
        """The features in the precision of the search."""
        p = self.problem
        fits = p.squared_norms.mean() > 1e-12 and p.squared_norms.max() < 1e12
        gentle = self.tol >= _DOUBLE_BELOW and p.C * p.squared_norms.sum() <= _DOUBLE_ABOVE
        single = p.features.dtype == np.float32 and fits and gentle
        return p.features.astype(np.float32 if single else np.float64, copy=False)

    @cached_property
    def times(self) -> Doubles:
        """How many classes each one stands for, (K,)."""
        return self.problem.times

    @cached_property
    def gram(self) -> Floats | None:
        """The products of all samples, (N, N), where there is room for them."""
        X = self.features
        return products(X, self.problem.bias) if len(X) ** 2 * X.itemsize <= _STORED_BYTES else None


@dataclass
class Start:
    """A solution on all samples to start from.

    Attributes
    ----------
    lam : (N, K), of which a subset takes its rows
    share : what λ's own W is multiplied by to expect a subset's, less than 1 where λ was scaled up for one
    """

    ground: Ground
    lam: csr_array
    share: float

    @cached_property
    def alpha(self) -> Doubles:
        """α of what is feasible of λ, (N, K)."""
        p = self.ground.problem
        kept, most = p.begin(self.lam)
        kept.alpha *= min(1.0, p.C / most) if most > 0.0 else 1.0
        p.complete(kept)
        return csr_array((kept.alpha, kept.outputs, kept.ptr), shape=self.lam.shape).toarray()

    @cached_property
    def weight(self) -> Doubles:
        """The W that is expected, (K, D)."""
        p, d = self.ground.problem, self.ground.features.shape[1]
        W = np.zeros(p.shape)
        W[:, :d] = self.lam.T @ p.features
        if p.bias:
            W[:, d] = p.bias * self.lam.sum(axis=0)
        return self.share * W

    @cached_property
    def scores(self) -> Floats:
        """Its scores of all samples, (N, K)."""
        return score(self.ground.features, self.weight, self.ground.problem.bias)


def score(features: Floats, weight: Floats, bias: float) -> Floats:
    """W f_i, (n, K), in the features' precision."""
    d = features.shape[1]
    scores: Floats = features @ weight[:, :d].T.astype(features.dtype)
    if bias:
        scores += (bias * weight[:, d]).astype(features.dtype)
    return scores


def products(features: Floats, bias: float) -> Floats:
    """f_i·f_j, (n, n), with the constant counted in."""
    found: Floats = features @ features.T
    found += features.dtype.type(bias**2)
    return found


class Search:
    """The search on some rows.

    Attributes
    ----------
    alpha, scores : (n, K), where it stands, and the scores of its W
    centre : (n, K), the scores of the W that is expected
    """

    def __init__(self, start: Start, rows: Ints, seed: int) -> None:
        ground = self.ground = start.ground
        whole = ground.problem
        p = self.problem = replace(
            whole, features=ground.features[rows], labels=whole.labels[rows],
            squared_norms=whole.squared_norms[rows],
        )  # fmt: skip
        self.rows = rows
        self.steepness = p.C * float(p.squared_norms.sum())
        self.rho = _STRENGTH * self.steepness**0.25
        self.alpha = start.alpha[rows]
        kept = self._packed()
        pairs = Pairs(np.arange(len(rows)), kept.ptr, kept.outputs)
        self.W = add_up(p, pairs, p.coefficients(kept), p.shape, _IN_TURN)
        self.scores = score(p.features, self.W, p.bias)
        self.centre, self.centre_W = start.scores[rows], start.weight
        self.rng = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        self.sweeps = 0

    def run(self) -> Certificate | None:
        """The certificate once its gap is what was asked for; None where that takes too long."""
        p, tol = self.problem, self.ground.tol
        goal = _CLOSE * tol
        near = np.zeros(len(self.rows), bool)
        while self.steepness <= _STEEPEST and self.sweeps < _SWEEPS and goal > 1e-2 * tol:
            reach = float(np.abs(self.scores - self.centre).mean())
            before, near = near, near | (self._distances() < reach)
            n = int(near.sum())
            if n > _NEARLY * len(near):  # one that is missed costs more than all the others
                near[:], n = True, len(near)
            if not self._is_done(goal):
                if n <= min(max(_FEW, _WIDE * p.shape[1]), _MOST):
                    self._by_gram(np.flatnonzero(near), reach, goal)
                else:
                    self._by_weights(goal)
            self.centre = self.scores.copy()
            found = certify(p, p.sparse(self._packed()), _IN_TURN, self._losses)
            if found.gap <= tol:
                return found
            self.W = self.centre_W = found.weight
            if (near == before).all():
                goal *= 0.5
        return None

    def _packed(self) -> Kept:
        """α in compressed rows."""
        p = self.problem
        ptr, dtype = np.zeros(len(self.alpha) + 1, np.int64), small_int(p.n_outputs)
        proximal.pack(self.alpha, p.labels, ptr, np.empty(0, dtype), np.empty(0), False)
        kept = Kept(ptr, np.empty(ptr[-1], dtype), np.empty(ptr[-1]))
        proximal.pack(self.alpha, p.labels, ptr, kept.outputs, kept.alpha, True)
        return kept

    def _losses(self, W: Doubles) -> Losses:
        """Score all rows with some W, and tell the losses."""
        loss, margin = 0.0, np.inf
        for rows in self.problem.blocks():
            self.scores[rows] = exact = passes.score(self.problem, W, rows)
            found = proximal.losses(exact, self.problem.labels[rows])
            loss, margin = loss + found[0], min(margin, found[1])
        return Losses(loss, 0.0, margin)

    def _distances(self) -> Doubles:
        """How far each row is from changing."""
        out = np.empty(len(self.alpha))
        proximal.kink_distance(self.scores, self.problem.labels, self.alpha, out)
        return out

    def _is_done(self, goal: float) -> bool:
        """Whether the gap is small enough as it is."""
        p = self.problem
        gap, primal = proximal.values(self.scores.T, p.labels, self.alpha, self.ground.times, p.C, 1.0)
        return bool(gap <= goal * primal)

    def _by_gram(self, rows: Ints, reach: float, goal: float) -> None:
        """Move some rows, the others stay."""
        p, ground = self.problem, self.ground
        if ground.gram is None:
            G = products(p.features[rows], p.bias)
        else:
            G = np.empty((len(rows), len(rows)), p.features.dtype)
            proximal.gather(ground.gram, self.rows[rows], G)
        others = np.ones(len(self.rows), bool)
        others[rows] = False
        _, outside = proximal.values(
            self.scores[others].T, p.labels[others], self.alpha[others], ground.times, p.C, 1.0
        )
        back = 1.0 + self.rho
        now = _by_class(self.scores[rows]) / p.features.dtype.type(back)
        alpha = self.alpha[rows] / back
        self.sweeps += proximal.ascend_by_gram(
            G, p.labels[rows], now, _by_class(self.centre[rows]), alpha, ground.times, p.C / back, self.rho,
            reach / back, outside, goal, _SWEEPS, self.rng,
        )  # fmt: skip
        self.alpha[rows] = back * alpha

    def _by_weights(self, goal: float) -> None:
        """Move all rows, in rounds of some sweeps over those near a change."""
        p = self.problem
        (n, K), dtype = self.alpha.shape, p.features.dtype
        rows, ptr = np.empty(n, np.int32), np.empty(n + 1, np.int64)
        classes = np.empty(n * K, small_int(K))
        back = 1.0 + self.rho
        alpha = self.alpha / back
        mean = alpha.copy()
        W = (self.W / back).astype(dtype)
        mean_W, centre_W = W.copy(), self.centre_W.astype(dtype)
        before, made = self.centre, 0
        # What the first sweep begins with; later on the mean is near enough to tell who may move.
        scores: Floats = (self.scores + dtype.type(self.rho) * self.centre) / dtype.type(back)
        while made < _SWEEPS:
            slack = _SLACK * float(np.abs(scores - before).mean())
            count = proximal.select(scores, p.labels, alpha, slack, rows, ptr, classes)
            listed = rows[:count], ptr[: count + 1], classes
            sweeps = max(4, made // 4)
            proximal.ascend_by_weights(
                p.features, p.labels, p.squared_norms, *listed, W, centre_W, mean_W, alpha, mean,
                self.ground.times, p.C / back, p.bias, self.rho, slack, made, sweeps, self.rng,
            )  # fmt: skip
            made += sweeps
            np.multiply(mean, back, out=self.alpha)
            before, scores = scores, score(p.features, back * mean_W, p.bias)
            self.scores = scores
            if self._is_done(goal):
                break
        self.sweeps += made


def _by_class(scores: Floats) -> Floats:
    return np.ascontiguousarray(scores.T)
