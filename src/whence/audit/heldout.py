"""Held-out scores: surrogates solved without the scored samples, along C, and their calibration."""

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
"""C·N·mean‖f‖² of the surrogates: low, so that they are close to class means, which a few wrong labels hardly
change. At 3,000 and above they follow single samples."""

LISTED = 32
"""Maximum number of candidate classes per sample: its label, the predicted class, and those with the highest
scores of surrogates and model. Others have almost no probability."""

_AT_ONCE = 2**21  # scores in memory while candidates are chosen
_TOL = 1e-3  # a smaller gap does not change margins
_STEEPEST = 1e3  # bound of β: the likelihood has no maximum for separable classes


@dataclass(frozen=True)
class Listed:
    """The T candidate classes of each of N samples, including its label."""

    seen: Ints
    """The k classes that have labels."""
    labels: Ints
    """(N,), as places in ``seen``."""
    classes: Ints
    """(N, T), as places in ``seen``, in order."""

    @classmethod
    def all_of(cls, labels: Ints) -> Listed:
        """Make all classes that have labels candidates of every sample."""
        seen, named = np.unique(labels, return_inverse=True)
        return cls(seen, named, np.broadcast_to(np.arange(len(seen)), (len(named), len(seen))))

    @cached_property
    def label_column(self) -> Ints:
        """The column (N,) of each sample's label."""
        columns: Ints = self.given.argmax(axis=1)
        return columns

    @cached_property
    def given(self) -> Doubles:
        """The labels (N, T), one-hot over the candidates."""
        return np.asarray(self.classes == self.labels[:, None], np.float64)

    def total(self, values: Doubles) -> Doubles:
        """Sum values (N, T) per class, (k,)."""
        if self.classes.shape[1] == len(self.seen):  # all classes of every sample
            return np.asarray(values.sum(axis=0))
        return np.bincount(self.classes.ravel(), values.ravel(), len(self.seen)).astype(np.float64)

    def name(self, columns: Ints) -> Ints:
        """Return the classes of columns (N,)."""
        return self.seen[self.classes[np.arange(len(columns)), columns]]


class Scores(NamedTuple):
    """Scores of the candidate classes."""

    listed: Listed
    held_out: list[Doubles]
    """(N, T) for each place and κ."""
    head: Doubles | None
    """The model's logits (N, T)."""


def total_norm(features: Floats) -> float:
    """Return Σ_i‖f_i‖², which makes κ = C·Σ_i‖f_i‖² free of units; 1 if all features are 0."""
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

    The samples are divided into stratified folds. For each fold, surrogates on the others are solved along C,
    each from the previous solution, and score the fold: W_{−fold} f_i. C is κ / Σ_i‖f_i‖² · N/n for n
    samples, so that the loss has the same weight as with all N.

    Parameters
    ----------
    features : (N, d)
    labels : (N,)
    n_classes : K
    places : columns of the features, one slice per layer; each has its own surrogates
    head : the model's last layer, whose logits are scores too, and its features (N, d)
    kappas : C·N·mean‖f‖² of each surrogate
    n_folds : from 2 to N (leave-one-out)
    """
    n = len(labels)
    check_that(2 <= n_folds <= n, "n_folds", f"lie between 2 and the number of samples, {n}", n_folds)
    fold = folds(labels, n_folds, seed)
    seen, named = np.unique(labels, return_inverse=True)
    Cs = [(place, [kappa / total_norm(features[:, place]) * n for kappa in kappas]) for place in places]
    options = {"n_classes": n_classes, "bias": bias, "tol": tol, "seed": seed, "n_threads": n_threads}
    # Solutions in a fold depend on each other along C; only folds are independent.
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
    """Solve along C (divided by the remaining rows) without fold j; choose and score its candidates.

    Labels are ``named`` (N,), as indices into ``seen``, the classes that have labels.
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
    """A linear classifier: features (N, d), the columns that it reads, weights and offsets."""

    features: Floats
    place: slice
    weight: Doubles
    bias: Doubles | float

    def score(self, rows: Ints) -> Doubles:
        """Score the classes of some samples."""
        return self.features[rows, self.place].astype(np.float64) @ self.weight.T + self.bias


def _list_block(rows: Ints, labels: Ints, sources: list[_Source], with_head: bool) -> tuple[Ints, Doubles]:
    """Return the candidates (n, T) of some samples, and their scores by every source (sources, n, T)."""
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
    """Divide samples into stratified folds (N,) of equal size."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % n_folds
    return fold


def calibrate(scores: Floats, listed: Listed) -> Doubles:
    """Calibrate scores (N, T) to log-probabilities log softmax(β s_i + b) that fit the labels best.

    β ≥ 0 and one offset per class maximise the likelihood, which is concave, so that the optimum is unique:
    the probabilities of a class sum to the number of its labels. Other classes have probability 0.

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
    """Standardise scores (N, T) to a mean of 0 per sample and a variance of 1 over all."""
    S = np.array(scores, dtype=np.float64)
    S -= S.mean(axis=1, keepdims=True)
    S /= S.std() or 1.0
    return S


def most_likely(
    S: Doubles, listed: Listed, targets: Doubles, start: Doubles | None = None
) -> tuple[Doubles, Doubles]:
    """Fit log softmax(β S + b), β ≥ 0, to target distributions (N, T) by maximum likelihood.

    Returns the log-probabilities (N, T), and (β, b), the ``start`` of a later search.
    """
    n, k, classes = len(S), len(listed.seen), listed.classes

    def loss(parameters: Doubles) -> tuple[float, Doubles]:
        Z = parameters[0] * S + parameters[1:][classes]
        Z -= Z.max(axis=1, keepdims=True)
        residual = np.exp(Z)  # exponentials take most of the time: one per score
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
