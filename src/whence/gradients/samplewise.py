"""Map a function of one sample over the samples of a batch, and say which part of a model refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from whence.model.inputs import each_part
from whence.model.modules import eagerly, evaluating

Function = Callable[[Mapping[str, Tensor], Any, Tensor], Any]
"""Of parameters, the inputs of one sample as a batch of one, and its class (1,)."""


class NotMappedError(Exception):
    """The model cannot be mapped over samples; the message says in which module, and why."""


def map_samples(
    model: nn.Module, function: Function, parameters: Mapping[str, Tensor], inputs: Any, classes: Tensor
) -> Any:
    """Call ``function`` for every sample of a batch at once, by ``vmap``, and stack what it returns.

    The model is in eval mode meanwhile, and gradients are enabled.

    Raises
    ------
    NotMappedError
        Where ``vmap`` refuses, as for control flow that depends on values, for functions with a backward
        pass of their own and no rule for it, and for randomness.
    """

    def one(parameters: Mapping[str, Tensor], sample: Any, label: Tensor) -> Any:
        return function(parameters, each_part(sample, _as_batch), label[None])

    def mapped() -> Any:
        with evaluating(model), torch.enable_grad(), eagerly(model), warnings.catch_warnings():
            # It is meant for torch's developers.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return vmap(one, (None, each_part(inputs, _row_axis), 0))(parameters, inputs, classes)

    try:
        return mapped()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].split(". ")[0]
        raise NotMappedError(f"{_culprit(model, mapped)}: {reason}") from error


def _culprit(model: nn.Module, call: Callable[[], Any]) -> str:
    """Name the innermost module in which a call fails."""
    with _entered(model) as names, suppress(RuntimeError, NotImplementedError):
        call()
    if not names:
        return "the backward pass"
    return f"{type(model.get_submodule(names[-1])).__name__} {names[-1]!r}"


@contextmanager
def _entered(model: nn.Module) -> Iterator[list[str]]:
    """Keep a list of the modules that were entered and not left."""
    entered: list[str] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            entering = module.register_forward_pre_hook(lambda *_, name=name: entered.append(name))
            hooks.enter_context(entering)
            hooks.enter_context(module.register_forward_hook(lambda *_: entered.pop() and None))
        yield entered


def _row_axis(part: Any) -> int | None:
    """Return 0 where a part of a batch has a row per sample, None where all samples share it."""
    return 0 if isinstance(part, Tensor) and part.ndim > 0 else None


def _as_batch(part: Any) -> Any:
    """Make a batch of what ``vmap`` gives for one sample."""
    return part[None] if isinstance(part, Tensor) else part
