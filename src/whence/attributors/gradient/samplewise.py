"""Map a function of one sample over the samples of a batch, and say which part of a model refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

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
        return function(parameters, _batch_of_one(sample), label[None])

    def mapped() -> Any:
        with evaluating(model), torch.enable_grad(), eagerly(model), warnings.catch_warnings():
            # It is a word to torch's own developers.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return vmap(one, (None, _rows_or_none(inputs), 0))(parameters, inputs, classes)

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
    handles = []
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(lambda *_, name=name: entered.append(name)))
            handles.append(module.register_forward_hook(lambda *_: entered.pop() and None))
        yield entered
    finally:
        for handle in handles:
            handle.remove()


def _rows_or_none(inputs: Any) -> Any:
    """For each part of a batch, 0 where it has a row per sample, None where all samples share it."""
    if isinstance(inputs, Mapping):
        return {name: _rows_or_none(part) for name, part in inputs.items()}
    if type(inputs) is tuple:
        return tuple(map(_rows_or_none, inputs))
    return 0 if isinstance(inputs, Tensor) and inputs.ndim > 0 else None


def _batch_of_one(sample: Any) -> Any:
    """Make a batch of what ``vmap`` gives for one sample."""
    if isinstance(sample, Mapping):
        return {name: _batch_of_one(part) for name, part in sample.items()}
    if type(sample) is tuple:
        return tuple(map(_batch_of_one, sample))
    return sample[None] if isinstance(sample, Tensor) else sample
