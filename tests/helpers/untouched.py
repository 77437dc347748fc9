"""Whether a model is as it was: weights, gradients, hooks and flags."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def snapshot(model: nn.Module) -> tuple[Any, ...]:
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [m.training for m in model.modules()],
        [(p.requires_grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()],
        [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
    )


def assert_untouched(before: tuple[Any, ...], model: nn.Module) -> None:
    state, flags, grads, hooks = snapshot(model)
    assert state.keys() == before[0].keys()
    assert all(torch.equal(state[k], before[0][k]) for k in state)
    assert flags == before[1]
    assert hooks == before[3]
    for (needs, grad), (needed, was) in zip(grads, before[2], strict=True):
        assert needs == needed
        assert (grad is None) == (was is None)
        assert grad is None or torch.equal(grad, was)
