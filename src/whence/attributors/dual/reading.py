"""Features of all training samples of a fitted surrogate, given or computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.core.arrays import Floats
from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, extract, taken
from whence.svm.inputs import check_features, squared_norms

if TYPE_CHECKING:
    from whence.attributors.dual.attributor import SurrogateAttributor


def training_features(explainer: SurrogateAttributor, features: Any) -> Floats:
    """Features (M, d) of the samples that took part in the fit, in order.

    Taken from ``features`` (N, d), an array or a FeatureBank, or computed by the model from its training set.
    """
    if features is None:
        features = _extracted(explainer)
    if isinstance(features, FeatureBank):
        explainer.surrogate_.check_labels(features.labels, "features")
        features = features.features
    X = check_features(as_float32(to_array("features", features)))
    expected = explainer.n_train_, explainer.vectors_.shape[1]
    if X.shape != expected:
        raise InvalidInputError(
            f"'features' must be those of the training set, one row per sample, {expected}. Got {X.shape}."
        )
    squared_norms(X)  # raises where a feature is not finite
    explainer.surrogate_.check_training(X)
    return taken(X, explainer.used_)


def _extracted(explainer: SurrogateAttributor) -> FeatureBank:
    """Compute the features again, or raise where the explainer has nothing to compute them with."""
    bound, data = explainer.model_, explainer.data_
    if bound is None or data is None:
        raise InvalidInputError(
            "'features' must be given: all training samples are looked at, and the explainer has no model "
            "and training set to compute their features with. Pass the features it was fitted on, or load "
            "it with 'model' and 'data'."
        )
    bound.check_unchanged()
    return extract(
        bound.extractor.model,
        data,
        layer=bound.extractor.layer,
        layers=bound.extractor.layers,
        batch_size=explainer.batch_size,
        on_error="skip" if len(explainer.skipped_) else "raise",
        show_progress=explainer.show_progress,
    )
