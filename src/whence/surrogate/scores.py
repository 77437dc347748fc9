"""Scores τ = λ z_i·z(x) from the support vectors' features, grouped by class, without a class axis."""

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
from whence.features.metric import FeatureMap
from whence.features.rows import fits, mapped

_ERROR = 1e-4  # error of a sum of scores, relative to margins of 1, above which float64 is used
_RANGE = 1e30  # sizes of λ and of products up to which float32 has no overflow
_BLOCK = 1 << 22  # scores per block, so that memory does not grow with the number of tests
_BLOCK_BYTES = 1 << 25  # bytes of rows read from a memory map at a time


class Contrast(NamedTuple):
    """The explained output, and the reference of scores for one test.

    Attributes
    ----------
    target : the explained output
    against : another output: scores are then evidence for the target over it; None for the target alone
    relative : whether scores are relative to the mean training sample, or to the mean of class ``against``;
        else they are the paper's τ
    """

    target: int
    against: int | None = None
    relative: bool = False


class Scored(NamedTuple):
    """The training samples that have a score for one test and target.

    Attributes
    ----------
    indices, scores : (s,) their indices, ascending, and their scores
    """

    indices: Ints
    scores: Doubles


class Parts(NamedTuple):
    """The scores of m pairs of one test as linear functions of features.

    Attributes
    ----------
    vectors : (m, d) features z_i of the training samples, as the surrogate reads them
    on_test : (m, d) vectors e_i: the score is e_i·z(x) + r_i, with z(x) as the surrogate reads it
    on_train : (m, d) vectors t_i: the score is t_i·z_i + s_i
    coefficients : (m,) λ_ic if the score is λ_ic z_i·z(x); None for scores of another form
    """

    vectors: Tensor
    on_test: Tensor
    on_train: Tensor
    coefficients: Tensor | None


class Vectors:
    """Features (S, d) of the support vectors, in memory or read from a memory map in parts.

    Parameters
    ----------
    rows : (S, d) in memory, or a memory map (N, d)
    places : (S,) rows of the memory map, ascending; None if rows are in memory
    device : device of the tensors
    metric : map of tests, and of rows of a memory map; rows in memory are transformed already
    """

    def __init__(
        self,
        rows: Floats | Tensor,
        places: Ints | None = None,
        device: str | torch.device | None = None,
        metric: FeatureMap | None = None,
    ) -> None:
        self._places, self._map, self.metric = places, rows, metric or FeatureMap()
        self._held = torch.as_tensor(rows, device=device) if places is None else None
        n = len(rows) if places is None else len(places)
        self.shape = n, int(rows.shape[1])
        # An empty tensor with the width, device and dtype of rows.
        wide = rows.dtype in (np.float64, torch.float64)
        empty = torch.empty(0, self.shape[1], dtype=torch.float64 if wide else torch.float32, device=device)
        self.like = empty if self._held is None else self._held[:0]

    @classmethod
    def of(
        cls, features: Floats, support: Ints, device: str | torch.device | None, metric: FeatureMap
    ) -> Self:
        """Take the rows of support vectors (S,) from features (N, d): a copy, or a large memory map."""
        if mapped(features) and not fits(len(support), features.shape[1], features.dtype):
            return cls(features, support, device, metric)
        rows = torch.from_numpy(np.asarray(features[support]))
        return cls(metric(rows), None, device, metric)

    def __len__(self) -> int:
        return self.shape[0]

    def transform(self, features: Tensor) -> Tensor:
        """Return raw features (n, d) as the surrogate reads them."""
        return self.metric(features)

    def __getitem__(self, which: Any) -> Tensor:
        """Return some rows (n, d): a slice, or indices into the support vectors."""
        if self._held is not None:
            return self._held[which]
        assert self._places is not None
        if isinstance(which, Tensor):
            which = which.cpu().numpy()
        return self.transform(torch.as_tensor(np.array(self._map[self._places[which]])).to(self.like))

    def whole(self) -> Tensor:
        """Return all rows (S, d), in memory."""
        return self[:] if self._held is None else self._held

    @property
    def mapped(self) -> bool:
        """Whether rows are read on demand."""
        return self._held is None

    def parts(self, n: int) -> Iterator[slice]:
        """Divide n rows into slices that fit into memory; one slice if rows are in memory already."""
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


