"""From scores to explanations: the strongest pairs of a test sample, with relevance maps on both samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whence.attribution.feature_space import METHOD, feature_pass
from whence.attribution.fitted import Fitted
from whence.attribution.trees import TreeBuilder
from whence.attribution.typicality import check_novelty, typicality_of
from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError, StoreError
from whence.explanation import Contribution, Explanation, Sample, TreeNode
from whence.features import Novelty
from whence.features.training import check_tests
from whence.model.bound import BoundModel
from whence.model.inputs import to_model
from whence.model.passes import Pass
from whence.pages.samples import Array, as_samples, kept_tokens
from whence.relevance.lrp import default_rules
from whence.relevance.presets import PRESETS, Rules
from whence.relevance.sources import floating, one_of
from whence.relevance.xda import Method, PairMaps, as_method, pair_maps, start
from whence.surrogate.bounds import logit_bound
from whence.surrogate.groups import directions, fold
from whence.surrogate.scores import Contrast, Parts, Scored
from whence.tasks import Task

_LOOKED_AT = 50  # samples of a sign, of which those that differ are shown; ten times as many as are asked for

Against = int | Literal["runner-up"] | None
"""Another class, over which evidence for the target is explained."""


class Started(NamedTuple):
    """One test sample that was run forward.

    Attributes
    ----------
    passed : the pass, with the graph that relevance goes back by
    method : how relevance goes back
    features : (1, d), checked
    """

    passed: Pass
    method: Method
    features: Tensor


class Linear(NamedTuple):
    """The logit and the scores of m pairs as linear forms in the features f(x) of the test.

    Attributes
    ----------
    weight : (d,) of the logit
    on_test : (m, d) of the scores
    logit, pairs : weight·f(x) and on_test·f(x) (m,); what is left of logit and scores is their bias
    """

    weight: Tensor
    on_test: Tensor
    logit: float
    pairs: list[float]


class OnInput(NamedTuple):
    """What is shown of one of a model's inputs.

    Attributes
    ----------
    name : of the input; empty where the model has only one
    sample, logit_map : of the test
    pairs : training samples, with the maps of their pairs on the test and on themselves
    """

    name: str
    sample: Sample
    logit_map: Array
    pairs: list[tuple[Sample, Array, Array]]


class PairExplainer:
    """Explains test samples one at a time: one forward pass of the sample, one of its training samples.

    Parameters
    ----------
    fitted : with a training set, and a surrogate whose scores are linear in features. Without a model, tests
        and training samples are features, and so is what relevance is on
    k : pairs of either sign to show
    method : how relevance goes from features to inputs; None leaves it to what the model does
    novelty : what tests are compared with, to check whether they resemble it; None leaves that out
    relative : whether scores are relative to the mean training sample, see ``Contrast``
    grows : whether explanations have a tree
    """

    def __init__(
        self,
        fitted: Fitted,
        k: int,
        method: Method | None,
        novelty: Novelty | None = None,
        relative: bool = False,
        grows: bool = True,
    ) -> None:
        if method is not None:
            as_method(method)  # raises before any work
        self.fitted, self.k, self.method, self.relative = fitted, k, method, relative
        self.novelty = None if novelty is None else check_novelty(fitted, novelty)
        self.data = fitted.require_data()
        self.surrogate, self.scorer, self.task = fitted.require_surrogate(), fitted.scorer, fitted.task
        self.builder = TreeBuilder(fitted) if grows else None

    @property
    def model(self) -> BoundModel:
        """The model, or an error where only features are known."""
        return self.fitted.require_model()

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

        ``among`` are training samples to show instead of the strongest; ``against`` is another class, over
        which evidence for the target is explained.
        """
        return self.explain(self.start(inputs, number), target, truth, among, against)

    def start(self, inputs: Any, number: int) -> Started:
        """Run one test sample forward, such that relevance can go back."""
        if self.fitted.model is None:
            passed = feature_pass(self.fitted, inputs)
            return Started(passed, METHOD, passed.features)
        with self.model.running(number) as extractor:
            method = default_rules(extractor, inputs).name if self.method is None else self.method
            passed = start(extractor, inputs, method)
        return Started(passed, method, check_tests(passed.features, self.surrogate.stored.like, "x"))

    def explain(
        self,
        test: Started,
        target: int | None,
        truth: Any,
        among: Ints | None = None,
        against: Against = None,
    ) -> Explanation:
        """Explain a test sample that was run forward."""
        surrogate, task = self.surrogate, self.task
        predicted, target = self.predicted(test.passed.logits, target)
        other = None if against is None else self._against(test, target, against)
        contrast = Contrast(target, other, self.relative)
        scored = self.scorer.scored(test.features, contrast)
        sides = self._sides(scored, among)
        indices = [int(scored.indices[places[0]]) for places in (*sides[0], *sides[1])]
        parts = self.scorer.parts(test.features, contrast, indices)
        linear = self._linear(test, contrast, parts)
        first, *others = self._pairs(test, indices, parts, linear)
        contributions = [
            self._contributions(target, scored, sides, parts.coefficients, linear.pairs, shown.pairs)
            for shown in (first, *others)
        ]
        names = [first.name, *(shown.name for shown in others)]
        trees: Sequence[TreeNode | None] = [None] * len(names)
        if self.builder is not None:
            trees = self.builder(scored, contrast, names)
        n = len(sides[0])
        ours = surrogate.logits(test.features)[0].cpu().numpy()
        logit = float(ours[target] - (0.0 if other is None else ours[other]))
        best, second = leading(task, ours)
        verdict = task.verdict(test.passed.logits[0].double().cpu().numpy(), ours, target, truth)
        why = Explanation(
            effect=self.scorer.effect,
            label_kind=task.label_kind,
            sample=first.sample,
            predicted=predicted,
            verdict=verdict,
            probability=verdict.probability,
            surrogate_class=best if task.has_classes else target,
            truth=truth,
            target=target,
            against=other,
            relative=self.relative,
            class_names=task.output_names,
            scores=scored.scores,
            logit=logit,
            base=(base := surrogate.base_value(contrast)),
            bias=logit - base - linear.logit,
            proponents=tuple(contributions[0][:n]),
            opponents=tuple(contributions[0][n:]),
            logit_map=first.logit_map,
            method=method_name(test.method),
            n_train=self.fitted.n_train,
            n_support=len(surrogate.support),
            gap=surrogate.gap,
            input=first.name,
            typicality=None
            if self.novelty is None
            else typicality_of(self.fitted, self.novelty, test.features, test.passed.inputs, first.name)[0],
            margin=None if second is None else float(ours[best] - ours[second]),
            runner_up=second,
            tree=trees[0],
            logit_bound=None
            if self.scorer.effect is not None
            else logit_bound(surrogate, test.features, contrast),
        )
        more = [
            replace(
                why,
                sample=shown.sample,
                proponents=tuple(pairs[:n]),
                opponents=tuple(pairs[n:]),
                logit_map=shown.logit_map,
                input=shown.name,
                tree=tree,
            )
            for shown, pairs, tree in zip(others, contributions[1:], trees[1:], strict=True)
        ]
        return replace(why, others=tuple(more))

    def predicted(self, outputs: Tensor, target: int | None) -> tuple[int, int]:
        """Return the output that the model predicts for one test, by its own (1, K), and the target."""
        if target is not None and not self.task.has_classes:
            return target, target
        predicted = int(self.task.default_target(outputs)[0])
        return predicted, predicted if target is None else target

    def _against(self, test: Started, target: int, against: int | Literal["runner-up"]) -> int:
        """Return the class over which evidence for the target is explained."""
        if against == "runner-up":
            outputs = test.passed.logits[0].clone()
            outputs[target] = -torch.inf
            return int(outputs.argmax())
        if against == target:
            raise InvalidInputError(
                f"'against' must be another class than the target, {self.task.output_names[target]!r}. "
                "Got the same."
            )
        return int(against)

    def _linear(self, test: Started, contrast: Contrast, parts: Parts) -> Linear:
        """Write the logit and the scores of pairs as linear forms in the features of the test."""
        pull, f = self.surrogate.metric.pull, test.features
        weight = pull(torch.as_tensor(self.surrogate.weight_of(contrast), device=f.device)[None], f)[0][0]
        on_test = pull(parts.on_test, f)[0]
        exact = f[0].double()
        return Linear(weight, on_test, float(weight.double() @ exact), (on_test.double() @ exact).tolist())

    def train(self, indices: list[int], expected: Tensor, test: Started) -> tuple[Any, Pass]:
        """Run training samples forward, or raise unless they are those that were fitted.

        ``expected`` (m, d) are their features as the surrogate read them. Returns their inputs, too.
        """
        if self.fitted.model is None:
            train_inputs = self.data.take(indices)
            train = feature_pass(self.fitted, train_inputs)
        else:
            train_inputs = to_model(self.model.extractor.model, self.data.take(indices))
            _check_same_shape(test.passed.inputs, train_inputs)
            train = start(self.model.extractor, train_inputs, test.method)
        lengths = expected.norm(dim=1).clamp(min=1e-12)
        features = self.surrogate.stored.transform(train.features.detach().to(expected))
        apart = (features - expected).norm(dim=1) / lengths
        if (apart > 0.05).any():  # mixed precision and padding leave less
            j = int(apart.argmax())
            raise StoreError(
                f"Training sample {indices[j]} is not the one that was fitted: its features differ by "
                f"{float(apart[j]):.0%}. Give the training set in its old order, or fit again."
            )
        return train_inputs, train

    def _sides(self, scored: Scored, among: Ints | None) -> list[list[list[int]]]:
        """Return the places of the scores to show, those for and those against, each the strongest first.

        Each comes with the places of its near-duplicates among the strongest, which it stands for.
        """
        if among is None:
            return [self._different(scored, sign) for sign in (1, -1)]
        chosen = np.where(np.isin(scored.indices, among), scored.scores, 0.0)
        return [[[place] for place in strongest(chosen, len(among), sign)] for sign in (1, -1)]

    def _different(self, scored: Scored, sign: int) -> list[list[int]]:
        """Return the k strongest of a sign that differ from each other, or all where there are no more."""
        places = strongest(scored.scores, max(_LOOKED_AT, 10 * self.k), sign)
        if self.builder is None or len(places) <= self.k:
            return [[place] for place in places[: self.k]]
        surrogate, indices = self.surrogate, scored.indices[places].tolist()
        u = directions(surrogate.stored[surrogate.rows(indices)], surrogate.solution.means[0])
        folded = fold(u, surrogate.labels[indices], self.k, surrogate.groups.alike)
        return [[places[j] for j in same] for same in folded]

    def _contributions(
        self,
        target: int,
        scored: Scored,
        sides: list[list[list[int]]],
        coefficients: Tensor | None,
        linear: list[float],
        pairs: list[tuple[Sample, Array, Array]],
    ) -> list[Contribution]:
        """Put together what is known of the shown samples, proponents first."""
        scores = scored.scores
        evidence = [float(side.sum()) for side in (scores.clip(min=0), scores.clip(max=0))]
        places = [(place, alike, side) for side, chosen in enumerate(sides) for place, *alike in chosen]
        contributions = []
        for j, (shown, (sample, test_map, train_map)) in enumerate(zip(places, pairs, strict=True)):
            place, alike, side = shown
            index = int(scored.indices[place])
            label = self.surrogate.labels[index]
            contributions.append(
                Contribution(
                    index=index,
                    label=label.tolist(),
                    label_text=self.task.label_text(label),
                    differs=self.task.differs(label, target),
                    score=float(scores[place]),
                    share=float(scores[place]) / evidence[side],
                    bias=float(scores[place]) - linear[j],
                    coefficient=None if coefficients is None else float(coefficients[j]),
                    sample=sample,
                    test_map=test_map,
                    train_map=train_map,
                    alike=tuple(scored.indices[alike].tolist()),
                    alike_score=float(scores[alike].sum()),
                )
            )
        return contributions

    def _pairs(self, test: Started, indices: list[int], parts: Parts, linear: Linear) -> list[OnInput]:
        """Compute the maps of the logit and of pairs with training samples, on each input of the model."""
        weight = linear.weight
        prepare, size = self.data.prepare, self.fitted.batch_size
        batches: list[tuple[Any, dict[str, PairMaps]]] = []
        for begin in range(0, len(indices), size):
            rows = slice(begin, begin + size)
            train_inputs, train = self.train(indices[rows], parts.vectors[rows], test)
            on_train, _ = self.surrogate.metric.pull(parts.on_train[rows], train.features.detach())
            maps = pair_maps(test.passed, train, linear.on_test[rows], on_train, weight)
            batches.append((train_inputs, maps))
        if batches:
            logit = {name: maps.logit[None] for name, maps in batches[0][1].items()}
        else:
            logit = test.passed.maps(weight[None])
        shown = []
        for name, relevance in logit.items():
            of_input = partial(one_of, name=name) if len(logit) > 1 else _unchanged
            inputs = of_input(test.passed.inputs)
            pairs: list[tuple[Sample, Array, Array]] = []
            for train_inputs, maps in batches:
                theirs = of_input(train_inputs)
                sides = map_arrays(inputs, maps[name].test), map_arrays(theirs, maps[name].train)
                pairs += zip(as_samples(theirs, prepare), *sides, strict=True)
            sample, logit_map = as_samples(inputs, prepare)[0], map_arrays(inputs, relevance)[0]
            shown.append(OnInput(name if len(logit) > 1 else "", sample, logit_map, pairs))
        return shown


