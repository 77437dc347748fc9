"""Gradients of the training loss and its Gauss–Newton curvature, for the last layer or for all parameters.

L(θ) = (1/N) Σ_i ℓ_i(θ) with ℓ the cross-entropy. Its Gauss–Newton matrix is G = (1/N) Σ_i J_iᵀ S_i J_i, with
J_i the derivative of the logits and S_i = diag(p_i) − p_i p_iᵀ. G is positive semi-definite, whatever the
model. For the last layer it is the Hessian itself; for all parameters it leaves out how the logits bend,
which counts for little in a model that fits its training set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vjp, vmap

from whence.core.arrays import Ints
from whence.core.checks import check_positive
from whence.core.progress import bar, watched
from whence.features.training import Batches, Classifier, Training
from whence.gradients.gradients import MEMORY, Gradients, outer
from whence.gradients.products import batches_of
from whence.model.inputs import take
from whence.model.modules import evaluating

_BLOCK = 2048  # training samples per block

check_damping = partial(check_positive, why=": without it the curvature has no inverse")


def residuals(logits: Tensor, classes: Tensor) -> Tensor:
    """Return p − e_c (B, K) float64, the cross-entropy's derivative by the logits, exact for p_c near 1."""
    p = logits.double().softmax(1)
    columns = classes.to(p.device)[:, None]
    p.scatter_(1, columns, 0.0)
    return p.scatter(1, columns, -p.sum(1, keepdim=True))


def drawn(n: int, n_samples: int | None, seed: int) -> Ints | None:
    """Draw the training samples, of n, for a curvature, in order; None means all."""
    if n_samples is None or n_samples >= n:
        return None
    return np.sort(np.random.default_rng(seed).choice(n, size=n_samples, replace=False))


