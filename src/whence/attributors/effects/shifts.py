"""Effects of all samples on tests, from many solutions that were solved on halves, or from one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attributors.effects.outputs import Output, slopes
from whence.attributors.effects.shift import Products, Shift, Solved
from whence.core import contents
from whence.core.arrays import Doubles, Floats, Ints
from whence.core.store import Arrays
from whence.svm.linearised import Constraints, Linearised

_BLOCK = 1 << 22  # scores computed at a time
_OWN = 1024  # samples whose effects on themselves are computed at a time


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
        owners = np.unique(np.concatenate([one.change.constraints.owners for one in solved]))
        self._products = Products(self.vectors, torch.as_tensor(owners, device=self.vectors.device))
        self.each = [Shift(one, self._products) for one in solved]

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

    def scores(
        self,
        tests: Tensor,
        classes: Tensor,
        output: Output,
        sharpness: float,
        n: int,
        some: slice = slice(None),
    ) -> Tensor:
        """Mean effects (B, n) on tests (B, D) over some halves, of all n samples that took part in them."""
        out = tests.new_zeros(len(tests), n)
        places = torch.as_tensor(self.rows, device=tests.device)
        for rows, mean, _ in self.moments(tests, classes, output, sharpness, some):
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
        self, tests: Tensor, classes: Tensor, output: Output, sharpness: float, some: slice = slice(None)
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield tests, and mean and variance (b, n) of their effects over some halves, a few at a time."""
        each = self.each[some]
        width = max(1, _BLOCK // max(1, len(self.vectors)))
        for start in range(0, len(tests), width):
            rows = slice(start, min(start + width, len(tests)))
            products = self._products.with_tests(tests[rows])
            mean = square = tests.new_zeros(1)
            for k, shift in enumerate(each):
                weights = shift.slopes(tests[rows], classes[rows], output, sharpness)
                found = shift.scores(tests[rows], weights, products)
                before, mean = mean, mean + (found - mean) / (k + 1)
                square = square + (found - before) * (found - mean)
            yield rows, mean, square / max(1, len(each) - 1)

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
