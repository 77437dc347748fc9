"""The features of all training samples, of which an explainer keeps those of the support vectors only."""

from __future__ import annotations

from os import PathLike
from typing import Any

from whence.attribution.fitted import Fitted
from whence.core.arrays import Floats
from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, extract, taken
from whence.features.rows import unit_rows
from whence.surrogate.identity import check_labels, check_training
from whence.svm.inputs import check_features, squared_norms


def all_features(
    fitted: Fitted,
    features: Any = None,
    argument: str = "features",
    cache_dir: str | PathLike[str] | None = None,
) -> Floats:
    """Return features (N, d) of all training samples, checked to be those of the fit.

    Taken from ``features`` (N, d), an array or a FeatureBank, from the cache, or computed by the model from
    its training set. ``cache_dir`` is the fit's own where none is named. ``argument`` is what errors call
    them.
    """
    surrogate = fitted.require_surrogate()
    if features is None:
        features = _extracted(fitted, argument, cache_dir)
    if isinstance(features, FeatureBank):
        check_labels(surrogate, features.labels, argument)
        features = features.features
    X = check_features(as_float32(to_array(argument, features)))
    expected = fitted.n_train, surrogate.stored.shape[1]
    if X.shape != expected:
        raise InvalidInputError(
            f"'{argument}' must be those of the training set, one row per sample, {expected}. Got {X.shape}."
        )
    squared_norms(X)  # raises where a feature is not finite
    check_training(surrogate, X, argument=argument)
    return X


def training_features(
    fitted: Fitted, features: Any, argument: str = "features", *, as_read: bool = False
) -> Floats:
    """Return features (M, d) of the samples that took part in the fit, otherwise as ``all_features``.

    With ``as_read`` they are at unit length where the surrogate reads them so.
    """
    rows = taken(all_features(fitted, features, argument), fitted.used)
    return unit_rows(rows) if as_read and fitted.require_surrogate().stored.unit else rows


def _extracted(fitted: Fitted, argument: str, cache_dir: str | PathLike[str] | None) -> FeatureBank:
    """Compute the features again, or raise where there is nothing to compute them with."""
    bound, data = fitted.model, fitted.data
    if bound is None or data is None:
        raise InvalidInputError(
            f"'{argument}' must be given: all training samples are looked at, and the explainer has "
            "no model and training set to compute their features with. Pass the features it was fitted "
            "on, or load it with 'model' and 'data'."
        )
    bound.check_unchanged()
    reading = {"on_error": "skip" if len(fitted.skipped) else "raise", **fitted.reading}
    if cache_dir is not None:
        reading["cache_dir"] = cache_dir
    return extract(
        bound.extractor.model,
        data,
        layer=bound.extractor.layer,
        layers=bound.extractor.layers,
        batch_size=fitted.batch_size,
        show_progress=fitted.show_progress,
        **reading,
    )
