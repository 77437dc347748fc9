"""From scores to explanations: the strongest pairs of a test sample, with relevance maps on both samples."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from whence.attribution.classifier import check_tests
from whence.attribution.usual import usual_of
from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError, StoreError
from whence.explanation import ConceptExplanation, ConceptPart, Contribution, Explanation, Sample
from whence.features import Usualness
from whence.model.extractor import Extractor
from whence.model.inputs import to_model
from whence.pages.samples import Array, as_samples, kept_tokens
from whence.relevance.concepts import Concepts, concept_maps
from whence.relevance.lrp import default_rules
from whence.relevance.presets import PRESETS, Rules
from whence.relevance.sources import floating, one_of
from whence.relevance.xda import Backward, Method, PairMaps, pair_maps, start

if TYPE_CHECKING:
    from whence.attribution.pairs import PairAttributor


class Scored(NamedTuple):
    """The training samples that have a score for one test and target.

    Attributes
    ----------
    indices, scores : (s,) their places, ascending, and their scores
    """

    indices: Ints
    scores: Doubles


class Parts(NamedTuple):
    """What the scores of m pairs of one test are at the features.

    Attributes
    ----------
    vectors : (m, d) features f_i of the training samples, as the surrogate reads them
    on_test : (m, d) vectors e_i: the score is e_i·f(x), and the bias; f(x) as the surrogate reads it
    on_train : (m, d) vectors t_i: the score is t_i·f_i, and the bias
    bias : (m,) the part of the score that the bias carries
    coefficients : (m,) λ_ic where the score is λ_ic f_i·f(x); None where it is none of this form
    """

    vectors: Tensor
    on_test: Tensor
    on_train: Tensor
    bias: Tensor
    coefficients: Tensor | None


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
    """Explains test samples one at a time: one pass of the sample, one of its training samples, two back.

    Parameters
    ----------
    explainer : fitted, with its model and its training set
    k : pairs of either sign to show
    method : how relevance goes from features to inputs; None leaves it to what the model does
    usualness : what tells how usual a test is; None leaves that out
    """

    def __init__(
        self, explainer: PairAttributor, k: int, method: Method | None, usualness: Usualness | None = None
    ) -> None:
        self.explainer, self.k, self.method, self.usualness = explainer, k, method, usualness
        self.model, self.data = explainer.require_model(), explainer.require_data()
        self.surrogate, self.class_names = explainer.surrogate_, explainer.task_.called

    def __call__(
        self, number: int, inputs: Any, target: int | None, truth: Any, among: Ints | None = None
    ) -> Explanation:
        """Explain one test sample, a batch of one; ``number`` is its place among the tests.

        ``among`` are training samples to show instead of the strongest.
        """
        surrogate = self.surrogate
        theirs = self.model.read_batch(inputs, number).logits
        predicted, target = self._predicted(theirs, target)
        inputs, method, test, f = self._start(inputs)
        scored = self.explainer.scored(f, target)
        sides = self._sides(scored, among)
        indices = [int(scored.indices[place]) for place in (*sides[0], *sides[1])]
        parts = self.explainer.parts(f, target, indices)
        first, *others = self._pairs(inputs, test, method, target, indices, parts)
        shown = [self._contributions(target, scored, sides, parts, each.pairs) for each in (first, *others)]
        n = len(sides[0])
        ours = surrogate.logits(f)[0].cpu().numpy()
        verdict = surrogate.task.verdict(theirs[0].double().cpu().numpy(), ours, target, truth)
        why = Explanation(
            effect=self.explainer.foretold_,
            speech=surrogate.task.speech,
            sample=first.sample,
            predicted=predicted,
            verdict=verdict,
            probability=verdict.probability,
            surrogate_class=int(ours.argmax()) if surrogate.task.has_classes else target,
            truth=truth,
            target=target,
            class_names=self.class_names,
            scores=scored.scores,
            logit=float(ours[target]),
            base=float(surrogate.task.base[target]),
            bias=float(surrogate.coef[target, -1]) if surrogate.bias else 0.0,
            proponents=tuple(shown[0][:n]),
            opponents=tuple(shown[0][n:]),
            logit_map=first.logit_map,
            method=_name(method),
            n_train=len(surrogate.labels),
            n_support=len(self.explainer.scoring_),
            gap=self.explainer.gap_,
            input=first.name,
            typicality=None
            if self.usualness is None
            else usual_of(self.explainer, self.usualness, f, first.name)[0],
        )
        more = [
            replace(
                why,
                sample=each.sample,
                proponents=tuple(some[:n]),
                opponents=tuple(some[n:]),
                logit_map=each.logit_map,
                input=each.name,
            )
            for each, some in zip(others, shown[1:], strict=True)
        ]
        return replace(why, others=tuple(more))

    def _sides(self, scored: Scored, among: Ints | None) -> list[list[int]]:
        """Return the places of the scores to show, those for and those against, each the strongest first."""
        if among is None:
            return [strongest(scored.scores, self.k, sign) for sign in (1, -1)]
        chosen = np.where(np.isin(scored.indices, among), scored.scores, 0.0)
        return [strongest(chosen, len(among), sign) for sign in (1, -1)]

    def _contributions(
        self,
        target: int,
        scored: Scored,
        sides: list[list[int]],
        parts: Parts,
        pairs: list[tuple[Sample, Array, Array]],
    ) -> list[Contribution]:
        """Put together what is known of the shown samples, proponents first."""
        scores, coefficients = scored.scores, parts.coefficients
        evidence = [float(side.sum()) for side in (scores.clip(min=0), scores.clip(max=0))]
        places = [(place, side) for side, some in enumerate(sides) for place in some]
        task, labels = self.surrogate.task, self.surrogate.labels
        return [
            Contribution(
                index=int(scored.indices[place]),
                label=labels[scored.indices[place]].tolist(),
                label_text=task.told(labels[scored.indices[place]]),
                differs=task.differs(labels[scored.indices[place]], target),
                score=float(scores[place]),
                share=float(scores[place]) / evidence[side],
                bias=float(parts.bias[j]),
                coefficient=None if coefficients is None else float(coefficients[j]),
                sample=sample,
                test_map=test_map,
                train_map=train_map,
            )
            for j, ((place, side), (sample, test_map, train_map)) in enumerate(
                zip(places, pairs, strict=True)
            )
        ]

    def concepts(
        self,
        number: int,
        inputs: Any,
        target: int | None,
        index: int | None,
        concepts: Concepts,
        n: int,
        k: int,
    ) -> ConceptExplanation:
        """Take the score of one pair apart into concepts; the strongest proponent's if no index is given."""
        surrogate = self.surrogate
        if target is None:
            target = self._predicted(self.model.read_batch(inputs, number).logits, None)[1]
        inputs, method, test, f = self._start(inputs)
        index = self._strongest(f, target) if index is None else index
        if index not in surrogate.support:
            raise InvalidInputError(
                f"'index' must be one of the {len(surrogate.support):,} support vectors, in support_. "
                f"Got {index}, whose scores are all 0."
            )
        fitted = surrogate.stored[surrogate.rows([index])]
        train_inputs, train = self._train([index], fitted, inputs, method)
        lam = float(surrogate.lam[index, target])
        divisors = [float(surrogate.stored.divisors(one)) for one in (f, train.features)]
        f, known = surrogate.stored.as_read(f), surrogate.stored.as_read(train.features.detach().to(f))
        scores = concepts.scores(f[0].cpu(), known.cpu(), [lam])[0]
        bias = lam * surrogate.constant**2
        score = lam * float(f[0].double() @ known[0].double()) + bias
        best = np.argsort(-np.sign(lam) * scores, kind="stable")[:n]
        chosen = Concepts(concepts.vectors[best], tuple(concepts.names[j] for j in best))
        maps = concept_maps(test, train, lam / math.prod(divisors), chosen)
        test_maps, train_maps = _shown(inputs, maps.test), _shown(train_inputs, maps.train)
        activations = [chosen.activations(x.cpu())[0] for x in (f, known)]
        sides = np.where(activations[1] < 0, -1.0, 1.0)[:, None]
        rows = Concepts(sides * chosen.vectors, chosen.names).top_samples(surrogate.vectors.cpu(), k)
        tokenizer = self.model.prepare.find_tokenizer()
        parts = []
        for j, name in enumerate(chosen.names):
            indices = surrogate.support[rows[j]].tolist()
            parts.append(
                ConceptPart(
                    name=name,
                    score=float(scores[best[j]]),
                    test_activation=float(activations[0][j]),
                    train_activation=float(activations[1][j]),
                    test_map=test_maps[j],
                    train_map=train_maps[j],
                    indices=tuple(indices),
                    samples=tuple(as_samples(self.data.take(indices), tokenizer)),
                )
            )
        return ConceptExplanation(
            test=as_samples(inputs, tokenizer)[0],
            train=as_samples(train_inputs, tokenizer)[0],
            index=index,
            label=surrogate.labels[index].tolist(),
            label_text=surrogate.task.told(surrogate.labels[index]),
            speech=surrogate.task.speech,
            target=target,
            class_names=self.class_names,
            score=score,
            bias=bias,
            names=concepts.names,
            scores=scores,
            is_basis=concepts.is_basis,
            parts=tuple(parts),
            among="support vectors",
            method=_name(method),
        )

    def _predicted(self, outputs: Tensor, target: int | None) -> tuple[int, int]:
        """Give the output that the model predicts for one test sample, by its own (1, K), and the target."""
        task = self.surrogate.task
        if target is not None and not task.has_classes:
            return target, target
        predicted = int(task.predicted(outputs)[0])
        return predicted, predicted if target is None else target

    def _start(self, inputs: Any) -> tuple[Any, Method, Backward, Tensor]:
        """Return the inputs on the model's device, the method, the pass it goes back by, and the features."""
        extractor = self.model.extractor
        inputs = to_model(extractor.model, inputs)
        method = _rules(extractor, inputs) if self.method is None else self.method
        test = start(extractor, inputs, method)
        return inputs, method, test, check_tests(test.features, self.surrogate.stored.like, "x")

    def _strongest(self, f: Tensor, target: int) -> int:
        """Return the strongest proponent."""
        scored = self.explainer.scored(f, target)
        best = strongest(scored.scores, 1, 1)
        if not best:
            raise InvalidInputError(
                f"'x' must have a proponent for class {self.class_names[target]!r}. It has none; "
                "name a training sample with 'index', or another 'target'."
            )
        return int(scored.indices[best[0]])

    def _pairs(
        self, inputs: Any, test: Backward, method: Method, target: int, indices: list[int], parts: Parts
    ) -> list[OnInput]:
        """Give the maps of the logit and of pairs with some training samples, on each input of the model."""
        # The surrogate reads features over their length; that is taken as it is, and gets no relevance.
        divisors = self.surrogate.stored.divisors
        length = divisors(test.features.detach()).cpu()
        weight = torch.as_tensor(self.surrogate.coef[target, : test.features.shape[1]]) / length[0]
        tokenizer, size = self.model.prepare.find_tokenizer(), self.explainer.batch_size
        batches: list[tuple[Any, dict[str, PairMaps]]] = []
        for begin in range(0, len(indices), size):
            some = slice(begin, begin + size)
            train_inputs, train = self._train(indices[some], parts.vectors[some], inputs, method)
            on_test = parts.on_test[some] / length.to(parts.on_test.device)
            on_train = parts.on_train[some] / divisors(train.features.detach()).to(parts.on_train.device)
            maps = pair_maps(test, train, on_test, on_train, weight)
            batches.append((train_inputs, maps))
        first = {name: each.logit[None] for name, each in batches[0][1].items()} if batches else None
        logit = test.maps(weight[None]) if first is None else first
        found = []
        for name, relevance in logit.items():
            own = partial(one_of, name=name) if len(logit) > 1 else _as_it_is
            pairs: list[tuple[Sample, Array, Array]] = []
            for train_inputs, maps in batches:
                theirs = own(train_inputs)
                sides = _shown(own(inputs), maps[name].test), _shown(theirs, maps[name].train)
                pairs += zip(as_samples(theirs, tokenizer), *sides, strict=True)
            sample, shown = as_samples(own(inputs), tokenizer)[0], _shown(own(inputs), relevance)[0]
            found.append(OnInput(name if len(logit) > 1 else "", sample, shown, pairs))
        return found

    def _train(
        self, indices: list[int], expected: Tensor, inputs: Any, method: Method
    ) -> tuple[Any, Backward]:
        """Return training samples on the model's device and their pass back, or raise unless they fit.

        ``expected`` (m, d) are their features as the surrogate read them.
        """
        train_inputs = to_model(self.model.extractor.model, self.data.take(indices))
        _check_same_shape(inputs, train_inputs)
        train = start(self.model.extractor, train_inputs, method)
        lengths = expected.norm(dim=1).clamp(min=1e-12)
        found = self.surrogate.stored.as_read(train.features.detach().to(expected))
        apart = (found - expected).norm(dim=1) / lengths
        if (apart > 0.05).any():  # mixed precision and padding leave less
            j = int(apart.argmax())
            raise StoreError(
                f"Training sample {indices[j]} is not the one that was fitted: its features differ by "
                f"{float(apart[j]):.0%}. Give the training set in its old order, or fit again."
            )
        return train_inputs, train


