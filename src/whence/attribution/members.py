"""From the explanations of an ensemble's members to one: means of scores and maps in comparable units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from whence.attribution.explainer import strongest
from whence.core.arrays import Doubles, Ints
from whence.explanation import Contribution, Explanation
from whence.model.extractor import Outputs
from whence.relevance.xda import Method
from whence.tasks import Task, Verdict, probabilities

if TYPE_CHECKING:
    from whence.attribution.pairs import PairAttributor


class MembersExplainer:
    """Explains test samples one at a time by all members: the passes of each, and one more forward.

    The pairs shown are those with the largest means over members of τ_m/σ_m, σ_m being the standard deviation
    of the member's scores of the test over the training samples. Their maps are means over members of the
    member's maps of the same pair, divided by σ_m: relevance of the mean score, since it is linear in scores.

    Parameters
    ----------
    members : fitted, with their models and their training set
    k : pairs of either sign to show
    method : how relevance goes from features to inputs
    """

    def __init__(self, members: Sequence[PairAttributor], k: int, method: Method | None) -> None:
        self.members, self.k, self.model = members, k, members[0].require_model()
        self._each = [member.explaining(k, method) for member in members]

    def __call__(
        self, number: int, inputs: Any, target: int | None, truth: Any, among: Ints | None = None
    ) -> Explanation:
        """Explain one test sample, a batch of one; ``number`` is its place among the tests.

        ``among`` are training samples to show instead of the strongest.
        """
        first = self.members[0]
        task, used = first.task_, int(first.used_.sum())
        reads = [member.require_model().read_batch(inputs, number) for member in self.members]
        votes = [task.choose_target(one.logits, target) for one in reads]
        wanted = int(torch.stack(votes).mode(0).values[0])
        scores, scales = np.zeros((len(self.members), first.n_train_)), np.ones(len(self.members))
        for m, (member, one) in enumerate(zip(self.members, reads, strict=True)):
            found = member.scored(member.check_features(one.features, "x"), wanted)
            scores[m, found.indices] = found.scores
            scales[m] = np.sqrt(np.sum((scores[m][first.used_] - scores[m].sum() / used) ** 2) / used)
        scores /= np.where(scales > 0, scales, np.inf)[:, None]  # who says the same of all says nothing
        mean = scores.mean(axis=0)
        shown = mean if among is None else np.where(np.isin(np.arange(len(mean)), among), mean, 0.0)
        most = self.k if among is None else len(among)
        sides = [strongest(shown, most, sign) for sign in (1, -1)]
        chosen = np.array([*sides[0], *sides[1]], np.int64)
        each = [explain(number, inputs, wanted, truth, chosen) for explain in self._each]
        said, predicted = self._said(reads, wanted, truth)
        inputs_of = zip(*((one, *one.others) for one in each), strict=True)
        own, *others = [
            replace(
                _joined(some, scores, scales, sides),
                verdict=said,
                probability=said.probability,
                predicted=predicted,
            )
            for some in inputs_of
        ]
        return replace(own, others=tuple(others))

    def _said(self, reads: Sequence[Outputs], target: int, truth: Any) -> tuple[Verdict, int]:
        """Return what the members say together, by their mean probabilities or outputs, and which output."""
        task = self.members[0].task_
        outputs = together(task, [one.logits for one in reads])
        pairs = zip(self.members, reads, strict=True)
        ours = torch.stack(
            [member.surrogate_.logits(member.check_features(one.features)).cpu() for member, one in pairs]
        )
        verdict = task.verdict(outputs[0].numpy(), ours.mean(0)[0].numpy(), target, truth)
        return verdict, int(task.default_target(outputs)[0]) if task.has_classes else target


def together(task: Task, outputs: Sequence[Tensor]) -> Tensor:
    """Return what models with outputs (B, K) each say together, (B, K), in float64 on the CPU.

    Of classes that is the logarithm of their mean probabilities, else the mean.
    """
    each = [one.double().cpu() for one in outputs]
    if task.has_classes:
        return torch.stack([probabilities(one) for one in each]).mean(0).log()
    return torch.stack(each).mean(0)


def _joined(
    each: Sequence[Explanation], scores: Doubles, scales: Doubles, sides: Sequence[list[int]]
) -> Explanation:
    """Make one explanation on one input of those of the members, of the same pairs.

    ``scores`` (members, N) are in units of ``scales`` (members,); ``sides`` are the samples of either sign.
    """
    mean, units = scores.mean(axis=0), np.where(scales > 0, scales, np.inf)

    def averaged(values: Sequence[Any]) -> Any:
        return sum(value / unit for value, unit in zip(values, units, strict=True)) / len(each)

    known = [{pair.index: pair for pair in one.pairs} for one in each]
    evidence = [float(mean.clip(min=0).sum()), float(mean.clip(max=0).sum())]

    def pair(index: int, side: int) -> Contribution:
        found = [one.get(index) for one in known]
        some = next(one for one in found if one is not None)
        empty = np.zeros_like(some.test_map), np.zeros_like(some.train_map)
        return replace(
            some,
            score=float(mean[index]),
            share=float(mean[index]) / evidence[side],
            bias=float(averaged([0.0 if one is None else one.bias for one in found])),
            coefficient=None,
            test_map=averaged([empty[0] if one is None else one.test_map for one in found]),
            train_map=averaged([empty[1] if one is None else one.train_map for one in found]),
            spread=float(scores[:, index].std(ddof=min(1, len(each) - 1))),
        )

    shown = [tuple(pair(i, side) for i in some) for side, some in enumerate(sides)]
    return replace(
        each[0],
        scores=mean[mean != 0],
        logit=float(mean.sum()),
        base=0.0,
        bias=float(averaged([one.bias for one in each])),
        proponents=shown[0],
        opponents=shown[1],
        logit_map=averaged([one.logit_map for one in each]),
        n_support=int((scores != 0).any(axis=0).sum()),
        gap=max(one.gap for one in each),
        members=tuple(each),
        others=(),
    )
