"""How well a new last layer stands for the model's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Doubles
from whence.core.display import displayed
from whence.model.heads import Head
from whence.svm.likeness import mean_cosine


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
    lengths = float(np.linalg.norm(weights[0]) * np.linalg.norm(weights[1]))
    named = ours.argmax(1), theirs.argmax(1)
    # Where both name one class only, there is nothing to correlate, of which scikit-learn would warn.
    several = len(np.unique(np.concatenate(named))) > 1
    return Faithfulness(
        agreement=float((named[0] == named[1]).mean()),
        mcc=float(matthews_corrcoef(named[1], named[0])) if several else 0.0,
        weight_cosine=float(np.vdot(*weights)) / lengths if lengths > 0 else 0.0,
        logit_cosine=mean_cosine(ours, theirs),
        n_tests=len(features),
    )
