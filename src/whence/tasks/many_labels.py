"""Several labels per sample, each on or off, independent of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from torch import Tensor

from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.errors import InvalidInputError
from whence.svm.likeness import LABELS, correlation
from whence.tasks.task import TASKS, LabelKind, Task, Verdict, label_array, refuse_sample

if TYPE_CHECKING:
    from whence.svm import Hinges


@TASKS.add
@dataclass(frozen=True)
class ManyLabels(Task):
    """Zeros and ones per sample, (N, K), and a logit per label, (B, K): a label is on where that is above 0.

    The surrogate is a binary machine per label, all solved together. A sample with the label supports it
    where its features are like the test's, one without it contradicts it. ``target`` is a label; None means
    the one with the largest logit.
    """

    name: ClassVar[str] = "many-labels"
    outputs: ClassVar[str] = "labels"
    output: ClassVar[str] = "label"
    measures: ClassVar[tuple[str, str]] = LABELS
    label_kind: ClassVar[LabelKind] = "label"

    @property
    def problem(self) -> type[Hinges]:
        """A binary machine per label."""
        from whence.svm import Hinges

        return Hinges

    @property
    def labels(self) -> str:
        """Zeros and ones."""
        return f"{self.n_outputs} zeros and ones"

    def with_names(self, model_names: Sequence[str] | None, data_names: Sequence[str] | None) -> Self:
        """Return the task with the model's names, or its own, or the data's."""
        names = model_names or self.names or data_names
        return replace(self, names=None if names is None else tuple(names))

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Ints:
        """Return zeros and ones as int64 (N, K)."""
        array = label_array(labels)
        if array.dtype.kind not in "biuf" or array.ndim != 2:
            raise InvalidInputError(
                "'data' must give a zero or a one per label, shape (N, K). Got dtype "
                f"{array.dtype} of shape {array.shape}."
            )
        refuse_sample(
            ((array != 0) & (array != 1)).any(axis=1),
            indices,
            lambda i: f"its labels must be zeros and ones; they are {array[i].tolist()}",
            'Fix them, or leave the sample out; for numbers pass task="regression".',
        )
        return array.astype(np.int64)

    def blank(self, n: int) -> Ints:
        """Return −1 for every label."""
        return np.full((n, self.n_outputs), -1, dtype=np.int64)

    def known(self, labels: Array) -> Mask:
        """Return where labels are at least 0."""
        return np.asarray((labels >= 0).all(axis=1))

    def label_warning(self, labels: Array) -> str | None:
        """Return which labels no sample has, or all samples have."""
        share = labels[self.known(labels)].mean(axis=0)
        constant = np.flatnonzero((share == 0) | (share == 1)).tolist()
        if not constant:
            return None
        names = ", ".join(self.output_names[c] for c in constant[:10]) + (" …" if len(constant) > 10 else "")
        return f"No training sample differs in the label {names}, so it cannot be learned"

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the labels that are on, (B, K) of zeros and ones."""
        return (outputs > 0).long()

    def default_target(self, outputs: Tensor) -> Tensor:
        """Return the label with the largest logit, (B,)."""
        return outputs.argmax(1)

    def label_text(self, label: Any) -> str:
        """Name the labels that are on."""
        return (
            ", ".join(name for name, on in zip(self.output_names, label, strict=True) if on > 0) or "no label"
        )

    def differs(self, label: Any, target: int) -> bool:
        """Return whether a sample is without the label that is explained."""
        return bool(label[target] < 1)

    def verdict(self, theirs: Doubles, ours: Doubles, target: int, truth: Any) -> Verdict:
        """Name the labels that are on, with the probability of the one that is explained."""
        from scipy.special import expit

        on, ours_on = (theirs > 0).astype(int), bool(ours[target] > 0)
        return Verdict(
            self.label_text(on),
            float(expit(theirs[target])),
            None if truth is None else self.label_text(truth),
            None if truth is None else bool((on == np.asarray(truth)).all()),
            f"{self.output_names[target]} {'on' if ours_on else 'off'}",
            ours_on == bool(on[target]),
        )

    def compare_outputs(self, ours: Doubles, theirs: Doubles) -> tuple[float, float]:
        """Return the share of labels that are on or off in both, and the correlation of their logits."""
        return float(((ours > 0) == (theirs > 0)).mean()), correlation(ours, theirs)
