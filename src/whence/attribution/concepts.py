"""Concepts: the score of a pair as a sum over directions in feature space."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.attribution.pairs import PairExplainer, map_arrays, method_name, strongest
from whence.attribution.parameters import MOST_PAIRS
from whence.core.checks import check_count, shown
from whence.errors import InvalidInputError
from whence.explanation import ConceptExplanation, ConceptPart
from whence.model.inputs import check_batch
from whence.pages.samples import as_samples
from whence.relevance.concepts import Concepts, concept_maps
from whence.relevance.xda import Method
from whence.surrogate.scores import Contrast


def explain_concepts(
    fitted: Fitted,
    x: Any,
    concepts: Concepts | None,
    index: int | None,
    n: int,
    k: int,
    target: Any,
    method: Method | None,
) -> list[ConceptExplanation]:
    """Explain pairs by concepts; ``DualDA.explain_concepts`` says what is given."""
    n, k = check_count("n", n), min(check_count("k", k, most=MOST_PAIRS), fitted.n_train)
    if index is not None:
        index = check_count("index", index, 0, fitted.n_train - 1)
    if concepts is not None and not isinstance(concepts, Concepts):
        raise InvalidInputError(
            f"'concepts' must be whence.relevance.Concepts, or None. Got {shown(concepts)}."
        )
    x = fitted.as_batch(x)
    count = check_batch(x)
    wanted = [None] * count if target is None else fitted.task.check_target(target, count).tolist()
    explainer = PairExplainer(fitted, 1, method)
    if concepts is None:
        concepts = Concepts.neurons(explainer.surrogate.stored.shape[1])
    tests = zip(range(count), explainer.model.batches(x, 1), wanted, strict=True)
    return [explain_pair(explainer, *test, index, concepts, n, k) for test in tests]


def explain_pair(
    explainer: PairExplainer,
    number: int,
    inputs: Any,
    target: int | None,
    index: int | None,
    concepts: Concepts,
    n: int,
    k: int,
) -> ConceptExplanation:
    """Split the score of one pair; that of the strongest proponent if no index is given."""
    surrogate, task = explainer.surrogate, explainer.task
    test = explainer.start(inputs, number)
    target = explainer.predicted(test.passed.logits, target)[1]
    index = _proponent(explainer, test.features, target) if index is None else index
    if index not in surrogate.support:
        raise InvalidInputError(
            f"'index' must be one of the {len(surrogate.support):,} support vectors, in support_. "
            f"Got {index}, whose scores are all 0."
        )
    expected = surrogate.stored[surrogate.rows([index])]
    train_inputs, train = explainer.train([index], expected, test)
    lam = float(surrogate.lam[index, target])
    raw, raw_train = test.features, train.features.detach().to(test.features)
    f, f_train = surrogate.stored.transform(raw), surrogate.stored.transform(raw_train)
    scores = concepts.scores(f[0].cpu(), f_train.cpu(), [lam])[0]
    bias = lam * surrogate.constant**2
    score = lam * float(f[0].double() @ f_train[0].double()) + bias
    best = np.argsort(-np.sign(lam) * scores, kind="stable")[:n]
    chosen = Concepts(concepts.vectors[best], tuple(concepts.names[j] for j in best))
    v = torch.as_tensor(chosen.vectors).to(f)
    on_test, on_train = (
        surrogate.metric.pull(lam * (v @ other[0])[:, None] * v, own)[0]
        for other, own in ((f_train, raw), (f, raw_train))
    )
    maps = concept_maps(test.passed, train, on_test, on_train)
    test_maps, train_maps = map_arrays(test.passed.inputs, maps.test), map_arrays(train_inputs, maps.train)
    activations = [chosen.activations(features.cpu())[0] for features in (f, f_train)]
    sides = np.where(activations[1] < 0, -1.0, 1.0)[:, None]
    rows = Concepts(sides * chosen.vectors, chosen.names).top_samples(surrogate.vectors.cpu(), k)
    prepare = explainer.model.prepare
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
                samples=tuple(as_samples(explainer.data.take(indices), prepare)),
            )
        )
    return ConceptExplanation(
        test=as_samples(test.passed.inputs, prepare)[0],
        train=as_samples(train_inputs, prepare)[0],
        index=index,
        label=surrogate.labels[index].tolist(),
        label_text=task.label_text(surrogate.labels[index]),
        label_kind=task.label_kind,
        target=target,
        class_names=task.output_names,
        score=score,
        bias=bias,
        names=concepts.names,
        scores=scores,
        is_basis=concepts.is_basis,
        parts=tuple(parts),
        among="support vectors",
        method=method_name(test.method),
    )


def _proponent(explainer: PairExplainer, features: Tensor, target: int) -> int:
    """Return the strongest proponent."""
    scored = explainer.scorer.scored(features, Contrast(target, relative=True))
    best = strongest(scored.scores, 1, 1)
    if not best:
        raise InvalidInputError(
            f"'x' must have a proponent for class {explainer.task.output_names[target]!r}. It has none; "
            "name a training sample with 'index', or another 'target'."
        )
    return int(scored.indices[best[0]])
