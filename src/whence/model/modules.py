"""Models: unwrapped, checked, and run in eval mode; what pipelines and trainers bring along."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader

from whence.core.checks import shown
from whence.data import TrainingSet
from whence.data.items import LABEL_NAMES
from whence.data.text import is_tokenizer
from whence.errors import InvalidInputError, ModelError

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
            remedy = (
                "Of scikit-learn, estimators that end in a linear model work; of other models pass features: "
                "fit(features=FeatureBank.of(features, y))."
            )
        else:
            remedy = "Pass the trained model itself."
        raise ModelError(f"'model' must be a torch nn.Module. Got {kind}. {remedy}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError(
            "The model must be one whose layers can be seen. Got a scripted or traced one. "
            "Pass the nn.Module that it was made of."
        )
    inner_model: nn.Module = model
    while True:
        if isinstance(inner_model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner_model = inner_model.module
        elif (inner := dict(inner_model.named_children()).get("_orig_mod")) is not None:
            inner_model = inner
        else:
            return inner_model


def class_names(model: nn.Module) -> tuple[str, ...] | None:
    """Return the names that the model's configuration has for its classes, in order; None for none."""
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


class Held(NamedTuple):
    """What a model comes with.

    Attributes
    ----------
    data : the training set that was given, or else the holder's own
    preprocess, collate_fn, tokenizer : how samples become the model's inputs, where the holder knows it
    model : the model instead of what was given; None where that is one
    task, names, feature_names : what the labels are, and what outputs and features are called, where known
    """

    data: Any
    preprocess: Callable[[Any], Any] | None = None
    collate_fn: Callable[[list[Any]], Any] | None = None
    tokenizer: Any = None
    model: nn.Module | None = None
    task: str | None = None
    names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class KnownInputs:
    """A collator that gets only the columns that the model takes, as in a ``Trainer``.

    Attributes
    ----------
    collate_fn : the collator
    names : of what the model takes
    """

    collate_fn: Callable[[list[Any]], Any]
    names: frozenset[str]

    def __call__(self, items: list[Any]) -> Any:
        """Make a batch of samples."""
        known = self.names | {*LABEL_NAMES, "label_ids"}
        return self.collate_fn([{k: v for k, v in dict(item).items() if k in known} for item in items])


def inside(model: Any) -> Any:
    """Return the model that a ``Trainer`` or a ``pipeline`` of transformers holds; others unchanged."""
    return model.model if _holder(model) else model


def held_by(model: Any, data: Any) -> Held:
    """Return what a ``Trainer`` or ``pipeline`` knows besides its model, for data in a form that needs it."""
    holder = _holder(model)
    if holder == "Pipeline":
        if isinstance(data, TrainingSet):
            return Held(data)
        tokenizer = getattr(model, "tokenizer", None)
        tools = (getattr(model, name, None) for name in ("image_processor", "feature_extractor"))
        processor = next((tool for tool in tools if tool is not None), None)
        return Held(data, processor if tokenizer is None else None, tokenizer=tokenizer)
    if holder == "Trainer":
        data = model.train_dataset if data is None else data
        if not isinstance(data, TrainingSet | DataLoader | tuple | str):
            names = frozenset(inspect.signature(model.model.forward).parameters)
            known = getattr(model, "processing_class", None)
            tokenizer = known if is_tokenizer(known) else None
            return Held(data, None, KnownInputs(model.data_collator, names), tokenizer)
    return Held(data)


def _holder(model: Any) -> str | None:
    """Name the kind of transformers' holder that an object is, without importing transformers."""
    for kind in type(model).__mro__:
        if kind.__name__ in ("Trainer", "Pipeline") and kind.__module__.startswith("transformers."):
            return kind.__name__
    return None
