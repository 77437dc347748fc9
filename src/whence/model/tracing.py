"""Find the layers of a model that features can come from, by what goes into them when it runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from whence.errors import InvalidInputError
from whence.model.blocks import Block
from whence.model.heads import maps_features, terms, widths
from whence.model.inputs import each_part, n_rows, run, running_on, take, to_model
from whence.model.layers import Asked, Layers, token_mask, watching
from whence.model.modules import eagerly, evaluating
from whence.model.tangents import Tangent, Tangents, has_matrix

_AUTO = 5  # layers at most


class LayerInput(NamedTuple):
    """What went into a layer the last time that it ran before the head.

    ``is_input`` is whether no weight had a part in it: the model's own input, perhaps in another shape.
    """

    layer: nn.Module
    x: Tensor
    is_input: bool


def choose_layers(model: nn.Module, inputs: Any, head: str, width: int, asked: Asked) -> Layers:
    """Choose the layers that features come from, not yet scaled, by how the model runs on a few inputs.

    Parameters
    ----------
    model
        Inside its wrappers.
    inputs
        A small batch.
    head, width
        The last linear layer, or several, and the number of their features.
    asked
        "all" is every distinct tensor that a linear or convolutional layer reads, but the model's own input;
        a number so many of these from the end; "auto" see ``auto``; names those; "tangent" are the gradients
        of all trainable linear layers and convolutions, next to what goes into them.
    """
    last = Block(head, "vector", width, width=width)
    few = take(to_model(model, inputs), slice(2))
    readings, blocks = _read(model, few, head)
    if isinstance(asked, tuple):
        names = [name for name in asked if name not in (head, *(part for _, part in terms(head)))]
        for name in names:
            _check_named(name, model, readings, blocks)
        return Layers(asked, (*(block for name, block in blocks.items() if name in names), last))
    if asked == "tangent":
        return Layers(asked, (last,), _tangents(model, head, blocks))
    chosen = [blocks[name] for name in _distinct(few, readings, head) if name in blocks]
    if isinstance(asked, int):
        if asked > len(chosen) + 1:
            raise InvalidInputError(
                f"'layers' must be at most {len(chosen) + 1} for this model, whose layers read so many "
                f'different tensors. Got {asked}. "all" takes all of them.'
            )
        chosen = chosen[len(chosen) + 1 - asked :]
    elif asked == "auto":
        chosen = [chosen[place] for place in auto(len(chosen) + 1)[:-1]]
    return Layers(asked, (*chosen, last))


def _tangents(model: nn.Module, head: str, blocks: dict[str, Block]) -> Tangents | None:
    """Return the layers before the head that tangent features come from; None where there are none."""
    of_head = [model.get_submodule(name) for _, name in terms(head)]
    layers = []
    for name, block in blocks.items():
        module = model.get_submodule(name)
        if has_matrix(module) and module not in of_head:
            layers.append(Tangent(block, sum(p.numel() for p in module.parameters())))
    bias = any(getattr(module, "bias", None) is not None for module in of_head)
    parameters = sum(p.numel() for module in of_head for p in module.parameters())
    return Tangents(tuple(layers), widths(of_head[0])[1], parameters, bias) if layers else None


def auto(n: int) -> list[int]:
    """Choose among n layers in order of execution: all, or 5 spread evenly with the last two among them."""
    if n <= _AUTO:
        return list(range(n))
    return [*np.linspace(0, n - 2, _AUTO - 1).round().astype(int).tolist(), n - 1]


def weighted(model: nn.Module) -> dict[str, nn.Module]:
    """Every linear and convolutional layer of the model; of an adapted one, the whole."""
    layers: dict[str, nn.Module] = {}
    for name, module in model.named_modules():  # wrappers come before what they wrap
        outer = name.split(".")
        inside = any(".".join(outer[:k]) in layers for k in range(1, len(outer)))
        # Transformers' GPT-2 has a linear layer of another name, with nx and nf.
        is_conv1d = all(isinstance(getattr(module, key, None), int) for key in ("nx", "nf"))
        if not inside and (maps_features(module) or _is_convolution(module) or is_conv1d):
            layers[name] = module
    return layers


def _is_convolution(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)


def _read(model: nn.Module, inputs: Any, head: str) -> tuple[dict[str, LayerInput], dict[str, Block]]:
    """What goes into each layer, in order of execution, and the blocks of those that go by samples."""
    n = n_rows(inputs) or 1
    with evaluating(model), eagerly(model), running_on(inputs):
        readings = _run(model, inputs, head)
        alone = readings if n == 1 else _run(model, take(inputs, slice(1)), head)
    blocks = {}
    for name, reading in readings.items():
        one = alone.get(name)
        if one is not None and _by_samples(reading.x, one.x, n):
            block = _block(name, reading, len(one.x), token_mask(inputs))
            if block is not None:
                blocks[name] = block
    return readings, blocks


def _run(model: nn.Module, inputs: Any, head: str) -> dict[str, LayerInput]:
    """Run the model and note what goes into its layers, up to the head; later runs of a layer count."""
    readings: dict[str, LayerInput] = {}
    layers = {**weighted(model), **{name: model.get_submodule(name) for _, name in terms(head)}}
    have_run: list[nn.Module] = []  # modules with weights

    def read(name: str, x: Tensor) -> None:
        if x.is_floating_point() and x.ndim > 1:
            readings.pop(name, None)  # so that it stands where it ran last
            readings[name] = LayerInput(layers[name], x.clone(), not have_run)

    with ExitStack() as stack:
        stack.enter_context(watching(model, list(layers), head, read))
        for module in model.modules():
            if next(module.parameters(recurse=False), None) is not None:
                stack.enter_context(module.register_forward_hook(lambda m, *_: have_run.append(m)))
        run(model, inputs)
    return readings


def _by_samples(x: Tensor, one: Tensor, n: int) -> bool:
    """Whether what n samples brought to a layer begins with what the first of them brings alone."""
    if x.shape[1:] != one.shape[1:] or len(x) != n * len(one):
        return False
    a, b = x[: len(one)].double(), one.double()
    # In low precision and in batches of another shape it is the same but for rounding; padding may hold NaN.
    return bool((a - b).nan_to_num().norm() <= 0.05 * b.nan_to_num().norm())


def _block(name: str, reading: LayerInput, rows: int, mask: Tensor | None) -> Block | None:
    """Choose how a layer's input becomes a vector per sample; None if it has none."""
    layer, x, _ = reading
    if _is_convolution(layer):
        if x.ndim != layer.weight.ndim:
            return None
        tokens = mask is not None and x.shape[2:] == mask.shape[1:]
        if rows > 1 or tokens:
            return Block.of(name, "mean", x.shape[1], False, ())
        return Block.of(name, "grid", x.shape[1], False, x.shape[2:])
    if x.ndim == 2 and rows == 1:
        return Block.of(name, "vector", x.shape[-1], True, ())
    if x.ndim in (4, 5) and rows == 1:
        return Block.of(name, "grid", x.shape[-1], True, x.shape[1:-1])
    return Block.of(name, "mean", x.shape[-1], True, ())


