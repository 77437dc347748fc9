"""Audits by a set of tests: its attribution, a coreset for it, and the values of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.audit.access import (
    Table,
    capabilities_of,
    check_ids,
    chosen_ids,
    surrogate_of,
    tests_of,
    unsupported,
)
from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_count, check_share, to_array
from whence.core.display import Columns, displayed
from whence.core.progress import bar
from whence.errors import InvalidInputError
from whence.methods import DualDA, Effects
from whence.surrogate.effects import Output

_ENTRIES = 1 << 20  # scores in memory at a time


@displayed()
@dataclass(frozen=True, eq=False)
class GroupAttribution:
    """The contribution of each training sample to a set of tests.

    Attributes
    ----------
    mean : (train,) mean of τ_c(x, i) over the tests, each for its own target c; **a positive value supports
        the targets**. It sums to the surrogate's mean logit of the targets
    mean_absolute : (train,) mean of |τ_c(x, i)|, which does not cancel between tests
    n_tests : number of tests in the set
    targets : (class,) number of tests explained for each class
    """

    mean: Doubles
    mean_absolute: Doubles
    n_tests: int
    targets: Ints

    def top(self, k: int = 10) -> Ints:
        """Return up to k samples with the largest positive mean, strongest first."""
        k = check_count("k", k)
        order = np.argsort(-self.mean, kind="stable")[:k]
        return order[self.mean[order] > 0]


def group_attribution(
    explainer: DualDA, x: Any = None, target: Any = None, *, features: Any = None
) -> GroupAttribution:
    """Attribute a set of tests, without the (test, train) matrix.

    The mean needs one sum of features per class, because τ is linear in f(x):
    Σ_x τ_c(x, i) = λ_ic f_i·Σ_x f(x). The mean of absolute values is summed over parts of the tests. Memory
    does not grow with their number.

    Parameters
    ----------
    explainer
        A fitted DualDA.
    x
        Inputs as for ``explainer.attribute``, or None with ``features``.
    target
        The class to explain: None (the predicted class of each test), one class, or one class per test.
    features
        Features (B, d) of the tests; a memory map is read in slices.

    Examples
    --------
    >>> import numpy as np, whence
    >>> from whence.audit import group_attribution
    >>> f, y = np.repeat(np.eye(3), 2, axis=0), np.repeat(np.arange(3), 2)
    >>> bank = whence.features.FeatureBank.of(f, y)
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    >>> group = group_attribution(explainer, features=np.eye(3))
    >>> bool(np.allclose(group.mean, explainer.attribute(features=np.eye(3)).mean(0)))
    True
    """
    surrogate = surrogate_of(explainer)
    n, parts = tests_of(explainer, x, features, target, "target")
    K, d = explainer.n_classes_, surrogate.stored.shape[1]
    sums, counts = np.zeros((K, d)), np.zeros(K, dtype=np.int64)
    absolute = np.zeros(explainer.n_train_)
    width = max(1, _ENTRIES // max(1, len(explainer.support_)))
    n_parts = math.ceil(n / explainer.batch_size)
    show = explainer.show_progress and n_parts >= 4
    for f, classes in bar("Attributing", n_parts, "batches", parts=parts, show=show):
        np.add.at(sums, classes.numpy(), surrogate.stored.transform(f).double().cpu().numpy())
        counts += np.bincount(classes.numpy(), minlength=K)
        for start in range(0, len(f), width):
            rows = slice(start, start + width)
            scores = surrogate.expansion.sparse(f[rows], classes[rows])
            absolute += np.bincount(scores.indices, np.abs(scores.data), minlength=len(absolute))
    lam = surrogate.lam[explainer.support_]
    blocks = (surrogate.stored[part] for part in surrogate.stored.parts(len(surrogate.stored)))
    products = np.concatenate([f.double().cpu().numpy() @ sums.T for f in blocks])  # (S, K)
    products += surrogate.constant**2 * counts
    mean = np.zeros(explainer.n_train_)
    mean[explainer.support_] = lam.multiply(products).sum(axis=1) / n
    return GroupAttribution(mean, absolute / n, n, counts)


@displayed("indices", "coverage", "n_train", rows="columns")
@dataclass(frozen=True, eq=False)
class Coreset(Table):
    """The training samples to keep.

    Attributes
    ----------
    indices : (n,) indices in the training set, the most important first
    scores : (n,) mean absolute attribution of each
    coverage : their share of the mean absolute attribution of all samples, at most 1
    n_train : size of the training set
    ids : the user's ids, in the order of ``indices``, or None
    """

    indices: Ints
    scores: Doubles
    coverage: float
    n_train: int
    ids: tuple[Any, ...] | None = None

    def columns(self) -> Columns:
        """Return the list as columns of plain values."""
        return {"index": self.indices.tolist(), **self._id_column(), "score": self.scores.tolist()}


def coreset(
    explainer: DualDA,
    x: Any = None,
    share: float = 0.1,
    target: Any = None,
    *,
    features: Any = None,
    ids: Sequence[Any] | None = None,
) -> Coreset:
    """Choose the part of the training set with most of a test set's attribution.

    Samples are ranked by the mean of |τ_c(x, i)| over the set. Samples that are not support vectors have 0;
    if ``share`` needs them, they follow in the order of the training set.

    This shows which samples predictions come from. To train on less data, a random sample with equal class
    sizes was better in our measurements, at shares of 10 to 40 %.

    Parameters
    ----------
    explainer, x, target, features
        As for ``group_attribution``; the set should resemble the data on which the model will be used.
    share
        Share of the training set to keep, in (0, 1]; rounded up to full samples.
    ids
        One id per training sample, for the export.
    """
    surrogate_of(explainer)
    share = check_share("share", share, whole=True)
    check_ids(ids, explainer.n_train_)
    scores = group_attribution(explainer, x, target, features=features).mean_absolute
    usable = np.flatnonzero(explainer.used_)
    n = min(math.ceil(share * len(usable)), len(usable))
    chosen = usable[np.argsort(-scores[usable], kind="stable")[:n]]
    total = float(scores.sum())
    return Coreset(
        indices=chosen,
        scores=scores[chosen],
        coverage=float(scores[chosen].sum()) / total if total > 0 else 1.0,
        n_train=explainer.n_train_,
        ids=chosen_ids(ids, chosen),
    )


@displayed("indices", "output", "n_tests", rows="columns")
@dataclass(frozen=True, eq=False)
class Values(Table):
    """The values of training samples, the most valuable first.

    Attributes
    ----------
    indices : (n,) indices in the training set
    values : (n,) descending: what the sample's presence adds to the mean output of the true classes.
        **Negative if the model would do better without it**
    labels : (n,) their labels
    output : "logit", "margin" or "log_prob"
    n_tests : size of the validation set
    ids : the user's ids, in the order of ``indices``, or None
    """

    indices: Ints
    values: Doubles
    labels: Ints
    output: Output
    n_tests: int
    ids: tuple[Any, ...] | None = None

    def columns(self) -> Columns:
        """Return the list as columns of plain values."""
        columns = {"label": self.labels.tolist(), "value": self.values.tolist()}
        return {"index": self.indices.tolist(), **self._id_column(), **columns}


def values(
    explainer: Effects,
    x: Any = None,
    y: Any = None,
    *,
    features: Any = None,
    ids: Sequence[Any] | None = None,
) -> Values:
    """Compute the value of every training sample for a validation set.

    The value of a sample is the mean of its effects on the explainer's ``output`` for the true class, over
    the validation set. There is no (test, train) matrix: the outputs' derivatives by W are summed over the
    validation set first, so that any number of tests costs as much as one.

    Parameters
    ----------
    explainer
        A fitted Effects; ``Effects(output="log_prob")`` values samples by the mean log-probability of the
        true class.
    x
        Inputs of the validation set as for ``explainer.attribute``, or None with ``features``. Do not use
        inputs on which the model was trained.
    y
        Its true classes, one per sample.
    features
        Features (B, d) of the validation set.
    ids
        One id per training sample, for the export.

    Examples
    --------
    >>> import numpy as np, whence
    >>> from whence.audit import values
    >>> f, y = np.repeat(np.eye(3), 4, axis=0), np.repeat(np.arange(3), 4)
    >>> y[0] = 1  # a wrong label
    >>> bank = whence.features.FeatureBank.of(f, y)
    >>> explainer = whence.Effects(show_progress=False).fit(features=bank)
    >>> int(values(explainer, features=np.eye(3), y=np.arange(3)).indices[-1])
    0
    """
    if not capabilities_of(explainer).effects:
        raise unsupported(explainer, "a fitted Effects")
    check_ids(ids, explainer.n_train_)
    if y is None or to_array("y", y).ndim != 1:
        raise InvalidInputError("'y' must be the true classes of the validation set, one per sample.")
    n, parts = tests_of(explainer, x, features, y, "y")
    usable = np.flatnonzero(explainer.used_)
    worth = explainer.total(parts)[usable] / n
    order = np.argsort(-worth, kind="stable")
    chosen = usable[order]
    return Values(
        indices=chosen,
        values=worth[order],
        labels=explainer.labels_[chosen],
        output=explainer.output,
        n_tests=n,
        ids=chosen_ids(ids, chosen),
    )
