"""What each training sample is worth on a validation set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.audit.access import tests_of
from whence.audit.table import Table, check_ids, chosen_ids
from whence.core.arrays import Doubles, Ints
from whence.core.checks import to_array
from whence.core.display import Columns, displayed
from whence.errors import InvalidInputError
from whence.methods import Effects
from whence.surrogate.effects import Output


@displayed("indices", "output", "n_tests", rows="columns")
@dataclass(frozen=True, eq=False)
class Values(Table):
    """Training samples by what they are worth, the most valuable first.

    Attributes
    ----------
    indices : (n,) their places in the training set
    values : (n,) of each, descending: what its presence adds to the mean output of the true classes.
        **Negative where the model would do better without it**
    labels : (n,) of each
    output : "logit", "margin" or "log_prob"
    n_tests : size of the validation set
    ids : the user's own names, in the order of ``indices``; None where none were given
    """

    indices: Ints
    values: Doubles
    labels: Ints
    output: Output
    n_tests: int
    ids: tuple[Any, ...] | None = None

    def columns(self) -> Columns:
        """Return the list as columns of plain values."""
        found = {"label": self.labels.tolist(), "value": self.values.tolist()}
        return {"index": self.indices.tolist(), **self._id_column(), **found}


def values(
    explainer: Effects,
    x: Any = None,
    y: Any = None,
    *,
    features: Any = None,
    ids: Sequence[Any] | None = None,
) -> Values:
    """Value every training sample by a validation set.

    The value of a sample is the mean of its effects on the explainer's ``output`` for the true class, over
    the validation set. No (test, train) matrix is made: the outputs' derivatives by W are summed over the
    validation set first, so that any number of tests costs as much as one.

    Parameters
    ----------
    explainer
        A fitted Effects; ``Effects(output="log_prob")`` values samples by the mean log-probability of the
        true class.
    x
        Inputs of the validation set as for ``explainer.attribute``, or None with ``features``. The model must
        not have been trained on them.
    y
        Its true classes, one per sample.
    features
        Features (B, d) of the validation set.
    ids
        The user's own name of every training sample, for the export.

    Examples
    --------
    >>> import numpy as np, whence
    >>> from whence.audit import values
    >>> f, y = np.repeat(np.eye(3), 4, axis=0), np.repeat(np.arange(3), 4)
    >>> y[0] = 1  # a wrong label
    >>> bank = whence.features.FeatureBank.of(f, y)
    >>> explainer = whence.Effects(show_progress=False).fit(features=bank)
    >>> int(values(explainer, features=np.eye(3), y=np.arange(3)).indices[-1])
    0
    """
    if not isinstance(explainer, Effects):
        raise InvalidInputError(
            f"'explainer' must be a fitted Effects, which says what samples change. "
            f"Got {type(explainer).__name__}."
        )
    explainer.check_fitted()
    check_ids(ids, explainer.n_train_)
    if y is None or to_array("y", y).ndim != 1:
        raise InvalidInputError("'y' must be the true classes of the validation set, one per sample.")
    n, parts = tests_of(explainer, x, features, y, "y")
    usable = np.flatnonzero(explainer.used_)
    found = explainer.total(parts)[usable] / n
    order = np.argsort(-found, kind="stable")
    chosen = usable[order]
    return Values(
        indices=chosen,
        values=found[order],
        labels=explainer.labels_[chosen],
        output=explainer.output,
        n_tests=n,
        ids=chosen_ids(ids, chosen),
    )