def _distinct(inputs: Any, readings: dict[str, LayerInput], head: str) -> list[str]:
    """Name the layers whose inputs differ from those of the ones before, from the head's and the model's."""
    known = [readings[name].x for _, name in terms(head) if name in readings]
    each_part(inputs, lambda part: known.append(part) if isinstance(part, Tensor) else None)
    names: list[str] = []
    for name, reading in readings.items():
        if not reading.is_input and not any(_same(reading.x, other) for other in known):
            names.append(name)
            known.append(reading.x)
    return names


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same values in the same order, whatever their shapes."""
    if a.numel() != b.numel():
        return False
    a, b = a.reshape(-1), b.reshape(-1).to(a)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _check_named(
    name: str, model: nn.Module, readings: dict[str, LayerInput], blocks: dict[str, Block]
) -> None:
    """Raise unless features can come from a layer that the user named."""
    if name in blocks:
        return
    shown = ", ".join(map(repr, list(blocks)[:12])) + (" …" if len(blocks) > 12 else "")
    if name in readings:
        why = f"what goes into it, shape {tuple(readings[name].x.shape)}, is not one part per sample"
    elif name in weighted(model):
        why = "it does not run before the head"
    else:
        why = "it is not a linear or convolutional layer of the model"
    raise InvalidInputError(
        f"'layers' must name layers whose inputs can be features. Got {name!r}: {why}. Those that can be: "
        f"{shown}."
    )
