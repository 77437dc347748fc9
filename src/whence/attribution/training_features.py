"""The features of all training samples, of which a surrogate keeps those of the support vectors only."""

from __future__ import annotations

from os import PathLike
from typing import Any

from whence.attribution.fitted import Fitted
from whence.core.arrays import Floats
from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, extract, taken
from whence.surrogate.identity import check_labels, check_training
from whence.svm.inputs import check_features, squared_norms


def all_features(
    fitted: Fitted,
    features: Any = None,
    argument: str = "features",
    cache_dir: str | PathLike[str] | None = None,
) -> Floats:
    """Return features (N, d) of all training samples, checked to be those of the fit.

    They come from ``features`` (N, d), an array or a FeatureBank; without these from the bank of the fit,
    and after ``load`` from the cache or from the model and its training set. ``cache_dir`` is the fit's own
    unless another one is named. ``argument`` is the name in error messages.
    """
    surrogate = fitted.require_surrogate()
    if features is None:
        features = _known(fitted, argument, cache_dir)
    elif isinstance(features, FeatureBank):
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

    With ``as_read`` they are as the surrogate reads them.
    """
    rows = taken(all_features(fitted, features, argument), fitted.used)
    return fitted.require_surrogate().metric.rows(rows) if as_read else rows


def _known(fitted: Fitted, argument: str, cache_dir: str | PathLike[str] | None) -> Any:
    """Return the features of the fit, or compute them again, or raise where neither is possible."""
    bound, data = fitted.model, fitted.data
    if bound is not None:
        bound.check_unchanged()
    if fitted.bank is not None:
        fitted.bank.verify()
        return fitted.bank.features
    if bound is None or data is None:
        raise InvalidInputError(
            f"'{argument}' must be given: all training samples are needed, and a loaded explainer has "
            "neither their features nor a model and training set to compute them. Pass the features it was "
            "fitted on, or load it with 'model' and 'data'."
        )
    reading = {"on_error": "skip" if len(fitted.skipped) else "raise", **fitted.reading}
    if cache_dir is not None:
        reading["cache_dir"] = cache_dir
    bank = extract(
        bound.extractor.model,
        data,
        layer=bound.extractor.layer,
        layers=bound.extractor.layers,
        batch_size=fitted.batch_size,
        show_progress=fitted.show_progress,
        **reading,
    )
    check_labels(fitted.require_surrogate(), bank.labels, argument)
    return bank.features