_chosen: WeakKeyDictionary[Extractor, str] = WeakKeyDictionary()  # once per model: it costs a pass


def _rules(extractor: Extractor, inputs: Any) -> str:
    """Name the rules by which relevance goes back through a model, as its first inputs show."""
    if extractor not in _chosen:
        _chosen[extractor] = default_rules(extractor, inputs).name
    return _chosen[extractor]


def strongest(scores: Doubles, k: int, sign: int) -> list[int]:
    """Return the places of the k largest scores of a sign, the largest first."""
    best, where = torch.from_numpy(scores).topk(min(k, len(scores)), largest=sign > 0)
    return where[best * sign > 0].tolist()


def _as_it_is(inputs: Any) -> Any:
    return inputs


def _shown(inputs: Any, maps: Tensor) -> list[Array]:
    """Return maps (m, …) on m samples or on a single one, of texts without those of their padding."""
    return kept_tokens(inputs, maps.detach().float().cpu().numpy())


def _name(method: Method) -> str:
    if isinstance(method, Rules):
        return next((r.name for r in (method, *PRESETS) if r.name and r == method), "rules of one’s own")
    kind = method if isinstance(method, type) else type(method)
    return method if isinstance(method, str) else getattr(method, "name", None) or kind.__name__


def _check_same_shape(inputs: Any, train_inputs: Any) -> None:
    """Raise where the test sample has another shape than the training samples."""
    ours, theirs = floating(inputs), floating(train_inputs)
    for name in ours.keys() & theirs.keys():
        if ours[name].shape[1:] != theirs[name].shape[1:]:
            raise InvalidInputError(
                f"'x' must have the shape of the training samples, {tuple(theirs[name].shape[1:])}. "
                f"Got {tuple(ours[name].shape[1:])}. Resize or crop it as the training samples were."
            )
