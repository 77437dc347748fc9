"""Find a model's last linear layer and split the model there into a feature extractor and a head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from whence.errors import ModelError

Floats = npt.NDArray[np.floating[Any]]


class Head(NamedTuple):
    """The last linear layer: logits are ``features @ weight.T + bias``, weight (K, d), bias (K,) or None."""

    weight: Floats
    bias: Floats | None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run in eval mode without gradients; every module's own training flag comes back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        # Set one by one: model.train() would switch on modules that the user had frozen.
        for module, flag in flags:
            module.training = flag


@contextmanager
def _recording(layers: dict[str, nn.Linear]) -> Iterator[dict[str, list[tuple[Tensor, Tensor]]]]:
    """Record (input, output) of each call of the layers; the hooks are gone on leaving, whatever happens."""
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}
    handles = []

    def hook_for(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            calls[name].append((args[0] if args else kwargs["input"], output))

        return hook

    try:
        for name, layer in layers.items():
            handles.append(layer.register_forward_hook(hook_for(name), with_kwargs=True))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def find_head(model: nn.Module, inputs: Any, layer: str | None = None) -> str:
    """Name the linear layer whose output is the model's output.

    One forward pass on ``inputs`` records every ``nn.Linear``; the one whose output has the same values as
    the model's output is the head. Nothing is guessed from names.

    Parameters
    ----------
    model
        A classifier that maps a batch to logits (B, K).
    inputs
        A small batch.
    layer
        The head's name, for models that do something after it (a softmax, say). The model must then rank
        the classes as the layer does.
    """
    linears: dict[str, nn.Linear] = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    if layer is not None and layer not in linears:
        raise ModelError(f"'layer' must name a linear layer of the model. Got {layer!r}. {_listed(linears)}")
    inputs = to_model(model, inputs)
    if isinstance(inputs, Tensor):
        inputs = inputs[:8]  # enough to tell layers apart, and little to record
    with evaluating(model), _recording(linears) as calls:
        output = model(inputs)
    if not isinstance(output, Tensor) or output.ndim != 2:
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise ModelError(f"The model must return one tensor of logits, shape (B, K). Got {got}.")
    if layer is None:
        # Reversed: where an identity head repeats its input, the later layer is the head.
        for name in reversed(linears):
            if any(_is_head(linears[name], call, output) for call in calls[name]):
                return name
        raise ModelError(
            "No linear layer's output is the model's output, so the head is unknown. "
            f"{_listed(linears)} If the model does something after its last linear layer that keeps the "
            "order of the classes, such as a softmax, pass that layer's name as 'layer'."
        )
    _, logits = _single_call(calls[layer], layer)
    if logits.shape != output.shape or not torch.equal(logits.argmax(1), output.argmax(1)):
        raise ModelError(
            f"'layer' must rank the classes as the model does. Got {layer!r}, output {tuple(logits.shape)}, "
            f"whose classes differ from those of the model's output {tuple(output.shape)}. {_listed(linears)}"
        )
    return layer


class Extractor:
    """Features f(x): what goes into the linear layer ``layer`` of ``model``.

    Calling it runs the whole model on a batch in eval mode and returns features (B, d) on the model's
    device. The model's weights, gradients, training flags and hooks are as before afterwards.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> Extractor(model, "2")(torch.ones(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(self, model: nn.Module, layer: str) -> None:
        self.model = model
        self.layer = layer

    def __call__(self, inputs: Any) -> Tensor:
        """Features (B, d) of a batch."""
        inputs = to_model(self.model, inputs)
        linear = self._linear()
        with evaluating(self.model), _recording({self.layer: linear}) as calls:
            self.model(inputs)
        features, _ = _single_call(calls[self.layer], self.layer)
        if isinstance(inputs, Tensor) and features.shape != (len(inputs), linear.in_features):
            raise ModelError(
                f"Layer {self.layer!r} must see one row a sample, shape ({len(inputs)}, "
                f"{linear.in_features}). Got {tuple(features.shape)}. Is the input a batch?"
            )
        return features

    def head(self) -> Head:
        """Copy the layer's weight and bias to float32 arrays."""
        linear = self._linear()
        bias = None if linear.bias is None else linear.bias.detach().float().cpu().numpy().copy()
        return Head(linear.weight.detach().float().cpu().numpy().copy(), bias)

    def _linear(self) -> nn.Linear:
        linear = self.model.get_submodule(self.layer)
        assert isinstance(linear, nn.Linear)
        return linear


def to_model(model: nn.Module, inputs: Any) -> Any:
    """Tensors and arrays on the model's device, floating-point ones in its precision; the rest as it is."""
    if isinstance(inputs, np.ndarray):
        # A copy, since torch warns of arrays it cannot write to and refuses those that run backwards.
        inputs = torch.from_numpy(np.array(inputs, order="C"))
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if not isinstance(inputs, Tensor) or parameter is None:
        return inputs
    return inputs.to(parameter.device, parameter.dtype if inputs.is_floating_point() else None)


def _is_head(linear: nn.Linear, call: tuple[Tensor, Tensor], output: Tensor) -> bool:
    """Whether this call made the model's output, by the plain rule x Wᵀ + b."""
    x, y = call
    # NaN equals NaN here: the features' own check then names the sample that made it.
    if y.shape != output.shape or not torch.allclose(y, output, rtol=0, atol=0, equal_nan=True):
        return False
    # A subclass may do more than its weight says (low-rank adapters, scalings); then it is no linear head.
    plain = nn.functional.linear(x, linear.weight, linear.bias)
    return torch.allclose(plain, y, rtol=1e-3, atol=1e-4, equal_nan=True)


def _single_call(calls: list[tuple[Tensor, Tensor]], layer: str) -> tuple[Tensor, Tensor]:
    if len(calls) != 1:
        raise ModelError(
            f"Layer {layer!r} must run exactly once a forward pass. It ran {len(calls)} times; "
            "choose another with 'layer'."
        )
    return calls[0]


def _listed(linears: dict[str, nn.Linear]) -> str:
    if not linears:
        return "The model has no nn.Linear."
    names = ", ".join(f"{name!r} ({m.in_features}→{m.out_features})" for name, m in linears.items())
    return f"Its linear layers: {names}."
