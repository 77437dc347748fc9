"""How a solution changes, to first order, when a sample leaves it or enters it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints, Mask
from whence.errors import InvalidInputError

_BOUND = 1e-4  # of C: λ nearer to a bound than that is at it, as far as a gap of 1e-6 can tell
_JITTER = 1e-8  # of the mean squared length of the constraints, so that dependent ones have an inverse
_MOST = 20_000  # constraints whose Gram matrix is held: 3.2 GB


NOBODY: Ints = np.empty(0, dtype=np.int64)
"""No samples."""


class Constraints(NamedTuple):
    """Pairs of classes whose scores keep their difference at a sample: (w_plus − w_minus)·f stays.

    Attributes
    ----------
    owners : (m,) rows of the samples, ascending
    plus, minus : (m,) the classes
    """

    owners: Ints
    plus: Ints
    minus: Ints

    def alike(self, plus: Ints, minus: Ints) -> Doubles:
        """p_k·p of each constraint's p_k = e_plus − e_minus with other such vectors (n,), as (m, n)."""
        same: Doubles = (self.plus[:, None] == plus).astype(np.float64)
        same += self.minus[:, None] == minus
        same -= self.plus[:, None] == minus
        same -= self.minus[:, None] == plus
        return same


@dataclass(frozen=True, eq=False)
class Linearised:
    """The first-order change of W when one sample leaves the solution, or enters it.

    At the optimum a sample with 0 < λ_y < C has (w_y − w_c)·f = 1 for its active rivals c, and one at the
    bound with several active rivals has equal scores for them. As long as the active set holds, these
    constraints, with directions v = p ⊗ f, go on holding whoever leaves. Sample i leaves with u_i = λ_i ⊗
    f_i, and W changes by −(I − P₋ᵢ) u_i, where P₋ᵢ projects onto the span of the others' constraints. A
    sample outside that has a loss, against its worst rival r, enters with u_i = t (e_y − e_r) ⊗ f_i, and W
    changes by (I − P) u_i; t is C, or less where its loss is gone before.

    Attributes
    ----------
    moves : (N, K) u_i as coefficients of f_i: λ_i of members, t (e_y − e_r) of others; empty rows do nothing
    constraints : of the solution, m of them
    inverse : (m, m) of their Gram matrix v·v′
    own : (m,) what a sample's own constraints give back when it leaves
    """

    moves: csr_array
    constraints: Constraints
    inverse: Doubles
    own: Doubles

    @classmethod
    def of(
        cls, features: Floats, labels: Ints, lam: csr_array, C: float, members: Mask, *, entering: bool
    ) -> Linearised:
        """Linearise a solution.

        Parameters
        ----------
        features : (N, D), the constant that carries the bias among them
        labels : (N,)
        lam : (N, K) optimal for the members
        C : of the solution
        members : (N,) which samples it was solved on
        entering : whether the others are to be told what they would do, too
        """
        held = constraints_of(lam, labels, C)
        F = features[held.owners].astype(np.float64)
        products = F @ F.T
        inverse = _inverse(products * held.alike(held.plus, held.minus))
        moves, own = lam.copy(), np.zeros(len(held.owners))
        for block in _blocks(held.owners):
            i = held.owners[block.start]
            entries = slice(lam.indptr[i], lam.indptr[i + 1])
            u = np.zeros(lam.shape[1])
            u[lam.indices[entries]] = lam.data[entries]
            against = products[block.start] * (u[held.plus] - u[held.minus])
            own[block] = np.linalg.solve(inverse[block, block], inverse[block] @ against)
        if entering:
            moves = moves + _entering(features, labels, lam, C, members, held, F, inverse)
        return cls(csr_array(moves), held, inverse, own)

    def effects(self, features: Floats, direction: Doubles) -> Doubles:
        """Give what every sample's presence adds to Σ_c g_c·w_c, (N,), for g (K, D); of those outside, would.

        An output that is a function of W has g as its gradient, so that one g serves a sum over many tests.

        Parameters
        ----------
        features : (N, D), as they were linearised
        direction : (K, D) g
        """
        held = self.constraints
        F = features[held.owners].astype(np.float64)
        pulled = self.inverse @ _along(direction, held, F)
        free = direction - _span(pulled, held, F, direction.shape)
        moving = np.flatnonzero(np.diff(self.moves.indptr))
        out = np.zeros(len(features))
        out[moving] = self.moves[moving].multiply(features[moving] @ free.T).sum(axis=1)
        np.add.at(out, held.owners, pulled * self.own)
        return out

    def change(
        self,
        features: Floats,
        weight: Doubles,
        C: float,
        leaving: Ints,
        entering: Ints = NOBODY,
        labels: Ints = NOBODY,
    ) -> Doubles:
        """Give the change (K, D) of W when members leave together, and then samples enter.

        Members I leave with u = Σ_{i∈I} u_i, and W changes by −(I − P₋I) u. With V the constraints, Q the
        inverse of their Gram matrix, a = Q Vᵀu and B those of I, P₋I u = V z for z = a − Q_{·B} Q_BB⁻¹ a_B.
        Those that enter then do so each as if by itself, with the steps t that W and the constraints of the
        others leave them.

        Parameters
        ----------
        features : (N, D), as they were linearised
        weight : (K, D) W
        C : of the solution
        leaving : (n,) rows of members
        entering, labels : (k,) rows of samples outside, or that leave, and the labels they enter with
        """
        mine = np.isin(self.constraints.owners, leaving)
        rest, B = np.flatnonzero(~mine), np.flatnonzero(mine)
        Q = self.inverse
        between = Q[np.ix_(B, rest)]
        Q = Q[np.ix_(rest, rest)] - between.T @ np.linalg.solve(Q[np.ix_(B, B)], between)
        held = Constraints(*(part[rest] for part in self.constraints))
        F = features[held.owners].astype(np.float64)
        found = -_freed(self.moves[leaving].T @ features[leaving].astype(np.float64), held, F, Q)
        if len(entering):
            f = features[entering].astype(np.float64)
            found += _freed(_steps(f, labels, weight + found, C, held, F, Q).T @ f, held, F, Q)
        return found


