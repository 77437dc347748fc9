"""Similarity of training and test samples, with the sign of whether the training label is the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import one_of, parameter
from whence.core.contents import Layout
from whence.errors import InvalidInputError
from whence.features.metric import METRICS, FeatureMap, MetricName
from whence.features.training import Classifier, Training

Metric = Literal["dot", "cosine", "centred", "whitened", "l2"]
Space = Literal["features", "input"]
_READ: dict[Metric, MetricName] = {
    "dot": "raw", "cosine": "unit", "centred": "centred", "whitened": "whitened", "l2": "raw"
}  # fmt: skip


@register
@dataclass(eq=False)
class Similarity(Attributor):
    """Attribute predictions to similar training samples.

    The score of training sample i for class c at x is τ_c(x, i) = s(x, x_i) if y_i = c, and −s(x, x_i) for
    other labels: **positive is evidence for the target class**, and a near copy with another label
    contradicts it. Where u and v are the features, or the flattened inputs, of x and x_i, the similarity s is

    - ``"dot"``: u·v, larger for long vectors, and negative for opposite directions;
    - ``"cosine"``: u·v / (‖u‖‖v‖), between −1 and 1; 0 for a vector of zeros, which a network with ReLU may
      have;
    - ``"centred"``, ``"whitened"``: φ(u)·φ(v) with the map φ of these feature metrics of ``DualDA``;
    - ``"l2"``: 1 / (1 + ‖u − v‖/r), between 0 and 1, where r is the root mean square distance of the training
      samples from their mean.

    Self-influence is s(x_i, x_i): ‖v‖² for ``"dot"``, 1 for ``"cosine"``, ``"whitened"`` and ``"l2"``, and 0
    for a vector of zeros with ``"cosine"``.

    Parameters
    ----------
    metric
        "dot", "cosine", "centred", "whitened" or "l2".
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
        feature_map = METRICS[_READ[self.metric]].fit(vectors.cpu().numpy())
        learned = {"vectors": feature_map(vectors), **_as_tensors(feature_map)}
        if self.metric != "l2":
            return learned
        radius = (vectors - vectors.mean(0)).norm(dim=1).square().mean().sqrt()
        return {**learned, "radius": radius.where(radius > 0, 1.0)}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        queries = tests.features
        if self.space == "input":
            batches = fitted.require_model().batches(tests.x, fitted.batch_size)
            queries = torch.cat([_flat(batch) for batch in batches])
        vectors = fitted.arrays["vectors"]
        if self.metric == "l2":
            # Not by ‖u‖² + ‖v‖² − 2u·v, whose rounding error for near copies is a thousandth of ‖u‖.
            scores = torch.cdist(queries, vectors, compute_mode="donot_use_mm_for_euclid_dist")
            scores.div_(fitted.arrays["radius"]).add_(1).reciprocal_()
        else:
            scores = self._feature_map(fitted)(queries) @ vectors.T
        same = fitted.used_labels == tests.targets.to(queries.device)[:, None]
        return scores.mul_(torch.where(same, 1, -1))

    def score_self(self, fitted: Fitted) -> Tensor:
        vectors = fitted.arrays["vectors"]
        if self.metric == "l2":
            return vectors.new_ones(len(vectors))
        return torch.einsum("nd,nd->n", vectors, vectors)

    def _needs_inputs(self) -> bool:
        return self.space == "input"

    def _layout(self, classifier: Classifier) -> Layout:
        d = "d" if self.space == "features" else "inputs"
        layout: dict[str, tuple[int | str, ...]] = {"vectors": ("N", d)}
        if self.metric == "l2":
            layout["radius"] = ()
        if METRICS[_READ[self.metric]].centre:
            layout["mean"] = (d,)
        if METRICS[_READ[self.metric]].shrinkage is not None:
            layout |= {"directions": (d, "r"), "gains": ("r",), "rest": ()}
        return layout

    def _doubles(self) -> tuple[str, ...]:
        return ("mean", "directions", "gains", "rest")

    def _feature_map(self, fitted: Fitted) -> FeatureMap:
        """Return the feature map, from the learned tensors."""
        learned = {
            name: fitted.arrays[name].cpu().numpy()
            for name in ("mean", "directions", "gains")
            if name in fitted.arrays
        }
        rest = float(fitted.arrays.get("rest", torch.ones(())))
        return FeatureMap(**learned, rest=rest, unit=METRICS[_READ[self.metric]].unit)


def _as_tensors(feature_map: FeatureMap) -> dict[str, Tensor]:
    """Return the parameters of a feature map as tensors, by the names of its fields."""
    named = {"mean": feature_map.mean, "directions": feature_map.directions, "gains": feature_map.gains}
    learned = {name: torch.from_numpy(array) for name, array in named.items() if array is not None}
    if feature_map.directions is not None:
        learned["rest"] = torch.tensor(feature_map.rest, dtype=torch.float64)
    return learned


def _flat(inputs: Any) -> Tensor:
    """Return a batch of inputs as rows (B, D), or raise if they are not one tensor of real numbers."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        got = f"dtype {inputs.dtype}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise InvalidInputError(
            "'space' must be \"features\" unless an input is one tensor of real numbers, such as an image. "
            f"Got inputs of {got}."
        )
    return inputs.flatten(1)
