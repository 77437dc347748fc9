"""Scores τ = λ (f_i·f(x)) from the support vectors' features, grouped by class: no class axis is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csc_array, csr_array
from torch import Tensor

from whence.core.arrays import Doubles, Floats, Ints
from whence.core.ranking import Ranked, merged, rank
from whence.features.rows import at_unit_length, fits, lengths, mapped

_ERROR = 1e-4  # of a sum of scores, beside margins of 1: above it float32 gives way to float64
_BLOCK = 1 << 22  # scores computed at a time: scratch memory stays small whatever the number of tests
_BLOCK_BYTES = 1 << 25  # of rows that are read from a map at a time


class Scored(NamedTuple):
    """The training samples that have a score for one test and target.

    Attributes
    ----------
    indices, scores : (s,) their places, ascending, and their scores
    """

    indices: Ints
    scores: Doubles


class Parts(NamedTuple):
    """What the scores of m pairs of one test are at the features.

    Attributes
    ----------
    vectors : (m, d) features f_i of the training samples, as the surrogate reads them
    on_test : (m, d) vectors e_i: the score is e_i·f(x), and the bias; f(x) as the surrogate reads it
    on_train : (m, d) vectors t_i: the score is t_i·f_i, and the bias
    bias : (m,) the part of the score that the bias carries
    coefficients : (m,) λ_ic where the score is λ_ic f_i·f(x); None for scores of another form
    """

    vectors: Tensor
    on_test: Tensor
    on_train: Tensor
    bias: Tensor
    coefficients: Tensor | None


class Vectors:
    """Features (S, d) of the support vectors, of which some are read at a time.

    Parameters
    ----------
    rows : (S, d), or a memory map (N, d) that ``places`` of it are rows of
    places : (S,) ascending; None where the rows are all there are, and are kept in memory
    device : where tensors of them are made
    unit : whether features are read at unit length: tests, and rows of a map. Rows in memory are so already
    """

    def __init__(
        self,
        rows: Floats | Tensor,
        places: Ints | None = None,
        device: str | torch.device | None = None,
        unit: bool = False,
    ) -> None:
        self._places, self._map, self.unit = places, rows, unit
        self._held = torch.as_tensor(rows, device=device) if places is None else None
        n = len(rows) if places is None else len(places)
        self.shape = n, int(rows.shape[1])
        # Of as many features, but of no rows: tells device and dtype.
        wide = rows.dtype in (np.float64, torch.float64)
        empty = torch.empty(0, self.shape[1], dtype=torch.float64 if wide else torch.float32, device=device)
        self.like = empty if self._held is None else self._held[:0]

    @classmethod
    def of(
        cls, features: Floats, support: Ints, device: str | torch.device | None = None, unit: bool = False
    ) -> Self:
        """Take the rows of support vectors (S,) among features (N, d): copies, or a map's where it is large.

        With ``unit`` they are read at unit length.
        """
        if mapped(features) and not fits(len(support), features.shape[1], features.dtype):
            return cls(features, support, device, unit)
        rows = torch.from_numpy(np.asarray(features[support]))
        return cls(at_unit_length(rows) if unit else rows, None, device, unit)

    def __len__(self) -> int:
        return self.shape[0]

    def divisors(self, features: Tensor) -> Tensor:
        """Return what features (n, d) are divided by when they are read, (n, 1): 1, or their lengths."""
        return lengths(features) if self.unit else features.new_ones(len(features), 1)

    def as_read(self, features: Tensor) -> Tensor:
        """Return features (n, d) of any samples as those of the support vectors are read."""
        return at_unit_length(features) if self.unit else features

    def __getitem__(self, which: Any) -> Tensor:
        """Return some rows (n, d): a slice, or places among the support vectors."""
        if self._held is not None:
            return self._held[which]
        assert self._places is not None
        if isinstance(which, Tensor):
            which = which.cpu().numpy()
        return self.as_read(torch.as_tensor(np.array(self._map[self._places[which]])).to(self.like))

    def whole(self) -> Tensor:
        """Return all rows (S, d), in memory."""
        return self[:] if self._held is None else self._held

    @property
    def mapped(self) -> bool:
        """Whether rows are read when they are needed."""
        return self._held is None

    def parts(self, n: int) -> Iterator[slice]:
        """Divide n rows into what may be in memory at a time: all, where they are in memory anyway."""
        step = n
        if self.mapped:
            step = max(1, _BLOCK_BYTES // (self.shape[1] * self.like.element_size()))
        for start in range(0, n, max(step, 1)):
            yield slice(start, min(start + step, n))

    def lengths(self) -> Tensor:
        """‖f_i‖ of each row, (S,), in float64."""
        blocks = (self[part] for part in self.parts(len(self)))
        norms = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in blocks]
        return torch.cat(norms) if norms else self.like.new_zeros(0, dtype=torch.float64)

    def squared_norms(self) -> Tensor:
        """‖f_i‖² of each row, (S,)."""
        blocks = (self[part] for part in self.parts(len(self)))
        norms = [torch.einsum("sd,sd->s", rows, rows) for rows in blocks]
        return torch.cat(norms) if norms else self.like.new_zeros(0)


class Expansion:
    """τ_c(x, i) = λ_ic (f_i·f(x) + b² with a bias), for the samples i that have some λ_ic ≠ 0.

    Tests are grouped by target. For class c only the samples with λ_ic ≠ 0 enter, so all products together
    are at most one (B, d) × (d, S) product, usually a fraction of it: a support vector speaks for its own
    class and against the one or two that rival it. Memory does not depend on the number of classes.

    Parameters
    ----------
    vectors : (S, d), features of the support vectors, in memory or in a map
    support : (S,) their places in the training set, ascending
    lam : (N, K) sparse coefficients, rows outside ``support`` empty
    constant : b, which follows the features to carry the bias; 0 without one

    Attributes
    ----------
    dtype : of the scores: that of the vectors, or float64 where float32 could not hold their sum
    """

    def __init__(
        self, vectors: Vectors, support: npt.NDArray[np.int64], lam: csr_array, *, constant: float
    ) -> None:
        self.vectors, device = vectors, vectors.like.device
        self.square = constant**2
        self.n_train = lam.shape[0]
        columns = lam[support].tocsc()
        columns.sort_indices()
        self._indptr = columns.indptr
        # Entries of class c, in training order: which vector, which sample, which coefficient.
        self._vector = torch.as_tensor(columns.indices.astype(np.int64), device=device)
        self._sample = torch.as_tensor(support[columns.indices], device=device)
        self.dtype = self._wide_enough(columns)
        self._lam = torch.as_tensor(columns.data, dtype=self.dtype, device=device)

    def _wide_enough(self, columns: csc_array) -> torch.dtype:
        """Choose a precision in which scores (…, i) of either sign still sum to a logit around 1."""
        dtype = self.vectors.like.dtype
        if dtype == torch.float64 or not columns.nnz:
            return dtype
        squares = self.vectors.lengths().cpu().numpy() ** 2
        lengths = np.sqrt(squares + self.square)
        # Σ_i |λ_ic| ‖f_i‖ ‖f(x)‖ bounds what is added up for a test that is as long as the vectors are.
        added = float(np.max(abs(columns).T @ lengths)) * float(np.sqrt(np.mean(lengths**2)))
        return torch.float64 if added * torch.finfo(torch.float32).eps > _ERROR else dtype

    def dense(self, tests: Tensor, target: Tensor) -> Tensor:
        """All scores, shape (B, N), zero for samples that are no support vectors of the target."""
        tests = self._tests(tests)
        out = _zeros(tests, len(tests), self.n_train)
        for rows, _, samples, scores in self._blocks(tests, target):
            _put(out, rows, samples, scores)
        return out

    def sparse(self, tests: Tensor, target: Tensor) -> csr_array:
        """Return the same scores as CSR (B, N), an entry for every support vector of the test's target."""
        tests = self._tests(tests)
        counts = np.diff(self._indptr)[target.numpy()]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = np.empty(indptr[-1], dtype=np.int64)
        data = np.empty(indptr[-1], dtype=tests.cpu().numpy().dtype)
        for rows, part, samples, scores in self._blocks(tests, target):
            columns, values = samples.cpu().numpy(), scores.cpu().numpy()
            for row, value in zip(rows.tolist(), values, strict=True):
                here = slice(indptr[row] + part.start, indptr[row] + part.stop)
                indices[here] = columns
                data[here] = value
        return csr_array((data, indices, indptr), shape=(len(tests), self.n_train))

    def top_k(self, tests: Tensor, target: Tensor, k: int) -> tuple[Ranked, Ranked]:
        """Find the k largest positive and the k most negative scores of each test, each (B, k)."""
        tests = self._tests(tests)
        ranked = []
        for _ in range(2):
            indices = torch.full((len(tests), k), -1, dtype=torch.int64, device=tests.device)
            ranked.append(Ranked(indices, tests.new_zeros(len(tests), k)))
        for rows, part, samples, scores in self._blocks(tests, target):
            for place, side in enumerate(rank(scores, k) if len(samples) else ()):
                whole = ranked[place]
                best = Ranked(samples[side.indices.clamp(min=0)].where(side.indices >= 0, -1), side.scores)
                if part.start:  # what comes first wins a tie
                    best = merged([Ranked(whole.indices[rows], whole.scores[rows]), best], k, place)
                whole.indices[rows], whole.scores[rows] = best
        return ranked[0], ranked[1]

    def _tests(self, tests: Tensor) -> Tensor:
        return self.vectors.as_read(tests).to(self.dtype)

    def _blocks(self, tests: Tensor, target: Tensor) -> Iterator[tuple[Tensor, slice, Tensor, Tensor]]:
        """Yield (test rows (b,), entries of their class, training samples (s,), scores (b, s)).

        Each test comes once where vectors are in memory; otherwise once per part of its class's entries.
        """
        square = tests.new_full((1,), self.square)
        for c in torch.unique(target).tolist():
            entries = slice(int(self._indptr[c]), int(self._indptr[c + 1]))
            lam, samples = self._lam[entries], self._sample[entries]
            rows = torch.nonzero(target == c)[:, 0].to(tests.device)
            everyone = len(lam) == len(self.vectors)
            for chunk in self.vectors.parts(len(lam)):
                chosen = self.vectors[chunk if everyone else self._vector[entries][chunk]]
                vectors = chosen.to(self.dtype).T
                width = max(1, _BLOCK // max(1, vectors.shape[1]))
                for part in torch.split(rows, width):
                    # What the bias adds is what the product starts from: no pass of its own.
                    products = torch.addmm(square, tests[part], vectors)
                    yield part, chunk, samples[chunk], products.mul_(lam[chunk])


def _zeros(like: Tensor, rows: int, columns: int) -> Tensor:
    """Make a matrix of zeros of the kind of ``like``."""
    if like.device.type != "cpu":
        return like.new_zeros(rows, columns)
    # numpy leaves fresh pages to the system, which hands them out zeroed; torch would write every one twice.
    return torch.from_numpy(np.zeros((rows, columns), dtype=like.numpy().dtype))


def _put(out: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> None:
    """Write values to out[rows, columns]."""
    if out.device.type != "cpu":
        out[rows[:, None], columns] = values
        return
    # numpy's one-row scatter is several times faster than torch's two-index one.
    array: npt.NDArray[Any] = out.numpy()
    places = columns.numpy()
    for row, value in zip(rows.tolist(), values.numpy(), strict=True):
        array[row][places] = value