def constraints_of(lam: csr_array, labels: Ints, C: float) -> Constraints:
    """Find the constraints that hold at a solution λ (N, K) with this C."""
    rows = np.repeat(np.arange(lam.shape[0]), np.diff(lam.indptr))
    rival = (lam.indices != labels[rows]) & (lam.data < -_BOUND * C)
    rows, rivals, size = rows[rival], lam.indices[rival].astype(np.int64), -lam.data[rival]
    total = np.bincount(rows, size, lam.shape[0])
    first = np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.empty(0, bool)
    bound = total[rows] >= C * (1 - _BOUND)
    lead = rivals[np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))] if len(rows) else rivals
    kept = ~(bound & first)  # at the bound, the first rival is what the others are compared with
    plus = np.where(bound, lead, labels[rows])
    return Constraints(rows[kept], plus[kept], rivals[kept])


def activity(lam: csr_array, labels: Ints, C: float) -> csr_array:
    """Tell the active set of a solution λ (N, K): 1 at active rivals; at the label 1, or 2 at the bound."""
    rows = np.repeat(np.arange(lam.shape[0]), np.diff(lam.indptr))
    own, size = lam.indices == labels[rows], np.abs(lam.data)
    state = (size > _BOUND * C).astype(np.int8) + (own & (size >= C * (1 - _BOUND)))
    found = csr_array((state, lam.indices, lam.indptr), shape=lam.shape)
    found.eliminate_zeros()
    return found


def _entering(
    features: Floats,
    labels: Ints,
    lam: csr_array,
    C: float,
    members: Mask,
    held: Constraints,
    F: Doubles,
    inverse: Doubles,
) -> csr_array:
    """Give t (e_y − e_r) of the samples outside that have a loss, (N, K)."""
    rows, support = np.flatnonzero(~members), np.flatnonzero(np.diff(lam.indptr))
    W = lam[support].T @ features[support].astype(np.float64)  # (K, D)
    steps = _steps(features[rows].astype(np.float64), labels[rows], W, C, held, F, inverse).tocoo()
    return csr_array((steps.data, (rows[steps.row], steps.col)), shape=lam.shape)


def _steps(
    f: Doubles, y: Ints, W: Doubles, C: float, held: Constraints, F: Doubles, inverse: Doubles
) -> csr_array:
    """Give t (e_y − e_r) of samples with features f (n, D) and labels y (n,), each by itself, (n, K)."""
    rows = np.arange(len(y))
    behind = f @ W.T
    behind += 1.0 - behind[rows, y][:, None]
    behind[rows, y] = 0.0
    rivals, losses = behind.argmax(axis=1), behind.max(axis=1, initial=0.0)
    some = losses > 0.0
    f, y, rows, rivals, losses = f[some], y[some], rows[some], rivals[some], losses[some]
    products = (F @ f.T) * held.alike(y, rivals)  # (m, n)
    left = 2.0 * np.einsum("nd,nd->n", f, f) - np.einsum("mn,mn->n", products, inverse @ products)
    steps = np.minimum(C, losses / np.maximum(left, np.finfo(np.float64).tiny))
    both = np.r_[steps, -steps], (np.r_[rows, rows], np.r_[y, rivals])
    return csr_array(both, shape=behind.shape)


def _freed(direction: Doubles, held: Constraints, F: Doubles, inverse: Doubles) -> Doubles:
    """Give (I − P) u of a direction u (K, D), P projecting onto the span of constraints of features F."""
    return direction - _span(inverse @ _along(direction, held, F), held, F, direction.shape)


def _along(direction: Doubles, held: Constraints, F: Doubles) -> Doubles:
    """Give Vᵀu (m,) of a direction u (K, D) and constraints of features F (m, D)."""
    along: Doubles = np.einsum("md,md->m", direction[held.plus] - direction[held.minus], F)
    return along


def _span(parts: Doubles, held: Constraints, F: Doubles, shape: tuple[int, ...]) -> Doubles:
    """Give V z (K, D) of z (m,) and constraints of features F (m, D)."""
    out = np.zeros(shape)
    np.add.at(out, held.plus, parts[:, None] * F)
    np.subtract.at(out, held.minus, parts[:, None] * F)
    return out


def _inverse(gram: Doubles) -> Doubles:
    """Give the inverse of a Gram matrix (m, m), whose vectors may depend on each other."""
    m = len(gram)
    if m > _MOST:
        raise InvalidInputError(
            f"'C' must leave at most {_MOST:,} samples on the margin for effects. Got {m:,}. Use a smaller C."
        )
    if not m:
        return gram
    gram[np.diag_indices(m)] += _JITTER * np.trace(gram) / m
    inverse: Doubles = cho_solve(cho_factor(gram, lower=True, overwrite_a=True), np.eye(m))
    return inverse


def _blocks(owners: Ints) -> list[slice]:
    """Give the places of each sample's constraints."""
    starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]]) if len(owners) else np.empty(0, int)
    return [slice(a, b) for a, b in zip(starts, np.r_[starts[1:], len(owners)], strict=True)]
