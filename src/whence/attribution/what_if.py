"""What-if questions: what the surrogate predicts with other training samples, other labels or another C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.core.arrays import Array, Doubles, Floats, Ints, Mask
from whence.core.display import Columns, counted, decimals, number, table, text_table
from whence.core.files import to_pandas
from whence.features import taken

_ROWS = 4096  # rows whose outputs are computed at a time: with a vocabulary as classes they are wide
_NAMED = 3  # predictions that the first sentence names
_LISTED = 8  # training samples that it names


class _Compared(NamedTuple):
    """Both surrogates' predictions (B, …), and one output (B,) of each row before and after the change."""

    labels: tuple[Array, Array]
    output: Ints
    values: tuple[Doubles, Doubles]


@dataclass(frozen=True, eq=False)
class WhatIf:
    """What changes with other training samples, other labels or another C. ``print`` it.

    Predictions are those of the surrogate, which is re-solved exactly; the model is not trained again.

    Attributes
    ----------
    explainer : the explainer with the change, of the same class
    question : the change in words
    places : (B,) the numbers of the tests, or of the training samples where no tests were given
    of_training : whether the training samples that are left were compared
    """

    explainer: Any
    question: str
    places: Ints
    of_training: bool
    _before: Fitted
    _features: Tensor | Floats

    @property
    def changed(self) -> Mask:
        """Whether the prediction for each test changes, (B,); of numbers, where it is another number."""
        before, after = self._compared.labels
        different: Mask = (before != after).reshape(len(before), -1).any(axis=1)
        return different

    @property
    def change(self) -> Doubles:
        """How much an output of each test changes, (B,).

        The output is the logit of the class that was predicted before, of many labels or numbers the one that
        changes most.
        """
        before, after = self._compared.values
        return after - before

    @cached_property
    def _compared(self) -> _Compared:
        """Compare both surrogates, some rows at a time."""
        task, parts = self._before.task, []
        surrogates = [fitted.require_surrogate() for fitted in (self._before, self.explainer.fitted_)]
        for start in range(0, len(self._features), _ROWS):
            rows = self._features[start : start + _ROWS]
            if not isinstance(rows, Tensor):  # a copy: torch warns of memory maps, which are read-only
                rows = torch.from_numpy(np.array(rows)).to(self._before.like.device)
            before, after = (surrogate.logits(rows).cpu() for surrogate in surrogates)
            labels = [task.predict(outputs) for outputs in (before, after)]
            output = labels[0] if task.has_classes else (after - before).abs().argmax(1)
            values = [outputs.gather(1, output[:, None])[:, 0] for outputs in (before, after)]
            parts.append([part.numpy() for part in (*labels, output, *values)])
        was, stays, output, old, new = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _Compared((was, stays), output, (old, new))

    @cached_property
    def _order(self) -> Ints:
        """The rows whose prediction changes first, and of these and the rest those that change most."""
        return np.lexsort((-np.abs(self.change), ~self.changed))

    def columns(self) -> Columns:
        """Return the list as columns of plain values: one row per test, those that change most first."""
        compared, task, order = self._compared, self._before.task, self._order
        labels = {
            name: [task.label_text(label) for label in each[order]]
            for name, each in zip(("before", "after"), compared.labels, strict=True)
        }
        names = (
            {} if task.n_outputs == 1 else {"output": [task.output_names[c] for c in compared.output[order]]}
        )
        values = (each[order].tolist() for each in (*compared.values, self.change))
        kind = "" if self._numeric else "logit_"
        return {
            "training_sample" if self.of_training else "test": self.places[order].tolist(),
            **({} if self._numeric else labels),
            **names,
            **dict(zip((f"{kind}before", f"{kind}after", "change"), values, strict=True)),
        }

    def to_pandas(self) -> Any:
        """Return one row per test as a DataFrame of pandas, which must be installed."""
        return to_pandas(self.columns())

    @property
    def summary(self) -> str:
        """What changes, in a sentence or two."""
        n, changed, numeric = len(self.places), int(self.changed.sum()), self._numeric
        what = "training sample" if self.of_training else "test"
        if not changed:
            first, task = self._order[0], self._before.task
            return (
                f"{self.question}, none of {counted(n, 'prediction')} changes. The largest change of a "
                f"logit is {number(float(self.change[first]))}, of "
                f"{task.output_names[self._compared.output[first]]} for {what} {self.places[first]}."
            )
        rows = self._order[: min(changed, _NAMED)]
        before, after = self._compared.labels
        label = self._before.task.label_text
        named = [f"{what} {self.places[i]} from {label(before[i])} to {label(after[i])}" for i in rows]
        more = ", …" if changed > len(named) else ""
        if numeric:
            mean = float(np.abs(self.change).mean())
            return (
                f"{self.question}, predictions for {counted(n, what)} change by {number(mean)} on average, "
                f"most of all {named[0]}."
            )
        share = f" ({changed / n:.1%})" if n > 20 else ""
        verb = "changes" if changed == 1 else "change"
        return (
            f"{self.question}, {changed:,} of {counted(n, 'prediction')}{share} {verb}: "
            f"{', '.join(named)}{more}."
        )

    @property
    def _numeric(self) -> bool:
        return self._before.task.label_kind == "number"

    def __str__(self) -> str:
        """Write what changes in words, and the tests that change most as a table."""
        columns = dict(self.columns())
        numbers = [name for name, values in columns.items() if isinstance(values[0], float)]
        written = iter(decimals([value for name in numbers for value in columns[name]]))
        columns |= {name: list(islice(written, len(columns[name]))) for name in numbers}
        return f"{self.summary}\n{_NOTE}\n\n{text_table(columns, 10)}"

    def __repr__(self) -> str:
        return f"<WhatIf: {self.summary}>"

    def _repr_html_(self) -> str:
        return table("What if", {"answer": self.summary, "note": _NOTE}, self.columns())


