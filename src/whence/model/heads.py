"""What a linear head is: the layers that can be one, what goes into them, and the weight they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.arrays import Floats
from whence.errors import ModelError

_PLUS = " + "
_CLASSES = 4096  # of a head that are looked at closely


class Head(NamedTuple):
    """The last linear layer: logits are ``features @ weight.T + bias``, weight (K, d), bias (K,) or None."""

    weight: Floats
    bias: Floats | None

    def paired(self) -> Head:
        """Return the two rows −w/2 and w/2 that stand for one row w, and so for its bias."""
        pair = np.array([[-0.5], [0.5]], np.float32)
        return Head(pair * self.weight, None if self.bias is None else pair[:, 0] * self.bias)


def paired(logits: Tensor) -> Tensor:
    """Return two classes' logits −z/2 and z/2 (B, 2), whose softmax is the sigmoid of one logit (B, 1)."""
    return torch.cat([-0.5 * logits, 0.5 * logits], 1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda z: z,
    "log_softmax": lambda z: z.log_softmax(1),
    "softmax": lambda z: z.softmax(1),
    "sigmoid": torch.sigmoid,
}
"""What a model may do with its logits (B, K) before it returns them; "" for nothing."""


class HeadTerm(NamedTuple):
    """One of the linear layers whose outputs, each times its share, add up to the logits."""

    share: float
    name: str


class Call(NamedTuple):
    """One call of a layer: its name, the layer itself, and the tensors that went in and came out."""

    name: str
    layer: nn.Module
    inputs: Tensor
    output: Tensor


Shared = Sequence[tuple[float, Call]]
"""The calls of all layers that the logits are a sum of, with their shares; of most models one, share 1."""


def terms(layer: str) -> list[HeadTerm]:
    """Read the name of a head: one layer, or several as in "0.5*head + 0.5*head_dist"."""
    if _PLUS not in layer:
        return [HeadTerm(1.0, layer)]
    several = []
    for part in layer.split(_PLUS):
        share, times, name = part.strip().rpartition("*")
        try:
            several.append(HeadTerm(float(share) if times else 1.0, name))
        except ValueError:
            raise ModelError(
                f"'layer' must be a layer's name, or several as in '0.5*a + 0.5*b'. Got {layer!r}."
            ) from None
    return several


def written(several: Sequence[HeadTerm]) -> str:
    """Write the name of a head as ``terms`` reads it."""
    return _PLUS.join(t.name if t.share == 1 else f"{t.share:.7g}*{t.name}" for t in several)


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Every layer of the model that maps d features to K at each place of its input."""
    return {name: module for name, module in model.named_modules() if maps_features(module)}


def widths(layer: nn.Module) -> tuple[int, int]:
    """Return a candidate's d and K."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return layer.in_channels, layer.out_channels
    return int(layer.in_features), int(layer.out_features)  # type: ignore[arg-type]


