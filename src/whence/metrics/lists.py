"""Metrics on the lists of strongest samples: how far they depend on the test, and how far scores cancel.

Values per test serve for intervals and ties, which ``whence_studies.comparison`` computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse

from whence.core.arrays import Array, Doubles, Ints
from whence.core.checks import (
    as_int64,
    check_count,
    check_finite,
    check_shape,
    check_that,
    real_array,
    to_array,
)
from whence.core.display import displayed
from whence.core.ranking import rank
from whence.errors import InvalidInputError
from whence.metrics.arrays import classes, numbers

_BLOCK = 1 << 22  # scores or distances in memory at a time
_CHANCE = 0.5  # the share that is nearer than a random sample
_ROUNDING = 1e-12  # relative to the squared lengths; smaller differences of squared distances are ties


@displayed("n_tests", "distinct", "distinct_listed", "most_frequent", "near")
@dataclass(frozen=True, eq=False)
class Specificity:
    """How much the strongest training samples depend on the test.

    Attributes
    ----------
    distinct : different top-1 samples per test; 1 where every test has its own
    distinct_listed : different samples in all lists, per entry of the lists
    most_frequent : share of the tests that show the most frequent top-1 sample of their class; low is better
    near : share of the class's training samples that are nearer to the test than those listed, on average:
        0 for the nearest, 0.5 as drawn at random from the class and for an empty list; None without vectors
    each_most_frequent : (T,) 1 where a test shows the most frequent top-1 sample of its class, else 0
    each_near : (T,) the same share for each test; None without vectors
    """

    distinct: float
    distinct_listed: float
    most_frequent: float
    near: float | None
    each_most_frequent: Doubles
    each_near: Doubles | None

    @property
    def n_tests(self) -> int:
        """The number of tests."""
        return len(self.each_most_frequent)


@displayed("n_tests", "cancel", "held")
@dataclass(frozen=True, eq=False)
class Cancellation:
    """How much of the scores of a test cancels, and how much the largest hold.

    Attributes
    ----------
    cancel : Σ|τ| / |Στ|, median over the tests; 1 where nothing cancels
    held : share of Σ|τ| that the n largest |τ| hold, median over the tests
    each_cancel, each_held : (T,) the same for each test; NaN where all scores are 0
    """

    cancel: float
    held: float
    each_cancel: Doubles
    each_held: Doubles

    @property
    def n_tests(self) -> int:
        """The number of tests."""
        return len(self.each_cancel)


def specificity(
    scores: Any = None,
    *,
    target: Any,
    indices: Any = None,
    k: int = 5,
    train_labels: Any = None,
    test_vectors: Any = None,
    train_vectors: Any = None,
) -> Specificity:
    """Measure whether the lists of tests are distinct, and whether listed samples are near the test.

    The list of a test has its k largest positive scores. Tests with an empty list count as one that all of
    them share. With few tests per class, chance is high: the most frequent sample of m tests is shown by at
    least 1/m of them. Therefore compare methods on the same tests.

    With vectors, ``near`` compares the Euclidean distance of the test to each sample in its list with its
    distances to all training samples of the target class, except that sample. Equal distances count half.
    Vectors that do not depend on the model are an independent check: pixels, or TF-IDF of texts.

    Parameters
    ----------
    scores : (T, N)
        Scores; positive is evidence for the target class. None if ``indices`` is given.
    target : (T,)
        The explained class.
    indices : (T, k)
        The lists instead of scores, the strongest sample first, such as
        ``explainer.top_k(x).proponents.indices``. −1 is padding.
    k
        Length of the lists made from scores.
    train_labels : (N,)
        Labels, required for ``near``.
    test_vectors : (T, p)
        An independent representation of the tests: an array, or a sparse matrix of scipy.
    train_vectors : (N, p)
        The same of the training samples.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 4.0]])
    >>> specificity(scores, target=np.array([0, 0, 0]), k=1)
    Specificity(n_tests=3, distinct=0.6667, distinct_listed=0.6667, most_frequent=0.6667, near=None)
    """
    lists, n_train = _lists(scores, indices, check_count("k", k))
    explained = classes("target", target, len(lists))
    listed = lists >= 0
    check_that(
        listed.any(),
        "indices" if scores is None else "scores",
        "list at least one training sample of one test",
        "none",
        "Scores must be positive to be listed." if indices is None else "",
    )
    first = lists[np.arange(len(lists)), listed.argmax(axis=1)]
    shows = np.zeros(len(lists))
    for c in np.unique(explained):
        tests = np.flatnonzero(explained == c)
        samples, counts = np.unique(first[tests], return_counts=True)
        shows[tests] = first[tests] == samples[counts.argmax()]
    near = _near(lists, explained, n_train, train_labels, test_vectors, train_vectors)
    return Specificity(
        distinct=len(np.unique(first)) / len(lists),
        distinct_listed=len(np.unique(lists[listed])) / int(listed.sum()),
        most_frequent=float(shows.mean()),
        near=None if near is None else float(near.mean()),
        each_most_frequent=shows,
        each_near=near,
    )


def cancellation(scores: Any, n: int = 10) -> Cancellation:
    """Measure how much of the scores cancels in their sum, and how much the n largest hold.

    Parameters
    ----------
    scores : (T, N)
        Scores with a meaningful sum, as those of ``DualDA`` sum to a logit.
    n
        Number of samples whose share of Σ|τ| is reported.

    Examples
    --------
    >>> import numpy as np
    >>> cancellation(np.array([[4.0, -2.0, 1.0, 1.0]]), n=1)
    Cancellation(n_tests=1, cancel=2, held=0.5)
    """
    values = numbers("scores", scores, (None, None))
    n = min(check_count("n", n), values.shape[1])
    cancel, held = np.full((2, len(values)), np.nan)
    for i, row in enumerate(values):
        sizes = np.abs(row).astype(np.float64)
        if total := sizes.sum():
            rest = abs(row.sum(dtype=np.float64))
            cancel[i] = total / rest if rest else np.inf
            held[i] = np.partition(sizes, -n)[-n:].sum() / total
    check_that(np.isfinite(held).any(), "scores", "differ from 0 for at least one test", "zeros only")
    return Cancellation(float(np.nanmedian(cancel)), float(np.nanmedian(held)), cancel, held)


def _lists(scores: Any, indices: Any, k: int) -> tuple[Ints, int | None]:
    """Return the lists (T, k) of strongest samples, padded with −1, and N if scores are given."""
    if (scores is None) == (indices is None):
        raise InvalidInputError(
            f"Either 'scores' or 'indices' must be given. Got {'neither' if scores is None else 'both'}."
        )
    if indices is None:
        values = numbers("scores", scores, (None, None))
        T, N = values.shape
        step = max(1, _BLOCK // N)
        blocks = (np.array(values[i : i + step], np.float64, order="C") for i in range(0, T, step))
        ranked = [rank(torch.from_numpy(block), min(k, N))[0] for block in blocks]
        return torch.cat([one.indices for one in ranked]).numpy(), N
    array = to_array("indices", indices)
    check_shape("indices", array, (None, None))
    if array.dtype.kind not in "iu":
        raise InvalidInputError(f"'indices' must be integers. Got dtype {array.dtype}.")
    lists = as_int64("indices", array)
    check_that(lists.min() >= -1, "indices", "be places of samples, or −1 for padding", int(lists.min()))
    return lists, None


def _near(
    lists: Ints, explained: Ints, n_train: int | None, train_labels: Any, tests: Any, train: Any
) -> Doubles | None:
    """Return the share per test (T,) whose mean is ``Specificity.near``; None without vectors."""
    if tests is None and train is None:
        return None
    for name, given in (("train_labels", train_labels), ("test_vectors", tests), ("train_vectors", train)):
        check_that(given is not None, name, "be given where vectors are", given)
    labels = classes("train_labels", train_labels, n_train)
    X = _vectors("train_vectors", train, len(labels), None)
    queries = _vectors("test_vectors", tests, len(lists), X.shape[1])
    check_that(
        lists.max() < len(labels),
        "indices",
        f"be below {len(labels)}, the number of 'train_labels'",
        int(lists.max()),
    )
    near = np.empty(len(lists))
    for c in np.unique(explained):
        rows = np.flatnonzero(explained == c)
        inside = np.flatnonzero(labels == c)
        check_that(len(inside), "target", "be classes that 'train_labels' has", int(c))
        columns = np.union1d(inside, lists[rows][lists[rows] >= 0])
        points = X[columns].astype(np.float64)
        step = max(1, _BLOCK // len(columns))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            squared, rounding = _distances(queries[block].astype(np.float64), points)
            near[block] = _shares(squared, rounding, lists[block], columns, labels[columns] == c)
    return near


def _shares(squared: Doubles, rounding: Doubles, lists: Ints, columns: Ints, inside: Array) -> Doubles:
    """Return the share of ``inside`` that is nearer than the listed samples (B, k), the mean per test.

    ``squared`` (B, M) are distances to the samples ``columns`` (M,), of which those of the class are
    ``inside``; ``rounding`` (B,) is how far equal ones may differ.
    """
    places = np.searchsorted(columns, lists)  # padding is masked below
    of_class = squared[:, inside]
    shares = np.zeros(lists.shape)
    for j, place in enumerate(places.T):
        listed = lists[:, j] >= 0
        differences = of_class - np.take_along_axis(squared, place[:, None], 1)
        below = (differences < -rounding[:, None]).sum(axis=1)
        up_to = (differences <= rounding[:, None]).sum(axis=1)
        itself = inside[place].astype(np.int64)
        share = (below + (up_to - below - itself) / 2) / np.maximum(inside.sum() - itself, 1)
        shares[listed, j] = share[listed]
    counts = (lists >= 0).sum(axis=1)
    means: Doubles = np.where(counts > 0, shares.sum(axis=1) / np.maximum(counts, 1), _CHANCE)
    return means


def _distances(A: Any, B: Any) -> tuple[Doubles, Doubles]:
    """Compute squared distances (a, b) of the rows of two matrices, and the tolerance (a,) of ties."""
    product = A @ B.T
    ours, theirs = _squares(A), _squares(B)
    dense = product if isinstance(product, np.ndarray) else product.toarray()
    squared: Doubles = ours[:, None] + theirs - 2 * dense
    return squared, _ROUNDING * (ours + theirs.max())


def _squares(X: Any) -> Doubles:
    """Return the squared length of each row (n,)."""
    squares = np.einsum("np,np->n", X, X) if isinstance(X, np.ndarray) else X.multiply(X).sum(axis=1)
    return np.asarray(squares).ravel()


def _vectors(name: str, values: Any, n: int, p: int | None) -> Any:
    """Return vectors (n, p) as an array or a CSR array of finite numbers, or raise."""
    if not issparse(values):
        return numbers(name, values, (n, p))
    check_shape(name, values, (n, p))
    rows: Any = csr_array(values)  # type: ignore[call-overload]
    check_finite(name, real_array(name, rows.data))
    return rows
