"""The ways to make maps that are compared: rules of our own, methods of captum, and chance."""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import InputXGradient, IntegratedGradients, NoiseTunnel, Saliency
from torch import Tensor

from whence.relevance import Rules
from whence.relevance.captum import Captum
from whence.relevance.presets import EPSILON_PLUS_FLAT
from whence.relevance.primitives import Layer, Stabiliser, stab
from whence.relevance.rules import Plus, SharingRule

SAMPLES = 20  # passes of methods of captum that take several
NOISE = 0.15  # of SmoothGrad, of the range of the training images


class PositiveOutputs(Plus):
    """The plus rule, but outputs below 0 pass nothing on."""

    name = "positive_outputs"

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Drop c of outputs below 0."""
        return super().back(layer, c * (z > 0), z, x, epsilon)


class SameSign(SharingRule):
    """Only shares with the output's own sign count: as plus where z > 0, its mirror image where z < 0."""

    name, needs_epsilon = "same_sign", True

    def back(self, layer: Layer, c: Tensor, z: Tensor, x: Tensor, epsilon: Stabiliser) -> Tensor:
        """Divide by the part of the output that has its sign."""
        positive, negative = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
        bias = None if layer.bias is None else layer.bias.clamp(min=0)
        above = layer.apply(x.clamp(min=0), positive, bias) + layer.apply(x.clamp(max=0), negative)
        below = (z - above).clamp(max=0)
        up = c * torch.where(z > 0, z / stab(above, epsilon), 0)
        down = c * torch.where(z < 0, z / (below - epsilon), 0)
        return torch.where(
            x >= 0,
            layer.transpose(up, positive) + layer.transpose(down, negative),
            layer.transpose(up, negative) + layer.transpose(down, positive),
        )


CURRENT = "plus, flat"
RULES: dict[str, Any] = {
    CURRENT: EPSILON_PLUS_FLAT,
    "plus, flat, ε = 0.05": Rules(convolution="plus", first="flat", epsilon=0.05),
    "plus, flat, ε = 0.25": Rules(convolution="plus", first="flat", epsilon=0.25),
    "plus, flat, ε = 1": Rules(convolution="plus", first="flat", epsilon=1.0),
    "plus, flat, ε = 0.1 relative": Rules(convolution="plus", first="flat", epsilon=1e-6, relative=0.1),
    "plus, flat, ε = 1 relative": Rules(convolution="plus", first="flat", epsilon=1e-6, relative=1.0),
    "positive outputs, flat": Rules(convolution=PositiveOutputs(), first="flat", epsilon=1e-6),
    "same sign, flat": Rules(convolution=SameSign(), first="flat", epsilon=1e-6),
    "same sign, flat, ε = 0.25": Rules(convolution=SameSign(), first="flat", epsilon=0.25),
    "same sign, flat, ε = 0.1 relative": Rules(
        convolution=SameSign(), first="flat", epsilon=1e-6, relative=0.1
    ),
    "same sign everywhere, flat": Rules(SameSign(), SameSign(), first="flat", epsilon=1e-6),
    "same sign, no flat": Rules(convolution=SameSign(), epsilon=1e-6),
    "plus, no flat": Rules(convolution="plus", epsilon=1e-6),
    "plus everywhere, flat": Rules(linear="plus", convolution="plus", first="flat", epsilon=1e-6),
    "ε = 0.25 alone": Rules(epsilon=0.25),
}


def smooth_grad(module: torch.nn.Module) -> NoiseTunnel:
    """Gradients, averaged over noisy copies of the input."""
    return NoiseTunnel(Saliency(module))


def smooth_input_times_gradient(module: torch.nn.Module) -> NoiseTunnel:
    """Input × gradient, averaged over noisy copies of the input."""
    return NoiseTunnel(InputXGradient(module))


def others(width: float, samples: int = SAMPLES) -> dict[str, Any]:
    """Return the methods that are not rules; noise is a share of ``width``, the range of the inputs."""
    noise = {"nt_samples": samples, "stdevs": NOISE * width}
    return {
        "Input × Gradient": InputXGradient,
        "Integrated Gradients": Captum(IntegratedGradients, {"n_steps": samples}),
        "SmoothGrad": Captum(smooth_grad, {**noise, "abs": False}),
        "SmoothGrad × Input": Captum(smooth_input_times_gradient, noise),
        "random": "random",
    }
