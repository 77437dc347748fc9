"""Many labels: each is on or off for a sample, whatever the others are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit
from torch import Tensor

from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.core.checks import to_array
from whence.errors import InvalidInputError, SampleError
from whence.svm import Hinges
from whence.svm.likeness import correlation
from whence.tasks.task import TASKS, Task
from whence.tasks.verdict import Speech, Verdict


@TASKS.add
@dataclass(frozen=True)
class ManyLabels(Task):
    """Zeros and ones per sample, (N, K), and a logit per label, (B, K): a label is on where that is above 0.

    The surrogate is a binary machine per label, all solved together. A sample with the label speaks for it
    where its features are like the test's, one without it against. ``target`` is a label; None means the
    label that is on most surely, the one with the largest logit.
    """

    name: ClassVar[str] = "many-labels"
    outputs: ClassVar[str] = "labels"
    output: ClassVar[str] = "label"
    measures: ClassVar[tuple[str, str]] = Hinges.measures
    speech: ClassVar[Speech] = "label"
    problem = Hinges

    @property
    def labels(self) -> str:
        """Zeros and ones."""
        return f"{self.n_outputs} zeros and ones"

    def named(self, model_names: Sequence[str] | None, data_names: Sequence[str] | None) -> Self:
        """Take the model's names, or those it has, else the data's."""
        names = model_names or self.names or data_names
        return replace(self, names=None if names is None else tuple(names))

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Ints:
        """Return zeros and ones as int64 (N, K)."""
        if isinstance(labels, list):
            labels = [one.tolist() if isinstance(one, Tensor | np.ndarray) else one for one in labels]
        found = to_array("data", labels)
        if found.dtype.kind not in "biuf" or found.ndim != 2:
            raise InvalidInputError(
                "'data' must give a zero or a one per label, shape (N, K). Got dtype "
                f"{found.dtype} of shape {found.shape}."
            )
        wrong = ((found != 0) & (found != 1)).any(axis=1)
        if wrong.any():
            i = int(wrong.argmax())
            raise SampleError(
                i if indices is None else int(indices[i]),
                f"its labels must be zeros and ones; they are {found[i].tolist()}",
                'Mend them, or leave the sample out; of numbers the task is "regression".',
            )
        return found.astype(np.int64)

    def blank(self, n: int) -> Ints:
        """Return −1 for every label."""
        return np.full((n, self.n_outputs), -1, dtype=np.int64)

    def known(self, labels: Array) -> Mask:
        """Return where labels are at least 0."""
        return np.asarray((labels >= 0).all(axis=1))

    def doubts(self, labels: Array) -> str | None:
        """Tell of labels that no sample has, or all."""
        share = labels[self.known(labels)].mean(axis=0)
        constant = np.flatnonzero((share == 0) | (share == 1)).tolist()
        if not constant:
            return None
        shown = ", ".join(self.called[c] for c in constant[:10]) + (" …" if len(constant) > 10 else "")
        return f"No training sample differs in the label {shown}, so nothing tells what it is"

    def decided(self, outputs: Tensor) -> Tensor:
        """Return the labels that are on, (B, K) of zeros and ones."""
        return (outputs > 0).long()

    def predicted(self, outputs: Tensor) -> Tensor:
        """Return the label with the largest logit, (B,)."""
        return outputs.argmax(1)

    def told(self, label: Any) -> str:
        """Name the labels that are on."""
        return ", ".join(name for name, on in zip(self.called, label, strict=True) if on > 0) or "no label"

    def differs(self, label: Any, target: int) -> bool:
        """Return whether a sample is without the label that is explained."""
        return bool(label[target] < 1)

    def verdict(self, theirs: Doubles, ours: Doubles, target: int, truth: Any) -> Verdict:
        """Name the labels that are on, with the probability of the one that is explained."""
        on, here = (theirs > 0).astype(int), bool(ours[target] > 0)
        return Verdict(
            self.told(on),
            float(expit(theirs[target])),
            None if truth is None else self.told(truth),
            None if truth is None else bool((on == np.asarray(truth)).all()),
            f"{self.called[target]} {'on' if here else 'off'}",
            here == bool(on[target]),
        )

    def compared(self, ours: Doubles, theirs: Doubles) -> tuple[float, float]:
        """The share of labels that are on or off in both, and the correlation of their logits."""
        return float(((ours > 0) == (theirs > 0)).mean()), correlation(ours, theirs)
