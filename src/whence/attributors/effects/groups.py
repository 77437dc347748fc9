"""What would change without a set of samples, or with other labels: to first order, and by solving again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attributors.dual.attributor import SurrogateAttributor
from whence.attributors.dual.solutions import SurrogateSolution, SurrogateSolver, changed_labels
from whence.attributors.dual.training import all_features
from whence.attributors.effects.halves import extended, weight_of
from whence.attributors.effects.outputs import Output, slopes, values
from whence.core.arrays import Array, Doubles, Floats, Ints, Mask
from whence.core.words import cell, counted
from whence.errors import InvalidInputError
from whence.svm.linearised import Linearised, activity

_PART = 0.2  # relative difference, above which first order is no longer what happens
_SHOWN = 10  # tests in a printed record


@dataclass(frozen=True, eq=False)
class GroupEffect:
    """What becomes of the surrogate's output for each test, without some samples or with other labels.

    Changes are those that the removal causes: **negative where the samples, as they are, raise the output of
    the target class**, which is the opposite of the sign of scores, what a sample's presence adds.

    Attributes
    ----------
    removed, relabelled : training samples that are left out, and that get another label
    output : of the target class, "logit", "margin" or "log_prob"
    targets : (B,) the class of each test
    names : of all classes
    before : (B,) the output as it is
    first_order : (B,) its change, foretold from the optimality conditions with the active set held
    exact : (B,) its change, by solving the surrogate again
    changed : how many of the other samples changed their active set in this: no support vector, on the
        margin or beyond it, and against which rivals
    n_others : of how many
    gap : relative duality gap of the surrogate that was solved again
    """

    removed: tuple[int, ...]
    relabelled: tuple[int, ...]
    output: Output
    targets: Ints
    names: tuple[str, ...]
    before: Doubles
    first_order: Doubles
    exact: Doubles
    changed: int
    n_others: int
    gap: float

    @property
    def difference(self) -> float:
        """‖first order − exact‖/‖exact‖ over the tests; 0 where neither changes anything."""
        apart, size = np.linalg.norm(self.first_order - self.exact), np.linalg.norm(self.exact)
        return float(apart / size) if size > 0 else float(np.inf if apart > 0 else 0.0)

    @property
    def parted(self) -> bool:
        """Whether the two differ by more than a fifth."""
        return self.difference > _PART

    def __str__(self) -> str:
        """Write a table in Markdown, and say whether first order and exact part."""
        lines = [
            f"{self._what()}, the {self.output.replace('log_prob', 'log-probability')} of the target:",
            "",
            "| test | target | before | first order | exact |",
            "|---|---|---|---|---|",
        ]
        columns = self.targets.tolist(), self.before, self.first_order, self.exact
        for i, (target, before, first, exact) in enumerate(list(zip(*columns, strict=True))[:_SHOWN]):
            name = cell(self.names[target])
            lines.append(f"| {i} | {name} | {before:.3g} | {first:+.3g} | {exact:+.3g} |")
        if len(self.targets) > _SHOWN:
            lines.append(f"| … {len(self.targets) - _SHOWN:,} more | | | | |")
        return "\n".join([*lines, "", self._verdict()])

    def _what(self) -> str:
        removed, relabelled = (counted(len(some), "sample") for some in (self.removed, self.relabelled))
        if not self.relabelled:
            return f"Without {removed}"
        other = f"{relabelled} under another label"
        return f"With {other}" if not self.removed else f"Without {removed} and with {other}"

    def _verdict(self) -> str:
        moved = f"{self.changed:,} of {counted(self.n_others, 'other sample')} changed their active set"
        if self.parted:
            return f"First order and exact part, by {self.difference:.0%}: {moved}. Go by the exact changes."
        return f"First order and exact agree, within {self.difference:.0%}: {moved}."


def group_effect(
    explainer: SurrogateAttributor,
    tests: tuple[Tensor, Tensor],
    remove: Sequence[int],
    relabel: Mapping[int, Any] | None,
    training: Any,
    output: tuple[Output, float],
) -> GroupEffect:
    """Foretell and solve.

    Parameters
    ----------
    explainer : whose surrogate is solved again
    tests : features (B, d), and classes (B,)
    remove, relabel : training samples, and new labels of training samples
    training : features (N, d) of all training samples; None computes them again
    output : of the target class, and its sharpness
    """
    before = explainer.surrogate_
    X = all_features(explainer, training, "training_features")
    labels = changed_labels(explainer.task_, before.labels, len(X), remove, relabel or {})
    if (labels == before.labels).all():
        raise InvalidInputError(
            "'remove' or 'relabel' must name a training sample to leave out, or to give another label. "
            "Got none."
        )
    solver = SurrogateSolver(explainer.task_, explainer)
    again = solver.again(X, labels, before.lam, before.solution.C, before.constant)
    return compared(explainer, X, labels, again, tests, output)


def compared(
    explainer: SurrogateAttributor,
    X: Floats,
    labels: Array,
    again: SurrogateSolution,
    tests: tuple[Tensor, Tensor],
    output: tuple[Output, float],
) -> GroupEffect:
    """Foretell what a surrogate that was solved again says, and compare.

    Parameters
    ----------
    explainer : whose surrogate it was solved again from
    X, labels : features (N, d), and the labels (N,) it was solved with, those of removed samples unknown
    again : the solution with them
    tests, output : as for ``group_effect``
    """
    before = explainer.surrogate_
    moved = np.flatnonzero(labels != before.labels)
    C, constant = before.solution.C, before.constant
    F = extended(X, constant)
    W, new = (weight_of(lam, F) for lam in (before.lam, again.lam))
    left = ~explainer.task_.known(labels[moved])
    everyone = explainer.task_.known(before.labels)
    linear = Linearised.of(F, before.labels, before.lam, C, everyone, entering=False)
    change = linear.change(F, W, C, moved, moved[~left], labels[moved[~left]])
    f, classes = tests
    f = torch.as_tensor(extended(f.cpu().double().numpy(), constant))
    logits, then = (f @ torch.as_tensor(weight).T for weight in (W, new))
    kind, sharpness = output
    slope = slopes(kind, logits, classes, sharpness)
    at, after = (values(kind, found, classes, sharpness) for found in (logits, then))
    others = everyone.copy()
    others[moved] = False
    return GroupEffect(
        removed=tuple(moved[left].tolist()),
        relabelled=tuple(moved[~left].tolist()),
        output=kind,
        targets=classes.numpy(),
        names=explainer.task_.called,
        before=at.numpy(),
        first_order=(slope * (f @ torch.as_tensor(change).T)).sum(1).numpy(),
        exact=(after - at).numpy(),
        changed=_changed(before.lam, again.lam, labels, C, others),
        n_others=int(others.sum()),
        gap=again.gap,
    )


def _changed(before: csr_array, after: csr_array, labels: Array, C: float, others: Mask) -> int:
    """Count the samples among some whose active set differs between two solutions."""
    first, then = (activity(lam[others], labels[others], C) for lam in (before, after))
    return len(np.unique((first - then).nonzero()[0]))
