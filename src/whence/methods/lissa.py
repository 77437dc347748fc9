"""Influence functions by LiSSA: a stochastic series for the inverse of the curvature."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import Params, a_seed, one_of, parameter
from whence.core.arrays import Ints
from whence.core.checks import check_count
from whence.core.contents import Layout
from whence.core.progress import bar
from whence.errors import ModelError
from whence.features.training import Classifier, Training
from whence.gradients.curvature import (
    Curvature,
    check_damping,
    fitted_curvature,
    reread,
    solved_scores,
    solved_squares,
    training_curvature,
)

_DECAY = math.log(100)
_DEEP = 2000  # maximum number of steps for small training sets
_POWERS = 20  # power iterations for the largest eigenvalue of a batch's curvature
_PROBES = 16  # batches for the largest eigenvalue


@register
@dataclass(eq=False)
class LiSSA(Attributor):
    """Attribute predictions by influence functions, with the inverse curvature from a stochastic series.

    The score of training sample i for class c at x is τ_c(x, i) = (1/N) g(x, c)ᵀ (G + damping·I)⁻¹ g_i, where
    g are gradients of the cross-entropy and G is the Gauss–Newton matrix of the mean training loss, or its
    Hessian for the last layer. It estimates the increase of the loss of x for c when i is left out, so
    **positive is evidence for the target class**. The solution v of (G + damping·I) v = g(x, c) is the limit
    of

        v ← g(x, c)/s + v − (G_b + damping·I) v / s,    v = 0 at first,

    where G_b is the curvature of a random batch b, and s is above the largest eigenvalue of every G_b, by
    power iteration. The result is the mean over the second half of the steps, since each v varies with its
    batch. Nothing is cached: every test has the full cost.

    Parameters
    ----------
    params
        "last" for the last layer, "all" for all trainable parameters.
    damping
        Added to the diagonal of G, above 0.
    depth
        Steps of the series. None takes ln(100)·s/damping steps, which leave a hundredth of the slowest
        component, but at most the number of training samples, or 2,000. At most 100,000.
    curvature_batch
        Training samples per step.
    seed
        Makes a run repeatable; all tests use the same batches.

    Attributes
    ----------
    scale_ : float, s
    residual_ : float, the largest ‖(G + damping·I) v − g‖/‖g‖ of the tests of the last call, on all samples;
        NaN before the first call
    """

    name: ClassVar[str] = "lissa"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        memory='N × (d + K) with params="last", otherwise nothing; P per test while explaining',
        cost=1.5,
    )

    params: Params = parameter("last", one_of(Params))
    damping: float = parameter(1e-3, check_damping)
    depth: int | None = parameter(None, partial(check_count, most=100_000), or_none=True)
    curvature_batch: int = parameter(64, check_count)
    seed: int = parameter(0, a_seed)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        curvature = training_curvature(training, self.params == "last")
        generator = np.random.default_rng(self.seed)
        probes = 1 if self.curvature_batch >= curvature.n_train else _PROBES
        batches = [draw(generator, curvature.n_train, self.curvature_batch) for _ in range(probes)]
        scale = max(largest_eigenvalue(curvature, rows, self.seed, training.features) for rows in batches)
        return {**curvature.kept, "scale": torch.tensor(scale + self.damping, dtype=torch.float64)}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        series, last = fitted.scorer, self.params == "last"
        return solved_scores(fitted.classifier, series.curvature, tests, last, series.solve)

    def score_self(self, fitted: Fitted) -> Tensor:
        return solved_squares(fitted.scorer.curvature, fitted.scorer.solve, self.show_progress)

    def _open(self, fitted: Fitted) -> Series:
        curvature, scale = fitted_curvature(fitted, self.params == "last"), float(fitted.arrays["scale"])
        depth = self.depth
        if depth is None:
            needed = math.ceil(_DECAY * scale / self.damping)
            depth = min(needed, max(curvature.n_train, _DEEP))
        return Series(curvature, scale, depth, replace(self))

    def _needs_inputs(self) -> bool:
        return self.params == "all"

    def _layout(self, classifier: Classifier) -> Layout:
        return {"rows": ("N", "e"), "residual": ("N", "K"), "scale": ()}

    def _doubles(self) -> tuple[str, ...]:
        return ("residual", "scale")

    def _unsaved(self, fitted: Fitted | None) -> str:
        return reread(type(self).__name__, self.params == "last")


@dataclass(eq=False)
class Series:
    """The series for (G + damping·I)⁻¹, with the hyper-parameters of the fit."""

    curvature: Curvature
    scale: float
    depth: int
    options: LiSSA
    residual: float = math.nan

    def solve(self, gradients: Tensor) -> Tensor:
        """Return (G + damping·I)⁻¹ g for rows (B, P), and set ``residual`` to the largest one."""
        options, n, depth = self.options, self.curvature.n_train, self.depth
        generator = np.random.default_rng(options.seed)
        v, total = torch.zeros_like(gradients), torch.zeros_like(gradients)
        for step in bar("Iterating LiSSA", depth, "steps", parts=range(depth), show=options.show_progress):
            product = self.curvature.product(v, draw(generator, n, options.curvature_batch))
            v += (gradients - product - options.damping * v) / self.scale
            if step >= depth // 2:
                total += v
        total /= depth - depth // 2
        self.residual = self._residual(total, gradients)
        return total

    def _residual(self, v: Tensor, gradients: Tensor) -> float:
        """Return the largest ‖(G + damping·I) v − g‖/‖g‖ of the rows, or raise if the series diverged."""
        rest = self.curvature.product(v) + self.options.damping * v - gradients
        sizes = gradients.norm(dim=1)
        residual = float((rest.norm(dim=1) / sizes.where(sizes > 0, 1)).max())
        if not math.isfinite(residual):
            raise ModelError(
                f"LiSSA's series must converge. It diverged with 'curvature_batch' = "
                f"{self.options.curvature_batch}: some batches have a larger curvature than the scale "
                f"{self.scale:.3g}. Use a larger 'curvature_batch'."
            )
        return residual


def draw(generator: np.random.Generator, n: int, size: int) -> Ints | None:
    """Draw a batch from n samples; None means all."""
    return None if size >= n else generator.integers(n, size=size)


def largest_eigenvalue(curvature: Curvature, rows: Ints | None, seed: int, like: Tensor) -> float:
    """Estimate the largest eigenvalue of the curvature of some training samples, by power iteration."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(1, curvature.n_parameters, generator=generator).to(like)
    value = 0.0
    for _ in range(_POWERS):
        v = curvature.product(v / v.norm(), rows)
        value = float(v.norm())
        if value == 0:
            break
    return value
