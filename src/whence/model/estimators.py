"""Estimators of scikit-learn that end in a linear model, as a linear layer behind what comes before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.arrays import Array, Doubles
from whence.core.checks import shown
from whence.core.naming import optional_import
from whence.data.tables import is_table, labelled_table
from whence.errors import DataWarning, InvalidInputError, ModelError, warn
from whence.model.modules import Held

_CHECKED = 8  # samples on which the linear layer is compared with the estimator
_KNOWN = "LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, LinearRegression or Ridge"


def is_estimator(model: Any) -> bool:
    """Whether a model is an estimator of scikit-learn, or has its methods."""
    return not isinstance(model, nn.Module) and all(
        hasattr(model, m) for m in ("get_params", "fit", "predict")
    )


@dataclass(frozen=True)
class Transform:
    """Makes the features that enter the last step: a ``preprocess`` of batches.

    Attributes
    ----------
    steps : the fitted steps before the last, as one; None where there are none
    columns : names of the columns that the estimator was fitted on, None where they had none
    """

    steps: Any
    columns: tuple[str, ...] | None

    def __call__(self, batch: Any) -> Tensor:
        """Return features (B, d), float64."""
        rows = self._rows(batch)
        features = rows if self.steps is None else self.steps.transform(rows)
        if hasattr(features, "toarray"):
            features = features.toarray()
        return torch.from_numpy(np.array(features, np.float64))

    def _rows(self, batch: Any) -> Any:
        """Return a batch as the estimator was fitted on it: a table, an array or a list of texts."""
        if isinstance(batch, Tensor):
            batch = batch.numpy(force=True)
        if self.columns is None or is_table(batch):
            return np.column_stack(list(batch.values())) if isinstance(batch, Mapping) else batch
        with optional_import("The estimator was fitted on a table of pandas. Run: pip install pandas"):
            import pandas as pd
        parts = {name: _plain(part) for name, part in batch.items()} if isinstance(batch, Mapping) else batch
        return pd.DataFrame(parts, columns=list(self.columns))


def of_estimator(estimator: Any, data: Any) -> Held:
    """Return a fitted estimator as a linear layer, with what makes its features and its labels as numbers.

    Logits are ``coef_`` · features + ``intercept_``, checked to be the estimator's ``decision_function``, or
    for a regression its ``predict``, on the first samples.
    """
    best = getattr(estimator, "best_estimator_", estimator)  # of a search
    steps = getattr(best, "steps", None)
    last = best if steps is None else steps[-1][1]
    before = best[:-1] if steps is not None and len(steps) > 1 else None
    weight, bias = _head(last)
    classes = getattr(last, "classes_", None)
    names = getattr(best, "feature_names_in_", None)
    transform = Transform(before, None if names is None else tuple(map(str, names)))
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    data = labelled_table(data) if is_table(data) else data
    if isinstance(data, tuple) and len(data) == 2:
        _check_output(best, transform, weight, bias, data[0], classes)
        data = data[0], data[1] if classes is None else _places(np.asarray(classes), data[1])
    numbered = classes is None or np.array_equal(classes, np.arange(len(classes)))
    return Held(
        data,
        transform,
        model=nn.Sequential(OrderedDict(head=layer)).eval().requires_grad_(False),
        task="regression" if classes is None else None,
        names=None if numbered or classes is None else tuple(map(str, classes)),
        feature_names=_names_out(before, transform.columns, weight.shape[1]),
    )


def _head(last: Any) -> tuple[Doubles, Doubles]:
    """Return weight (K, d) and bias (K,) of a fitted linear model, or raise."""
    coef = getattr(last, "coef_", None)
    if coef is None:
        raise ModelError(
            f"'model' must be fitted and end in a linear model with 'coef_', such as {_KNOWN}. Got "
            f"{type(last).__name__}. Fit it first; of other models pass features: "
            "fit(features=whence.features.FeatureBank.of(features, y))."
        )
    weight = np.atleast_2d(np.asarray(coef.toarray() if hasattr(coef, "toarray") else coef, np.float64))
    bias = np.broadcast_to(np.asarray(getattr(last, "intercept_", 0.0), np.float64), len(weight)).copy()
    return weight, bias


def _check_output(
    estimator: Any, transform: Transform, weight: Doubles, bias: Doubles, X: Any, classes: Any
) -> None:
    """Raise ModelError unless the estimator's output is that of the linear layer."""
    rows = X.iloc[:_CHECKED] if hasattr(X, "iloc") else X[:_CHECKED]
    if isinstance(rows, Tensor):
        rows = rows.numpy(force=True)
    made = transform(rows).numpy() @ weight.T + bias
    output = estimator.predict(rows) if classes is None else estimator.decision_function(rows)
    expected = np.asarray(output, np.float64).reshape(len(made), -1)
    if expected.shape != made.shape or not np.allclose(made, expected, rtol=1e-6, atol=1e-8):
        raise ModelError(
            f"'model' must be linear in the features of its last step: coef_ · features + intercept_. "
            f"{type(estimator).__name__} is not. Use {_KNOWN} as the last step."
        )
    if classes is not None and not _gives_probabilities(estimator, rows, made):
        warn(
            f"{type(estimator).__name__} has no probabilities that are the softmax of its decision function. "
            "Those that are shown are this softmax, which is not calibrated.",
            DataWarning,
        )


def _gives_probabilities(estimator: Any, rows: Any, logits: Doubles) -> bool:
    """Whether an estimator's probabilities are the softmax, or of one logit the sigmoid, of its logits."""
    from scipy.special import softmax  # scipy takes a while to import

    if not hasattr(estimator, "predict_proba"):
        return False
    known = np.hstack([np.zeros_like(logits), logits]) if logits.shape[1] == 1 else logits
    return np.allclose(softmax(known, axis=1), estimator.predict_proba(rows), atol=1e-6)


def _places(classes: Array, labels: Any) -> Array:
    """Return the places of labels among an estimator's classes, or raise where one is not a class."""
    values = np.asarray(labels)
    places = np.searchsorted(classes, values).clip(max=len(classes) - 1)
    other = np.flatnonzero(classes[places] != values)
    if len(other):
        raise InvalidInputError(
            f"'y' must be classes that the model was fitted on, {', '.join(map(str, classes[:8]))}. Got "
            f"{shown(values[other[0]])} for sample {other[0]}."
        )
    return places


def _names_out(before: Any, columns: tuple[str, ...] | None, width: int) -> tuple[str, ...] | None:
    """Return the names of the features that enter the last step, where they have names."""
    names = columns
    if before is not None:
        try:
            names = tuple(map(str, before.get_feature_names_out()))
        except Exception:  # steps of the user's own may not have it
            names = None
    return names if names is not None and len(names) == width else None


def _plain(part: Any) -> Any:
    return part.numpy(force=True) if isinstance(part, Tensor) else part
