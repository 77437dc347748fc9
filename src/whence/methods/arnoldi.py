"""Influence functions by Arnoldi iteration: the inverse of the curvature on its largest eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import Params, a_seed, one_of, parameter
from whence.core.arrays import Ints
from whence.core.checks import check_count
from whence.core.contents import Layout
from whence.core.progress import bar, watched
from whence.features.training import Classifier, Training
from whence.gradients.curvature import (
    Curvature,
    check_damping,
    count_drawn,
    drawn,
    gradients_of_tests,
    training_curvature,
)


@register
@dataclass(eq=False)
class Arnoldi(Attributor):
    """Attribute predictions by influence functions on the largest eigenvectors of the curvature.

    The score of training sample i for class c at x is τ_c(x, i) = (1/N) Σ_j (g(x, c)·q_j)(g_i·q_j)/(λ_j +
    damping), where g are gradients of the cross-entropy and (λ_j, q_j) the largest eigenpairs of the
    Gauss–Newton matrix of the mean training loss, or of its Hessian for the last layer. It estimates the
    increase of the loss of x for c when i is left out, so **positive is evidence for the target class**. The
    eigenpairs are Ritz pairs of a Krylov space from a random vector; the orthogonal complement is ignored.

    Parameters
    ----------
    params
        "last" for the last layer, "all" for all trainable parameters.
    damping
        Added to the eigenvalues, above 0.
    dimension
        Dimension of the Krylov space, the number of products of the curvature with a vector.
    projections
        Number of the largest eigenpairs to keep. Eigenpairs within rounding error are never kept.
    n_samples
        Number of training samples for the curvature, drawn at random; None uses all.
    seed
        Makes a run repeatable.

    Attributes
    ----------
    eigenvalues_ : (k,) the kept eigenvalues, largest first
    """

    name: ClassVar[str] = "arnoldi"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        memory="(N + P) × projections; P × dimension while fitting",
        cost=0.2,
    )

    params: Params = parameter("last", one_of(Params))
    damping: float = parameter(1e-3, check_damping)
    dimension: int = parameter(150, check_count)
    projections: int = parameter(128, check_count)
    n_samples: int | None = parameter(10_000, check_count, or_none=True)
    seed: int = parameter(0, a_seed)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        curvature = training_curvature(training, self.params == "last")
        n = curvature.n_train
        rows = drawn(n, self.n_samples, self.seed)
        # The last layer's vectors are short enough for double precision.
        dtype = torch.float64 if self.params == "last" else training.features.dtype
        generator = torch.Generator().manual_seed(self.seed)
        start = torch.randn(curvature.n_parameters, generator=generator, dtype=torch.float64)
        start = start.to(training.features.device, dtype)
        values, vectors = eigenpairs(curvature, start, self.dimension, rows, self.show_progress)
        values, vectors = values[: self.projections], vectors[: self.projections]
        basis = (vectors / (values + self.damping).sqrt()[:, None]).to(training.features)
        gradients = watched(curvature.train(), n, "Projecting", self.show_progress)
        train = torch.cat([part.to(basis) @ basis.T for part in gradients])
        return {"basis": basis, "train": train, "eigenvalues": values}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        basis, train = fitted.arrays["basis"], fitted.arrays["train"]
        gradients = gradients_of_tests(fitted.classifier, tests, self.params == "last")
        return torch.cat([rows.to(basis) @ basis.T @ train.T for rows in gradients]).div_(len(train))

    def score_self(self, fitted: Fitted) -> Tensor:
        train = fitted.arrays["train"]
        return train.square().sum(1).div_(len(train))

    def _needs_inputs(self) -> bool:
        return self.params == "all"

    def _layout(self, classifier: Classifier) -> Layout:
        P = classifier.n_parameters
        if self.params == "all":
            P = sum(p.numel() for p in classifier.model.parameters() if p.requires_grad)
        return {"basis": ("k", P), "train": ("N", "k"), "eigenvalues": ("k",)}

    def _doubles(self) -> tuple[str, ...]:
        return ("eigenvalues",)

    def _facts(self, fitted: Fitted) -> dict[str, Any]:
        return super()._facts(fitted) | count_drawn(fitted, self.n_samples)


def eigenpairs(
    curvature: Curvature, start: Tensor, dimension: int, rows: Ints | None = None, show_progress: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute eigenvalues (k,) and eigenvectors (k, P) of the curvature in a Krylov space, largest first.

    Each vector of the Arnoldi iteration is orthogonalised twice against all previous ones, to remove rounding
    errors. The iteration ends early if the space is invariant under the curvature. Eigenvalues within
    rounding error of zero are left out.
    """
    basis = start.new_zeros(min(dimension, len(start)), len(start))
    H = start.new_zeros(len(basis), len(basis), dtype=torch.float64)
    epsilon = torch.finfo(start.dtype).eps
    q, size = start / start.norm(), 0
    for j in bar("Iterating Arnoldi", len(basis), "steps", parts=range(len(basis)), show=show_progress):
        basis[j], size = q, j + 1
        w = curvature.product(q[None], rows)[0]
        before = w.norm()
        for _ in range(2):
            h = basis[:size] @ w
            w = w - basis[:size].T @ h
            H[:size, j] += h.double()
        if w.norm() <= 10 * epsilon * max(float(before), float(H.abs().max())):
            break
        q = w / w.norm()
    H = H[:size, :size]
    values, vectors = torch.linalg.eigh(H, UPLO="U")  # the curvature is symmetric
    values, vectors = values.flip(0), vectors.flip(1)
    real = values > size * epsilon * values[0].clamp(min=0)
    return values[real].to(start), vectors[:, real].T.to(start) @ basis[:size]
