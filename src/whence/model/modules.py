"""The module itself: inside its wrappers, fit to be explained, and run in eval mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy

from whence.core.checks import shown
from whence.errors import InvalidInputError, ModelError
from whence.model.holders import inside

one_at_a_time = threading.RLock()  # flags and hooks are the model's own, which all threads share


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run in eval mode without gradients; every module's own training flag comes back afterwards."""
    with one_at_a_time:
        flags = [(module, module.training) for module in model.modules()]
        fused = torch.backends.mha.get_fastpath_enabled()
        try:
            model.eval()
            # The fused encoder of torch gives padding other values than the plain one.
            torch.backends.mha.set_fastpath_enabled(False)
            # Out of inference mode, whose tensors autograd cannot follow from the head on.
            with torch.inference_mode(False), torch.no_grad():
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            # Set one by one: model.train() would switch on modules that the user had frozen.
            for module, flag in flags:
                module.training = flag


def check_model(model: Any, layer: Any = None) -> nn.Module:
    """Return the model inside its wrappers, or raise where it or ``layer`` can be none to explain."""
    if layer is not None and not isinstance(layer, str):
        apart = isinstance(layer, Tensor | np.ndarray | list | tuple)
        raise InvalidInputError(
            f"'layer' must be None or the name of a linear layer. Got {shown(layer)}. "
            + ("Pass inputs and labels as fit(model, X, y) or as one pair, (X, y)." if apart else "")
        )
    inner = unwrap(model)
    if isinstance(inner, GraphModule) and "eval" in vars(inner):  # which torch.export puts out of use
        raise ModelError(
            "The model must be one whose layers can be seen. Got an exported one. "
            "Pass the nn.Module that was exported."
        )
    weights = dict(chain(inner.named_parameters(), inner.named_buffers()))
    for name, tensor in weights.items():
        if is_lazy(tensor):
            raise ModelError(
                f"The model must have all its weights. Got a lazy one, whose {name!r} has no shape yet. "
                "Run it once on a batch before."
            )
        if tensor.is_meta:
            raise ModelError(
                f"The model must have all its weights. Got {name!r} on the meta device. Load the weights."
            )
    if not any(parameter.is_floating_point() for parameter in inner.parameters()):
        quantised = [n for n, m in inner.named_modules() if "quantized" in type(m).__module__]
        raise ModelError(
            "The model must have a linear layer with floating-point weights. "
            + (
                f"Got a quantised one, layer {quantised[0]!r}. Pass the model that it was made of."
                if quantised
                else f"Got a {type(inner).__name__} without: no nn.Linear and no 1×1 convolution."
            )
        )
    return inner


def unwrap(model: Any) -> nn.Module:
    """Return the model inside ``DataParallel``, ``torch.compile``, or a holder of transformers."""
    model = inside(model)
    if not isinstance(model, nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        if isinstance(model, type):
            remedy = "Pass an instance of it, with its weights."
        elif kind == "ExportedProgram":
            remedy = "Pass the nn.Module that was exported."
        elif hasattr(model, "predict"):
            remedy = "Of a model that is not of torch, fit(features=FeatureBank.of(…)) takes the features."
        else:
            remedy = "Pass the trained model itself."
        raise ModelError(f"'model' must be a torch nn.Module. Got {kind}. {remedy}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError(
            "The model must be one whose layers can be seen. Got a scripted or traced one. "
            "Pass the nn.Module that it was made of."
        )
    found: nn.Module = model
    while True:
        if isinstance(found, nn.DataParallel | nn.parallel.DistributedDataParallel):
            found = found.module
        elif (inner := dict(found.named_children()).get("_orig_mod")) is not None:
            found = inner
        else:
            return found


def class_names(model: nn.Module) -> tuple[str, ...] | None:
    """Give the names that the model's configuration has for its classes, in order; None where it has none."""
    config = getattr(unwrap(model), "config", None)
    table = getattr(config, "id2label", None)
    if not isinstance(table, Mapping) or not table or set(table) != set(range(len(table))):
        return None
    names = tuple(str(table[i]) for i in range(len(table)))
    # What transformers puts where nobody has named anything.
    return None if names == tuple(f"LABEL_{i}" for i in range(len(names))) else names


def eagerly(model: nn.Module) -> Any:
    """Keep compiled parts from running compiled, where they would not see the hooks."""
    named = model.named_modules()
    compiled = any(m._compiled_call_impl is not None or name.endswith("_orig_mod") for name, m in named)
    stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    return stance("force_eager") if compiled and stance is not None else nullcontext()
