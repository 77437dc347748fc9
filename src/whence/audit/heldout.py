"""Scores of samples by surrogates that were solved without them: cross-fitting along C, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from whence import engine
from whence.core.arrays import Doubles, Floats, Ints
from whence.core.checks import check_that
from whence.model.heads import Head
from whence.svm import solve_path

KAPPAS = (30.0, 300.0)
"""C·N·mean‖f‖² of the surrogates: low, so that they are not much more than class means, which a few wrong
labels hardly move. At 3,000 and above they bend to single samples."""

LISTED = 32
"""Classes per sample that are listed, where more have labels: its own, that of the model, and those that
surrogates and model score highest together. Others have next to no probability."""

_AT_ONCE = 2**21  # scores of all classes, while those to list are chosen
_TOL = 1e-3  # margins do not move below this gap
_STEEPEST = 1e3  # for classes that are separated without an error the likelihood has no maximum


@dataclass(frozen=True)
class Listed:
    """Of each of N samples the T classes that it may belong to, its label's among them."""

    seen: Ints
    """The k classes that have labels."""
    labels: Ints
    """(N,), as places in ``seen``."""
    classes: Ints
    """(N, T), as places in ``seen``, in order."""

    @classmethod
    def all_of(cls, labels: Ints) -> Listed:
        """List all classes that have labels for every sample."""
        seen, named = np.unique(labels, return_inverse=True)
        return cls(seen, named, np.broadcast_to(np.arange(len(seen)), (len(named), len(seen))))

    @cached_property
    def label_column(self) -> Ints:
        """The column (N,) of each sample's label."""
        columns: Ints = self.given.argmax(axis=1)
        return columns

    @cached_property
    def given(self) -> Doubles:
        """The labels (N, T), as distributions."""
        return np.asarray(self.classes == self.labels[:, None], np.float64)

    def total(self, values: Doubles) -> Doubles:
        """Sum values (N, T) per class, (k,)."""
        if self.classes.shape[1] == len(self.seen):  # all classes of every sample
            return np.asarray(values.sum(axis=0))
        return np.bincount(self.classes.ravel(), values.ravel(), len(self.seen)).astype(np.float64)

    def name(self, columns: Ints) -> Ints:
        """Return the classes that columns (N,) stand for."""
        return self.seen[self.classes[np.arange(len(columns)), columns]]


class Scores(NamedTuple):
    """Scores of the classes that are listed."""

    listed: Listed
    held_out: list[Doubles]
    """(N, T) for each place and κ."""
    head: Doubles | None
    """The model's logits (N, T)."""


def total_norm(features: Floats) -> float:
    """Σ_i‖f_i‖², by which κ = C·Σ_i‖f_i‖² is C without units; 1 where all features are 0."""
    return float(np.einsum("ij,ij->", features, features, dtype=np.float64)) or 1.0


def held_out_scores(
    features: Floats,
    labels: Ints,
    n_classes: int,
    *,
    bias: bool | float = True,
    places: Sequence[slice] = (slice(None),),
    head: tuple[Head, Floats] | None = None,
    kappas: Sequence[float] = KAPPAS,
    n_folds: int = 5,
    seed: int = 0,
    n_threads: int | None = None,
    tol: float = _TOL,
    show_progress: bool = False,
) -> Scores:
    """Score every sample by surrogates that were solved without it.

    The samples are divided into folds, each with its part of every class. For each fold the others are
    solved along C, each from the solution before, and score the fold: W_{−fold} f_i. C is
    κ / Σ_i‖f_i‖² · N/n for n samples, so that the loss counts as much as with all N.

    Parameters
    ----------
    features : (N, d)
    labels : (N,)
    n_classes : K
    places : of the features, one per layer; each has surrogates of its own
    head : the model's last layer, whose logits are scores as well, and the features (N, d) that it reads
    kappas : C·N·mean‖f‖² of each surrogate
    n_folds : from 2 to N, which leaves out single samples
    """
    n = len(labels)
    check_that(2 <= n_folds <= n, "n_folds", f"lie between 2 and the number of samples, {n}", n_folds)
    fold = folds(labels, n_folds, seed)
    seen, named = np.unique(labels, return_inverse=True)
    Cs = [(place, [kappa / total_norm(features[:, place]) * n for kappa in kappas]) for place in places]
    options = {"n_classes": n_classes, "bias": bias, "tol": tol, "seed": seed, "n_threads": n_threads}
    # C grows inside a fold from solution to solution; only the folds are independent of each other.
    score = partial(_score_fold, features, seen, named, fold, Cs, head, options)
    title = "Holding out" if show_progress else None
    width, sources = min(LISTED, len(seen)), len(places) * len(kappas) + (head is not None)
    classes, values = np.empty((n, width), dtype=np.intp), np.empty((sources, n, width))
    for j, scored in enumerate(engine.results(score, range(n_folds), title=title, unit="folds")):
        classes[fold == j], values[:, fold == j] = scored
    surrogates = [*values[: len(places) * len(kappas)]]
    return Scores(Listed(seen, named, classes), surrogates, None if head is None else values[-1])


