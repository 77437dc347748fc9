"""The inverse Hessian of a surrogate, as an operator."""

from __future__ import annotations

import torch
from torch import Tensor

from whence.core.conjugate import conjugate_gradients
from whence.errors import ConvergenceWarning, warn

_TOL = 1e-6  # relative error, in the norm of the Hessian, as estimated by the preconditioner
_STEPS = 500  # maximum steps of conjugate gradients; ten to fifty are typical
_ROWS = 4096  # samples in float64 at a time
_DENSE = 3_000  # number of weights up to which H is dense (72 MB) and factorised
_STEEP = 1e9  # C Σ_i ‖f_i‖² up to which a factor is as accurate as conjugate gradients


class SoftmaxResponse:
    """Applies H⁻¹, where H = I + C Σ_i (diag p_i − p_i p_iᵀ) ⊗ f_i f_iᵀ is the Hessian at the solution.

    It uses the Cholesky factor if W has few entries and C is not too large, else conjugate gradients,
    preconditioned by the average over classes: I ⊗ (I + C Σ_i q_i f_i f_iᵀ) with the mean q_i of
    p_ic (1 − p_ic). With fewer samples than features it works in the span of the samples, outside of which H
    is the identity.

    Parameters
    ----------
    vectors : (S, D) features of the samples, including the constant of the bias
    chances : (S, K) float64, p_i
    C : C of the surrogate
    """

    def __init__(self, vectors: Tensor, chances: Tensor, C: float) -> None:
        self._chances, self._C = chances, C
        self._basis: Tensor | None = None  # (D, S), orthonormal
        self._rows = vectors
        n, D = vectors.shape
        if n < D:
            f = vectors.double()
            gram = f @ f.T
            gram.diagonal().add_(1e-12 * gram.diagonal().mean() + torch.finfo(torch.float64).tiny)
            self._rows = torch.linalg.cholesky(gram)
            self._basis = torch.linalg.solve_triangular(self._rows, f, upper=False).T
        self._factor: Tensor | None = None  # (K·r, K·r) of H = L Lᵀ
        kappa = C * float(self._rows.double().square().sum())
        if chances.shape[1] * self._rows.shape[1] <= _DENSE and kappa <= _STEEP:
            self._factor = torch.linalg.cholesky(self._hessian())
        else:
            self._about = torch.cholesky_inverse(torch.linalg.cholesky(self._mean()))

    def _hessian(self) -> Tensor:
        """Compute H (K·r, K·r), by one product of all p_i ⊗ f_i with themselves."""
        K, r = self._chances.shape[1], self._rows.shape[1]
        out = torch.eye(K * r, dtype=torch.float64, device=self._rows.device)
        for part in self._blocks():
            f, p = self._rows[part].double(), self._chances[part]
            pairs = (p[:, :, None] * f[:, None]).flatten(1)  # (s, K·r)
            out.addmm_(pairs.T, pairs, alpha=-self._C)
            for k in range(K):
                block = slice(k * r, (k + 1) * r)
                out[block, block].addmm_(pairs[:, block].T, f, alpha=self._C)
        return out

    def _mean(self) -> Tensor:
        """Compute I + C Σ_i q_i f_i f_iᵀ (r, r), the average of H over classes."""
        out = torch.eye(self._rows.shape[1], dtype=torch.float64, device=self._rows.device)
        q = self._C * (self._chances * (1 - self._chances)).mean(1)
        for part in self._blocks():
            f = self._rows[part].double()
            out.addmm_((q[part, None] * f).T, f)
        return out

    def _blocks(self) -> list[slice]:
        n = len(self._rows)
        return [slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)]

    def __call__(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, D), each separately, in float64."""
        pulls = pulls.double()
        if self._basis is None:
            return self._solved(pulls)
        inside = pulls @ self._basis
        return pulls + (self._solved(inside) - inside) @ self._basis.T

    def _solved(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, r)."""
        if self._factor is None:
            return self._near(pulls)
        return torch.cholesky_solve(pulls.flatten(1).T, self._factor).T.reshape(pulls.shape)

    def _product(self, x: Tensor) -> Tensor:
        """Apply H to x (B, K, r)."""
        B, K, r = x.shape
        out, flat = x.clone().reshape(B * K, r), x.reshape(B * K, r)
        for part in self._blocks():
            f, p = self._rows[part].double(), self._chances[part].T  # (s, r), (K, s)
            moved = (flat @ f.T).reshape(B, K, -1) * p
            moved -= p * moved.sum(1, keepdim=True)
            out.addmm_(moved.reshape(B * K, -1), f, alpha=self._C)
        return out.reshape(B, K, r)

    def _near(self, pulls: Tensor) -> Tensor:
        """Apply H⁻¹ to pulls (B, K, r) by conjugate gradients."""
        response: Tensor
        response, solved = conjugate_gradients(
            self._product,
            pulls,
            lambda left: left @ self._about,
            lambda a, b: (a * b).sum((1, 2), keepdim=True),
            tol=_TOL,
            steps=_STEPS,
        )
        if solved.all():
            return response
        warn(
            f"{int((~solved).sum())} of {len(pulls)} effects did not converge in {_STEPS} steps of conjugate "
            "gradients. Use a smaller C.",
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
