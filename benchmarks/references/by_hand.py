"""zennit's composites written out with dense matrices, as a second opinion on the stored maps.

Every linear step (a layer with the BatchNorm behind it, a pooling) is the affine map y = Ax + b of one
flattened sample, its matrix found by feeding unit vectors. With stab(z) = z + eps·sign(z), sign(0) = 1:

- epsilon: R_in = x · Aᵀ(R / stab(Ax + b));
- z-plus:  R_in = (x⁺ · A⁺ᵀ + x⁻ · A⁻ᵀ)(R / stab(A⁺x⁺ + A⁻x⁻ + b⁺));
- flat:    R_in = Pᵀ(R / stab(P1)), where P is 1 where A has a weight and 0 elsewhere;
- average pooling: epsilon. Sum of branches: R_k = x_k · R / stab(Σ x). Max pooling: R goes to the maximum.
  Activations: R goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tests.helpers.reference_models import BasicBlock, Reference, ResNet
from torch import Tensor, nn

LAYERS = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)
Backward = Callable[[Tensor], Tensor]


class ByHand:
    """One composite, for the modules of the reference models; ``flat`` convolutions at the input are flat."""

    def __init__(self, eps: float, flat: int, zplus: bool) -> None:
        self.eps, self.flat, self.zplus = eps, flat, zplus

    def stab(self, z: Tensor) -> Tensor:
        """Move z away from 0 by eps; 0 itself upwards."""
        return torch.where(z >= 0, z + self.eps, z - self.eps)

    def linear(self, step: Callable[[Tensor], Tensor], x: Tensor, rule: str) -> tuple[Tensor, Backward]:
        """Take a linear step from ``x`` (1, ...) and say how relevance comes back through it."""
        y, constant = step(x), step(torch.zeros_like(x)).flatten()
        basis = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape[1:])
        A = (torch.cat([step(part) for part in basis.split(256)]).flatten(1) - constant).T
        v = x.flatten()
        if rule == "flat":
            P = (A.abs() > 1e-12).to(A)
            back = lambda R: P.T @ (R / self.stab(P.sum(1)))  # noqa: E731
        elif rule == "zplus":
            up, down = A.clamp(min=0), A.clamp(max=0)
            z = up @ v.clamp(min=0) + down @ v.clamp(max=0) + constant.clamp(min=0)
            back = lambda R: torch.where(v >= 0, up.T @ (R / self.stab(z)), down.T @ (R / self.stab(z))) * v  # noqa: E731
        else:
            back = lambda R: v * (A.T @ (R / self.stab(A @ v + constant)))  # noqa: E731
        return y, lambda R: back(R.flatten()).reshape(x.shape)

    def sequence(self, modules: Sequence[nn.Module], x: Tensor) -> tuple[Tensor, Backward]:
        """Go through modules one after another."""
        backs: list[Backward] = []
        modules = list(modules)
        while modules:
            module = modules.pop(0)
            if isinstance(module, LAYERS):
                merged = [module]
                if modules and isinstance(modules[0], nn.BatchNorm1d | nn.BatchNorm2d):
                    merged.append(modules.pop(0))
                rule = "zplus" if self.zplus and not isinstance(module, nn.Linear) else "epsilon"
                if self.flat > 0:
                    rule, self.flat = "flat", self.flat - 1
                x, back = self.linear(nn.Sequential(*merged), x, rule)
            elif isinstance(module, nn.AvgPool2d | nn.AdaptiveAvgPool2d):
                x, back = self.linear(module, x, "epsilon")
            elif isinstance(module, BasicBlock):
                x, back = self.block(module, x)
            else:
                x, back = self.other(module, x)
            backs.append(back)
        return x, lambda R: _compose(backs, R)

    def block(self, block: BasicBlock, x: Tensor) -> tuple[Tensor, Backward]:
        """Go through a residual block."""
        a, back_a = self.sequence([block.conv1, block.bn1, block.relu, block.conv2, block.bn2], x)
        b, back_b = self.sequence(block.downsample or [], x)
        total = self.stab(a + b)
        return (a + b).relu(), lambda R: back_a(a * R / total) + back_b(b * R / total)

    def other(self, module: nn.Module, x: Tensor) -> tuple[Tensor, Backward]:
        """Go through max pooling, flattening, dropout or an activation."""
        if isinstance(module, nn.MaxPool2d):
            empty = torch.zeros_like(x).flatten(2)
            options = (module.kernel_size, module.stride, module.padding)
            y, where = nn.functional.max_pool2d(x, *options, return_indices=True)
            places = where.flatten(2)
            return y, lambda R: empty.scatter_add(2, places, R.flatten(2)).reshape(x.shape)
        y = module(x.clone())
        return y, lambda R: R.reshape(x.shape)


def _compose(backs: list[Backward], R: Tensor) -> Tensor:
    for back in reversed(backs):
        R = back(R)
    return R


def by_hand(reference: Reference, eps: float, flat: int, zplus: bool) -> Tensor:
    """The map of one composite, of the inputs' shape."""
    model = reference.model
    if isinstance(model, ResNet):
        modules = [module for name, module in model.named_children() if name != reference.layer]
        modules.append(nn.Flatten())
    else:
        modules = list(model)[: int(reference.layer)]  # type: ignore[call-overload]
    maps = []
    with torch.no_grad():
        for x, R in zip(reference.inputs.split(1), reference.relevance.split(1), strict=True):
            _, back = ByHand(eps, flat, zplus).sequence(modules, x)
            maps.append(back(R))
    return torch.cat(maps)


COMPOSITES = {
    "epsilon_plus_flat": (1e-6, 1, True),
    "epsilon_plus_flat_0.1": (0.1, 1, True),
    "epsilon_plus_flat_two": (1e-6, 2, True),
    "epsilon_plus": (1e-6, 0, True),
    "epsilon": (1e-6, 0, False),
}


def differences(reference: Reference) -> dict[str, float]:
    """The largest difference of every stored map to its form by hand, over the map's largest value."""
    return {
        key: ((by_hand(reference, *COMPOSITES[key]) - value).abs().max() / value.abs().max()).item()
        for key, value in reference.maps.items()
    }
