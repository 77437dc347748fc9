"""What changes without a group of samples, or with other labels: first order and re-solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.conjugate import conjugate_gradients
from whence.core.display import Columns, cell, counted, displayed
from whence.errors import InvalidInputError
from whence.surrogate.agreement import new_logits
from whence.surrogate.changes import changed_labels
from whence.surrogate.effects import EffectScorer, Output, values
from whence.surrogate.smooth import extended
from whence.surrogate.solving import SurrogateSolver

_DIFFERENT = 0.2  # relative difference above which first-order and exact results disagree
_TOL, _STEPS = 1e-6, 200  # relative residual, and steps, of the system of removed samples
_SHOWN = 10  # tests in a printed record


@displayed("output", "difference", "gap", rows="columns")
@dataclass(frozen=True, eq=False)
class GroupEffect:
    """The change of the surrogate's output for each test, without some samples or with other labels.

    Changes are those that the removal causes: **negative if the samples raise the output of the target
    class**. Scores have the opposite sign: what a sample's presence adds.

    Attributes
    ----------
    removed, relabelled : training samples that are removed, and that get another label
    output : the output of the target class, "logit", "margin" or "log_prob"
    targets : (B,) the class of each test
    names : names of all classes
    before : (B,) the present output
    first_order : (B,) its change to first order, the sum over samples
    corrected : (B,) its change by one Newton step, which corrects first order for how the removed samples
        stand in for each other: exact for regression
    exact : (B,) its exact change, by re-solving the surrogate
    gap : relative duality gap of the re-solved surrogate
    """

    removed: tuple[int, ...]
    relabelled: tuple[int, ...]
    output: Output
    targets: Ints
    names: tuple[str, ...]
    before: Doubles
    first_order: Doubles
    corrected: Doubles
    exact: Doubles
    gap: float

    @property
    def difference(self) -> float:
        """‖first order − exact‖/‖exact‖ over the tests; 0 if both are 0."""
        apart, size = np.linalg.norm(self.first_order - self.exact), np.linalg.norm(self.exact)
        return float(apart / size) if size > 0 else float(np.inf if apart > 0 else 0.0)

    @property
    def disagree(self) -> bool:
        """Whether first-order and exact changes differ by more than 20 %."""
        return self.difference > _DIFFERENT

    def columns(self) -> Columns:
        """Return columns of plain values, one row per test."""
        return {
            "test": list(range(len(self.targets))),
            "target": [self.names[target] for target in self.targets],
            "before": self.before.tolist(),
            "first_order": self.first_order.tolist(),
            "corrected": self.corrected.tolist(),
            "exact": self.exact.tolist(),
        }

    def __str__(self) -> str:
        """Format a table in Markdown, with a note on whether first-order and exact changes agree."""
        lines = [
            f"{self._what()}, the {self.output.replace('log_prob', 'log-probability')} of the target:",
            "",
            "| test | target | before | first order | corrected | exact |",
            "|---|---|---|---|---|---|",
        ]
        columns = self.targets.tolist(), self.before, self.first_order, self.corrected, self.exact
        for i, (target, before, *changes) in enumerate(list(zip(*columns, strict=True))[:_SHOWN]):
            shown = " | ".join(f"{change:+.3g}" for change in changes)
            lines.append(f"| {i} | {cell(self.names[target])} | {before:.3g} | {shown} |")
        if len(self.targets) > _SHOWN:
            lines.append(f"| … {len(self.targets) - _SHOWN:,} more | | | | | |")
        return "\n".join([*lines, "", self._verdict()])

    def _what(self) -> str:
        removed, relabelled = (counted(len(places), "sample") for places in (self.removed, self.relabelled))
        if not self.relabelled:
            return f"Without {removed}"
        other = f"{relabelled} relabelled"
        return f"With {other}" if not self.removed else f"Without {removed} and with {other}"

    def _verdict(self) -> str:
        if self.disagree:
            return f"First-order and exact changes differ by {self.difference:.0%}. Use the exact changes."
        return f"First-order and exact changes agree within {self.difference:.0%}."


def group_effect(
    scorer: EffectScorer,
    solver: SurrogateSolver,
    features: Tensor,
    targets: Tensor,
    remove: Sequence[int],
    relabel: Mapping[int, Any] | None,
    training: Floats,
) -> GroupEffect:
    """Compute the change for tests (B, d) without some samples or with other labels, and re-solve.

    ``training`` are the features (N, d) of all training samples.
    """
    surrogate, question = scorer.surrogate, _Question.of(scorer, remove, relabel, training)
    start = surrogate.lam.tolil()
    start[question.stays] += question.pull
    constant, metric = surrogate.constant, surrogate.metric
    again = solver.again(training, question.labels, csr_array(start), surrogate.C, constant, metric)
    read = surrogate.stored.transform(features)
    logits = surrogate.read_logits(read)
    after_logits = new_logits(again.weight, read) + torch.as_tensor(surrogate.task.base, device=read.device)
    before, after = (values(scorer.output, z, targets).cpu().numpy() for z in (logits, after_logits))
    return GroupEffect(
        removed=tuple(question.gone.tolist()),
        relabelled=tuple(question.stays.tolist()),
        output=scorer.output,
        targets=targets.numpy(),
        names=surrogate.task.output_names,
        before=before,
        first_order=question.first_order(features, targets),
        corrected=question.corrected(features, targets),
        exact=after - before,
        gap=again.gap,
    )


def first_order_effect(
    scorer: EffectScorer,
    features: Tensor,
    targets: Tensor,
    remove: Sequence[int],
    relabel: Mapping[int, Any] | None,
    training: Floats,
    corrected: bool,
) -> Doubles:
    """Compute the first-order or the corrected changes (B,) of ``group_effect``, without re-solving."""
    question = _Question.of(scorer, remove, relabel, training)
    return (question.corrected if corrected else question.first_order)(features, targets)


def logit_changes(
    scorer: EffectScorer,
    features: Tensor,
    remove: Sequence[int],
    relabel: Mapping[int, Any] | None,
    training: Floats | None,
) -> Doubles:
    """Compute the first-order changes (B, K) of all logits for tests (B, d): one solve, whatever B and K.

    ``training`` may be None if all samples that change are support vectors.
    """
    question = _Question.of(scorer, remove, relabel, training)
    read = scorer.surrogate.stored.transform(features)
    return np.asarray((scorer.extended(read.double()) @ question.change.T).cpu().numpy(), np.float64)


@dataclass(frozen=True, eq=False)
class _Question:
    """A change of training samples, and its first-order effect on the weights.

    Attributes
    ----------
    labels : (N, …) the changed labels
    gone, stays : samples that are removed, and that are relabelled
    pull : (stays, K) direct change of λ of the latter
    change : (K, D) first-order change of the weights
    """

    scorer: EffectScorer
    labels: Array
    gone: Ints
    stays: Ints
    pull: Doubles
    change: Tensor

    @classmethod
    def of(
        cls,
        scorer: EffectScorer,
        remove: Sequence[int],
        relabel: Mapping[int, Any] | None,
        training: Floats | None,
    ) -> _Question:
        """Check the change, and compute its first-order effect."""
        surrogate = scorer.surrogate
        task, before = surrogate.task, surrogate.labels
        n = len(before) if training is None else len(training)
        labels = changed_labels(task, before, n, remove, relabel or {})
        moved = np.flatnonzero(task.known(before) & (labels != before).reshape(len(labels), -1).any(axis=1))
        if not len(moved):
            raise InvalidInputError(
                "'remove' or 'relabel' must name a training sample to remove or to relabel. Got none."
            )
        left_out = ~task.known(labels[moved])
        gone, stays = moved[left_out], moved[~left_out]

        def rows(which: Ints) -> Doubles:
            if training is None:
                read = surrogate.stored[surrogate.rows(which.tolist())].cpu().numpy()
            else:
                read = surrogate.metric.rows(np.asarray(training[which]))
            return extended(read, surrogate.constant).astype(np.float64)

        pull = scorer.relabel_pull(labels[stays], before[stays])
        total = -(surrogate.lam[gone].T @ rows(gone)) + pull.T @ rows(stays)
        change = scorer.response(torch.as_tensor(total, device=surrogate.stored.like.device)[None])[0]
        return cls(scorer, labels, gone, stays, pull, change)

    def first_order(self, features: Tensor, targets: Tensor) -> Doubles:
        """Compute the first-order change of the output for tests with features (B, d)."""
        read = self.scorer.surrogate.stored.transform(features)
        slope = self.scorer.slopes(read, targets)
        change = (slope * (self.scorer.extended(read.double()) @ self.change.T)).sum(1)
        return np.asarray(change.cpu().numpy(), np.float64)

    def corrected(self, features: Tensor, targets: Tensor) -> Doubles:
        """Compute the change of the output by one Newton step for tests with features (B, d)."""
        scorer = self.scorer
        read = scorer.surrogate.stored.transform(features)
        before = scorer.surrogate.read_logits(read)
        after = before + scorer.extended(read.double()) @ self._newton().T
        one, other = (values(scorer.output, logits, targets) for logits in (before, after))
        return np.asarray((other - one).cpu().numpy(), np.float64)

    def _newton(self) -> Tensor:
        """Compute the change (K, D) of the weights by a Newton step of the problem of the remaining samples.

        Without samples S the Hessian is H − C U Uᵀ with U = (R_i ⊗ f_i), where R_i R_iᵀ = diag p_i − p_i p_iᵀ
        (the identity for ridge regression). By Woodbury's identity its inverse is
        H⁻¹ + C H⁻¹ U (I − C Uᵀ H⁻¹ U)⁻¹ Uᵀ H⁻¹, of which the middle has one row per sample and class, and is
        applied by conjugate gradients.
        """
        scorer, C = self.scorer, self.scorer.surrogate.C
        gone = np.intersect1d(self.gone, scorer.surrogate.support)  # others have no curvature
        if not len(gone):
            return self.change
        places = np.searchsorted(scorer.surrogate.support, gone)
        f = scorer.extended(scorer.surrogate.stored[torch.as_tensor(places)]).double()
        root = scorer.curvature_root(places)

        def spread(w: Tensor) -> Tensor:
            return scorer.response((root(w).T @ f)[None])[0]

        def collect(change: Tensor) -> Tensor:
            return root(f @ change.T, transposed=True)

        w, _ = conjugate_gradients(
            lambda w: w - C * collect(spread(w)),
            collect(self.change),
            lambda left: left,
            lambda a, b: (a * b).sum(),
            tol=_TOL,
            steps=_STEPS,
            of_residual=True,
        )
        return self.change + C * spread(w)
