"""What surrogates that never saw a sample make of it: cross-fitting along C, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from whence import engine
from whence.core.arrays import Doubles, Floats, Ints
from whence.errors import InvalidInputError
from whence.svm import solve_path

KAPPAS = (30.0, 300.0)
"""C·N·mean‖f‖² of the surrogates: low, so that they are not much more than class means, which a few wrong
labels hardly move. At 3,000 and above they bend to single samples."""

_TOL = 1e-3  # margins do not move below this gap
_STEEPEST = 1e3  # where classes are told apart without an error, likelihood alone would go on for ever


def total_norm(features: Floats) -> float:
    """Σ_i‖f_i‖², by which κ = C·Σ_i‖f_i‖² is C without units; 1 where all features are 0."""
    return float(np.einsum("ij,ij->", features, features, dtype=np.float64)) or 1.0


def held_out_scores(
    features: Floats,
    labels: Ints,
    n_classes: int,
    *,
    bias: bool | float = True,
    kappas: Sequence[float] = KAPPAS,
    n_folds: int = 5,
    seed: int = 0,
    n_threads: int | None = None,
    tol: float = _TOL,
    show_progress: bool = False,
) -> list[Doubles]:
    """Score every sample by surrogates that were solved without it.

    The samples are divided into folds, each with its part of every class. For each fold the others are
    solved along C, each from the solution before, and score the fold: W_{−fold} f_i. C is
    κ / Σ_i‖f_i‖² · N/n for n samples, so that the loss counts as much as with all N.

    Parameters
    ----------
    features : (N, d)
    labels : (N,)
    n_classes : K
    kappas : C·N·mean‖f‖² of each surrogate
    n_folds : from 2 to N, which leaves out single samples

    Returns
    -------
    list of (N, K), one per κ.
    """
    n = len(labels)
    if not 2 <= n_folds <= n:
        raise InvalidInputError(
            f"'n_folds' must lie between 2 and the number of samples, {n}. Got {n_folds}."
        )
    fold = folds(labels, n_folds, seed)
    scale = total_norm(features)
    # C grows inside a fold from solution to solution; only the folds are independent of each other.
    score = partial(
        _score_fold,
        features,
        labels,
        fold,
        [kappa / scale * n for kappa in kappas],
        {"n_classes": n_classes, "bias": bias, "tol": tol, "seed": seed, "n_threads": n_threads},
    )
    title = "Holding out" if show_progress else None
    found = [np.empty((n, n_classes)) for _ in kappas]
    for j, parts in enumerate(engine.results(score, range(n_folds), title=title, unit="folds")):
        for scores, part in zip(found, parts, strict=True):
            scores[fold == j] = part
    return found


def _score_fold(
    features: Floats, labels: Ints, fold: Ints, Cs: list[float], options: dict[str, Any], j: int
) -> list[Doubles]:
    """Solve along C (which is divided by the rows left) without fold j, and score it."""
    rest = np.flatnonzero(fold != j)
    solutions = solve_path(
        np.ascontiguousarray(features[rest]), labels[rest], [C / len(rest) for C in Cs], **options
    )
    f = features[fold == j].astype(np.float64)
    bias = options["bias"]
    return [f @ s.weight[:, : f.shape[1]].T + (s.weight[:, -1] if bias else 0.0) for s in solutions]


def folds(labels: Ints, n_folds: int, seed: int) -> Ints:
    """Divide samples into folds (N,) of equal size, each with its part of every class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % n_folds
    return fold


def calibrated(scores: Floats, labels: Ints) -> Doubles:
    """Turn scores (N, K) into log-probabilities log softmax(β s_i + b) that suit the labels best.

    β ≥ 0 and one offset per class maximise the likelihood, which is concave, so there is one best answer: the
    probabilities of a class sum to the number of its labels. A class without labels gets probability 0.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.exp(calibrated(np.array([[1.0, 0.0], [0.5, 0.0], [0.0, 0.5]]), np.array([0, 1, 1])))
    >>> p.sum(axis=0).round(3)
    array([1., 2.])
    """
    seen, y = np.unique(labels, return_inverse=True)
    out = np.full(np.shape(scores), -np.inf)
    out[:, seen] = likeliest(standard(scores, seen), np.eye(len(seen))[y])[0]
    return out


def standard(scores: Floats, classes: Ints) -> Doubles:
    """Scores of some classes, (N, k), with a mean of 0 per sample and a variance of 1 over all."""
    S: Doubles = np.asarray(scores, dtype=np.float64)[:, classes]
    S -= S.mean(axis=1, keepdims=True)
    S /= S.std() or 1.0
    return S


def likeliest(S: Doubles, targets: Doubles, start: Doubles | None = None) -> tuple[Doubles, Doubles]:
    """Find log softmax(β S + b), β ≥ 0, that is likeliest for targets (N, k), each a distribution.

    Gives the log-probabilities (N, k), and (β, b), from which a next search may ``start``.
    """
    n, k = S.shape

    def loss(parameters: Doubles) -> tuple[float, Doubles]:
        logs = log_softmax(parameters[0] * S + parameters[1:], axis=1)
        residual = np.exp(logs) - targets
        return -float(np.vdot(targets, logs)) / n, np.r_[np.vdot(residual, S), residual.sum(axis=0)] / n

    bounds: list[Any] = [(0.0, _STEEPEST), *[(None, None)] * k]
    options: Any = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-8}
    begin = np.r_[1.0, np.zeros(k)] if start is None else start
    best = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return log_softmax(best[0] * S + best[1:], axis=1), best
