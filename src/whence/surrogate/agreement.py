"""How far a surrogate can be trusted to represent its model: measured at fit, and on inputs of the user's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Doubles, Floats, Ints, Mask
from whence.core.display import displayed
from whence.errors import AgreementWarning, DataWarning, warn
from whence.features.rows import row_lengths, unit_rows
from whence.model.heads import Head
from whence.svm import held_back
from whence.svm.likeness import judged, mean_cosine
from whence.tasks import Task

LOW = 0.9  # below this share of tests with the model's class, explanations are about something else too often
_COLLAPSED = 1e-8  # share of the features' mean square that varies: float32 holds no more than its root
_ROWS = 4096  # enough to see whether features vary


def agreement(
    task: Task, weight: Doubles, head: Head, features: Floats, labels: Array, unit: bool = False
) -> float:
    """Measure how far the surrogate W (K, d[+1]) agrees with the head: for classes, how often.

    With ``unit`` it reads features (n, d) at unit length; the head reads them as they are.
    """
    read, lengths = (unit_rows(features), row_lengths(features)) if unit else (features, None)
    problem = task.problem.make(read, labels, task.n_outputs, 1.0, False)
    return judged(problem, np.arange(len(read)), weight, (head.weight, head.bias), lengths)[0]


def without_part(task: Task, labels: Array, seed: int, given: bool) -> Ints:
    """Find the samples that had no part in choosing C; where C was ``given``, all that took part at all."""
    used = np.flatnonzero(task.known(labels))
    if not len(used):
        return used
    # Groups follow from labels alone: any features will do.
    problem = task.problem.make(np.zeros((len(used), 1)), labels[used], task.n_outputs, 1.0, False)
    rows = held_back(problem.strata, seed)
    return used if given and not len(rows) else used[rows]


def still_unseen(unseen: Ints, n: int, used: Mask) -> Ints:
    """Return what is left of samples that had no part in choosing C, and what came after the first n."""
    return np.concatenate([unseen[used[unseen]], n + np.flatnonzero(used[n:])])


def warn_of_low(task: Task, share: float, n: int) -> None:
    """Warn where the surrogate does not stand for the model, beyond what chance does on n rows."""
    if share + np.sqrt(share * (1 - share) / n) < LOW:
        names = f"names the model's class for {share:.1%} of {n:,} training samples only"
        if not task.has_classes:
            names = f"has {task.measures[0]} {share:.3f} with the model on {n:,} training samples only"
        warn(
            f"The surrogate {names}, so its "
            'scores tell little about the model. Try other values of C or C="auto", and see whether the '
            "model has learned its training set.",
            AgreementWarning,
        )


def warn_of_data(task: Task, features: Floats, labels: Array) -> None:
    """Warn of labels that look wrong, such as of one class only, and of features that hardly vary."""
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
    """How well the surrogate stands for the model; 1 is best everywhere.

    Attributes
    ----------
    agreement : share of tests where both name the same class; of many labels, of labels that both have on or
        off; of numbers, R²
    mcc : Matthews correlation of the two classifications; 0 where one of them names a single class, None
        where there are no classes
    weight_cosine : cosine of its weights and the head's, each centred over classes, without biases
    logit_cosine : mean cosine of the logits, each centred over classes; of many labels, correlation of the
        logits; of numbers, correlation of ranks
    n_tests : tests compared

    Both are centred because no class decision sees a shift common to all classes, and the surrogate's
    classes sum to zero by construction.
    """

    agreement: float
    mcc: float | None
    weight_cosine: float
    logit_cosine: float
    n_tests: int


def cosine(a: Doubles, b: Array) -> float:
    """Return the cosine of two matrices, each as one vector; 0 where one has no length."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / lengths if lengths > 0 else 0.0


def new_logits(coef: Doubles, features: Tensor) -> Tensor:
    """Compute logits (B, K) of weights (K, d[+1]), the bias last, in float64: long features leave little."""
    W = torch.as_tensor(coef, device=features.device)
    f, d = features.double(), features.shape[1]
    return torch.addmm(W[:, d], f, W[:, :d].T) if W.shape[1] > d else f @ W.T


def head_logits(head: Head, features: Tensor) -> Tensor:
    """Compute the model's own logits, (B, K)."""
    logits = features @ torch.as_tensor(head.weight).to(features).T
    return logits if head.bias is None else logits + torch.as_tensor(head.bias).to(features)


def faithfulness(coef: Doubles, head: Head, features: Tensor, logits: Tensor | None = None) -> Faithfulness:
    """Compare weights (K, d[+1]) with the model's output (B, K) for features (B, d).

    Where the output is None, it is what the head makes of the features.
    """
    # Imported here: scikit-learn would make up most of the time that importing whence takes.
    from sklearn.metrics import matthews_corrcoef

    ours = new_logits(coef, features).cpu().numpy()
    theirs = (head_logits(head, features) if logits is None else logits).double().cpu().numpy()
    # Centring over classes and then one cosine over all entries: the matrices as single rows.
    weights = [W - W.mean(axis=0) for W in (coef[:, : features.shape[1]], head.weight)]
    named = ours.argmax(1), theirs.argmax(1)
    # Where both name one class only, there is nothing to correlate, of which scikit-learn would warn.
    several = len(np.unique(np.concatenate(named))) > 1
    return Faithfulness(
        agreement=float((named[0] == named[1]).mean()),
        mcc=float(matthews_corrcoef(named[1], named[0])) if several else 0.0,
        weight_cosine=cosine(*weights),
        logit_cosine=mean_cosine(ours, theirs),
        n_tests=len(features),
    )