_NOTE = "Predictions are the surrogate's, re-solved exactly; the model is not trained again."


def ask(
    before: Fitted,
    other: Any,
    features: Tensor | Floats | None,
    training: Floats,
    remove: Sequence[int],
    relabel: Mapping[int, Any],
) -> WhatIf:
    """Compare an explainer with one whose training set was changed, for tests or the training samples left.

    Parameters
    ----------
    before : what the explainer learned
    other : the explainer with the change
    features : (B, d) of tests; None compares the training samples that are left
    training : (train, d) features of all training samples
    remove, relabel : the change
    """
    of_training = features is None
    if features is not None:
        places = np.arange(len(features))
    else:
        places = np.flatnonzero(other.used_)
        features = taken(training, other.used_)
    return WhatIf(
        explainer=other,
        question=_question(before, other, remove, relabel),
        places=places,
        of_training=of_training,
        _before=before,
        _features=features,
    )


def _question(before: Fitted, other: Any, remove: Sequence[int], relabel: Mapping[int, Any]) -> str:
    """Say in words what is changed; the first letter is a capital."""
    parts = []
    if removed := sorted(set(map(int, remove))):
        names = " and ".join(filter(None, [", ".join(map(str, removed[:-1])), str(removed[-1])]))
        listed = f"training {'sample' if len(removed) == 1 else 'samples'} {names}"
        parts.append(f"without {listed if len(removed) <= _LISTED else f'{len(removed):,} training samples'}")
    if relabel:
        label = before.task.label_text
        each = [
            f"{i} labelled {label(other.labels_[i])} instead of {label(before.labels[i])}" for i in relabel
        ]
        several = f"other labels of {len(relabel):,} training samples"
        parts.append(f"with training sample {each[0]}" if len(each) == 1 else f"with {several}")
    if other.C_ != before.require_surrogate().C:
        parts.append(f"with C = {other.C_:.3g} instead of {before.require_surrogate().C:.3g}")
    words = " and ".join(parts) or "with nothing changed"
    return words[0].upper() + words[1:]
