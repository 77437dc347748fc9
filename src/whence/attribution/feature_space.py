"""Explanations of features without a model: training samples and relevance are shown on the features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.data import Prepare, TrainingSet
from whence.data.reading import Workers
from whence.data.sources import Columns
from whence.errors import InvalidInputError, UnsupportedError
from whence.model.passes import Pass

METHOD = "no propagation, on features alone"
"""What explanations say of how relevance goes to the inputs."""


@dataclass(frozen=True)
class OnFeatures:
    """Relevance that stays at the features (B, d)."""

    features: Tensor

    def maps(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return coefficients (B, d) or (m, B, d) times the features."""
        return {"input": coefficients * self.features}


def feature_pass(fitted: Fitted, features: Any) -> Pass:
    """Return features (B, d) as a pass, with the outputs of the model's head, or of the surrogate."""
    rows = fitted.check_features(features)
    return Pass(rows, rows, fitted.require_surrogate().model_logits(rows), OnFeatures(rows))


def in_feature_space(fitted: Fitted) -> Fitted:
    """Return the same with the training features as training set and without a model, or raise."""
    if fitted.members:
        raise UnsupportedError(
            f"The members of {fitted.method} have features of their own. Pass inputs, or ask one of members_."
        )
    fitted.require_surrogate()
    bank = fitted.bank
    if bank is None:
        raise InvalidInputError(
            "'features' can be explained where the training features are known, and a loaded explainer does "
            "not have them. Pass inputs 'x' with its model and data, or fit it again."
        )
    data = TrainingSet(
        Columns(bank.features, fitted.labels),
        fitted.task,
        Prepare(feature_names=bank.feature_names),
        fitted.batch_size,
        Workers(),
        labels=fitted.labels,
    )
    return replace(fitted, model=None, data=data)
