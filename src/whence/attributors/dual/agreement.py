"""How far a surrogate can be trusted to stand for its model, told when it is fitted."""

from __future__ import annotations

import warnings

import numpy as np

from whence.core.arrays import Doubles, Floats, Ints
from whence.errors import AgreementWarning, DataWarning
from whence.model.heads import Head
from whence.svm import held_back

LOW = 0.9  # below this share of tests with the model's class, explanations are about something else too often
_COLLAPSED = 1e-8  # share of the features' mean square that varies: float32 holds no more than its root
_ROWS = 4096  # enough to see whether features vary


def agreement(weight: Doubles, head: Head, features: Floats) -> float:
    """Share of features (n, d) for which the surrogate W (K, d[+1]) and the head name the same class."""
    f, d = features.astype(np.float64), features.shape[1]
    ours = f @ weight[:, :d].T + (weight[:, d] if weight.shape[1] > d else 0.0)
    theirs = f @ head.weight.astype(np.float64).T + (0.0 if head.bias is None else head.bias)
    return float((ours.argmax(1) == theirs.argmax(1)).mean())


def without_part(labels: Ints, seed: int, given: bool) -> Ints:
    """Find the samples that had no part in choosing C; where C was ``given``, all that took part at all."""
    used = np.flatnonzero(labels >= 0)
    rows = held_back(labels[used], seed)
    return used if given and not len(rows) else used[rows]


def warn_of_low(share: float, n: int, stacklevel: int) -> None:
    """Warn where the surrogate does not stand for the model, beyond what chance does on n rows."""
    if share + np.sqrt(share * (1 - share) / n) < LOW:
        warnings.warn(
            f"The surrogate names the model's class for {share:.1%} of {n:,} training samples only, so its "
            'scores tell little about the model. Try other values of C or C="auto", and see whether the '
            "model has learned its training set.",
            AgreementWarning,
            stacklevel=stacklevel + 1,
        )


def warn_of_data(features: Floats, labels: Ints, n_classes: int, stacklevel: int) -> None:
    """Warn of classes without samples, of one class only, and of features that hardly vary."""
    present = np.unique(labels[labels >= 0])
    what = None
    if len(present) == 1:
        what = f"All training samples have class {present[0]}, so nothing speaks against it"
    elif len(present) < n_classes:
        absent = np.setdiff1d(np.arange(n_classes), present).tolist()
        shown = ", ".join(map(str, absent[:10])) + (" …" if len(absent) > 10 else "")
        what = f"No training sample has class {shown}, so nothing speaks for " + (
            "it" if len(absent) == 1 else "them"
        )
    if what:
        warnings.warn(f"{what}. Check the labels.", DataWarning, stacklevel=stacklevel + 1)
    rows = np.flatnonzero(labels >= 0)
    some = features[rows[:: max(1, len(rows) // _ROWS)]].astype(np.float64)
    if len(some) > 1 and np.mean((some - some.mean(0)) ** 2) <= _COLLAPSED * np.mean(some**2):
        warnings.warn(
            "The features of all training samples are nearly the same, so no class can be told from "
            "another. Check that the model is trained and that its inputs are prepared as in training.",
            DataWarning,
            stacklevel=stacklevel + 1,
        )
