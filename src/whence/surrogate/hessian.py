"""The Hessian of softmax regression: products, the dense matrix, and its average over classes."""

from __future__ import annotations

from math import frexp, ldexp

import torch
from torch import Tensor

_BLOCK = 1 << 20  # numbers of weighted samples in memory at a time, for the matrices
_PRODUCTS = 1 << 22  # products of samples and vectors in memory at a time


class SoftmaxHessian:
    """H = I + C Σ_i (diag p_i − p_i p_iᵀ) ⊗ f_i f_iᵀ, of weights W (K, r).

    Samples are scaled by a power of two to lengths around 1, and C to match, so that float32 has no overflow
    in any units of the features.

    Parameters
    ----------
    rows : (N, r) samples f_i
    chances : (N, K) float64, p_i
    C : C of the surrogate
    """

    def __init__(self, rows: Tensor, chances: Tensor, C: float) -> None:
        squares = float(rows.double().square().sum())
        length = (squares / max(1, len(rows))) ** 0.5
        self._unit = ldexp(1.0, frexp(length)[1]) if length > 0 else 1.0
        self._rows, self._chances, self._C = rows / self._unit, chances, C * self._unit**2
        self.kappa = C * squares
        """C Σ_i ‖f_i‖², a bound of the largest eigenvalue."""

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (K, r) of the weights."""
        return self._chances.shape[1], self._rows.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return self._rows.device

    def product(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Compute H x for x (B, K, r) in float64, with products of samples in ``dtype``."""
        B, K, r = x.shape
        flat = (x / self._unit).reshape(B * K, r).to(dtype)
        out = torch.zeros_like(flat)
        for part in self._parts(max(64, _PRODUCTS // (B * K))):
            f, p = self._rows[part].to(dtype), self._chances[part].T.to(dtype, copy=True)
            logits = (flat @ f.T).reshape(B, K, -1)
            logits *= p
            logits.addcmul_(p, logits.sum(1, keepdim=True), value=-1.0)
            out.addmm_(logits.reshape(B * K, -1), f)
        return torch.add(x, out.reshape(x.shape), alpha=self._C * self._unit)

    def leading(self, dtype: torch.dtype) -> Tensor:
        """Return H of u (K − 1, r), as the lower half of a matrix of (K − 1)·r rows.

        u is W less its last row, for W whose rows sum to 0. Where v has rows that sum to 0, H W = v is the
        same as this times u = v without its last row. The data part is that of the first K − 1 classes, and
        ‖W‖² is ‖u‖² − ‖Σ_c u_c‖²/K.
        """
        K, r = self.shape
        n = (K - 1) * r
        out = torch.zeros(n, n, dtype=dtype, device=self._rows.device)
        for part in self._parts(max(64, _BLOCK // r)):
            f, p = self._rows[part].to(dtype), self._C * self._chances[part]
            q = self._chances[part]
            for c in range(K - 1):
                for e in range(c + 1):
                    weights = p[:, c] * (1.0 - q[:, c] if c == e else q[:, e])
                    block = _squared(f * weights.clamp(min=0.0).sqrt().to(dtype)[:, None])
                    out[c * r : (c + 1) * r, e * r : (e + 1) * r].add_(block, alpha=1.0 if c == e else -1.0)
        for c in range(K - 1):
            for e in range(c + 1):
                block = out[c * r : (c + 1) * r, e * r : (e + 1) * r]
                block.diagonal().add_((c == e) - 1.0 / K)
        return out

    def mean(self, dtype: torch.dtype) -> Tensor:
        """Return I + C Σ_i q_i f_i f_iᵀ (r, r), with the mean q_i over classes of p_ic (1 − p_ic)."""
        r = self.shape[1]
        out = torch.eye(r, dtype=dtype, device=self._rows.device)
        for part in self._parts(max(64, _BLOCK // r)):
            p = self._chances[part]
            q = self._C * (p * (1.0 - p)).mean(1)
            out += _squared(self._rows[part].to(dtype) * q.clamp(min=0.0).sqrt().to(dtype)[:, None])
        return out

    def _parts(self, size: int) -> list[slice]:
        n = len(self._rows)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _squared(rows: Tensor) -> Tensor:
    """Compute rowsᵀ rows."""
    if rows.device.type != "cpu":
        return rows.T @ rows
    array = rows.numpy()
    return torch.from_numpy(array.T @ array)  # numpy computes one half and copies it
