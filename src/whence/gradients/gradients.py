"""Gradients of a loss, one per sample, with respect to a model's parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn import functional

from whence.core.checks import shown
from whence.core.naming import name_errors
from whence.errors import InvalidInputError, ModelError
from whence.features import make_printer
from whence.features.training import Classifier
from whence.model.heads import made_by, paired, recording, terms
from whence.model.inputs import each_part, n_rows, run, take
from whence.model.modules import eagerly, evaluating
from whence.model.passes import logits_in

Loss = Callable[[Tensor, Tensor], Tensor]
"""One number per sample: of logits (B, K) and classes (B,), shape (B,)."""

Weights = Mapping[str, Tensor]
"""Parameters and buffers by name."""

MEMORY = 1 << 29  # bytes of gradients and activations in memory at a time
_REUSED = 1 << 25  # bytes; for larger blocks C libraries map new pages every time, which doubles the cost


def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Return −log p_c of each sample, (B,)."""
    # log(1 + (1 − p_c)/p_c): its gradient p − e_c keeps all digits where p_c rounds to 1, and 1 − p_c to 0.
    return functional.softplus(-margin(logits, classes))


def own_logit(logits: Tensor, classes: Tensor) -> Tensor:
    """Return z_c of each sample, (B,)."""
    return logits.gather(1, classes[:, None])[:, 0]


def margin(logits: Tensor, classes: Tensor) -> Tensor:
    """Return log(p_c / (1 − p_c)) of each sample, (B,)."""
    chosen = classes[:, None] == torch.arange(logits.shape[1], device=logits.device)
    # p_c / (1 − p_c) is exp z_c over the sum of the other classes' exp z, without the difference 1 − p_c.
    return (logits * chosen).sum(1) - logits.masked_fill(chosen, -torch.inf).logsumexp(1)


def logit_gradients(scalar: Loss, logits: Tensor, classes: Tensor) -> Tensor:
    """Return the gradient of a scalar by the logits, (B, K); for the cross-entropy it is p − e_c.

    With features f the gradient of the scalar by the last layer's weight is its outer product with f, and
    by the bias it is itself: no pass through the model is needed.
    """
    gradient: Tensor = grad(lambda z: _checked(scalar(z, classes), len(z)).sum())(logits)
    if not gradient.isfinite().all():
        _check_finite(scalar(logits, classes))
        raise InvalidInputError("The gradient of the loss must be finite. Got others for finite losses.")
    return gradient


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the outer product of each row of a (n, K) and b (n, d), flattened: (n, K·d)."""
    return (a[:, :, None] * b[:, None, :]).flatten(1)


def at(model: nn.Module, weights: Weights, function: Callable[[], Any]) -> Any:
    """Call ``function`` while ``model`` has other weights; they are restored afterwards.

    Names that ``weights`` leaves out keep the model's own tensors.
    """
    named = {f"model.{name}": tensor for name, tensor in weights.items()}
    return functional_call(_Calling(model), named, (function,))


class _Calling(nn.Module):
    """Calls a function inside ``functional_call``, which swaps the weights of its submodule ``model``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[], Any]) -> Any:
        return function()