class Expansion:
    """τ_c(x, i) = λ_ic (z_i·z(x) + b² with a bias), for the samples i that have some λ_ic ≠ 0.

    Relative to the mean z̄ of the training set they are λ_ic z_i·(z(x) − z̄), and as evidence for class c over
    c' (λ_ic − λ_ic') z_i·(z(x) − z̄_c'), with the mean of class c'.

    Tests are grouped by target. For class c only the samples with λ_ic ≠ 0 enter, so all products together
    are at most one (B, d) × (d, S) product, usually a fraction of it: a support vector is evidence for its
    own class and against one or two rivals. Memory does not depend on the number of classes.

    Parameters
    ----------
    vectors : (S, d), features of the support vectors, in memory or in a map
    support : (S,) their places in the training set, ascending
    lam : (N, K) sparse coefficients, rows outside ``support`` empty
    constant : b, appended to the features for the bias; 0 without one
    means : (1, d) or (1 + K, d) the mean z̄, and those of the classes; None for tests that are relative to
        them already

    Attributes
    ----------
    dtype : dtype of the scores: that of the vectors, or float64 if float32 is too coarse for their sum
    """

    def __init__(
        self,
        vectors: Vectors,
        support: npt.NDArray[np.int64],
        lam: csr_array,
        *,
        constant: float,
        means: Doubles | None = None,
    ) -> None:
        self.vectors, device = vectors, vectors.like.device
        self.square = constant**2
        self.n_train = lam.shape[0]
        columns = lam[support].tocsc()
        columns.sort_indices()
        self._columns, self._means = columns, means
        self._sample = torch.as_tensor(support, device=device)
        self.dtype = self._wide_enough(columns)

    def _wide_enough(self, columns: csc_array) -> torch.dtype:
        """Choose a precision in which scores (…, i) of either sign still sum to a logit around 1."""
        dtype = self.vectors.like.dtype
        if dtype == torch.float64 or not columns.nnz:
            return dtype
        squares = self.vectors.lengths().cpu().numpy() ** 2
        lengths = np.sqrt(squares + self.square)
        # Σ_i |λ_ic| ‖f_i‖ ‖f(x)‖ bounds the summands for a test as long as the vectors.
        added = float(np.max(abs(columns).T @ lengths)) * float(np.sqrt(np.mean(lengths**2)))
        coarse = added * torch.finfo(torch.float32).eps > _ERROR
        sizes = float(np.abs(columns.data).max()), float(np.mean(lengths**2))  # of λ and of products
        return torch.float64 if coarse or not all(1 / _RANGE < size < _RANGE for size in sizes) else dtype

    def dense(
        self, tests: Tensor, target: Tensor, against: Tensor | None = None, relative: bool = False
    ) -> Tensor:
        """Compute all scores (B, N), zero for samples that are not support vectors of the target."""
        asked = self._asked(tests, target, against, relative)
        out = _zeros(asked.tests, len(tests), self.n_train)
        for rows, _, samples, scores in self._blocks(asked):
            _put(out, rows, samples, scores)
        return out

    def sparse(
        self, tests: Tensor, target: Tensor, against: Tensor | None = None, relative: bool = False
    ) -> csr_array:
        """Return the same scores as CSR (B, N), one entry per support vector of the test's target."""
        asked = self._asked(tests, target, against, relative)
        tests = asked.tests
        counts = np.array([len(self._column(pair)[0]) for pair in asked.pairs], np.int64)[asked.pair_of]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = np.empty(indptr[-1], dtype=np.int64)
        data = np.empty(indptr[-1], dtype=tests.cpu().numpy().dtype)
        for rows, part, samples, scores in self._blocks(asked):
            columns, values = samples.cpu().numpy(), scores.cpu().numpy()
            for row, value in zip(rows.tolist(), values, strict=True):
                here = slice(indptr[row] + part.start, indptr[row] + part.stop)
                indices[here] = columns
                data[here] = value
        return csr_array((data, indices, indptr), shape=(len(tests), self.n_train))

    def top_k(
        self,
        tests: Tensor,
        target: Tensor,
        k: int,
        against: Tensor | None = None,
        relative: bool = False,
    ) -> tuple[Ranked, Ranked]:
        """Find the k largest positive and the k most negative scores of each test, each (B, k)."""
        asked = self._asked(tests, target, against, relative)
        tests, ranked = asked.tests, []
        for _ in range(2):
            indices = torch.full((len(tests), k), -1, dtype=torch.int64, device=tests.device)
            ranked.append(Ranked(indices, tests.new_zeros(len(tests), k)))
        for rows, part, samples, scores in self._blocks(asked):
            for place, side in enumerate(rank(scores, k) if len(samples) else ()):
                whole = ranked[place]
                best = Ranked(samples[side.indices.clamp(min=0)].where(side.indices >= 0, -1), side.scores)
                if part.start:  # the first of tied samples wins
                    best = merged([Ranked(whole.indices[rows], whole.scores[rows]), best], k, place)
                whole.indices[rows], whole.scores[rows] = best
        return ranked[0], ranked[1]

    def shifted(
        self, tests: Tensor, target: Tensor, against: Tensor | None = None, relative: bool = False
    ) -> Tensor:
        """Return transformed tests minus the mean that their scores are relative to."""
        read = self.vectors.transform(tests).to(self.dtype)
        if not relative or self._means is None:
            return read
        place = torch.zeros_like(target) if against is None else against + 1
        return read - torch.as_tensor(self._means)[place].to(read)

    def _asked(self, tests: Tensor, target: Tensor, against: Tensor | None, relative: bool) -> _Asked:
        outputs = [target] if against is None else [target, against]
        pairs, pair_of = torch.unique(torch.stack(outputs, dim=1), dim=0, return_inverse=True)
        read = self.shifted(tests, target, against, relative)
        return _Asked(read, pairs.tolist(), pair_of.numpy(), 0.0 if relative else self.square)

    def _column(self, pair: list[int]) -> tuple[Ints, Doubles]:
        """Return the vectors (s,) with a coefficient for an output, or a pair, and their coefficients."""
        if len(pair) == 1:
            entries = slice(*self._columns.indptr[pair[0] : pair[0] + 2])
            return self._columns.indices[entries].astype(np.int64), self._columns.data[entries]
        column = csc_array(self._columns[:, [pair[0]]] - self._columns[:, [pair[1]]])
        column.sort_indices()
        return column.indices.astype(np.int64), column.data

    def _blocks(self, asked: _Asked) -> Iterator[tuple[Tensor, slice, Tensor, Tensor]]:
        """Yield (test rows (b,), entries of their class, training samples (s,), scores (b, s)).

        Each test comes once where vectors are in memory; otherwise once per part of its class's entries.
        """
        tests = asked.tests
        device = tests.device
        square = tests.new_full((1,), asked.square)
        for number, pair in enumerate(asked.pairs):
            places, values = self._column(pair)
            which = torch.as_tensor(places, device=device)
            lam, samples = torch.as_tensor(values, dtype=self.dtype, device=device), self._sample[which]
            rows = torch.as_tensor(np.flatnonzero(asked.pair_of == number), device=device)
            everyone = len(lam) == len(self.vectors)
            for chunk in self.vectors.parts(len(lam)):
                chosen = self.vectors[chunk if everyone else which[chunk]]
                vectors = chosen.to(self.dtype).T
                width = max(1, _BLOCK // max(1, vectors.shape[1]))
                for part in torch.split(rows, width):
                    # The product starts from the bias term, without a separate pass.
                    products = torch.addmm(square, tests[part], vectors)
                    yield part, chunk, samples[chunk], products.mul_(lam[chunk])


class _Asked(NamedTuple):
    """Tests and their explained outputs.

    Attributes
    ----------
    tests : (B, d) transformed, minus the mean that scores are relative to
    pairs : explained outputs, or pairs of outputs
    pair_of : (B,) the index of each test's pair
    square : the bias term of products
    """

    tests: Tensor
    pairs: list[list[int]]
    pair_of: Ints
    square: float


def _zeros(like: Tensor, rows: int, columns: int) -> Tensor:
    """Make a matrix of zeros with the dtype and device of ``like``."""
    if like.device.type != "cpu":
        return like.new_zeros(rows, columns)
    # numpy gets zeroed pages from the system; torch would write each page.
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
