"""Representer Points with the hinge loss: DualDA from the primal problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted
from whence.attribution.parameters import a_seed, parameter
from whence.core.arrays import Doubles, Ints, Mask
from whence.core.checks import check_flag, check_positive, check_share
from whence.core.contents import Layout
from whence.core.progress import gap_bar
from whence.features.training import Classifier, Training
from whence.methods.representer import Points, pack_points, points_layout, rows_with
from whence.svm import solve
from whence.svm.inputs import length


@register
@dataclass(eq=False)
class HingeRP(Attributor):
    """Attribute predictions by Representer Points with the multiclass hinge loss.

    The minimum W of ½‖W‖² + C Σ_i max_c (1 − δ_{c,y_i} − w_{y_i}·f_i + w_c·f_i) is W = Σ_i α_i f_iᵀ, where
    −α_i is a subgradient of C times the loss: if one class c* has the maximum, α_i = C (e_{y_i} − e_{c*}).
    On the margin several classes do, and α_i = C e_{y_i} − a_i, where a_i ≥ 0 over those classes sums to C
    and comes from non-negative least squares for W = Σ_i α_i f_iᵀ. The score is τ_c(x, i) = α_ic f_i·f(x),
    **positive is evidence for the target class**. These are DualDA's scores, computed from the weights alone:
    a check of DualDA rather than another method.

    Parameters
    ----------
    C
        Weight of the loss, as in DualDA.
    bias
        Append a constant to the features, with their mean length, as DualDA does.
    tol
        Relative duality gap of the weights.
    seed
        Makes a run repeatable.

    Attributes
    ----------
    coef_ : (class, d) float64 weights W, with the bias as a last column when ``bias`` is set
    alpha_ : (train, class) float32, α: the global attributions
    residual_ : float, ‖W − Σ_i α_i f_iᵀ‖ / ‖W‖
    """

    name: ClassVar[str] = "hingerp"
    capabilities: ClassVar[Capabilities] = Capabilities(
        last_layer_only=True,
        memory="N × (d + K); while fitting also K × d for every sample on the margin",
        cost=0.2,
        own_class_only=True,
        new_layer=True,
    )

    C: float = parameter(1e-3, check_positive)
    bias: bool = parameter(True, check_flag)
    tol: float = parameter(1e-9, check_share)
    seed: int = parameter(0, a_seed)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        constant = length(training.features.cpu().numpy()) if self.bias else 0.0
        X, y = rows_with(training, constant if self.bias else None), training.labels.cpu().numpy()
        with gap_bar(self.tol, self.show_progress) as bar:
            solution = solve(
                X,
                y,
                n_classes=training.task.n_outputs,
                C=self.C,
                bias=False,  # the constant is a column of X
                tol=self.tol,
                seed=self.seed,
                callback=bar,
            )
        # ½‖W − W*‖² is at most primal − dual, and a score differs by at most ‖W − W*‖‖f‖.
        off = np.sqrt(2 * max(solution.primal - solution.dual, 0.0))
        alpha = hinge_coefficients(solution.weight, X, y, self.C, off)
        size = float(np.linalg.norm(solution.weight))
        residual = float(np.linalg.norm(solution.weight - alpha.T @ X)) / size if size > 0 else 0.0
        weight = solution.weight.copy()
        weight[:, training.features.shape[1] :] *= constant  # the bias that is added to the logits
        points = pack_points(training, alpha, weight, residual)
        return {**points, "constant": torch.tensor(constant, dtype=torch.float64)}

    def _open(self, fitted: Fitted) -> Points:
        return Points(fitted.arrays, fitted.used_labels, float(fitted.arrays["constant"]))

    def _layout(self, classifier: Classifier) -> Layout:
        return {**points_layout(classifier, self.bias), "constant": ()}

    def _doubles(self) -> tuple[str, ...]:
        return ("coef", "residual", "constant")


def hinge_coefficients(W: Doubles, X: Doubles, y: Ints, C: float, off: float) -> Doubles:
    """Compute α (N, K) with W near Σ_i α_i f_iᵀ, where −α_i is a subgradient of the hinge loss at W.

    ``off`` bounds the distance of W from the minimum: classes within the resulting error of the largest
    margin count as attaining it.
    """
    rows = np.arange(len(y))
    margins = X @ W.T + 1.0
    margins[rows, y] -= 1.0
    near = 2 * off * np.linalg.norm(X, axis=1) + 1e-12
    tied = margins >= (margins.max(axis=1) - near)[:, None]
    several = np.flatnonzero(tied.sum(axis=1) > 1)
    alpha = np.zeros_like(margins)
    alpha[rows, y] = C
    alone = np.setdiff1d(rows, several)
    alpha[alone, margins[alone].argmax(axis=1)] -= C
    if len(several):
        alpha[several] -= _shares(tied[several], X[several], alpha.T @ X - W, C)
    return alpha


def _shares(tied: Mask, X: Doubles, missing: Doubles, C: float) -> Doubles:
    """Compute a (n, K) ≥ 0 with row sums C, zero where not tied, and aᵀ X as near to ``missing`` as possible.

    This is non-negative least squares in the tied entries, with a heavily weighted row for each sum.
    """
    i, c = np.nonzero(tied)
    entries = np.arange(len(i))
    moves = np.zeros((len(i), *missing.shape))
    moves[entries, c] = X[i]
    sums = np.zeros((len(i), len(X)))
    heavy = 100 * float(np.linalg.norm(X, axis=1).max())
    sums[entries, i] = heavy
    system = np.concatenate([moves.reshape(len(i), -1), sums], axis=1).T
    wanted = np.concatenate([missing.ravel() / C, np.full(len(X), heavy)])
    a: Doubles = np.zeros(tied.shape)
    a[i, c] = nnls(system, wanted, maxiter=100 * len(i))[0]
    a *= C / a.sum(axis=1, keepdims=True)
    return a
