"""The inverse Hessian of a surrogate, as an operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from whence.core.conjugate import conjugate_gradients
from whence.errors import ConvergenceWarning, warn
from whence.surrogate.hessian import SoftmaxHessian

_TOL = 1e-6  # relative error, in the norm of the Hessian, as estimated by the preconditioner
_STEPS = 500  # maximum steps of conjugate gradients; ten to fifty are typical
_DENSE = 3_000  # weights up to which H is factorised in float64 (72 MB): every solve is direct
_BYTES = 1 << 30  # memory of a factor in float32, up to 16,384 weights: every solve takes one product or two
_SOME = 1e-4  # the same for many pulls and many weights
_RANK = 400  # of the sketch of H that is a preconditioner
_LONG = 32  # pulls at a time from which on it is made
_STEEP = 1e9  # C Σ_i ‖f_i‖² up to which a factor is as accurate as conjugate gradients
_FLAT = 1.2e4  # C Σ_i ‖f_i‖² up to which products in float32 reach _TOL: at 1e4 the error is 2e-7 to 1.1e-6


Solver = Callable[[Tensor], Tensor]
"""Applies an inverse to pulls (B, K, r)."""


class SoftmaxResponse:
    """Applies H⁻¹, where H = I + C Σ_i (diag p_i − p_i p_iᵀ) ⊗ f_i f_iᵀ is the Hessian at the solution.

    H is factorised if W has few entries and C is not too large: in float64, or in float32 with a correction
    by the residual. Else it uses conjugate gradients, preconditioned by the average over classes, or
    for many pulls by a sketch of H. With fewer
    samples than features it works in the span of the samples, outside of which H is the identity.

    Parameters
    ----------
    vectors : (S, D) features of the samples, including the constant of the bias
    chances : (S, K) float64, p_i
    C : C of the surrogate
    """

    def __init__(self, vectors: Tensor, chances: Tensor, C: float) -> None:
        self._basis: Tensor | None = None  # (D, S), orthonormal
        rows, dtype = vectors, vectors.dtype
        n, D = vectors.shape
        if n < D:
            f = vectors.double()
            gram = f @ f.T
            gram.diagonal().add_(1e-12 * gram.diagonal().mean() + torch.finfo(torch.float64).tiny)
            rows = torch.linalg.cholesky(gram)
            self._basis = torch.linalg.solve_triangular(rows, f, upper=False).T
        hessian = SoftmaxHessian(rows, chances, C)
        self._solve = _make_solver(hessian, dtype if hessian.kappa <= _FLAT else torch.float64)

    def __call__(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, D), each separately, in float64."""
        pulls = pulls.double()
        if self._basis is None:
            return self._solve(pulls)
        inside = pulls @ self._basis
        return pulls + (self._solve(inside) - inside) @ self._basis.T


def _make_solver(hessian: SoftmaxHessian, dtype: torch.dtype) -> Solver:
    """Choose how H⁻¹ is applied; products with H are in ``dtype``."""
    K, r = hessian.shape
    n = (K - 1) * r
    if hessian.kappa <= _STEEP and n <= _DENSE:
        factor = Factor.of(hessian, torch.float64)
        if factor is not None:
            return factor
    elif hessian.kappa <= _STEEP and 4 * n * n <= _BYTES:
        factor = Factor.of(hessian, torch.float32)
        if factor is not None:
            return Corrected(hessian, factor, dtype)
    return Many(hessian, dtype) if hessian.kappa <= _FLAT else Steps(hessian, _by_mean(hessian, dtype), dtype)


def _by_mean(hessian: SoftmaxHessian, dtype: torch.dtype) -> Solver:
    """Return a preconditioner: the inverse of the average of H over classes."""
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian.mean(torch.float64))).to(dtype)
    return lambda pulls: (pulls.to(dtype) @ inverse).double()


