"""Similarity of training and test samples, signed by whether the training label is the class explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import one_of, parameter
from whence.core.contents import Layout
from whence.errors import InvalidInputError
from whence.features.training import Classifier, Training

Metric = Literal["dot", "cosine", "l2"]
Space = Literal["features", "input"]


@register
@dataclass(eq=False)
class Similarity(Attributor):
    """Attribute predictions to similar training samples.

    A similarity alone says nothing about classes. Here the score of training sample i for class c at x is
    τ_c(x, i) = s(x, x_i) where y_i = c, and −s(x, x_i) where the label is another: **positive is evidence
    for the target class**, and a near copy with another label contradicts it. With u and v the features,
    or the flattened inputs, of x and x_i, s is

    - ``"dot"``: u·v, larger for long vectors, and negative where they point apart;
    - ``"cosine"``: u·v / (‖u‖‖v‖), between −1 and 1; a vector of zeros, as a network with ReLU may return,
      is similar to none;
    - ``"l2"``: 1 / (1 + ‖u − v‖/r), between 0 and 1, with r the root mean square distance of the training
      samples from their mean.

    Self-influence is ‖v‖² for ``"dot"`` and otherwise 1; that of a vector of zeros is 0 for ``"cosine"``.

    Parameters
    ----------
    metric
        "dot", "cosine" or "l2".
    space
        "features", or "input" for the model's inputs, unchanged.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.methods.get("similarity")("l2", show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3], target=0).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "similarity"
    capabilities: ClassVar[Capabilities] = Capabilities(
        last_layer_only=True,
        memory="N × d, or N × the size of an input",
        cost=0.1,
        own_class_only=True,
    )

    metric: Metric = parameter("dot", one_of(Metric))
    space: Space = parameter("features", one_of(Space))

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        if self.space == "features":
            vectors = training.features
        else:
            vectors = torch.cat([_flat(inputs) for inputs, _ in training.batches])
        if self.metric == "cosine":
            return {"vectors": normalize(vectors)}
        if self.metric == "dot":
            return {"vectors": vectors}
        radius = (vectors - vectors.mean(0)).norm(dim=1).square().mean().sqrt()
        return {"vectors": vectors, "radius": radius.where(radius > 0, 1.0)}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        queries = tests.features
        if self.space == "input":
            batches = fitted.require_model().batches(tests.x, fitted.batch_size)
            queries = torch.cat([_flat(batch) for batch in batches])
        vectors = fitted.arrays["vectors"]
        if self.metric == "l2":
            # Not by ‖u‖² + ‖v‖² − 2u·v, which rounds the distance of near copies to a thousandth of ‖u‖.
            scores = torch.cdist(queries, vectors, compute_mode="donot_use_mm_for_euclid_dist")
            scores.div_(fitted.arrays["radius"]).add_(1).reciprocal_()
        else:
            if self.metric == "cosine":
                queries = normalize(queries)
            scores = queries @ vectors.T
        same = fitted.used_labels == tests.targets.to(queries.device)[:, None]
        return scores.mul_(torch.where(same, 1, -1))

    def score_self(self, fitted: Fitted) -> Tensor:
        vectors = fitted.arrays["vectors"]
        if self.metric == "dot":
            return torch.einsum("nd,nd->n", vectors, vectors)
        near = vectors.new_ones(len(vectors))
        return near if self.metric == "l2" else near * vectors.any(dim=1)

    def _needs_inputs(self) -> bool:
        return self.space == "input"

    def _layout(self, classifier: Classifier) -> Layout:
        vectors: Layout = {"vectors": ("N", "d" if self.space == "features" else "inputs")}
        return {**vectors, "radius": ()} if self.metric == "l2" else vectors


def _flat(inputs: Any) -> Tensor:
    """Return rows (B, D) of a batch of inputs, or raise where they are no numbers of one size."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        got = f"dtype {inputs.dtype}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise InvalidInputError(
            "'space' must be \"features\" unless an input is one tensor of real numbers, such as an image. "
            f"Got {got}. Tokens have no distance: compare features."
        )
    return inputs.flatten(1)