def strongest(scores: Doubles, k: int, sign: int) -> list[int]:
    """Return the places of the k largest scores of a sign, the largest first."""
    best, where = torch.from_numpy(scores).topk(min(k, len(scores)), largest=sign > 0)
    return where[best * sign > 0].tolist()


def leading(task: Task, outputs: Doubles) -> tuple[int, int | None]:
    """Return the class of the largest of outputs (K,), and that of the second; None without classes."""
    order = np.argsort(-outputs, kind="stable").tolist()
    return order[0], order[1] if task.has_classes and len(order) > 1 else None


def map_arrays(inputs: Any, maps: Tensor) -> list[Array]:
    """Return maps (m, …) on m samples or on a single one, of texts without those of their padding."""
    return kept_tokens(inputs, maps.detach().float().cpu().numpy())


def method_name(method: Method) -> str:
    """Return what a way of relevance is called."""
    if isinstance(method, Rules):
        return next((r.name for r in (method, *PRESETS) if r.name and r == method), "rules of one’s own")
    kind = method if isinstance(method, type) else type(method)
    return method if isinstance(method, str) else getattr(method, "name", None) or kind.__name__


def _unchanged(inputs: Any) -> Any:
    return inputs


def _check_same_shape(inputs: Any, train_inputs: Any) -> None:
    """Raise where the test sample has another shape than the training samples."""
    ours, theirs = floating(inputs), floating(train_inputs)
    for name in ours.keys() & theirs.keys():
        if ours[name].shape[1:] != theirs[name].shape[1:]:
            raise InvalidInputError(
                f"'x' must have the shape of the training samples, {tuple(theirs[name].shape[1:])}. "
                f"Got {tuple(ours[name].shape[1:])}. Resize or crop it as the training samples were."
            )
