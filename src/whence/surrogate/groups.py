"""What would change without a set of samples, or with other labels: to first order, and by solving again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.core.arrays import Doubles, Ints
from whence.core.display import Columns, cell, counted, displayed
from whence.errors import InvalidInputError
from whence.surrogate.faithfulness import new_logits
from whence.surrogate.outputs import Output, slopes, values
from whence.surrogate.softmax import extended
from whence.surrogate.solutions import changed_labels
from whence.surrogate.training import all_features

if TYPE_CHECKING:
    from whence.methods.effects import Effects

_PART = 0.2  # relative difference, above which first order is no longer what happens
_SHOWN = 10  # tests in a printed record


@displayed("output", "difference", "gap", rows="columns")
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
    first_order : (B,) its change, the sum of what each sample does by itself
    exact : (B,) its change, by solving the surrogate again
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

    def columns(self) -> Columns:
        """Return the list as columns of plain values, one row per test."""
        return {
            "test": list(range(len(self.targets))),
            "target": [self.names[target] for target in self.targets],
            "before": self.before.tolist(),
            "first_order": self.first_order.tolist(),
            "exact": self.exact.tolist(),
        }

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
        if self.parted:
            return f"First order and exact part, by {self.difference:.0%}. Go by the exact changes."
        return f"First order and exact agree, within {self.difference:.0%}."


class _Asked(NamedTuple):
    """A question about training samples, and the answer to first order.

    Attributes
    ----------
    features : (N, d) of all training samples
    labels : (N, …) with the changes
    gone, stays : samples that are left out, and that get another label
    turned : (stays, K) how the coefficients of the latter change at once
    change : (K, D) of the weights, to first order
    """

    features: Any
    labels: Any
    gone: Ints
    stays: Ints
    turned: Any
    change: Tensor


def _asked(
    explainer: Effects, remove: Sequence[int], relabel: Mapping[int, Any] | None, training: Any
) -> _Asked:
    before = explainer.surrogate_
    X = all_features(explainer, training, "training_features")
    labels = changed_labels(explainer.task_, before.labels, len(X), remove, relabel or {})
    known = explainer.task_.known(before.labels)
    moved = np.flatnonzero(known & (labels != before.labels).reshape(len(labels), -1).any(axis=1))
    if not len(moved):
        raise InvalidInputError(
            "'remove' or 'relabel' must name a training sample to leave out, or to give another label. "
            "Got none."
        )
    left = ~explainer.task_.known(labels[moved])
    gone, stays = moved[left], moved[~left]
    pull = -(before.lam[gone].T @ extended(X[gone], before.constant).astype(np.float64))
    turned = explainer.turned(labels[stays], before.labels[stays])
    pull += turned.T @ extended(X[stays], before.constant).astype(np.float64)
    change = explainer.response_(torch.as_tensor(pull, device=before.stored.like.device)[None])[0]
    return _Asked(X, labels, gone, stays, turned, change)


def _first_order(explainer: Effects, asked: _Asked, f: Tensor, slope: Tensor) -> Doubles:
    """Change of outputs with slopes (B, K) at the logits, for tests with features (B, d)."""
    test = extended(f.double().cpu().numpy(), explainer.surrogate_.constant)
    found = (slope * (torch.as_tensor(test, device=f.device) @ asked.change.T)).sum(1)
    return np.asarray(found.cpu().numpy(), np.float64)


def foretold(
    explainer: Effects,
    tests: tuple[Tensor, Tensor],
    remove: Sequence[int],
    relabel: Mapping[int, Any] | None,
    training: Any,
) -> Doubles:
    """Return the changes (B,) of ``group_effect`` to first order alone, without solving again."""
    f, classes = tests
    slope = slopes(explainer.output, explainer.surrogate_.logits(f), classes)
    return _first_order(explainer, _asked(explainer, remove, relabel, training), f, slope)


def group_effect(
    explainer: Effects,
    tests: tuple[Tensor, Tensor],
    remove: Sequence[int],
    relabel: Mapping[int, Any] | None,
    training: Any,
) -> GroupEffect:
    """Foretell and solve.

    Parameters
    ----------
    explainer : whose surrogate is solved again
    tests : features (B, d), and classes (B,)
    remove, relabel : training samples, and new labels of training samples
    training : features (N, d) of all training samples; None computes them again
    """
    before = explainer.surrogate_
    asked = _asked(explainer, remove, relabel, training)
    start = before.lam.tolil()
    start[asked.stays] += asked.turned
    again = explainer.solver(explainer.task_).again(
        asked.features, asked.labels, csr_array(start), before.solution.C, before.constant
    )
    f, classes = tests
    kind = explainer.output
    logits = before.logits(f)
    then = new_logits(again.weight, f) + torch.as_tensor(explainer.task_.base, device=f.device)
    now, after = (values(kind, found, classes) for found in (logits, then))
    return GroupEffect(
        removed=tuple(asked.gone.tolist()),
        relabelled=tuple(asked.stays.tolist()),
        output=kind,
        targets=classes.numpy(),
        names=explainer.task_.output_names,
        before=now.cpu().numpy(),
        first_order=_first_order(explainer, asked, f, slopes(kind, logits, classes)),
        exact=(after - now).cpu().numpy(),
        gap=again.gap,
    )
