"""Effects of all samples on tests, from one solution."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from whence.attributors.effects.outputs import Output, slopes
from whence.core.arrays import Doubles
from whence.svm.linearised import Linearised

_ROOM = 1 << 28  # bytes for products of samples that are kept


class Solved(NamedTuple):
    """One surrogate: its W (K, D), and how it changes with its samples."""

    weight: Doubles
    change: Linearised


class Products:
    """Products of samples with those on a margin, and with tests: what all surrogates share.

    Kept for all of them, where there is room, so that a surrogate costs the same for any number of features.

    Parameters
    ----------
    vectors : (n, D) features of all samples that can have an effect, the constant among them
    owners : (u,) those of them that own a constraint in some surrogate, ascending
    """

    def __init__(self, vectors: Tensor, owners: Tensor) -> None:
        self.vectors, self._owners = vectors, owners
        self.kept = 8 * len(vectors) * (len(owners) + vectors.shape[1]) <= _ROOM

    @cached_property
    def _exact(self) -> Tensor:
        """Features (n, D) in float64: what nearly equal constraints hold nearly cancels."""
        return self.vectors.double()

    @cached_property
    def _all(self) -> Tensor:
        """Products (u, n)."""
        return self._exact[self._owners] @ self._exact.T

    def between(self, owners: Tensor, rows: Tensor) -> Tensor:
        """Products (m, r) of owners (m,) with sample rows (r,)."""
        if self.kept:
            # In two steps, which read and write in order.
            return self._all[torch.searchsorted(self._owners, owners)].index_select(1, rows)
        return self.vectors[owners].double() @ self.vectors[rows].double().T

    def with_tests(self, tests: Tensor) -> Tensor | None:
        """Products (B, n) of tests (B, D) with all samples, where those of samples are kept."""
        return tests.double() @ self._exact.T if self.kept else None


class Shift:
    """One surrogate's first-order effects, as tensors.

    Parameters
    ----------
    solved : the surrogate; rows of its samples count in ``products.vectors``
    products : of the samples
    """

    def __init__(self, solved: Solved, products: Products) -> None:
        vectors, change = products.vectors, solved.change
        place = vectors.device
        self.vectors, self.products = vectors, products
        self.weight = torch.as_tensor(solved.weight, dtype=vectors.dtype, device=place)
        self.inverse = torch.as_tensor(change.inverse, device=place)  # float64: constraints may be near equal
        self.own = torch.as_tensor(change.own, device=place)
        owners, plus, minus = (torch.as_tensor(part, device=place) for part in change.constraints)
        self.owners, self.plus, self.minus = owners, plus, minus
        columns = change.moves.tocsc()
        self.moves, self.holding = {}, {}
        for c in np.flatnonzero(np.diff(columns.indptr)).tolist():
            some = slice(columns.indptr[c], columns.indptr[c + 1])
            rows = torch.as_tensor(columns.indices[some].astype(np.int64), device=place)
            self.moves[c] = rows, torch.as_tensor(columns.data[some], dtype=vectors.dtype, device=place)
            signs = (plus == c).double() - (minus == c).double()
            held = torch.nonzero(signs)[:, 0]
            self.holding[c] = held, signs[held]

    def slopes(self, tests: Tensor, classes: Tensor, output: Output, sharpness: float) -> Tensor:
        """Give the output's derivative (B, K) by this surrogate's logits of tests (B, D)."""
        return slopes(output, tests @ self.weight.T, classes, sharpness)

    def scores(self, tests: Tensor, weights: Tensor, products: Tensor | None = None) -> Tensor:
        """Effects (B, n) on Σ_c weights_c w_c·f(x), for tests (B, D) and weights (B, K).

        The test's direction weights ⊗ f(x) is freed of what the constraints hold, and then meets u_i ⊗ f_i;
        a sample's own constraints go with it. ``products`` (B, n) of tests and samples save time, where there
        are any.
        """
        alike = products[:, self.owners] if products is not None else self._alike(tests)
        held = self._held(alike, weights)
        out = tests.new_zeros(len(tests), len(self.vectors))
        for c, (rows, data) in self.moves.items():
            if products is None:
                found = self._free(tests, weights, held, c) @ self.vectors[rows].T
            else:
                found = self._met(products, weights, held, c)
            out[:, rows] += found.to(out) * data
        return out.index_add_(1, self.owners, (held * self.own).to(out))

    def own_scores(self, tests: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
        """Effects (B,) of sample rows (B,), each on a test of its own: its features are tests (B, D)."""
        alike = self.products.between(self.owners, rows).T
        held = self._held(alike, weights)
        met = weights * tests.double().square().sum(1, keepdim=True)
        met.index_add_(1, self.plus, -held * alike).index_add_(1, self.minus, held * alike)
        mine = self.owners[None] == rows[:, None]
        own = (self._moves_of(rows, weights.shape[1]) * met).sum(1)
        return (own + (held * self.own * mine).sum(1)).to(tests)

    def directions(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Vectors e_i (r, D), for sample rows (r,) and weights (K,), with e_i·f(x) the effect."""
        V, u = self.vectors[self.owners].double(), self._moves_of(rows, len(weights))
        p = (u[:, self.plus] - u[:, self.minus]).double()  # (r, m)
        pulled = (self.products.between(self.owners, rows).T * p) @ self.inverse
        for j, row in enumerate(rows.tolist()):
            own = torch.nonzero(self.owners == row)[:, 0]
            pulled[j] -= self.own[own] @ self.inverse[own]
        signs = (weights[self.plus] - weights[self.minus]).double()
        return ((u.double() @ weights.double())[:, None] * self.vectors[rows] - (pulled * signs) @ V).to(
            self.vectors
        )

    def _moves_of(self, rows: Tensor, n_classes: int) -> Tensor:
        """Coefficients u_i (r, K) of some sample rows."""
        found = self.vectors.new_zeros(len(rows), n_classes)
        for c, (moving, data) in self.moves.items():
            everyone = self.vectors.new_zeros(len(self.vectors))
            everyone[moving] = data
            found[:, c] = everyone[rows]
        return found

    def _alike(self, tests: Tensor) -> Tensor:
        """Products (B, m) of tests (B, D) with the samples of the constraints."""
        return tests.double() @ self.vectors[self.owners].double().T

    def _held(self, alike: Tensor, weights: Tensor) -> Tensor:
        """Give how far (B, m) each constraint holds on to the directions of tests with products (B, m)."""
        return (alike * (weights[:, self.plus] - weights[:, self.minus])) @ self.inverse

    def _met(self, products: Tensor, weights: Tensor, held: Tensor, c: int) -> Tensor:
        """Give the product (B, r) of row c of the tests' directions, freed, with each sample that moves."""
        rows, (some, signs) = self.moves[c][0], self.holding[c]
        found = weights[:, c : c + 1] * products[:, rows]
        return found.addmm_(held[:, some] * signs, self.products.between(self.owners[some], rows), alpha=-1)

    def _free(self, tests: Tensor, weights: Tensor, held: Tensor, c: int) -> Tensor:
        """Give row c (B, D) of the tests' directions, without what the constraints hold."""
        # In float64: what nearly equal constraints hold nearly cancels.
        some, signs = self.holding[c]
        free = (weights[:, c : c + 1] * tests).double()
        return free.addmm_(held[:, some] * signs, self.vectors[self.owners[some]].double(), alpha=-1).to(
            tests
        )