def _by_sketch(hessian: SoftmaxHessian, dtype: torch.dtype) -> Solver:
    """Return a preconditioner: the inverse of I plus a randomised Nyström approximation of H − I.

    H − I has a trace of at most ½ C Σ_i ‖f_i‖², so at a moderate C few of its eigenvalues are above 1.
    """
    K, r = hessian.shape
    rank = min(_RANK, K * r)
    noise = torch.randn(K * r, rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    basis = torch.linalg.qr(noise)[0].to(hessian.device)  # (K·r, rank)
    image = hessian.product(basis.T.reshape(rank, K, r), dtype).reshape(rank, K * r).T - basis
    shift = torch.finfo(dtype).eps * torch.linalg.matrix_norm(image)
    image += shift * basis
    core = basis.T @ image
    half = torch.linalg.cholesky((core + core.T) / 2)
    factor = torch.linalg.solve_triangular(half, image.T, upper=False)  # (rank, K·r); H − I ≈ factorᵀ factor
    values, rotation = torch.linalg.eigh(factor @ factor.T)
    vectors = ((rotation.T @ factor) / values.sqrt()[:, None]).to(dtype)
    values = (values - shift).clamp(min=0.0)
    gains = ((values[0] - values) / (values + 1.0)).to(dtype)

    def near(pulls: Tensor) -> Tensor:
        flat = pulls.flatten(1).to(dtype)
        out: Tensor = flat + ((flat @ vectors.T) * gains) @ vectors
        return out.double().reshape(pulls.shape)

    return near


class Factor:
    """Applies H⁻¹ by the Cholesky factor of ``hessian.leading``.

    On pulls that are equal for all classes H is the identity; the rest has classes that sum to 0.
    """

    def __init__(self, factor: Tensor) -> None:
        self._factor = factor

    @classmethod
    def of(cls, hessian: SoftmaxHessian, dtype: torch.dtype) -> Factor | None:
        """Factorise, or return None if H is not positive definite in this precision."""
        matrix = hessian.leading(dtype).T  # its upper half, by columns, as LAPACK reads it: no copy is made
        failed = torch.zeros((), dtype=torch.int32, device=matrix.device)
        torch.linalg.cholesky_ex(matrix, upper=True, out=(matrix, failed))
        return None if failed else cls(matrix)

    def __call__(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, r)."""
        common = pulls.mean(1, keepdim=True)
        right = (pulls[:, :-1] - common).flatten(1).to(self._factor)
        half = torch.linalg.solve_triangular(self._factor.T, right.T, upper=False)
        u = torch.linalg.solve_triangular(self._factor, half, upper=True).T.to(pulls)
        u = u.reshape(len(pulls), -1, pulls.shape[2])
        common = common - u.sum(1, keepdim=True) / pulls.shape[1]
        return torch.cat([u + common, common], dim=1)


class Corrected:
    """Applies H⁻¹ by a factor in float32, corrected once by the residual.

    The error of the corrected response is to the correction as the correction is to the response, so its
    size is known. Where it is above the tolerance, conjugate gradients follow.
    """

    def __init__(self, hessian: SoftmaxHessian, factor: Factor, dtype: torch.dtype) -> None:
        self._hessian, self._factor, self._dtype = hessian, factor, dtype
        self._steps = Steps(hessian, factor, dtype)

    def __call__(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, r)."""
        response = self._factor(pulls)
        left = pulls - self._hessian.product(response, self._dtype)
        correction = self._factor(left)
        if ((left * correction).sum((1, 2)) > _TOL * (pulls * response).sum((1, 2))).any():
            return self._steps(pulls)
        return response.add_(correction)


class Many:
    """Applies H⁻¹ by conjugate gradients, with a preconditioner that pays from the first long batch on."""

    def __init__(self, hessian: SoftmaxHessian, dtype: torch.dtype) -> None:
        self._hessian, self._dtype = hessian, dtype

    def __call__(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, r)."""
        long = len(pulls) >= _LONG or "_many" in self.__dict__
        return self._many(pulls) if long else self._few(pulls)

    @cached_property
    def _few(self) -> Steps:
        return Steps(self._hessian, _by_mean(self._hessian, self._dtype), self._dtype)

    @cached_property
    def _many(self) -> Steps:
        return Steps(self._hessian, _by_sketch(self._hessian, self._dtype), self._dtype, _SOME)


class Steps:
    """Applies H⁻¹ by conjugate gradients.

    Parameters
    ----------
    hessian : H
    near : the preconditioner, near H⁻¹
    dtype : precision of products with the samples
    tol : relative error
    """

    def __init__(self, hessian: SoftmaxHessian, near: Solver, dtype: torch.dtype, tol: float = _TOL) -> None:
        self._hessian, self._near, self._dtype, self._tol = hessian, near, dtype, tol

    def __call__(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, r)."""
        response: Tensor
        response, solved = conjugate_gradients(
            lambda x: self._hessian.product(x, self._dtype),
            pulls,
            self._near,
            lambda a, b: (a * b).sum((1, 2), keepdim=True),
            tol=self._tol,
            steps=_STEPS,
        )
        if not solved.all():
            warn(
                f"{int((~solved).sum())} of {len(pulls)} effects did not converge in {_STEPS} steps of "
                "conjugate gradients. Use a smaller C.",
                ConvergenceWarning,
            )
        return response


class RidgeResponse:
    """Applies H⁻¹, where H = I ⊗ (I + C Σ_i f_i f_iᵀ) is the Hessian of ridge regression, in closed form.

    Parameters
    ----------
    vectors : (S, D) features of the samples, including the constant of the bias
    C : C of the surrogate
    """

    def __init__(self, vectors: Tensor, C: float) -> None:
        f = vectors.double()
        n, D = f.shape
        self._rows = f if n < D else None  # work in the span of the samples if they are fewer than features
        gram = torch.eye(min(n, D), dtype=f.dtype, device=f.device)
        gram = gram / C + f @ f.T if n < D else gram + C * (f.T @ f)
        self._factor = torch.linalg.cholesky(gram)

    def __call__(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, D), each separately, in float64."""
        flat = pulls.double().reshape(-1, pulls.shape[-1]).T
        if self._rows is None:
            response = torch.cholesky_solve(flat, self._factor)
        else:
            response = flat - self._rows.T @ torch.cholesky_solve(self._rows @ flat, self._factor)
        return response.T.reshape(pulls.shape)