class Gradients:
    """Gradients of a scalar of the logits, one per sample, as rows (B, P) over all trainable parameters.

    They are computed by ``torch.func``: ``vmap`` over the samples of ``grad`` of the model in eval mode.
    Where ``vmap`` cannot follow a model, as with most language models, samples are computed one by one: the
    same gradients, more slowly; ``note`` says why. Trainable are the parameters with ``requires_grad``, in
    the order of ``named_parameters``; frozen ones have no columns. The model is left unchanged: no ``.grad``
    is written.

    Parameters
    ----------
    classifier
        The model.
    scalar
        The scalar: a function of logits (B, K) and classes (B,) to (B,).
    memory
        Limit in bytes for gradients and activations; at least one sample is computed.
    show_progress
        Print a note if samples are computed one by one.

    Attributes
    ----------
    names : the trainable parameters
    n_parameters : P
    chunk : samples whose rows are given at a time, known after ``check`` or the first call
    note : why samples are computed one by one; empty where they are not

    Examples
    --------
    >>> import torch
    >>> from whence.features.training import Training
    >>> from whence.features import extract
    >>> from whence.tasks import Classes
    >>> model, x, y = torch.nn.Linear(4, 3), torch.randn(6, 4), torch.arange(6) % 3
    >>> training = Training(extract(model, (x, y), show_progress=False), Classes(3), batch_size=8)
    >>> [rows.shape for rows in Gradients(training.classifier)(x, y)]
    [torch.Size([6, 15])]
    """

    def __init__(
        self,
        classifier: Classifier,
        scalar: Loss = cross_entropy,
        memory: int = MEMORY,
        show_progress: bool = False,
    ) -> None:
        self.classifier, self.scalar, self.memory = classifier, scalar, memory
        self.say = make_printer(show_progress)
        self.model, self.layer = classifier.model, classifier.layer
        trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        if not trainable:
            raise ModelError(
                "The model must have trainable parameters: requires_grad is off for all of them. Call "
                'model.requires_grad_(True), or take only the last layer with params="last".'
            )
        self.names = tuple(trainable)
        self.n_parameters = sum(p.numel() for p in trainable.values())
        self.itemsize = max(p.element_size() for p in trainable.values())
        self.chunk, self.note = 0, ""

    def check(self, inputs: Any) -> None:
        """Check on a few inputs which output the logits are, and that samples have gradients; once.

        A call does this itself; ``values`` needs it done before.
        """
        if self.chunk:
            return
        inputs = take(inputs, slice(8))
        self._output = self._find_output(inputs)
        features = self.classifier.bound.extractor(inputs).to(self.classifier.weight)
        try:
            self._mapped(self.parameters(), inputs, self.classifier.logits(features).argmax(1), None)
        except NotMappedError as refusal:
            self.note = str(refusal)
            self.say(f"Gradients: one sample at a time, since torch.func.vmap fails in {self.note}.")
        # Gradients are stored by parameter, as rows, and possibly in previous rows of the caller; activations
        # have gradients of their own size.
        row = self.n_parameters * self.itemsize
        chunk = self.memory // (3 * row + 2 * self._activation_bytes(inputs))
        if self.classifier.weight.device.type == "cpu":
            chunk = min(chunk, (_REUSED - 1) // row)
        self.chunk = max(1, chunk)

    def parameters(self, weights: Weights | None = None) -> dict[str, Tensor]:
        """Return the trainable parameters, of the model or of other ``weights``."""
        values = dict(self.model.named_parameters()) if weights is None else weights
        return {name: values[name].detach() for name in self.names}

    def values(
        self, parameters: Weights, inputs: Any, classes: Tensor, weights: Weights | None = None
    ) -> Tensor:
        """Compute the scalar of each sample, (B,), as a function of the ``parameters``.

        It can be differentiated and transformed by ``torch.func``; call it within ``evaluating(model)`` and
        with gradients enabled. ``weights`` replaces the frozen parameters and the buffers.
        """
        logits = self.logits(parameters, inputs, weights)
        with name_errors("'loss' must be a function of logits (B, K) and classes (B,). It"):
            values = self.scalar(logits, classes)
        return _checked(values, len(classes))

    def __call__(self, inputs: Any, classes: Tensor, weights: Weights | None = None) -> Iterator[Tensor]:
        """Return gradients as rows (b, P), float32 or wider, batch by batch.

        Parameters
        ----------
        inputs
            A batch as the model takes it.
        classes
            (B,) on the model's device.
        weights
            Parameters and buffers to use instead of the model's own.
        """
        for rows, _ in self.with_values(inputs, classes, weights):
            yield rows

    def with_values(
        self, inputs: Any, classes: Tensor, weights: Weights | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield gradients as rows (b, P), each with the values (b,) of the scalar."""
        self.check(inputs)
        parameters = self.parameters(weights)
        compute = self._one_by_one if self.note else self._mapped
        for start in range(0, len(classes), self.chunk):
            part = slice(start, start + self.chunk)
            gradients, values = compute(parameters, take(inputs, part), classes[part], weights)
            _check_finite(values)
            rows = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
            del gradients
            yield rows.to(torch.promote_types(rows.dtype, torch.float32)), values

    def _mapped(
        self, parameters: Weights, inputs: Any, classes: Tensor, weights: Weights | None
    ) -> tuple[list[Tensor], Tensor]:
        """Compute gradients (B, …) by each parameter, and the values (B,), of all samples at once."""

        def value(parameters: Weights, inputs: Any, classes: Tensor) -> Tensor:
            return self.values(parameters, inputs, classes, weights)[0]

        gradients, values = map_samples(self.model, grad_and_value(value), parameters, inputs, classes)
        return [gradients[name] for name in self.names], values

    def _one_by_one(
        self, parameters: Weights, inputs: Any, classes: Tensor, weights: Weights | None
    ) -> tuple[list[Tensor], Tensor]:
        """Compute the same without ``vmap``."""
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
        rows, values = [], []
        for i in range(len(classes)):
            one = slice(i, i + 1)
            with evaluating(self.model), torch.enable_grad(), eagerly(self.model):
                value = self.values(leaves, take(inputs, one), classes[one], weights)[0]
                gradients = torch.autograd.grad(
                    value, list(leaves.values()), allow_unused=True, materialize_grads=True
                )
            rows.append(gradients)
            values.append(value.detach())
        return [torch.stack(parts) for parts in zip(*rows, strict=True)], torch.stack(values)

    def logits(self, parameters: Weights, inputs: Any, weights: Weights | None = None) -> Tensor:
        """Return logits (B, K) as a function of the parameters."""
        outputs: list[Tensor] = []  # outputs of the layer, differentiable
        last = self.classifier.bound.extractor.layers_of_head()[-1][1]
        with last.register_forward_hook(lambda *call: outputs.append(call[-1])):
            output = at(self.model, {**(weights or {}), **parameters}, lambda: run(self.model, inputs))
            logits = outputs[0] if self._output is None else logits_in(output, n_rows(inputs))[self._output]
            return paired(logits) if self.classifier.bound.extractor.paired else logits

    def _find_output(self, inputs: Any) -> int | None:
        """Return which of the model's outputs are the logits; None if only the layer's own output is."""
        named = terms(self.layer)
        with evaluating(self.model), eagerly(self.model):
            with recording({name: self.model.get_submodule(name) for _, name in named}) as calls:
                outputs = logits_in(run(self.model, inputs), n_rows(inputs))
            by_name = {call.name: call for call in calls}
            shared = [(share, by_name[name]) for share, name in named]
            place = next((j for j, logits in enumerate(outputs) if made_by(shared, logits)), None)
        if place is None and (calls[0].output.ndim != 2 or len(named) > 1):
            raise ModelError(
                f"The model's output must be its logits, or layer {self.layer!r} must return (B, K). Got "
                f"{tuple(calls[0].output.shape)}, and something after it changes the logits. "
                'Take only the last layer with params="last".'
            )
        return place

    def _activation_bytes(self, inputs: Any) -> int:
        """Return the bytes of all modules' outputs for one sample."""
        sizes: list[int] = []

        def count(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor) and next(module.children(), None) is None:
                sizes.append(output.nbytes)

        with ExitStack() as hooks, evaluating(self.model), eagerly(self.model):
            for module in self.model.modules():
                hooks.enter_context(module.register_forward_hook(count))
            run(self.model, inputs)
        return sum(sizes) // max(1, n_rows(inputs) or 1)


def _checked(values: Any, n: int) -> Tensor:
    if not isinstance(values, Tensor) or values.shape != (n,):
        got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else shown(values)
        raise InvalidInputError(
            "'loss' must give one number per sample, shape (B,), for logits (B, K) and classes (B,). "
            f'Got {got} for a batch of {n}. Pass reduction="none" to losses of torch.'
        )
    return values


def _check_finite(values: Tensor) -> None:
    finite = values.isfinite()
    if not finite.all():
        i = int((~finite).int().argmax())
        raise InvalidInputError(
            f"The loss must be finite. Got {values[i].item()} for a sample. Check the model's output for it, "
            "and whether 'loss' takes logits."
        )


Function = Callable[[Mapping[str, Tensor], Any, Tensor], Any]
"""A function of parameters, the inputs of one sample as a batch of one, and its class (1,)."""


class NotMappedError(Exception):
    """The model does not support ``vmap``; the message names the module and the reason."""


def map_samples(
    model: nn.Module, function: Function, parameters: Mapping[str, Tensor], inputs: Any, classes: Tensor
) -> Any:
    """Call ``function`` for every sample of a batch at once, by ``vmap``, and stack the results.

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
            # The warning is meant for torch's developers.
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
    """Maintain a list of the modules that are being called."""
    entered: list[str] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            entering = module.register_forward_pre_hook(lambda *_, name=name: entered.append(name))
            hooks.enter_context(entering)
            hooks.enter_context(module.register_forward_hook(lambda *_: entered.pop() and None))
        yield entered


def _row_axis(part: Any) -> int | None:
    """Return 0 if a part of a batch has one row per sample, None if all samples share it."""
    return 0 if isinstance(part, Tensor) and part.ndim > 0 else None


def _as_batch(part: Any) -> Any:
    """Make a batch of one from a sample of ``vmap``."""
    return part[None] if isinstance(part, Tensor) else part
