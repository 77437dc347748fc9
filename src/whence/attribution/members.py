"""From the explanations of an ensemble's members to one: means of scores and maps in comparable units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.attribution.pairs import Against, PairExplainer, Started, leading, strongest
from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError, UnsupportedError
from whence.explanation import Contribution, Explanation
from whence.features import Novelty
from whence.relevance.xda import Method
from whence.surrogate.scores import Contrast
from whence.tasks import Task, Verdict, probabilities


class MembersExplainer:
    """Explains test samples one at a time by all members, with one forward pass of each.

    The pairs shown are those with the largest means over members of τ_m/σ_m, σ_m being the standard deviation
    of the member's scores of the test over the training samples. Their maps are means over members of the
    member's maps of the same pair, divided by σ_m: relevance of the mean score, since it is linear in scores.

    Parameters
    ----------
    fitted : with members that have their models and their training set
    k : pairs of either sign to show
    method : how relevance goes from features to inputs
    novelty : must be None
    relative : must be False
    """

    def __init__(
        self,
        fitted: Fitted,
        k: int,
        method: Method | None,
        novelty: Novelty | None = None,
        relative: bool = False,
    ) -> None:
        cannot = [member for member in fitted.members if not member.capabilities.explains]
        if cannot:
            raise UnsupportedError(
                "'members' must be DualDA or Effects to be explained. Got "
                f"{type(cannot[0]).__name__}: use attribute, top_k and spread."
            )
        if novelty is not None:
            raise InvalidInputError(
                "'novelty' must be None for an ensemble, whose members have features of their own. Ask one "
                "of them, members_[0].novelty()."
            )
        self.fitted, self.k = fitted, k
        self._explainers = [
            PairExplainer(member.fitted_, k, method, grows=False) for member in fitted.members
        ]
        self.model = self._explainers[0].model

    def __call__(
        self,
        number: int,
        inputs: Any,
        target: int | None,
        truth: Any,
        among: Ints | None = None,
        against: Against = None,
    ) -> Explanation:
        """Explain one test sample, a batch of one; ``number`` is its place among the tests.

        ``among`` are training samples to show instead of the strongest.
        """
        task, used, n = self.fitted.task, self.fitted.used, int(self.fitted.used.sum())
        tests = [explainer.start(inputs, number) for explainer in self._explainers]
        votes = [task.choose_target(test.passed.logits, target) for test in tests]
        wanted = int(torch.stack(votes).mode(0).values[0])
        scores, scales = np.zeros((len(tests), self.fitted.n_train)), np.ones(len(tests))
        for m, (explainer, test) in enumerate(zip(self._explainers, tests, strict=True)):
            scored = explainer.scorer.scored(test.features, Contrast(wanted))
            scores[m, scored.indices] = scored.scores
            scales[m] = np.sqrt(np.sum((scores[m][used] - scores[m].sum() / n) ** 2) / n)
        scores /= np.where(scales > 0, scales, np.inf)[:, None]  # constant scores get weight 0
        mean = scores.mean(axis=0)
        candidates = mean if among is None else np.where(np.isin(np.arange(len(mean)), among), mean, 0.0)
        most = self.k if among is None else len(among)
        sides = [strongest(candidates, most, sign) for sign in (1, -1)]
        chosen = np.array([*sides[0], *sides[1]], np.int64)
        whys = [
            explainer.explain(test, wanted, truth, chosen)
            for explainer, test in zip(self._explainers, tests, strict=True)
        ]
        verdict, predicted, ours = self._verdict(tests, wanted, truth)
        best, second = leading(task, ours)
        by_input = zip(*((why, *why.others) for why in whys), strict=True)
        first, *others = [
            replace(
                _joined(members, scores, scales, sides),
                verdict=verdict,
                probability=verdict.probability,
                predicted=predicted,
                surrogate_class=best if task.has_classes else wanted,
                margin=None if second is None else float(ours[best] - ours[second]),
                runner_up=second,
            )
            for members in by_input
        ]
        return replace(first, others=tuple(others))

    def _verdict(self, tests: Sequence[Started], target: int, truth: Any) -> tuple[Verdict, int, Doubles]:
        """Return what the members predict together, which output that is, and their surrogates' mean."""
        task = self.fitted.task
        outputs = together(task, [test.passed.logits for test in tests])
        ours = torch.stack(
            [e.surrogate.logits(t.features).cpu() for e, t in zip(self._explainers, tests, strict=True)]
        )
        mean: Doubles = ours.mean(0)[0].double().numpy()
        verdict = task.verdict(outputs[0].numpy(), mean, target, truth)
        return verdict, int(task.default_target(outputs)[0]) if task.has_classes else target, mean


def together(task: Task, outputs: Sequence[Tensor]) -> Tensor:
    """Return what models with outputs (B, K) each predict together, (B, K), in float64 on the CPU.

    Of classes that is the logarithm of their mean probabilities, else the mean.
    """
    exact = [output.double().cpu() for output in outputs]
    if task.has_classes:
        return torch.stack([probabilities(output) for output in exact]).mean(0).log()
    return torch.stack(exact).mean(0)


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
        logit_bound=None,
        members=tuple(each),
        others=(),
    )
