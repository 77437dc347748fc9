"""Layer-wise relevance propagation through torch models, by intercepting function calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.core.checks import check_dense, check_finite, check_is, real_array
from whence.errors import InvalidInputError, ModelError
from whence.model.extractor import Extractor
from whence.model.inputs import check_batch, running_on, to_model
from whence.model.modules import evaluating
from whence.model.passes import Pass
from whence.relevance.graph import check_no_leak
from whence.relevance.presets import ATTN_LRP_CP, EPSILON, EPSILON_PLUS_FLAT, Rules, as_rules
from whence.relevance.propagation import Propagation, RelevanceSource
from whence.relevance.rules import Rule
from whence.relevance.sources import floating, replaced, tokens_of

Maps = dict[str, Tensor]
"""Relevance of each input of a model, by its name; a single tensor's name is "input"."""


class Flow:
    """The graph of a pass for backward relevance.

    Attributes
    ----------
    ends : the tensors that it flows to
    """

    def __init__(self, features: Tensor, sources: dict[str, RelevanceSource]) -> None:
        self._features, self._sources = features, sources
        self.ends = [source.leaf for source in sources.values()]
        self.ends += [source.shadow for source in sources.values() if source.shadow is not None]

    def maps(self, coefficients: Tensor) -> Maps:
        """Return the relevance of each input, see ``Pass.maps``."""
        coefficients = _check_relevance("coefficients", coefficients, self._features)
        with torch.inference_mode(False):
            gradients = torch.autograd.grad(
                self._features,
                self.ends,
                coefficients.to(self._features),
                retain_graph=True,
                allow_unused=True,
                is_grads_batched=coefficients.ndim == 3,
            )
        received = {id(end): c for end, c in zip(self.ends, gradients, strict=True) if c is not None}
        maps = {}
        for name, source in self._sources.items():
            like = source.leaf.detach()
            total = like.expand(*coefficients.shape[:-2], *like.shape) * received.get(id(source.leaf), 0)
            total = total + received.get(id(source.shadow), 0)
            maps[name] = total.sum(-1) if source.is_embedding else total
            if not maps[name].isfinite().all():
                raise InvalidInputError(
                    f"Relevance must be small enough for {total.dtype}. Got maps that overflow. Scale it."
                )
        return maps


def trace(extractor: Extractor, inputs: Any, rules: str | Rules | Rule | None = None) -> Pass:
    """Run a model once on a batch with a graph for relevance; all values are exactly its own.

    Parameters
    ----------
    extractor
        A model, split at its head.
    inputs, rules
        As for ``lrp``.
    """
    check_is("extractor", extractor, Extractor, "a whence.model.Extractor, a model split at its head")
    check_batch(inputs, "inputs")
    model = extractor.model
    scripted = [name for name, module in model.named_modules() if isinstance(module, torch.jit.ScriptModule)]
    if scripted:
        raise ModelError(
            f"Relevance does not support scripted modules. Got {scripted[0]!r}. Use the original module."
        )
    chosen = default_rules(extractor, inputs) if rules is None else as_rules(rules)
    inputs = to_model(model, inputs)
    mode = Propagation(chosen, model, tokens_of(inputs))
    with evaluating(model), torch.enable_grad(), _whole(), running_on(inputs):
        leaves = {name: mode.start(name, x) for name, x in floating(inputs).items()}
        features, logits = extractor.follow(replaced(inputs, leaves), mode)
    if not features.isfinite().all():
        raise InvalidInputError("'inputs' must have finite features. Got NaN or infinity among the model's.")
    unused = [key for key in chosen.layers if key not in mode.used]
    if unused:
        key = unused[0] if isinstance(unused[0], str) else unused[0].__qualname__
        raise InvalidInputError(
            f"'layers' must name linear or convolutional layers that run. {key!r} did not."
        )
    idle = [name for name in chosen.operations if name not in mode.used]
    if idle:
        raise InvalidInputError(f"'operations' must name torch functions that run. {idle[0]!r} did not.")
    if not features.requires_grad:
        raise ModelError(
            "The features must depend on an input by differentiable operations. Relevance found no "
            f"way from {', '.join(mode.sources) or 'any input'} to the head."
        )
    flow = Flow(features, mode.sources)
    check_no_leak(features, mode.nodes, flow.ends)
    return Pass(inputs, features.detach(), logits, flow)


def lrp(
    extractor: Extractor, inputs: Any, relevance: Tensor, rules: str | Rules | Rule | None = None
) -> Tensor | Maps:
    """Propagate the relevance of a model's features to its inputs.

    Parameters
    ----------
    extractor
        A model, split at its head.
    inputs
        A batch of the model's inputs.
    relevance : (B, d) or (m, B, d)
        Relevance of the features, one or m rows per sample. A feature of 0 must have no relevance.
    rules
        ``"epsilon_plus_flat"``, ``"attn_lrp"``, ``"attn_lrp_cp"``, ``"epsilon"``, ``module:name``, ``Rules``,
        or the rule of all layers. None looks at what the model does: attention takes attn_lrp_cp,
        convolutions epsilon_plus_flat, others epsilon.

    Returns
    -------
    Tensor of the input's shape, of tokens (B, T), with m in front where it was given; a dict of them by name
    for a model with several inputs. Positive values support what the relevance is of, negative ones
    contradict it. Their sum is the features' relevance, minus the parts of biases and stabilisers.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> extractor = Extractor(model, "2")
    >>> x = torch.rand(5, 4)
    >>> R = extractor(x)  # the relevance of each feature is its value
    >>> torch.allclose(lrp(extractor, x, R, "epsilon").sum(1), R.sum(1), atol=1e-4)
    True
    """
    flow = trace(extractor, inputs, rules)
    f, relevance = flow.features, _check_relevance("relevance", relevance, flow.features)
    maps = flow.maps(torch.where(f == 0, 0, relevance.to(f) / torch.where(f == 0, 1, f)))
    return next(iter(maps.values())) if len(maps) == 1 else maps


def _check_relevance(name: str, values: Any, features: Tensor) -> Tensor:
    """Return finite numbers as a tensor of the features' shape, or of m rows per sample."""
    if isinstance(values, Tensor):
        check_dense(name, values)
    if not isinstance(values, Tensor) or values.is_complex():
        values = torch.from_numpy(real_array(name, values).astype(np.float64))
    tensor: Tensor = values
    check_finite(name, tensor)
    if tensor.shape[-2:] != features.shape or tensor.ndim not in (2, 3):
        raise InvalidInputError(
            f"'{name}' must have the features' shape {tuple(features.shape)}, or m of them in front. "
            f"Got {tuple(tensor.shape)}."
        )
    return tensor


def default_rules(extractor: Extractor, inputs: Any) -> Rules:
    """Choose rules by the operations of the model: attention, convolutions, or neither.

    They are known from the model's first pass, in fitting; if it has not run yet, it runs here.
    """
    if extractor.operations is None:
        extractor.read(inputs)
    seen = extractor.operations or frozenset()
    if seen & {"softmax", "scaled_dot_product_attention", "multi_head_attention_forward"}:
        return ATTN_LRP_CP
    return EPSILON_PLUS_FLAT if any(name.startswith("conv") for name in seen) else EPSILON


@contextmanager
def _whole() -> Iterator[None]:
    """Refuse recomputed parts, such as by checkpointing, which would be without rules."""
    message = "Relevance cannot flow through checkpointed parts of a model. Turn checkpointing off."
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks(message):
            yield
    except (RuntimeError, ModelError) as error:
        if message not in str(error):
            raise
        raise ModelError(message) from None