@contextmanager
def recording(layers: Mapping[str, nn.Module]) -> Iterator[list[Call]]:
    """Record the calls of the layers in order; the hooks are gone on leaving, whatever happens.

    From a layer's output on, autograd follows what the model does with it, so that ``head_inputs`` can ask
    which places of the output the logits came from. The values stay the same to the bit.
    """
    calls: list[Call] = []

    def hook(
        name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Tensor | None:
        x = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(x, Tensor) or not isinstance(output, Tensor):
            return None
        leaf = output.detach()
        calls.append(Call(name, layer, x, leaf))
        if leaf.is_inference() or not leaf.is_floating_point():
            return None
        torch.set_grad_enabled(True)
        # A clone, because the model may write into its logits, which autograd forbids for a leaf.
        return leaf.requires_grad_().clone()

    with ExitStack() as stack:
        stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
        for name, layer in layers.items():
            stack.enter_context(layer.register_forward_hook(partial(hook, name), with_kwargs=True))
        yield calls


class HeadInputs(NamedTuple):
    """What the head made the logits from: features (B, d), and its output (B, K) at the same places.

    Autograd follows the features back to the model's inputs where it was on.
    """

    features: Tensor
    logits: Tensor
    size: Tensor | None  # where the model averages over places, the mean |output|: rounding is relative to it


def head_inputs(call: Call, logits: Tensor) -> HeadInputs | None:
    """Find the input of the layer at the places that the model's logits (B, K) came from.

    A head that runs once per sample is simple. One that runs on every token or pixel is followed by the
    model's own choice of a place per sample, or by an average over places: logits_b = Σ_p a_bp y_bp. Autograd
    gives a_bp, and since the layer is linear, the features are Σ_p a_bp x_bp. None where the layer's
    output has no part in the logits.
    """
    n, (d, K) = len(logits), widths(call.layer)
    if logits.shape[1] != K or n == 0 or call.output.numel() % (n * K):
        return None
    if call.output.shape == logits.shape and call.inputs.shape == (n, d):
        return HeadInputs(call.inputs, call.output.detach(), None)
    places = call.output.numel() // (n * K)
    # Samples come first, or lie flat one after the other; time first would pair them wrongly.
    mixed = call.output.ndim > 2 and len(call.output) != n
    if mixed or call.inputs.numel() != n * places * d or not logits.requires_grad:
        return None
    gradient: Tensor | None = torch.autograd.grad(
        logits, call.output, grad_outputs=_factors(logits), retain_graph=True, allow_unused=True
    )[0]
    if gradient is None:
        return None
    precise = torch.promote_types(gradient.dtype, torch.float32)
    share = _rows(call, gradient, n).to(precise).abs().sum(2)  # (B, P)
    total = share.sum(1, keepdim=True)
    if (total == 0).any():
        return None
    x, y = (_rows(call, t, n) for t in (call.inputs, call.output.detach()))
    share = share / total
    best, place = share.max(1)
    if (best == 1).all():  # one place per sample: taken, not multiplied by 0, as padding may hold NaN
        samples = torch.arange(n, device=place.device)
        return HeadInputs(x[samples, place], y[samples, place], None)
    means = (torch.einsum("bp,bpd->bd", share, t.to(share.dtype)) for t in (x, y, y.abs()))
    return HeadInputs(*means)


def joint_inputs(shared: Shared, logits: Tensor) -> HeadInputs | None:
    """Find the inputs of all layers that the logits are a sum of, each times its share, side by side.

    The weights of the layers side by side make the logits of them, see ``joint_weight``.
    """
    parts = [head_inputs(call, logits) for _, call in shared]
    inputs = [part for part in parts if part is not None]
    if len(inputs) < len(parts) or len(inputs) == 1:
        return inputs[0] if len(inputs) == len(parts) else None
    pairs = [(share, part) for (share, _), part in zip(shared, inputs, strict=True)]
    sizes = [abs(share) * (part.logits.abs() if part.size is None else part.size) for share, part in pairs]
    return HeadInputs(
        torch.cat([share * part.features for share, part in pairs], dim=1),
        torch.stack([share * part.logits for share, part in pairs]).sum(0),
        torch.stack(sizes).sum(0),
    )


def sum_of(calls: Sequence[Call], logits: Tensor) -> str | None:
    """Name the layers whose outputs, each times a constant, add up to the logits, by value; None for none.

    Autograd gives the constants: the derivative of the logits by a layer's output, summed over its places.
    """
    if not logits.requires_grad:
        return None
    n, K = logits.shape
    factors = _factors(logits)
    gradients = torch.autograd.grad(
        logits, [call.output for call in calls], factors, retain_graph=True, allow_unused=True
    )
    several, shared = [], []
    for call, gradient in zip(calls, gradients, strict=True):
        if gradient is None or not gradient.any() or gradient.numel() % (n * K):
            continue
        shares = _rows(call, gradient, n).double().sum(1) / factors.double()
        share = float(f"{float(shares.mean()):.7g}")  # as ``written`` writes it
        if (shares - share).abs().max() > 1e-3 * abs(share):
            return None
        several.append(HeadTerm(share, call.name))
        shared.append((share, call))
    names = {term.name for term in several}
    return written(several) if len(names) == len(several) > 1 and made_by(shared, logits) else None


def made_by(shared: Shared, output: Tensor, activation: str = "") -> bool:
    """Whether layers made a model's output, by value: the activation of their sum, each being x Wᵀ + b."""
    head = joint_inputs(shared, output)
    return head is not None and not bool(differing(shared, head, output, activation).any())


def differing(shared: Shared, head: HeadInputs, logits: Tensor, activation: str = "") -> Tensor:
    """Mark the samples (B,) whose output is not the activation of the layers', or where that is not x Wᵀ + b.

    Of a vocabulary the last is looked at for some of the tokens: it costs as much as the layer itself.
    """
    if activation in ("log_softmax", "softmax") and logits.shape[1] == 1:  # a constant, whatever the layer
        return torch.ones(len(logits), dtype=torch.bool, device=logits.device)
    tensors = [logits, *(t for _, call in shared for t in (call.inputs, call.output))]
    eps = max(torch.finfo(t.dtype).eps for t in tensors)
    classes = slice(None, None, -(-logits.shape[1] // _CLASSES))
    layers = [(share, call.layer) for share, call in shared]
    weight, bias = (None if t is None else t[classes].double() for t in joint_weight(layers))
    assert weight is not None
    x, y = head.features.detach().double(), head.logits[:, classes].detach().double()
    plain, size = x @ weight.T, x.abs() @ weight.abs().T
    if bias is not None:
        plain, size = plain + bias, size + bias.abs()
    # Matrix products in reduced precision (TF32, autocast, 8 bit) leave about this much.
    wrong = _apart(plain, y, max(1e-3, 4 * eps) * size)
    if activation:
        z = head.logits.detach().double()
        expected = ACTIVATIONS[activation](z)
        # An error of z is one of its exponential; without a logarithm that is relative to at most 1.
        room = 8 * eps * (1 + z.abs().amax(1, keepdim=True)) * expected.abs().clamp(min=1)
        return wrong | _apart(expected, logits.detach().double(), room)
    if torch.equal(head.logits, logits):
        return wrong
    rounding = 0 if head.size is None else max(2e-6, 4 * eps) * head.size
    return wrong | _apart(head.logits.detach().double(), logits.detach().double(), rounding)


def find_activation(shared: Shared, head: HeadInputs, output: Tensor) -> str | None:
    """Name what the model does with the layers' output, by value; None where it is nothing that is known."""
    return next((a for a in ACTIVATIONS if not differing(shared, head, output, a).any()), None)


def misranked(head: HeadInputs, logits: Tensor) -> Tensor:
    """Mark the samples (B,) whose first class by the layer's output is not among the first by the logits."""
    first = head.logits.argmax(1, keepdim=True)
    top = logits.detach().max(1, keepdim=True).values
    # A saturated softmax or sigmoid gives several classes the same value.
    return (logits.detach().gather(1, first) < top - 4 * torch.finfo(logits.dtype).eps * top.abs())[:, 0]


def effective(layer: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Return the weight (K, d) and bias (K,) that the layer stands for, whatever it is made of.

    A plain layer's own; of any other (low-rank adapters, parametrisations, subclasses) the derivative, or the
    values at unit vectors, and the value at zero, which are the weight and the bias if the layer is linear.
    To be called in eval mode.
    """
    if type(layer) in (nn.Linear, nn.Conv1d, nn.Conv2d):
        bias = layer.bias
        return layer.weight.detach().flatten(1), None if bias is None else bias.detach()  # type: ignore
    d, K = widths(layer)
    like = next((p for p in layer.parameters() if p.is_floating_point()), None)
    if like is None:
        raise ModelError(
            "The model's last linear layer must have floating-point weights. Got a quantised one, a "
            f"{type(layer).__name__} of {type(layer).__module__}. Pass the model that it was made of."
        )
    places = (1,) * (layer.weight.ndim - 2) if isinstance(layer, nn.Conv1d | nn.Conv2d) else ()
    if d < K:  # of a vocabulary the derivative would take K × K numbers
        rows = torch.cat([torch.zeros(1, d), torch.eye(d)]).to(like.detach()).reshape(d + 1, d, *places)
        values = layer(rows).detach().reshape(d + 1, K)
        return (values[1:] - values[0]).T, values[0] if values[0].any() else None
    with torch.enable_grad():
        zeros = torch.zeros(K, d, *places, device=like.device, dtype=like.dtype, requires_grad=True)
        values = layer(zeros).reshape(K, K)
        (weight,) = torch.autograd.grad(values, zeros, grad_outputs=torch.eye(K).to(values))
    value = values[0].detach()
    return weight.reshape(K, d), value if value.any() else None


def joint_weight(layers: Sequence[tuple[float, nn.Module]]) -> tuple[Tensor, Tensor | None]:
    """Return the weight (K, d) and bias (K,) that layers with their shares stand for, side by side.

    The shares are in the features: weights are unchanged, biases times their share.
    """
    parts = [(share, *effective(layer)) for share, layer in layers]
    biases = [share * bias for share, _, bias in parts if bias is not None]
    weight = torch.cat([weight for _, weight, _ in parts], dim=1)
    return weight, torch.stack(biases).sum(0) if biases else None


def listed(layers: Mapping[str, nn.Module], K: int | None = None) -> str:
    """Name the candidates and their widths, those with K outputs first."""
    if not layers:
        return "The model has no linear layer: no nn.Linear and no 1×1 convolution."
    names = sorted(layers, key=lambda name: widths(layers[name])[1] != K)
    shown = ", ".join(f"{name!r} ({'→'.join(map(str, widths(layers[name])))})" for name in names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"Its linear layers: {shown}{more}."


def maps_features(module: nn.Module) -> bool:
    """Whether a layer maps d features to K at each place of its input."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        # Other strides and paddings make places that the input does not have.
        ones = (*module.kernel_size, *module.stride, module.groups)
        return all(n == 1 for n in ones) and module.padding in ("same", "valid", (0,), (0, 0))
    if isinstance(module, nn.Linear):
        return True
    # Wrapped and quantised layers are no nn.Linear, but have attributes of the same names.
    return all(isinstance(getattr(module, name, None), int) for name in ("in_features", "out_features"))


def _factors(logits: Tensor) -> Tensor:
    """Different factors for the classes, because the gradient of a sum of softmax values would vanish."""
    return torch.linspace(1, 2, logits.shape[1], dtype=logits.dtype, device=logits.device).expand_as(logits)


def _rows(call: Call, tensor: Tensor, n: int) -> Tensor:
    """Bring one of the call's tensors to (B, places, channels)."""
    if isinstance(call.layer, nn.Conv1d | nn.Conv2d):
        tensor = tensor.movedim(1, -1)
    return tensor.reshape(n, -1, tensor.shape[-1])


def _apart(a: Tensor, b: Tensor, tolerance: Tensor | int) -> Tensor:
    """Mark the rows (B,) in which a and b (B, K) differ."""
    # Where neither is finite they agree: the features' own check then names the sample.
    broken = ~a.isfinite() & ~b.isfinite()
    return ~((a == b) | ((a - b).abs() <= tolerance) | broken).all(1)
