"""Map a function of one sample over the samples of a batch, and say which part of a model refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from whence.errors import ModelError
from whence.inputs import take
from whence.model import _eagerly as eagerly
from whence.model import evaluating

Function = Callable[[Mapping[str, Tensor], Any, Tensor], Any]
"""Of parameters, the inputs of one sample as a batch of one, and its class (1,)."""


def map_samples(
    model: nn.Module, function: Function, parameters: Mapping[str, Tensor], inputs: Any, classes: Tensor
) -> Any:
    """Call ``function`` for every sample of a batch at once, by ``vmap``, and stack what it returns.

    The model is in eval mode meanwhile, and gradients are enabled.
    """

    def one(parameters: Mapping[str, Tensor], sample: Any, label: Tensor) -> Any:
        return function(parameters, _batch_of_one(sample), label[None])

    def mapped() -> Any:
        with evaluating(model), torch.enable_grad(), eagerly(model):
            return vmap(one, (None, _rows_or_none(inputs), 0))(parameters, inputs, classes)

    try:
        return mapped()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        with evaluating(model), torch.enable_grad():
            function(parameters, take(inputs, slice(1)), classes[:1])  # raises what is wrong without vmap too
        reason = str(error).strip().splitlines()[0].split(". ")[0]
        raise ModelError(
            "The model must allow gradients one sample at a time (torch.func.vmap). They fail in "
            f"{_culprit(model, mapped)}: {reason}. A torch.autograd.Function needs a setup_context and "
            "generate_vmap_rule = True; control flow must not depend on values, nor anything on chance. "
            'Or take only the last layer with params="last".'
        ) from error


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
    """For each part of a batch, 0 where it has a row a sample, None where all samples share it."""
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
