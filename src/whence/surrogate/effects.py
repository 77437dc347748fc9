"""Effects: how an output changes when a sample, or a set of samples, is removed.

The softmax surrogate is min_W ½‖W‖² + C Σ_i ℓ(W f_i, y_i), with W = Σ_i λ_i f_iᵀ and λ_i = C (e_{y_i} − p_i).
Without sample i, W changes by −H⁻¹ (λ_i ⊗ f_i) to first order, where H is the Hessian; an output whose
derivative by the logits is s then changes by −(s ⊗ f(x))ᵀ H⁻¹ (λ_i ⊗ f_i). The score is the negative.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Doubles, Ints
from whence.core.progress import watched
from whence.explanation import EffectOf
from whence.surrogate.answers import Answers
from whence.surrogate.response import RidgeResponse, SoftmaxResponse
from whence.surrogate.scores import Contrast, Parts, Scored
from whence.surrogate.surrogate import Surrogate

Rows = slice | Ints
"""Some support vectors, by their places among all."""

Output = Literal["logit", "margin", "log_prob"]
"""The target's logit; the logit minus the largest other one; the logarithm of the target's probability."""


def values(output: Output, logits: Tensor, classes: Tensor) -> Tensor:
    """Return the output (B,) of logits (B, K) for classes (B,)."""
    columns = classes[:, None].to(logits.device)
    if output == "log_prob":
        return logits.log_softmax(1).gather(1, columns)[:, 0]
    target = logits.gather(1, columns)[:, 0]
    return target if output == "logit" else target - _others(logits, columns).amax(1)


def slopes(output: Output, logits: Tensor, classes: Tensor) -> Tensor:
    """Return the derivative (B, K) of the output by the logits (B, K)."""
    columns = classes[:, None].to(logits.device)
    slope = torch.zeros_like(logits).scatter_(1, columns, 1.0)
    if output == "margin":
        slope.scatter_(1, _others(logits, columns).argmax(1, keepdim=True), -1.0)
    elif output == "log_prob":
        slope = slope - logits.softmax(1)
    return slope


def _others(logits: Tensor, columns: Tensor) -> Tensor:
    """Return logits (B, K) with −∞ for the class itself."""
    return logits.scatter(1, columns, -torch.inf)


_RANGE = 1e12  # sizes of features up to which products are taken in their own units
_HELD = 1 << 23  # numbers of right-hand sides in memory at a time
_PRODUCTS = 1 << 22  # products of samples and answers in memory at a time
_KEPT = 1 << 26  # bytes of answers that are kept


def _parts(n: int, size: int) -> list[slice]:
    """Divide n rows into slices of ``size``, at least 64."""
    size = max(64, size)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


class EffectScorer:
    """Computes the effects of training samples on the outputs of a surrogate.

    Parameters
    ----------
    surrogate : softmax regression, or ridge regression for regression tasks
    output : the output of the target class
    """

    def __init__(self, surrogate: Surrogate, output: Output) -> None:
        self.surrogate, self.output = surrogate, output
        place = surrogate.stored.like.device
        self._answers, self._building = Answers(_KEPT), threading.Lock()
        self._response: SoftmaxResponse | RidgeResponse | None = None
        used = np.flatnonzero(surrogate.task.known(surrogate.labels))
        self._n_used = len(used)
        self._places = torch.as_tensor(np.searchsorted(used, surrogate.support), device=place)

    @property
    def effect(self) -> EffectOf:
        """The output and the surrogate of the effects."""
        return EffectOf(self.output, "softmax surrogate" if self._classes else "ridge regression")

    @property
    def _classes(self) -> bool:
        return self.surrogate.task.has_classes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what can be computed again."""
        return EffectScorer, (self.surrogate, self.output)

    @property
    def response(self) -> SoftmaxResponse | RidgeResponse:
        """The operator H⁻¹, made once."""
        with self._building:
            if self._response is None:
                self._response = self._respond()
            return self._response

    def _respond(self) -> SoftmaxResponse | RidgeResponse:
        vectors, C = self.extended(self.surrogate.vectors), self.surrogate.C
        if not self._classes:
            return RidgeResponse(vectors, C)
        return SoftmaxResponse(vectors, self.chances(slice(None)), C)

    def chances(self, rows: Rows) -> Tensor:
        """Return the surrogate's probabilities p_i (m, K) of support vectors, for classes."""
        chances = -self.coefficients(rows) / self.surrogate.C
        labels = torch.as_tensor(self.surrogate.labels[self.surrogate.support[rows]], device=chances.device)
        chances[torch.arange(len(labels), device=chances.device), labels] += 1.0
        return chances.clamp(0.0, 1.0)

    def curvature_root(self, rows: Rows) -> CurvatureRoot:
        """Return R_i of support vectors, with R_i R_iᵀ the Hessian of the loss by the logits."""
        return CurvatureRoot(self.chances(rows).sqrt() if self._classes else None)

    def coefficients(self, rows: Rows) -> Tensor:
        """Return λ_i (m, K) of support vectors, in float64."""
        surrogate = self.surrogate
        values = surrogate.lam[surrogate.support[rows]].toarray()
        return torch.as_tensor(values, device=surrogate.stored.like.device)

    def scored(self, features: Tensor, contrast: Contrast) -> Scored:
        """Compute the effects of all samples on one test with features (1, d)."""
        effects = self._effects(features, torch.tensor([contrast.target]))[0]
        return Scored(self.surrogate.support, effects.double().cpu().numpy())

    def parts(self, features: Tensor, contrast: Contrast, indices: Sequence[int]) -> Parts:
        """Return effects as linear functions of the features of both samples."""
        read, d = self.surrogate.stored.transform(features), features.shape[1]
        target = torch.tensor([contrast.target])
        slope = self.slopes(read, target)[0]  # (K,)
        rows = np.searchsorted(self.surrogate.support, indices)
        vectors, lam = self.surrogate.stored[torch.as_tensor(rows)], self.coefficients(rows)
        extended_rows = self.extended(vectors).double()

        def moves(missing: list[int]) -> Tensor:
            return self.response(lam[missing][:, :, None] * extended_rows[missing][:, None])

        answer = self.answers(read, target)[0]  # (K, D)
        moved = self._answers([f"sample {row}".encode() for row in rows], moves)  # (m, K, D)
        on_test = torch.einsum("k,mkd->md", slope, moved)
        return Parts(vectors, on_test[:, :d], (lam @ answer)[:, :d], None)

    def answers(self, read: Tensor, targets: Tensor) -> Tensor:
        """Return H⁻¹ (s ⊗ z(x)) (B, K, D) of tests, transformed features (B, d); the last are kept."""

        def solve(missing: list[int]) -> Tensor:
            f = read[missing]
            return self.response(
                self.slopes(f, targets[missing])[:, :, None] * self.extended(f).double()[:, None]
            )

        rows = zip(read.cpu().numpy(), targets.tolist(), strict=True)
        return self._answers(
            [blake2b(row.tobytes()).digest() + b"%d" % target for row, target in rows], solve
        )

    def scores(self, features: Tensor, targets: Tensor) -> Tensor:
        """Compute effects (B, M) of the fitted samples on tests with features (B, d)."""
        out = features.new_zeros(len(features), self._n_used)
        out[:, self._places] = self._effects(features, targets).to(out)
        return out

    def self_influence(self, show_progress: bool) -> Tensor:
        """Compute the effect of each fitted sample on its own label at itself, (M,).

        For regression it is the sum of absolute effects over outputs.
        """
        surrogate, vectors = self.surrogate, self.surrogate.vectors
        labels = torch.as_tensor(surrogate.labels[surrogate.support])
        blocks = _parts(len(vectors), _HELD // (vectors.shape[1] * surrogate.task.n_outputs))
        parts = []
        watch = watched(
            blocks, len(vectors), "Self-influence", show_progress, lambda part: part.stop - part.start
        )
        for rows in watch:
            f, lam = vectors[rows], self.coefficients(rows)
            extended_rows = self.extended(f).double()[:, None]
            slopes = self.slopes(f, labels[rows]) if self._classes else lam.sign()
            pulls = slopes[:, :, None] * extended_rows
            parts.append((self.response(pulls) * (lam[:, :, None] * extended_rows)).sum((1, 2)))
        out = vectors.new_zeros(self._n_used)
        out[self._places] = torch.cat(parts).to(out)
        return out

    def total(self, tests: Iterable[tuple[Tensor, Tensor]]) -> Doubles:
        """Compute effects (train,) of every sample on the sum of the outputs for tests, by one solve.

        Parameters
        ----------
        tests : batches of features (b, d) of tests and their targets (b,)
        """
        surrogate = self.surrogate
        vectors = self.extended(surrogate.vectors)
        pull = torch.zeros(
            surrogate.task.n_outputs, vectors.shape[1], dtype=torch.float64, device=vectors.device
        )
        for features, targets in tests:
            read = surrogate.stored.transform(features.to(vectors))
            pull += self.slopes(read, targets).T @ self.extended(read).double()
        return self._on(pull)

    def effects_on(self, read: Tensor, target: int, rival: int) -> Doubles:
        """Compute effects (train,) on the margin of a class over another for a transformed test (1, d)."""
        pull = torch.zeros(self.surrogate.task.n_outputs, 1, dtype=torch.float64, device=read.device)
        pull[target], pull[rival] = 1.0, -1.0
        return self._on(pull * self.extended(read).double())

    def _on(self, pull: Tensor) -> Doubles:
        """Compute effects (train,) of every sample on an output with the derivative (K, D) by the weights."""
        surrogate, answer = self.surrogate, self.response(pull[None])[0]
        vectors = self.extended(surrogate.vectors)
        effects = ((vectors.double() @ answer.T) * self.coefficients(slice(None))).sum(1)
        out = np.zeros(len(surrogate.labels))
        out[surrogate.support] = effects.cpu().numpy()
        return out

    def slopes(self, read: Tensor, targets: Tensor) -> Tensor:
        """Compute the output's derivative (B, K) by the surrogate's logits at transformed features (B, d)."""
        return slopes(self.output, self.surrogate.read_logits(read), targets)

    def relabel_pull(self, labels: Array, before: Array) -> Doubles:
        """Return the change of λ (n, K) by new labels (n, …) for unchanged features."""
        surrogate = self.surrogate
        K = surrogate.task.n_outputs
        if not self._classes:
            return surrogate.C * (labels - before).reshape(len(labels), K).astype(np.float64)
        pull, rows = np.zeros((len(labels), K)), np.arange(len(labels))
        pull[rows, labels] += surrogate.C
        pull[rows, before] -= surrogate.C
        return pull

    def _effects(self, features: Tensor, targets: Tensor) -> Tensor:
        """Compute effects (B, S) on tests with features (B, d), in the precision of the features."""
        vectors, unit = self.extended(self.surrogate.vectors), 1.0
        length = float(torch.linalg.vector_norm(vectors, dtype=torch.float64)) / len(vectors) ** 0.5
        if not 1 / _RANGE < length < _RANGE:  # λ, or products of features, would leave the range of float32
            unit = 2.0 ** math.frexp(length)[1]
            vectors = vectors / unit
        lam = (self.coefficients(slice(None)) * unit**2).to(vectors).T
        K, D = len(lam), vectors.shape[1]
        read = self.surrogate.stored.transform(features)
        out = vectors.new_empty(len(read), len(vectors))
        for tests in _parts(len(read), _HELD // (K * D)):
            answers = (
                (self.answers(read[tests], targets[tests]) / unit).to(vectors).reshape(-1, D)
            )  # (b·K, D)
            for part in _parts(len(vectors), _PRODUCTS // len(answers)):
                logits = (answers @ vectors[part].T).reshape(-1, K, part.stop - part.start)
                out[tests, part] = logits.mul_(lam[:, part]).sum(1)
        return out

    def extended(self, features: Tensor) -> Tensor:
        """Return features (B, D) with the constant of the bias."""
        constant = self.surrogate.constant
        if not constant:
            return features
        return torch.cat([features, features.new_full((len(features), 1), constant)], dim=1)


@dataclass(frozen=True, eq=False)
class CurvatureRoot:
    """R_i = diag(q_i) (I − q_i q_iᵀ) with q_i = √p_i, of which R_i R_iᵀ = diag p_i − p_i p_iᵀ.

    Attributes
    ----------
    q : (m, K) roots of probabilities; None for the squared loss, where R_i is the identity
    """

    q: Tensor | None

    def __call__(self, v: Tensor, transposed: bool = False) -> Tensor:
        """Apply R_i, or its transpose, to v (m, K)."""
        q = self.q
        if q is None:
            return v
        if transposed:
            v = q * v
        v = v - q * ((q * v).sum(1, keepdim=True) / q.square().sum(1, keepdim=True))
        return v if transposed else q * v
