"""Effects: how an output changes when a sample, or a set of samples, is removed.

The softmax surrogate is min_W ½‖W‖² + C Σ_i ℓ(W f_i, y_i), with W = Σ_i λ_i f_iᵀ and λ_i = C (e_{y_i} − p_i).
Without sample i, W changes by −H⁻¹ (λ_i ⊗ f_i) to first order, where H is the Hessian; an output whose
derivative by the logits is s then changes by −(s ⊗ f(x))ᵀ H⁻¹ (λ_i ⊗ f_i). The score is the negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.display import Columns, cell, counted, displayed
from whence.core.progress import watched
from whence.errors import InvalidInputError
from whence.explanation import EffectOf
from whence.surrogate.agreement import new_logits
from whence.surrogate.changes import changed_labels
from whence.surrogate.response import RidgeResponse, SoftmaxResponse
from whence.surrogate.scores import Contrast, Parts, Scored
from whence.surrogate.smooth import extended
from whence.surrogate.solving import SurrogateSolver
from whence.surrogate.surrogate import Surrogate

Output = Literal["logit", "margin", "log_prob"]
"""The target's logit; the logit minus the largest other one; the logarithm of the target's probability."""


def values(output: Output, logits: Tensor, classes: Tensor) -> Tensor:
    """Return the output (B,) of logits (B, K) for classes (B,)."""
    columns = classes[:, None].to(logits.device)
    if output == "log_prob":
        return logits.log_softmax(1).gather(1, columns)[:, 0]
    target = logits.gather(1, columns)[:, 0]
    return target if output == "logit" else target - _others(logits, columns).amax(1)


def slopes(output: Output, logits: Tensor, classes: Tensor) -> Tensor:
    """Return the derivative (B, K) of the output by the logits (B, K)."""
    columns = classes[:, None].to(logits.device)
    slope = torch.zeros_like(logits).scatter_(1, columns, 1.0)
    if output == "margin":
        slope.scatter_(1, _others(logits, columns).argmax(1, keepdim=True), -1.0)
    elif output == "log_prob":
        slope = slope - logits.softmax(1)
    return slope


def _others(logits: Tensor, columns: Tensor) -> Tensor:
    """Return logits (B, K) with −∞ for the class itself."""
    return logits.scatter(1, columns, -torch.inf)


_HELD = 1 << 23  # numbers of right-hand sides in memory at a time
_PRODUCTS = 1 << 22  # products of samples and answers in memory at a time
_DIFFERENT = 0.2  # relative difference above which first-order and exact results disagree
_SHOWN = 10  # tests in a printed record


def _parts(n: int, size: int) -> list[slice]:
    """Divide n rows into slices of ``size``, at least 64."""
    size = max(64, size)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


class EffectScorer:
    """Computes the effects of training samples on the outputs of a surrogate.

    Parameters
    ----------
    surrogate : softmax regression, or ridge regression for regression tasks
    output : the output of the target class
    """

    def __init__(self, surrogate: Surrogate, output: Output) -> None:
        self.surrogate, self.output = surrogate, output
        place = surrogate.stored.like.device
        self._coefficients = torch.as_tensor(
            surrogate.lam[surrogate.support].toarray(), device=place
        )  # (S, K)
        used = np.flatnonzero(surrogate.task.known(surrogate.labels))
        self._n_used = len(used)
        self._places = torch.as_tensor(np.searchsorted(used, surrogate.support), device=place)

    @property
    def effect(self) -> EffectOf:
        """The output and the surrogate of the effects."""
        return EffectOf(self.output, "softmax surrogate" if self._classes else "ridge regression")

    @property
    def _classes(self) -> bool:
        return self.surrogate.task.has_classes

    @cached_property
    def response(self) -> SoftmaxResponse | RidgeResponse:
        """The operator H⁻¹."""
        vectors, C = self.extended(self.surrogate.vectors), self.surrogate.C
        if not self._classes:
            return RidgeResponse(vectors, C)
        labels = torch.as_tensor(self.surrogate.labels[self.surrogate.support], device=vectors.device)
        probabilities = -self._coefficients / C
        probabilities[torch.arange(len(labels), device=labels.device), labels] += 1.0
        return SoftmaxResponse(vectors, probabilities.clamp(0.0, 1.0), C)

    def scored(self, features: Tensor, contrast: Contrast) -> Scored:
        """Compute the effects of all samples on one test with features (1, d)."""
        effects = self._effects(features, torch.tensor([contrast.target]))[0]
        return Scored(self.surrogate.support, effects.double().cpu().numpy())

    def parts(self, features: Tensor, contrast: Contrast, indices: Sequence[int]) -> Parts:
        """Return effects as linear functions of the features of both samples."""
        read, d = self.surrogate.stored.transform(features), features.shape[1]
        test = self.extended(read).double()
        slope = self.slopes(read, torch.tensor([contrast.target]))[0]  # (K,)
        rows = self.surrogate.rows(indices)
        vectors, lam = self.surrogate.vectors[rows], self._coefficients[rows]
        answer = self.response((slope[:, None] * test)[None])[0]  # (K, D)
        pulls = lam[:, :, None] * self.extended(vectors).double()[:, None]  # (m, K, D)
        on_test = torch.einsum("k,mkd->md", slope, self.response(pulls))
        return Parts(vectors, on_test[:, :d], (lam @ answer)[:, :d], None)

    def scores(self, features: Tensor, targets: Tensor) -> Tensor:
        """Compute effects (B, M) of the fitted samples on tests with features (B, d)."""
        out = features.new_zeros(len(features), self._n_used)
        out[:, self._places] = self._effects(features, targets).to(out)
        return out

    def self_influence(self, show_progress: bool) -> Tensor:
        """Compute the effect of each fitted sample on its own label at itself, (M,).

        For regression it is the sum of absolute effects over outputs.
        """
        surrogate, vectors = self.surrogate, self.surrogate.vectors
        labels = torch.as_tensor(surrogate.labels[surrogate.support])
        blocks = _parts(len(vectors), _HELD // (vectors.shape[1] * surrogate.task.n_outputs))
        parts = []
        watch = watched(
            blocks, len(vectors), "Self-influence", show_progress, lambda part: part.stop - part.start
        )
        for rows in watch:
            f, lam = vectors[rows], self._coefficients[rows]
            extended_rows = self.extended(f).double()[:, None]
            slopes = self.slopes(f, labels[rows]) if self._classes else lam.sign()
            pulls = slopes[:, :, None] * extended_rows
            parts.append((self.response(pulls) * (lam[:, :, None] * extended_rows)).sum((1, 2)))
        out = vectors.new_zeros(self._n_used)
        out[self._places] = torch.cat(parts).to(out)
        return out

    def total(self, tests: Iterable[tuple[Tensor, Tensor]]) -> Doubles:
        """Compute effects (train,) of every sample on the sum of the outputs for tests, by one solve.

        Parameters
        ----------
        tests : batches of features (b, d) of tests and their targets (b,)
        """
        surrogate = self.surrogate
        vectors = self.extended(surrogate.vectors)
        pull = torch.zeros(
            surrogate.task.n_outputs, vectors.shape[1], dtype=torch.float64, device=vectors.device
        )
        for features, targets in tests:
            read = surrogate.stored.transform(features.to(vectors))
            pull += self.slopes(read, targets).T @ self.extended(read).double()
        answer = self.response(pull[None])[0]
        effects = ((vectors.double() @ answer.T) * self._coefficients).sum(1)
        out = np.zeros(len(surrogate.labels))
        out[surrogate.support] = effects.cpu().numpy()
        return out

    def slopes(self, read: Tensor, targets: Tensor) -> Tensor:
        """Compute the output's derivative (B, K) by the surrogate's logits at transformed features (B, d)."""
        return slopes(self.output, self.surrogate.read_logits(read), targets)

    def relabel_pull(self, labels: Array, before: Array) -> Doubles:
        """Return the change of λ (n, K) by new labels (n, …) for unchanged features."""
        surrogate = self.surrogate
        K = surrogate.task.n_outputs
        if not self._classes:
            return surrogate.C * (labels - before).reshape(len(labels), K).astype(np.float64)
        pull, rows = np.zeros((len(labels), K)), np.arange(len(labels))
        pull[rows, labels] += surrogate.C
        pull[rows, before] -= surrogate.C
        return pull

    def _effects(self, features: Tensor, targets: Tensor) -> Tensor:
        """Compute effects (B, S) on tests with features (B, d), in the precision of the features."""
        vectors, lam = self.extended(self.surrogate.vectors), self._coefficients.to(self.surrogate.vectors).T
        K, D = len(lam), vectors.shape[1]
        read = self.surrogate.stored.transform(features)
        out = vectors.new_empty(len(read), len(vectors))
        for tests in _parts(len(read), _HELD // (K * D)):
            f = read[tests]
            pulls = self.slopes(f, targets[tests])[:, :, None] * self.extended(f).double()[:, None]
            answers = self.response(pulls).to(vectors).reshape(-1, D)  # (b·K, D)
            for part in _parts(len(vectors), _PRODUCTS // len(answers)):
                logits = (answers @ vectors[part].T).reshape(len(f), K, -1)
                out[tests, part] = logits.mul_(lam[:, part]).sum(1)
        return out

    def extended(self, features: Tensor) -> Tensor:
        """Return features (B, D) with the constant of the bias."""
        constant = self.surrogate.constant
        if not constant:
            return features
        return torch.cat([features, features.new_full((len(features), 1), constant)], dim=1)


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
            "exact": self.exact.tolist(),
        }

    def __str__(self) -> str:
        """Format a table in Markdown, with a note on whether first-order and exact changes agree."""
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
) -> Doubles:
    """Compute the first-order changes (B,) of ``group_effect``, without re-solving."""
    return _Question.of(scorer, remove, relabel, training).first_order(features, targets)


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
        cls, scorer: EffectScorer, remove: Sequence[int], relabel: Mapping[int, Any] | None, training: Floats
    ) -> _Question:
        """Check the change, and compute its first-order effect."""
        surrogate = scorer.surrogate
        task, before = surrogate.task, surrogate.labels
        labels = changed_labels(task, before, len(training), remove, relabel or {})
        moved = np.flatnonzero(task.known(before) & (labels != before).reshape(len(labels), -1).any(axis=1))
        if not len(moved):
            raise InvalidInputError(
                "'remove' or 'relabel' must name a training sample to remove or to relabel. Got none."
            )
        left_out = ~task.known(labels[moved])
        gone, stays = moved[left_out], moved[~left_out]

        def rows(which: Ints) -> Doubles:
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
