"""Find a model's last linear layer and split the model there into a feature extractor and a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whence.core.checks import check_flag, check_parts
from whence.errors import HeadError, ModelError
from whence.model import heads
from whence.model.heads import Call, Head, HeadInputs, Shared, listed, widths
from whence.model.inputs import check_batch, n_rows, run, running_on, take, to_model
from whence.model.layers import Layers
from whence.model.modules import check_model, eagerly, evaluating, unwrap
from whence.model.passes import Pass, logits_in


def find_head(model: nn.Module, inputs: Any, layer: str | None = None) -> str:
    """Name the linear layer whose output is the model's logits.

    Forward passes on ``inputs`` record what goes through every linear layer and 1×1 convolution. The head
    is the one whose output has the values of the model's logits, or from which the model picks its logits:
    one place per sample (the last token), or an average over places (pooling). A softmax, log_softmax or
    sigmoid after it is recognised by value. Where the logits are a sum or
    a mean of several heads, as of distilled transformers, all of them are named: "0.5*head + 0.5*head_dist".
    Nothing is guessed from names.

    Parameters
    ----------
    model
        A classifier that returns logits (B, K): as a tensor, as ``output.logits``, or in a tuple or dict.
    inputs
        A small batch: a tensor, a tuple of them (by place) or a mapping (by name).
    layer
        The head's name, for models that do something after it other than a softmax, log_softmax or sigmoid,
        which are found by value. The model must then rank the classes as the layer does.

    Returns
    -------
    The layer's name, inside ``DataParallel`` and compiled models the one in the original module.
    """
    model = check_model(model, layer)
    check_batch(inputs, "inputs")
    layers = heads.candidates(model)
    asked = [] if layer is None else [term.name for term in heads.terms(layer)]
    if unknown := [name for name in asked if name not in layers]:
        raise ModelError(
            f"'layer' must name a linear layer of the model. Got {unknown[0]!r}. {listed(layers)}"
        )
    inputs = take(to_model(model, inputs), slice(8))  # enough to distinguish layers, and little to record
    with evaluating(model), eagerly(model), running_on(inputs):
        if layer is None:
            # Known now, K keeps the second pass from holding the tensors of every layer of a large model.
            K = {logits.shape[1] for logits in logits_in(run(model, inputs), n_rows(inputs))}
            wanted = {name: module for name, module in layers.items() if widths(module)[1] in K}
        else:
            wanted = {name: layers[name] for name in asked}
        with heads.recording(wanted) as calls:
            outputs = logits_in(run(model, inputs), n_rows(inputs))
        if layer is None:
            layer = _only_head(calls, outputs, layers)
        else:
            _check_ranks(layer, _shared(calls, layer), outputs, layers)
    return layer


class Extractor:
    """Features f(x): what goes into the linear layer ``layer`` of ``model``, or several, to make the logits.

    Calling it runs the whole model on a batch in eval mode and returns features (B, d) on the model's
    device. Where the layer runs on many places of a sample, the features are those of the place that the
    model picks, or averaged as the model does; where the logits are a sum of several layers' outputs, what
    goes into each times its share, side by side. The model's weights, gradients, training flags and hooks are
    as before afterwards. Every batch is checked: samples for which the model's output is not what the layer
    makes of the features are refused.

    Attributes
    ----------
    model : the model itself, inside ``DataParallel`` and ``torch.compile``
    layer : the name of its head, or several as in "0.5*head + 0.5*head_dist"
    layers : the layers that features come from, where they are not the head's alone: features are then
        (B, D), see ``Layers``
    exact : whether the model's output is made of the layer's values, or (False) has only its first class;
        None until the first batch shows it
    activation : what the model does with its logits before it returns them, one of "", "log_softmax",
        "softmax" and "sigmoid"; None until the first batch shows it. A pass has the logits
    paired : whether one logit z stands for two classes: head and output are then given for −z/2 and z/2
    notes : what the model writes down whenever it runs, such as a counter, by the lines of its
        ``fingerprint.structure``; None until it has run
    operations : names of the torch functions that the model calls up to its head; None until it has run

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> Extractor(model, "2")(torch.ones(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str,
        exact: bool | None = None,
        layers: Layers | None = None,
        paired: bool = False,
    ) -> None:
        self.model = unwrap(model)
        self.paired = check_flag("paired", paired)
        self.layer = layer
        self.layers = layers
        self.exact = exact
        self.activation: str | None = None
        self.notes: frozenset[str] | None = None
        self.operations: frozenset[str] | None = None

    def __call__(self, inputs: Any) -> Tensor:
        """Features (B, d) of a batch."""
        return self.read(inputs).features

    def read(self, inputs: Any) -> Pass:
        """Run the model on a batch: features, and the output itself, which must be what the layer makes."""
        check_parts("inputs", inputs)
        with evaluating(self.model):
            inputs = to_model(self.model, inputs)
            with running_on(inputs):
                features, logits = self.follow(inputs)
        return Pass(inputs, features.detach(), logits)

    def follow(self, inputs: Any, mode: HeadMode | None = None) -> tuple[Tensor, Tensor]:
        """Run the model as ``forward`` does; return checked features and the model's output (B, K).

        A ``mode`` sees the functions that the model calls, and knows which come before its head.
        """
        shared, passes, before = self._passes(inputs, mode)
        with torch.no_grad():
            if self.activation is None:
                self._find_activation(shared, passes)
            if self.exact is False:
                wrong = [heads.misranked(head, output) for head, output in passes]
            else:
                wrong = [heads.differing(shared, head, out, self.activation or "") for head, out in passes]
        best = min(range(len(passes)), key=lambda j: int(wrong[j].sum()))
        head, output = passes[best]
        if wrong[best].any():
            self._refuse(int(wrong[best].int().argmax()), head, output)
        logits = (head.logits if self.activation else output).detach()
        return self._joined(inputs, before, head.features), heads.paired(logits) if self.paired else logits

    def _find_activation(self, shared: Shared, passes: Sequence[tuple[HeadInputs, Tensor]]) -> None:
        """Find by value what the model does with its logits, or that only its first class is the layer's."""
        known = (heads.find_activation(shared, head, output) for head, output in passes)
        self.activation = next((name for name in known if name is not None), None)
        if self.activation is not None:
            self.exact = True
        elif self.exact is None and not self.paired:  # of one output the order says nothing
            self.exact, self.activation = False, ""

    def forward(self, inputs: Any) -> Tensor:
        """Features (B, d) of the model's inputs, in the caller's own modes; autograd follows if it is on."""
        shared, passes, before = self._passes(inputs)
        if len(passes) == 1:
            return self._joined(inputs, before, passes[0][0].features)
        activation = self.activation or ""
        best = min(passes, key=lambda one: int(heads.differing(shared, one[0], one[1], activation).sum()))
        return self._joined(inputs, before, best[0].features)

    def _joined(self, inputs: Any, before: Mapping[str, Any], features: Tensor) -> Tensor:
        """Features of all layers, of those before the head and of the head (B, d)."""
        if self.layers is None:
            return features
        weight, _ = heads.joint_weight(self.layers_of_head())
        return self.layers.joined(self.model, inputs, before, features, weight)

    def layers_of_head(self) -> list[tuple[float, nn.Module]]:
        """Return the layers that the head is made of, with their shares."""
        return [(share, self.model.get_submodule(name)) for share, name in heads.terms(self.layer)]

    def _passes(
        self, inputs: Any, mode: HeadMode | None = None
    ) -> tuple[Shared, list[tuple[HeadInputs, Tensor]], Mapping[str, Any]]:
        """Run the model once: the head's calls, what they gave each output that may be the logits, others.

        These are the vectors of the layers before it, where features come from several.
        """
        layers = {name: self.model.get_submodule(name) for _, name in heads.terms(self.layer)}
        reading: Any = nullcontext({}) if self.layers is None else self.layers.reading(self.model, inputs)
        if mode is None and self.operations is None:
            mode = _Watch()
        with eagerly(self.model), reading as before, heads.recording(layers) as calls:
            if mode is not None:
                mode.before_head = lambda: len(calls) < len(layers)
            with mode or nullcontext():
                outputs = logits_in(run(self.model, inputs), n_rows(inputs))
            if isinstance(mode, _Watch):
                self.operations = frozenset(mode.names)
            shared = _shared(calls, self.layer)
            tries = [(heads.joint_inputs(shared, logits), logits) for logits in outputs]
        passes = [(head, logits) for head, logits in tries if head is not None]
        if not passes:
            shape = tuple(shared[0][1].output.shape)
            raise ModelError(
                f"Layer {self.layer!r} must make the model's logits. Its output {shape} "
                "has no traceable part in them. Find the head again with the batch that was passed."
            )
        n, rows = n_rows(inputs), passes[0][0].features
        if n is not None and len(rows) != n:
            d = sum(widths(layer)[0] for layer in layers.values())
            raise ModelError(
                f"Layer {self.layer!r} must see one row per sample, shape ({n}, {d}). "
                f"Got {tuple(rows.shape)}. Is the input a batch?"
            )
        return shared, passes, before

    def _refuse(self, row: int, head: HeadInputs, logits: Tensor) -> None:
        ours, theirs = heads.ACTIVATIONS[self.activation or ""](head.logits)[row], logits[row].detach()
        what = f"the model puts class {int(theirs.argmax())} first, the layer class {int(ours.argmax())}"
        if ours.argmax() == theirs.argmax():
            what = f"its values differ from the layer's by up to {float((ours - theirs).abs().max()):.3g}"
        raise HeadError(row, self.layer, what)

    def head(self) -> Head:
        """Copy the layer's weight and bias to float32 arrays; of wrapped layers, what they stand for.

        Where features come from several layers, the weight (K, D) is 0 for those of the others.
        """
        with evaluating(self.model), eagerly(self.model):
            weight, bias = heads.joint_weight(self.layers_of_head())
        arrays = [None if t is None else t.float().cpu().numpy().copy() for t in (weight, bias)]
        assert arrays[0] is not None
        head = Head(arrays[0], arrays[1]).paired() if self.paired else Head(arrays[0], arrays[1])
        return head if self.layers is None else self.layers.head(head)


class HeadMode(TorchFunctionMode):
    """A mode in which a model runs; ``before_head`` is whether the head has still to run."""

    before_head: Callable[[], bool]


class _Watch(HeadMode):
    """Collects the names of the torch functions that are called up to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.before_head():
            self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def check_repeatable(extractor: Extractor, inputs: Any) -> None:
    """Raise ModelError where the model is random, or where a sample's features depend on its batch."""
    n = n_rows(inputs) or 0
    first = extractor(inputs)
    eps = torch.finfo(first.dtype).eps
    # Sums in another order leave some rounding, and more of it where the batch has another shape.
    _check_same(
        first, extractor(inputs), max(1e-5, 8 * eps), "the same batch ran twice",
        "it is random. Is there a dropout that forward puts into training mode?",
    )  # fmt: skip
    if n > 1:
        halves = [extractor(take(inputs, rows)) for rows in (slice(n // 2), slice(n // 2, n))]
        _check_same(
            first, torch.cat(halves), max(1e-3, 8 * eps), "the batch was split in two",
            "it mixes the samples of a batch. Is there a batch normalisation without running statistics "
            "(track_running_stats=False)?",
        )  # fmt: skip


def _check_same(a: Tensor, b: Tensor, tolerance: float, when: str, why: str) -> None:
    a, b = a.double(), b.double()
    apart = (a - b).norm(dim=1) / a.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    if (apart > tolerance).any():
        j = int(apart.argmax())
        raise ModelError(
            "The model must give a sample the same features every time. It is run in eval mode, and when "
            f"{when}, those of sample {j} differed by {float(apart[j]):.2g} of their length: {why}"
        )


def _only_head(calls: list[Call], outputs: list[Tensor], layers: Mapping[str, nn.Module]) -> str:
    """Name the one layer that made an output, or raise."""
    shapes_of: dict[str, tuple[int, ...]] = {}
    for activation in heads.ACTIVATIONS:
        for output in outputs:
            # Backwards: where an identity repeats its input or a wrapper its content, the later is the head.
            made = (call.name for call in reversed(calls) if heads.made_by([(1.0, call)], output, activation))
            if (name := next(made, None)) is not None:
                shapes_of.setdefault(name, tuple(output.shape))
        if shapes_of:
            break
        if not activation and (joint := next(filter(None, (heads.sum_of(calls, o) for o in outputs)), None)):
            return joint
    if len(shapes_of) == 1:
        (name,) = shapes_of
        _single_call([call for call in calls if call.name == name], name)
        return name
    if shapes_of:
        several = ", ".join(f"{name!r} made {shape}" for name, shape in shapes_of.items())
        raise ModelError(
            f"The model returns the outputs of several linear layers: {several}. "
            "Pass the name of the one that makes the logits as 'layer'."
        )
    shapes = " or ".join(str(tuple(logits.shape)) for logits in outputs)
    raise ModelError(
        "No linear layer's output is the model's output, so the head is unknown. Expected one whose output, "
        "at one place per sample or averaged over places, or several whose sum, equals the logits of shape "
        f"{shapes}. "
        f"{listed(layers, outputs[0].shape[1])} A softmax, log_softmax or sigmoid at the end is found by "
        "itself. If the model does something else after its last linear layer that keeps the order of the "
        "classes, such as a temperature, pass that layer's name as 'layer'."
    )


def _check_ranks(layer: str, shared: Shared, outputs: list[Tensor], layers: Mapping[str, nn.Module]) -> None:
    """Raise unless the layer puts the same class first as one of the outputs."""
    for output in outputs:
        head = heads.joint_inputs(shared, output)
        if head is not None and not heads.misranked(head, output).any():
            return
    shapes = " or ".join(str(tuple(output.shape)) for output in outputs)
    raise ModelError(
        f"'layer' must rank the classes as the model does. Got {layer!r}, output "
        f"{tuple(shared[0][1].output.shape)}, whose classes differ from those of the model's output "
        f"{shapes}. "
        f"{listed(layers, outputs[0].shape[1])}"
    )


def _shared(calls: list[Call], layer: str) -> Shared:
    """Return the calls of a head's layers, each once, with their shares."""
    return [
        (share, _single_call([call for call in calls if call.name == name], name))
        for share, name in heads.terms(layer)
    ]


def _single_call(calls: list[Call], layer: str) -> Call:
    if len(calls) != 1:
        raise ModelError(
            f"Layer {layer!r} must run exactly once per forward pass. It ran {len(calls)} times; "
            "choose another with 'layer'."
        )
    return calls[0]
