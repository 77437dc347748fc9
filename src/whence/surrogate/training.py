"""The features of all training samples, of which an explainer keeps those of the support vectors only."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from whence.attribution.frame import Reading
from whence.core.arrays import Floats
from whence.core.checks import to_array
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, extract, taken
from whence.features.unit import unit_rows
from whence.svm.inputs import check_features, squared_norms

if TYPE_CHECKING:
    from whence.attribution.pairs import PairAttributor


def all_features(
    explainer: PairAttributor,
    features: Any = None,
    argument: str = "features",
    cache_dir: str | PathLike[str] | None = None,
) -> Floats:
    """Features (N, d) of all training samples, checked to be those of the fit.

    Taken from ``features`` (N, d), an array or a FeatureBank, from the cache, or computed by the model from
    its training set. ``cache_dir`` is the fit's own where none is named. ``argument`` is what errors call
    them.
    """
    if features is None:
        features = _extracted(explainer, argument, cache_dir)
    if isinstance(features, FeatureBank):
        explainer.surrogate_.check_labels(features.labels, argument)
        features = features.features
    X = check_features(as_float32(to_array(argument, features)))
    expected = explainer.n_train_, explainer.surrogate_.stored.shape[1]
    if X.shape != expected:
        raise InvalidInputError(
            f"'{argument}' must be those of the training set, one row per sample, {expected}. Got {X.shape}."
        )
    squared_norms(X)  # raises where a feature is not finite
    explainer.surrogate_.check_training(X, argument=argument)
    return X


def training_features(explainer: PairAttributor, features: Any, argument: str = "features") -> Floats:
    """Features (M, d) of the samples that took part in the fit, in order; otherwise as ``all_features``."""
    return taken(all_features(explainer, features, argument), explainer.used_)


def fitted_features(explainer: PairAttributor, features: Any, argument: str = "features") -> Floats:
    """``training_features`` as the surrogate reads them: at unit length, where it was fitted so."""
    found = training_features(explainer, features, argument)
    return unit_rows(found) if explainer.surrogate_.stored.unit else found


def _extracted(
    explainer: PairAttributor, argument: str, cache_dir: str | PathLike[str] | None
) -> FeatureBank:
    """Compute the features again, or raise where the explainer has nothing to compute them with."""
    bound, data = explainer.model_, explainer.data_
    if bound is None or data is None:
        raise InvalidInputError(
            f"'{argument}' must be given: all training samples are looked at, and the explainer has "
            "no model and training set to compute their features with. Pass the features it was fitted "
            "on, or load it with 'model' and 'data'."
        )
    bound.check_unchanged()
    return extract(
        bound.extractor.model,
        data,
        layer=bound.extractor.layer,
        layers=bound.extractor.layers,
        batch_size=explainer.batch_size,
        show_progress=explainer.show_progress,
        **_reading(explainer, cache_dir),
    )


def _reading(explainer: PairAttributor, cache_dir: str | PathLike[str] | None) -> Reading:
    """Return the options that the fit's features were read with, as far as they are known."""
    usual: Reading = {"on_error": "skip" if len(explainer.skipped_) else "raise"}
    named: Reading = {} if cache_dir is None else {"cache_dir": cache_dir}
    return {**usual, **explainer.reading_, **named}
