"""Agreement of a surrogate with its model, measured at fit and on a user's inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Doubles, Floats, Ints, Mask
from whence.core.display import displayed
from whence.errors import AgreementWarning, DataWarning, warn
from whence.features.metric import FeatureMap
from whence.model.heads import Head
from whence.svm import held_back
from whence.svm.likeness import judged, mean_cosine
from whence.tasks import Task

LOW = 0.9  # threshold of agreement for a warning
_FEW = 100  # samples
_COLLAPSED = 1e-8  # threshold of variance over mean square, near the precision of float32
_ROWS = 4096  # samples for the check of variance


def agreement(
    task: Task, weight: Doubles, head: Head, features: Floats, labels: Array, metric: FeatureMap
) -> float:
    """Measure how far the surrogate W (K, d[+1]) agrees with the head; for classes the share of samples.

    The surrogate reads features (n, d) through the metric, the head reads raw ones.
    """
    read = metric.rows(features)
    problem = task.problem.make(read, labels, task.n_outputs, 1.0, False)
    return judged(problem, np.arange(len(read)), weight, (head.weight, head.bias), features)[0]


def without_part(task: Task, labels: Array, seed: int, given: bool) -> Ints:
    """Return the samples that had no part in choosing C; all samples of the fit if C was ``given``."""
    used = np.flatnonzero(task.known(labels))
    if not len(used):
        return used
    # Groups follow from labels alone: any features will do.
    problem = task.problem.make(np.zeros((len(used), 1)), labels[used], task.n_outputs, 1.0, False)
    rows = held_back(problem.strata, seed)
    return used if given and not len(rows) else used[rows]


def still_unseen(unseen: Ints, n: int, used: Mask) -> Ints:
    """Return the remaining samples that had no part in choosing C, and those added after the first n."""
    return np.concatenate([unseen[used[unseen]], n + np.flatnonzero(used[n:])])


def warn_of_low(task: Task, share: float, head: Head, features: Floats, labels: Array, given: bool) -> None:
    """Warn where the surrogate does not represent the model, beyond what chance does, and say what helps.

    ``features`` (n, d) and ``labels`` are of the samples that the agreement was measured on; ``given`` says
    that the user chose C.
    """
    n = len(labels)
    if share + np.sqrt(share * (1 - share) / n) >= LOW:
        return
    names = f"predicts the model's class for {share:.1%} of {n:,} training samples only"
    if not task.has_classes:
        names = f"has {task.measures[0]} {share:.3f} with the model on {n:,} training samples only"
    logits = head_logits(head, torch.from_numpy(np.array(features)))
    right = task.score(task.predict(logits).numpy(), labels)
    advice = []
    if right < LOW:
        measured = f"is right on {right:.1%} of them" if task.has_classes else f"scores {right:.3f} on them"
        advice.append(
            f"The model itself {measured}, and a surrogate is fitted to the labels: check that labels are "
            "numbered as the model's outputs, that inputs are prepared as in training, and that the model is "
            "trained."
        )
    if given:
        advice.append('C was given: try C="auto".')
    if not advice and n < _FEW:
        advice.append("So few samples cannot show more: use more of the training set.")
    if not advice:
        advice.append(
            'No value of C does better: see C_path_, and try features of more layers, layers="auto".'
        )
    warn(
        f"The surrogate {names}, so its scores say little about the model. {' '.join(advice)}",
        AgreementWarning,
    )


def warn_of_data(task: Task, features: Floats, labels: Array) -> None:
    """Warn if labels look wrong, such as a single class, or if features hardly vary."""
    if what := task.label_warning(labels):
        warn(f"{what}. Check the labels.", DataWarning)
    rows = np.flatnonzero(task.known(labels))
    sample = features[rows[:: max(1, len(rows) // _ROWS)]].astype(np.float64)
    if len(sample) > 1 and np.mean((sample - sample.mean(0)) ** 2) <= _COLLAPSED * np.mean(sample**2):
        warn(
            "The features of all training samples are nearly the same, so samples cannot be "
            "distinguished. Check that the model is trained and that its inputs are prepared as in training.",
            DataWarning,
        )


@displayed()
@dataclass(frozen=True)
class Faithfulness:
    """How well the surrogate matches the model; 1 is best for all measures.

    Attributes
    ----------
    agreement : share of tests with the same predicted class; for multi-label tasks, share of labels with the
        same prediction; for regression, R²
    mcc : Matthews correlation of the two classifications; 0 if one of them has a single class, None without
        classes
    weight_cosine : cosine of its weights and the head's, each centred over classes, without biases
    logit_cosine : mean cosine of the logits, each centred over classes; for multi-label tasks, correlation of
        the logits; for regression, correlation of ranks
    n_tests : number of tests

    Both are centred because a shift common to all classes changes no decision, and the surrogate's classes
    sum to zero by construction.
    """

    agreement: float
    mcc: float | None
    weight_cosine: float
    logit_cosine: float
    n_tests: int


def cosine(a: Doubles, b: Array) -> float:
    """Return the cosine of two matrices, flattened to vectors; 0 if one is zero."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / lengths if lengths > 0 else 0.0


def new_logits(coef: Doubles, features: Tensor) -> Tensor:
    """Compute logits (B, K) of weights (K, d[+1]), the bias last, in float64 for long features."""
    W = torch.as_tensor(coef, device=features.device)
    f, d = features.double(), features.shape[1]
    return torch.addmm(W[:, d], f, W[:, :d].T) if W.shape[1] > d else f @ W.T


def head_logits(head: Head, features: Tensor) -> Tensor:
    """Compute the model's own logits, (B, K)."""
    logits = features @ torch.as_tensor(head.weight).to(features).T
    return logits if head.bias is None else logits + torch.as_tensor(head.bias).to(features)


def faithfulness(coef: Doubles, head: Head, features: Tensor, logits: Tensor | None = None) -> Faithfulness:
    """Compare weights (K, d[+1]) with the model's output (B, K) for features (B, d).

    If the output is None, it is computed by the head.
    """
    # Imported here: scikit-learn would dominate the import time of whence.
    from sklearn.metrics import matthews_corrcoef

    ours = new_logits(coef, features).cpu().numpy()
    theirs = (head_logits(head, features) if logits is None else logits).double().cpu().numpy()
    # Centring over classes and then one cosine over all entries: the matrices as single rows.
    weights = [W - W.mean(axis=0) for W in (coef[:, : features.shape[1]], head.weight)]
    named = ours.argmax(1), theirs.argmax(1)
    # With a single class there is nothing to correlate, and scikit-learn would warn.
    several = len(np.unique(np.concatenate(named))) > 1
    return Faithfulness(
        agreement=float((named[0] == named[1]).mean()),
        mcc=float(matthews_corrcoef(named[1], named[0])) if several else 0.0,
        weight_cosine=cosine(*weights),
        logit_cosine=mean_cosine(ours, theirs),
        n_tests=len(features),
    )
