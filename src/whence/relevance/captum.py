"""Feature attribution by captum methods instead of relevance propagation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whence.core.checks import check_callable, check_seed
from whence.core.naming import name_errors
from whence.errors import ModelError
from whence.model.extractor import Extractor
from whence.model.inputs import to_model
from whence.model.modules import evaluating
from whence.model.passes import Pass
from whence.relevance.lrp import Maps
from whence.relevance.sources import TOKENS, floating, looks_up, named_inputs, replaced, tokens_of


@dataclass(frozen=True)
class Captum:
    """A captum method, with the options of its ``attribute``.

    Attributes
    ----------
    method : a class such as ``captum.attr.IntegratedGradients``, or a function that makes an instance of one
        for a module, as methods around another one need
    options : given to ``attribute``, such as ``n_steps``
    seed : of methods that draw at random; torch's own generator stays as it was

    Examples
    --------
    >>> from captum.attr import IntegratedGradients, NoiseTunnel, Saliency
    >>> Captum(IntegratedGradients, {"n_steps": 20}).name
    'IntegratedGradients'
    >>> def smooth_grad(module):
    ...     return NoiseTunnel(Saliency(module))
    >>> Captum(smooth_grad, {"nt_samples": 20, "stdevs": 0.1, "abs": False}).name
    'smooth_grad'
    """

    method: Callable[[nn.Module], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        check_callable("method", self.method, "a class of captum.attr, or a function that makes one")
        check_seed(self.seed)

    @property
    def name(self) -> str:
        """The method's name."""
        return getattr(self.method, "__name__", type(self.method).__name__)


def attributed(extractor: Extractor, inputs: Any, captum: Captum) -> Pass:
    """Run a model on a batch such that a captum method can attribute weighted sums of its features.

    The method runs the model again for every map, as often as it needs.
    """
    inputs = to_model(extractor.model, inputs)
    looked_up = _Embedded(tokens_of(inputs))
    with looked_up:
        read = extractor.read(inputs)
    sources = floating(inputs)
    if looked_up.values is not None:
        sources[TOKENS] = looked_up.values
    if len(sources) != 1:
        raise ModelError(
            "A captum method can replace relevance propagation only for models with one input. "
            f"Got {', '.join(sources) or 'none that is differentiable'}."
        )
    return replace(read, graph=_Attributed(extractor, read, captum, *sources.items()))


class _Attributed:
    """Maps of weighted sums of features by a captum method; ``source`` names an input and its values."""

    def __init__(self, extractor: Extractor, read: Pass, captum: Captum, source: tuple[str, Tensor]) -> None:
        self._extractor, self._pass, self._captum = extractor, read, captum
        self._name, self._values = source

    def maps(self, coefficients: Tensor) -> Maps:
        """Return attributions of Σ_j coefficients_j f_j(x); shapes as for ``Pass.maps``."""
        if coefficients.ndim == 3:
            return {self._name: torch.stack([self.maps(row)[self._name] for row in coefficients])}
        scalar = _Scalar(self._extractor, self._name, self._pass.inputs)
        what = f"'method' must be a method of captum that attributes one input. {self._captum.name}"
        devices = [self._values.device] if self._values.is_cuda else []
        with name_errors(what), torch.inference_mode(False), torch.random.fork_rng(devices):
            torch.manual_seed(self._captum.seed)
            attributions = self._captum.method(scalar).attribute(
                self._values.detach().clone().requires_grad_(),  # captum would warn and do this itself
                additional_forward_args=(coefficients.to(self._pass.features), *scalar.others.values()),
                **self._captum.options,
            )
        return {self._name: attributions.detach().sum(-1) if self._name == TOKENS else attributions.detach()}


class _Scalar(nn.Module):
    """Σ_j c_j f_j as a function of one input, one value per sample.

    The model's other inputs are arguments too, because captum repeats all of them for several samples of one.
    """

    def __init__(self, extractor: Extractor, name: str, inputs: Any) -> None:
        super().__init__()
        self.model = extractor.model  # for methods that need the layers
        self._extractor, self._name, self._inputs = extractor, name, inputs
        named = named_inputs(inputs).items()
        self.others = {key: x for key, x in named if isinstance(x, Tensor) and key != name}

    def forward(self, values: Tensor, coefficients: Tensor, *others: Tensor) -> Tensor:
        inputs = replaced(self._inputs, dict(zip(self.others, others, strict=True)))
        is_text = self._name == TOKENS
        inputs = inputs if is_text else replaced(inputs, {self._name: values})
        lookup = _Embedded(tokens_of(inputs) if is_text else None, values)
        with evaluating(self.model), torch.enable_grad(), lookup:
            features = self._extractor.forward(inputs)
        return (features * coefficients).sum(1)


class _Embedded(TorchFunctionMode):
    """Returns ``values`` as the embeddings of the tokens; if None, records the model's own."""

    def __init__(self, tokens: Tensor | None, values: Tensor | None = None) -> None:
        super().__init__()
        self.tokens, self.values, self._done = tokens, values, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._done or getattr(func, "__name__", "") != "embedding" or not looks_up(args, self.tokens):
            return func(*args, **(kwargs or {}))
        self._done = True
        if self.values is None:
            self.values = func(*args, **(kwargs or {})).detach()
        return self.values