class LastCurvature:
    """The last layer W f + b in closed form: the gradient of sample i is (p_i − e_{y_i}) f_iᵀ, the bias last.

    Parameters
    ----------
    rows : (N, d) features, with a constant 1 as the last column where the layer has a bias
    residual : (N, K), p_i − e_{y_i}
    labels : (N,)
    """

    def __init__(self, rows: Tensor, residual: Tensor, labels: Tensor) -> None:
        self.rows, self.residual, self.labels = rows, residual, labels
        self.n_train, self.n_classes = residual.shape
        self.n_parameters = self.n_classes * rows.shape[1]

    @property
    def kept(self) -> dict[str, Tensor]:
        """The tensors from which it is built, besides the labels."""
        return {"rows": self.rows, "residual": self.residual}

    def train(self) -> Iterator[Tensor]:
        """Yield gradients of the training samples, rows (n, P) in batches."""
        width = max(1, min(_BLOCK, MEMORY // (8 * self.n_parameters)))
        parts = zip(torch.split(self.residual, width), torch.split(self.rows, width), strict=True)
        for residual, rows in parts:
            yield outer(residual.to(rows), rows)

    def scores(self, V: Tensor) -> Tensor:
        """Compute inner products (B, N) of rows V (B, P) and all gradients, without storing these."""
        weights = V.to(self.rows).reshape(len(V), self.n_classes, -1)
        residual = self.residual.to(self.rows)
        out = self.rows.new_zeros(len(V), self.n_train)
        for c in range(self.n_classes):
            out.addcmul_(weights[:, c] @ self.rows.T, residual[:, c])
        return out

    def probabilities(self, rows: Any = slice(None)) -> Tensor:
        """Return p (n, K) of some training samples."""
        p = self.residual[rows].clone()
        p[torch.arange(len(p), device=p.device), self.labels[rows]] += 1
        return p

    def product(self, V: Tensor, rows: Ints | None = None) -> Tensor:
        """Compute V G (m, P) in the dtype of V, where G is over all training samples or some ``rows``."""
        K, d = self.n_classes, self.rows.shape[1]
        out = torch.zeros_like(V).reshape(-1, d)
        stacked = V.reshape(-1, d)
        places = np.arange(self.n_train) if rows is None else rows
        for start in range(0, len(places), _BLOCK):
            part = torch.as_tensor(places[start : start + _BLOCK])
            x, p = self.rows[part].to(V), self.probabilities(part).to(V).T  # (n, d), (K, n)
            T = p * (stacked @ x.T).reshape(-1, K, len(x))  # (m, K, n)
            T -= p * T.sum(1, keepdim=True)
            out.addmm_(T.flatten(0, 1), x)
        return out.div_(len(places)).reshape(V.shape)

    def matrix(self, show_progress: bool = False) -> Tensor:
        """Compute G (P, P) in float64."""
        K, d = self.n_classes, self.rows.shape[1]
        G = self.rows.new_zeros(K, d, K, d, dtype=torch.float64)
        starts = range(0, self.n_train, _BLOCK)
        for start in bar("Adding up the Hessian", len(starts), "blocks", parts=starts, show=show_progress):
            part = slice(start, start + _BLOCK)
            x, p = self.rows[part].double(), self.probabilities(part).double()
            for c in range(K):
                # −p_c p_e for the classes e ≥ c, plus p_c on the diagonal.
                weights = -p[:, c, None] * p[:, c:]
                weights[:, 0] += p[:, c]
                right = outer(weights, x)
                G[c, :, c:] += (x.T @ right).reshape(d, K - c, d)
        for c in range(K):
            for e in range(c):
                G[c, :, e] = G[e, :, c].T
        return G.reshape(K * d, K * d).div_(self.n_train)


class FullCurvature:
    """All trainable parameters, by ``torch.func`` on the model in eval mode; data are read every time."""

    def __init__(self, classifier: Classifier, batches: Batches) -> None:
        self.classifier, self.batches = classifier, batches
        self.gradients = Gradients(classifier)
        self.gradients.check(next(iter(batches))[0])
        self.n_train, self.n_parameters = len(batches), self.gradients.n_parameters

    @property
    def kept(self) -> dict[str, Tensor]:
        """No tensors: it is built from the model and the training set."""
        return {}

    def train(self) -> Iterator[Tensor]:
        """Yield gradients of the training samples, rows (n, P) in batches."""
        for inputs, labels in self.batches:
            yield from self.gradients(inputs, labels)

    def scores(self, V: Tensor) -> Tensor:
        """Compute inner products (B, N), in one pass over the training set."""
        return torch.cat([V @ rows.to(V).T for rows in self.train()], dim=1)

    def product(self, V: Tensor, rows: Ints | None = None) -> Tensor:
        """Compute V G (m, P), as for the last layer, by three passes through the model per row of V."""
        places = np.arange(self.n_train) if rows is None else rows
        out = torch.zeros_like(V)
        width = self.classifier.batch_size
        for start in range(0, len(places), width):
            part = places[start : start + width]
            out += self._sum(V, self.batches.take(part), len(part))
        return out / len(places)

    def _sum(self, V: Tensor, inputs: Any, n: int) -> Tensor:
        """Compute V Σ_i J_iᵀ S_i J_i over a batch of n samples."""
        parameters = self.gradients.parameters()
        parts = torch.split(V, [p.numel() for p in parameters.values()], dim=1)
        tangents = {
            name: part.reshape(len(V), *p.shape).to(p)
            for (name, p), part in zip(parameters.items(), parts, strict=True)
        }

        def logits(parameters: dict[str, Tensor]) -> Tensor:
            return self.gradients.logits(parameters, inputs)

        def one(tangent: dict[str, Tensor]) -> dict[str, Tensor]:
            z, back, *_ = vjp(logits, parameters)
            # J v as the transpose of u ↦ uᵀJ, for operations that have no forward-mode derivative.
            _, forward, *_ = vjp(lambda u: back(u)[0], torch.zeros_like(z))
            p, (moved,) = z.softmax(1), forward(tangent)
            moved = p * moved
            product: dict[str, Tensor] = back(moved - p * moved.sum(1, keepdim=True))[0]
            return product

        with evaluating(self.classifier.model), torch.enable_grad():
            products = vmap(one, chunk_size=max(1, self.gradients.chunk // n))(tangents)
        return torch.cat([products[name].detach().flatten(1) for name in parameters], dim=1).to(V)


Curvature = LastCurvature | FullCurvature
"""Gradients as rows over P parameters, and products with the Gauss–Newton matrix."""


Solve = Callable[[Tensor], Tensor]
"""Applies (G + damping·I)⁻¹ to rows (B, P)."""


def training_curvature(training: Training, last: bool) -> Curvature:
    """Return the curvature of the training loss, for the last layer or for all parameters."""
    classifier = training.classifier
    if not last:
        return FullCurvature(classifier, training.batches)
    f, labels = training.features, training.labels
    return LastCurvature(classifier.with_bias(f), residuals(classifier.logits(f), labels), labels)


def fitted_curvature(fitted: Any, last: bool) -> Curvature:
    """Return the same from learned arrays, the result of ``kept``."""
    if last:
        return LastCurvature(fitted.arrays["rows"], fitted.arrays["residual"], fitted.used_labels)
    return FullCurvature(fitted.classifier, fitted.batches)


def gradients_of_tests(classifier: Classifier, tests: Any, last: bool) -> Iterator[Tensor]:
    """Yield gradients (b, P) of the loss of tests, in batches that fit into memory."""
    P = classifier.weight.numel() if last else sum(p.numel() for p in classifier.model.parameters())
    width = max(1, MEMORY // (8 * P))
    gradients = None if last else Gradients(classifier)
    for start in range(0, len(tests.targets), width):
        rows = slice(start, start + width)
        classes = tests.targets[rows]
        if gradients is None:
            features = tests.features[rows]
            residual = residuals(classifier.logits(features), classes)
            yield outer(residual.to(features), classifier.with_bias(features))
        else:
            batches = batches_of(classifier, take(tests.x, rows), classes)
            yield torch.cat([part for batch in batches for part in gradients(*batch)])


def solved_scores(
    classifier: Classifier, curvature: Curvature, tests: Any, last: bool, solve: Solve
) -> Tensor:
    """Compute scores (1/N) g(x, c)ᵀ (G + damping·I)⁻¹ g_i of tests, (B, N)."""
    parts = [curvature.scores(solve(rows)) for rows in gradients_of_tests(classifier, tests, last)]
    return torch.cat(parts).div_(curvature.n_train)


def solved_squares(curvature: Curvature, solve: Solve, show_progress: bool) -> Tensor:
    """Compute scores (1/N) g_iᵀ (G + damping·I)⁻¹ g_i of the training samples, (N,)."""
    gradients = watched(curvature.train(), curvature.n_train, "Self-influence", show_progress)
    parts = [torch.einsum("np,np->n", rows, solve(rows).to(rows)) for rows in gradients]
    return torch.cat(parts).div_(curvature.n_train)


def count_drawn(fitted: Any, n_samples: int | None) -> dict[str, int]:
    """Return the number of samples of the curvature, by name, if it is not all."""
    if n_samples is None or n_samples >= len(fitted.used_labels):
        return {}
    return {"samples of curvature": n_samples}


def reread(name: str, last: bool) -> str:
    """Return why a method that reads the training set to score is not saved; empty for the last layer."""
    if last:
        return ""
    return (
        f'{name} with params="all" reads the training set for every explanation, so its cache alone is not '
        "worth saving"
    )