def _score_fold(
    features: Floats,
    seen: Ints,
    named: Ints,
    fold: Ints,
    Cs: list[tuple[slice, list[float]]],
    head: tuple[Head, Floats] | None,
    options: dict[str, Any],
    j: int,
) -> tuple[Ints, Doubles]:
    """Solve along C (which is divided by the rows left) without fold j; list and score its classes.

    Labels are ``named`` (N,) as places in ``seen``, the classes that have any.
    """
    rest, rows = np.flatnonzero(fold != j), np.flatnonzero(fold == j)
    sources: list[_Source] = []
    for place, path in Cs:
        X = np.ascontiguousarray(features[rest, place])
        for s in solve_path(X, seen[named[rest]], [C / len(rest) for C in path], **options):
            d = X.shape[1]
            offsets = s.weight[seen, -1] if options["bias"] else 0.0
            sources.append(_Source(features, place, s.weight[seen, :d], offsets))
    if head is not None:
        (weight, bias), read = head
        offsets = 0.0 if bias is None else bias[seen].astype(np.float64)
        sources.append(_Source(read, slice(None), weight[seen].astype(np.float64), offsets))
    height = max(1, _AT_ONCE // (len(seen) * len(sources)))
    blocks = [rows[k : k + height] for k in range(0, len(rows), height)]
    classes, scores = zip(
        *(_list_block(block, named[block], sources, head is not None) for block in blocks), strict=True
    )
    return np.concatenate(classes), np.concatenate(scores, axis=1)


class _Source(NamedTuple):
    """A linear classifier: features (N, d), the place of them that it reads, weights and offsets."""

    features: Floats
    place: slice
    weight: Doubles
    bias: Doubles | float

    def score(self, rows: Ints) -> Doubles:
        """Score the classes of some samples."""
        return self.features[rows, self.place].astype(np.float64) @ self.weight.T + self.bias


def _list_block(rows: Ints, labels: Ints, sources: list[_Source], with_head: bool) -> tuple[Ints, Doubles]:
    """List the classes (n, T) of some samples, and their scores by every source (sources, n, T)."""
    scores = np.stack([source.score(rows) for source in sources])
    n, k = scores.shape[1:]
    if k <= LISTED:
        return np.broadcast_to(np.arange(k), (n, k)), scores
    likely = np.sum([s / (s.std() or 1.0) for s in scores - scores.mean(axis=2, keepdims=True)], axis=0)
    samples = np.arange(n)
    likely[samples, labels] = np.inf
    if with_head:
        likely[samples, scores[-1].argmax(axis=1)] = np.inf
    classes = np.sort(np.argpartition(likely, k - LISTED, axis=1)[:, k - LISTED :], axis=1)
    return classes, np.take_along_axis(scores, classes[None], axis=2)


def folds(labels: Ints, n_folds: int, seed: int) -> Ints:
    """Divide samples into folds (N,) of equal size, each with its part of every class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % n_folds
    return fold


def calibrate(scores: Floats, listed: Listed) -> Doubles:
    """Turn scores (N, T) into log-probabilities log softmax(β s_i + b) that fit the labels best.

    β ≥ 0 and one offset per class maximise the likelihood, which is concave, so there is one best answer: the
    probabilities of a class sum to the number of its labels. Classes that are not listed have probability 0.

    Examples
    --------
    >>> import numpy as np
    >>> listed = Listed.all_of(np.array([0, 1, 1]))
    >>> p = np.exp(calibrate(np.array([[1.0, 0.0], [0.5, 0.0], [0.0, 0.5]]), listed))
    >>> p.sum(axis=0).round(3)
    array([1., 2.])
    """
    return most_likely(standard(scores), listed, listed.given)[0]


def standard(scores: Floats) -> Doubles:
    """Return scores (N, T) with a mean of 0 per sample and a variance of 1 over all."""
    S = np.array(scores, dtype=np.float64)
    S -= S.mean(axis=1, keepdims=True)
    S /= S.std() or 1.0
    return S


def most_likely(
    S: Doubles, listed: Listed, targets: Doubles, start: Doubles | None = None
) -> tuple[Doubles, Doubles]:
    """Find log softmax(β S + b), β ≥ 0, that is most likely for targets (N, T), distributions.

    Returns the log-probabilities (N, T), and (β, b), from which a next search may ``start``.
    """
    n, k, classes = len(S), len(listed.seen), listed.classes

    def loss(parameters: Doubles) -> tuple[float, Doubles]:
        Z = parameters[0] * S + parameters[1:][classes]
        Z -= Z.max(axis=1, keepdims=True)
        residual = np.exp(Z)  # one exponential per score: they are most of the time
        sums = residual.sum(axis=1, keepdims=True)
        value = float(targets.sum(axis=1) @ np.log(sums[:, 0])) - float(np.vdot(targets, Z))
        residual /= sums
        residual -= targets
        return value / n, np.r_[np.vdot(residual, S), listed.total(residual)] / n

    bounds: list[Any] = [(0.0, _STEEPEST), *[(None, None)] * k]
    options: Any = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-8}
    begin = np.r_[1.0, np.zeros(k)] if start is None else start
    best = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return log_softmax(best[0] * S + best[1:][classes], axis=1), best
