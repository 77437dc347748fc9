"""Effects of all samples on tests, from one solution or from many that were solved on halves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attributors.effects.outputs import Output, slopes
from whence.core import contents
from whence.core.arrays import Doubles, Floats, Ints
from whence.core.store import Arrays
from whence.svm.linearised import Constraints, Linearised

_BLOCK = 1 << 22  # scores computed at a time
_OWN = 1024  # samples whose effects on themselves are computed at a time


class Solved(NamedTuple):
    """One surrogate: its W (K, D), and how it changes with its samples."""

    weight: Doubles
    change: Linearised


class Shift:
    """One surrogate's first-order effects, as tensors.

    Parameters
    ----------
    solved : the surrogate; rows of its samples count in ``vectors``
    vectors : (n, D) features of all samples that can have an effect, the constant among them
    """

    def __init__(self, solved: Solved, vectors: Tensor) -> None:
        place, change = vectors.device, solved.change
        self.vectors = vectors
        self.weight = torch.as_tensor(solved.weight, dtype=vectors.dtype, device=place)
        self.inverse = torch.as_tensor(change.inverse, device=place)  # float64: constraints may be near equal
        self.own = torch.as_tensor(change.own, device=place)
        owners, plus, minus = (torch.as_tensor(part, device=place) for part in change.constraints)
        self.owners, self.plus, self.minus = owners, plus, minus
        columns = change.moves.tocsc()
        self.moves = {}
        for c in np.flatnonzero(np.diff(columns.indptr)).tolist():
            some = slice(columns.indptr[c], columns.indptr[c + 1])
            rows = torch.as_tensor(columns.indices[some].astype(np.int64), device=place)
            self.moves[c] = rows, torch.as_tensor(columns.data[some], dtype=vectors.dtype, device=place)

    def slopes(self, tests: Tensor, classes: Tensor, output: Output, sharpness: float) -> Tensor:
        """Give the output's derivative (B, K) by this surrogate's logits of tests (B, D)."""
        return slopes(output, tests @ self.weight.T, classes, sharpness)

    def scores(self, tests: Tensor, weights: Tensor) -> Tensor:
        """Effects (B, n) on Σ_c weights_c w_c·f(x), for tests (B, D) and weights (B, K).

        The test's direction weights ⊗ f(x) is freed of what the constraints hold, and then meets u_i ⊗ f_i;
        a sample's own constraints go with it.
        """
        held, bound = self._held(tests, weights)
        out = tests.new_zeros(len(tests), len(self.vectors))
        for c, (rows, data) in self.moves.items():
            free = self._free(tests, weights, held, bound, c)
            out[:, rows] += (free @ self.vectors[rows].T) * data
        return out.index_add_(1, self.owners, (held * self.own).to(out))

    def own_scores(self, tests: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
        """Effects (B,) of sample rows (B,), each on a test of its own."""
        held, bound = self._held(tests, weights)
        out = tests.new_zeros(len(tests))
        place = torch.full((len(self.vectors),), -1, device=tests.device)
        for c, (moving, data) in self.moves.items():
            place[moving] = torch.arange(len(moving), device=tests.device)
            some = torch.nonzero(place[rows] >= 0)[:, 0]
            free = self._free(tests[some], weights[some], held[some], bound, c)
            out[some] += (free * self.vectors[rows[some]]).sum(1) * data[place[rows[some]]]
            place[moving] = -1
        mine = self.owners[None] == rows[:, None]
        return out + (held * self.own * mine).sum(1).to(out)

    def directions(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Vectors e_i (r, D), for sample rows (r,) and weights (K,), with e_i·f(x) the effect."""
        V, u = self.vectors[self.owners].double(), self._moves_of(rows, len(weights))
        p = (u[:, self.plus] - u[:, self.minus]).double()  # (r, m)
        pulled = (self.vectors[rows].double() @ V.T * p) @ self.inverse
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

    def _held(self, tests: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Give how far (B, m) each constraint holds on to the tests' directions, and its features (m, D)."""
        bound = self.vectors[self.owners].double()
        along = (tests.double() @ bound.T) * (weights[:, self.plus] - weights[:, self.minus])
        return along @ self.inverse, bound

    def _free(self, tests: Tensor, weights: Tensor, held: Tensor, bound: Tensor, c: int) -> Tensor:
        """Give row c (B, D) of the tests' directions, without what the constraints hold."""
        # In float64: what nearly equal constraints hold nearly cancels.
        free = (weights[:, c : c + 1] * tests).double()
        for classes, sign in ((self.plus, -1), (self.minus, 1)):
            some = torch.nonzero(classes == c)[:, 0]
            free = torch.addmm(free, held[:, some], bound[some], alpha=sign)
        return free.to(tests)


class Shifts:
    """The surrogates of all halves, or the one of all samples, and what they say together.

    Parameters
    ----------
    solved : one per half
    vectors : (n, D) float32, features of the samples that can have an effect
    rows : (n,) their places among the samples that took part in the fit, ascending
    device : where effects are computed
    """

    def __init__(
        self, solved: list[Solved], vectors: Floats, rows: Ints, device: torch.device | None
    ) -> None:
        self.solved, self.rows = solved, rows
        self.vectors = torch.as_tensor(vectors, device=device)
        self.each = [Shift(one, self.vectors) for one in solved]

    @classmethod
    def of(cls, solved: list[Solved], features: Floats, device: torch.device | None) -> Shifts:
        """Keep of features (N, D) what surrogates need that were linearised in all N samples."""
        moving = np.zeros(len(features), dtype=bool)
        for one in solved:
            moving |= np.diff(one.change.moves.indptr) > 0
        rows = np.flatnonzero(moving)
        kept = []
        for weight, change in solved:
            held = change.constraints._replace(owners=np.searchsorted(rows, change.constraints.owners))
            kept.append(
                Solved(weight, replace(change, moves=csr_array(change.moves[rows]), constraints=held))
            )
        return cls(kept, features[rows], rows, device)

    def scores(self, tests: Tensor, classes: Tensor, output: Output, sharpness: float, n: int) -> Tensor:
        """Mean effects (B, n) of all n samples that took part in the fit on tests (B, D)."""
        out = tests.new_zeros(len(tests), n)
        places = torch.as_tensor(self.rows, device=tests.device)
        for rows, mean, _ in self.moments(tests, classes, output, sharpness):
            # What is below the last digit of a test's largest effect is rounding, whose sign says nothing.
            seen = mean.abs() > torch.finfo(mean.dtype).eps * mean.abs().amax(1, keepdim=True)
            out[rows, places] = mean.where(seen, 0.0)
        return out

    def own(self, labels: Tensor, output: Output, sharpness: float) -> Tensor:
        """Mean effect (n,) of each sample of ``rows`` on itself, for its label (n,)."""
        out = self.vectors.new_zeros(len(self.vectors))
        for start in range(0, len(out), _OWN):
            rows = torch.arange(start, min(start + _OWN, len(out)), device=out.device)
            for shift in self.each:
                weights = shift.slopes(self.vectors[rows], labels[rows], output, sharpness)
                out[rows] += shift.own_scores(self.vectors[rows], weights, rows) / len(self.each)
        return out

    def directions(
        self, test: Tensor, target: Tensor, output: Output, sharpness: float, rows: Tensor
    ) -> Tensor:
        """Vectors e_i (r, D) of sample rows (r,), with e_i·f(x) their mean effect on one test (1, D)."""
        mean = self.vectors.new_zeros(len(rows), self.vectors.shape[1], dtype=torch.float64)
        for shift in self.each:
            weights = shift.slopes(test, target, output, sharpness)[0]
            mean += shift.directions(rows, weights).double() / len(self.each)
        return mean

    def moments(
        self, tests: Tensor, classes: Tensor, output: Output, sharpness: float
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield tests, and mean and variance (b, n) of their effects over the halves, a few at a time."""
        width = max(1, _BLOCK // max(1, len(self.vectors)))
        for start in range(0, len(tests), width):
            rows = slice(start, min(start + width, len(tests)))
            mean = square = tests.new_zeros(1)
            for k, shift in enumerate(self.each):
                weights = shift.slopes(tests[rows], classes[rows], output, sharpness)
                found = shift.scores(tests[rows], weights)
                before, mean = mean, mean + (found - mean) / (k + 1)
                square = square + (found - before) * (found - mean)
            yield rows, mean, square / max(1, len(self.each) - 1)

    def totals(self, parts: Iterable[tuple[Tensor, Tensor]], output: Output, sharpness: float) -> Doubles:
        """Effects (M, n) by each of M surrogates on the sum of the outputs for tests.

        The derivatives of all tests by W are summed before they meet a sample, so that many tests cost as
        much as one, and no matrix of tests and samples is made.

        Parameters
        ----------
        parts : tests (b, D) and their classes (b,), some at a time
        output, sharpness : as for ``scores``
        """
        weights = [one.weight for one in self.solved]
        sums = [np.zeros(weight.shape) for weight in weights]
        for tests, classes in parts:
            f = tests.double().cpu()
            for weight, total in zip(weights, sums, strict=True):
                slope = slopes(output, f @ torch.as_tensor(weight).double().T, classes, sharpness)
                total += (slope.T @ f).numpy()
        vectors = self.vectors.cpu().numpy()
        pairs = zip(self.solved, sums, strict=True)
        return np.stack([one.change.effects(vectors, total) for one, total in pairs])

    def arrays(self) -> Arrays:
        """Everything to save."""
        changes = [one.change for one in self.solved]
        moves = [change.moves for change in changes]
        sizes = np.array([[len(change.own), move.nnz] for change, move in zip(changes, moves, strict=True)])
        held = [np.concatenate(parts) for parts in zip(*(c.constraints for c in changes), strict=True)]
        return {
            "shift_sizes": sizes.astype(np.int64),
            "shift_vectors": self.vectors.cpu().numpy(),
            "shift_rows": self.rows,
            "shift_weights": np.stack([one.weight for one in self.solved]).astype(np.float32),
            "shift_owners": held[0],
            "shift_plus": held[1],
            "shift_minus": held[2],
            "shift_own": np.concatenate([change.own for change in changes]),
            "shift_inverse": np.concatenate([change.inverse.ravel() for change in changes]),
            "shift_data": np.concatenate([move.data for move in moves]),
            "shift_indices": np.concatenate([move.indices for move in moves]).astype(np.int64),
            "shift_indptr": np.concatenate([move.indptr for move in moves]).astype(np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_classes: int, device: torch.device | None) -> Shifts:
        """Rebuild from what ``arrays`` gave."""
        part = {name.removeprefix("shift_"): array for name, array in arrays.items()}
        n, solved = len(part["vectors"]), []
        at = {"held": 0, "inverse": 0, "moves": 0}
        for j, (m, entries) in enumerate(part["sizes"].tolist()):
            held = slice(at["held"], at["held"] + m)
            square = slice(at["inverse"], at["inverse"] + m * m)
            some = slice(at["moves"], at["moves"] + entries)
            indptr = part["indptr"][j * (n + 1) : (j + 1) * (n + 1)]
            moves = csr_array((part["data"][some], part["indices"][some], indptr), shape=(n, n_classes))
            constraints = Constraints(*(part[name][held] for name in ("owners", "plus", "minus")))
            inverse = part["inverse"][square].reshape(m, m)
            change = Linearised(moves, constraints, inverse, part["own"][held])
            solved.append(Solved(part["weights"][j], change))
            at = {"held": held.stop, "inverse": square.stop, "moves": some.stop}
        return cls(solved, part["vectors"], part["rows"], device)


def checked(arrays: Arrays, n: int, shape: tuple[int, int]) -> None:
    """Raise StoreError unless saved arrays are of shifts, for n samples and W of a shape (K, D)."""
    integers = ("sizes", "rows", "owners", "plus", "minus", "indices", "indptr")
    floats = ("vectors", "weights", "own", "inverse", "data")
    contents.check_names(arrays, {f"shift_{name}" for name in (*integers, *floats)})
    part = {name: arrays[f"shift_{name}"] for name in (*integers, *floats)}
    K, D = shape
    sizes: contents.Sizes = {}
    contents.check_integers(
        "shift_sizes", part["sizes"], ("M", 2), sizes, 0, max(len(part["own"]), len(part["data"]))
    )
    M = sizes["M"]
    m, entries = part["sizes"][:, 0], part["sizes"][:, 1]
    layout: contents.Layout = {
        "shift_vectors": ("n", D),
        "shift_weights": (M, K, D),
        "shift_own": (int(m.sum()),),
        "shift_inverse": (int((m**2).sum()),),
        "shift_data": (int(entries.sum()),),
    }
    single = dict.fromkeys(("shift_vectors", "shift_weights"), ("float32",))
    contents.check_floats(arrays, layout, sizes, single)
    rows, most = sizes["n"], len(part["own"])
    contents.check_integers("shift_rows", part["rows"], (rows,), sizes, 0, n - 1)
    if (np.diff(part["rows"]) <= 0).any():
        raise contents.refused("'shift_rows' must ascend, and does not")
    contents.check_integers("shift_owners", part["owners"], (most,), sizes, 0, rows - 1)
    for name in ("plus", "minus"):
        contents.check_integers(f"shift_{name}", part[name], (most,), sizes, 0, K - 1)
    at = np.r_[0, np.cumsum(entries)]
    for j in range(M):
        some = slice(at[j], at[j + 1])
        indptr = part["indptr"][j * (rows + 1) : (j + 1) * (rows + 1)]
        one = {"data": part["data"][some], "indices": part["indices"][some], "indptr": indptr}
        contents.check_rows(one, "", rows, K)
