"""What an audit needs of an explainer: features of its training set and of tests, labels and names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from whence.attributors import DualDA
from whence.attributors.dual.surrogate import Surrogate
from whence.core.arrays import Floats
from whence.core.checks import check_dense, to_array
from whence.errors import InvalidInputError
from whence.features import FeatureBank, as_float32, extract, taken
from whence.model.inputs import check_batch
from whence.svm.inputs import check_features


def surrogate_of(explainer: Any) -> Surrogate:
    """Give a fitted explainer's surrogate, or raise."""
    if not isinstance(explainer, DualDA):
        raise InvalidInputError(
            f"'explainer' must be a fitted DualDA, whose dual solution is audited. "
            f"Got {type(explainer).__name__}."
        )
    explainer.check_fitted()
    explainer.task_.require_classes("An explainer that is audited")
    return explainer.surrogate_


def training_features(explainer: DualDA, features: Any) -> Floats:
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
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0].tolist()
        raise InvalidInputError(
            f"'features' must be finite. Got {X[row, column]} at row {row}, column {column}."
        )
    explainer.surrogate_.check_training(X)
    return taken(X, explainer.labels_ >= 0)


def _extracted(explainer: DualDA) -> FeatureBank:
    """Compute the features again, or raise where the explainer has nothing to compute them with."""
    bound, data = explainer.model_, explainer.data_
    if bound is None or data is None:
        raise InvalidInputError(
            "'features' must be given: this audit looks at all training samples, and the explainer has "
            "no model and training set to compute their features with. Pass the features it was fitted "
            "on, or load it with 'model' and 'data'."
        )
    bound.check_unchanged()
    return extract(
        bound.extractor.model,
        data,
        layer=bound.extractor.layer,
        batch_size=explainer.batch_size,
        on_error="skip" if len(explainer.skipped_) else "raise",
        show_progress=explainer.show_progress,
    )


class Tests:
    """Features of test samples, a part at a time: of inputs ``x``, or of rows ``features`` (B, d).

    Parameters
    ----------
    explainer : fitted
    x : inputs as for ``DualDA.attribute``, or None
    features : (B, d), read in slices, or None
    target : None for the model's class, one class, or one class per test
    """

    def __init__(self, explainer: DualDA, x: Any, features: Any, target: Any) -> None:
        if (x is None) == (features is None):
            raise InvalidInputError("Either 'x' or 'features' must be given, and not both.")
        self.explainer, self.x, self.features = explainer, x, features
        if features is None:
            explainer.require_model()
            self.count = check_batch(x)
        else:
            if isinstance(features, Tensor):
                check_dense("features", features)
            given = isinstance(features, np.ndarray | Tensor) and not isinstance(features, np.ma.MaskedArray)
            self.features = features if given else to_array("features", features)
            self.count = len(self.features) if self.features.ndim else 0
            if not self.count:
                raise InvalidInputError(
                    f"'features' must have one row per test. Got shape {tuple(self.features.shape)}."
                )
        self.target = None if target is None else explainer.task_.check_target(target, self.count)

    def __len__(self) -> int:
        """Give the number of parts."""
        return -(-self.count // self.explainer.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Give features (b, d) and classes (b,), ``batch_size`` tests at a time."""
        start = 0
        for f, predicted in self._parts():
            stop = start + len(f)
            yield f, predicted.cpu() if self.target is None else self.target[start:stop]
            start = stop

    def _parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Give features (b, d) and the model's classes (b,)."""
        surrogate, size = self.explainer.surrogate_, self.explainer.batch_size
        if self.features is not None:
            for start in range(0, self.count, size):
                f = self.explainer.check_features(self.features[start : start + size])
                yield f, surrogate.classes(f)
        else:
            for part in self.explainer.require_model().reads(self.x, size):
                yield self.explainer.check_features(part.features, "x"), part.logits.argmax(1)
