"""Concepts between samples: parts of scores, their maps, and what they sum to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import whence
from whence.errors import InvalidInputError
from whence.explanation import Sample
from whence.model.extractor import Extractor
from whence.relevance import Concepts, lrp, trace
from whence.relevance.concepts import concept_maps


@pytest.fixture(scope="module")
def fitted():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(60, 1, 8, 8, generator=generator)
    labels = (images[:, 0, :4].mean((1, 2)) > images[:, 0, 4:].mean((1, 2))).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 6),
            nn.ReLU(), nn.Linear(6, 2),
        )  # fmt: skip
    explainer = whence.DualDA(metric="raw", C=500.0, show_progress=False)
    return explainer.fit(model, (images, labels), class_names=["low", "high"]), images


def rotation(d, seed=0):
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    return q


def test_parts_by_hand():
    concepts = Concepts.of([[0.0, 2.0], [1.0, 1.0]], ["b", "both"])
    found = concepts.scores([1.0, 3.0], [[2.0, 5.0], [0.0, 1.0]], [0.5, -1.0])
    r = 2**-0.5
    expected = [[0.5 * 5 * 3, 0.5 * 7 * r * 4 * r], [-1 * 1 * 3, -1 * r * 4 * r]]
    np.testing.assert_allclose(found, expected)
    assert not concepts.is_basis


@pytest.mark.parametrize("kind", ["neurons", "rotation", "principal"])
def test_parts_over_a_basis_sum_to_the_score(kind):
    rng = np.random.default_rng(1)
    f, train, lam = rng.normal(size=7), rng.normal(size=(20, 7)), rng.normal(size=20)
    concepts = {
        "neurons": Concepts.neurons(7),
        "rotation": Concepts.of(rotation(7)),
        "principal": Concepts.principal(train),
    }[kind]
    assert concepts.is_basis
    np.testing.assert_allclose(concepts.scores(f, train, lam).sum(1), lam * (train @ f), rtol=1e-12)


def test_principal_components_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    X = np.random.default_rng(2).normal(size=(50, 5)) * [5, 4, 3, 2, 1] + 1
    ours, theirs = Concepts.principal(X).vectors, PCA().fit(X).components_
    np.testing.assert_allclose(np.abs((ours * theirs).sum(1)), 1, rtol=1e-10)
    assert (ours @ X.mean(0) >= 0).all()


def test_a_probe_finds_a_planted_direction():
    rng = np.random.default_rng(3)
    v = rotation(10)[0]
    negative = rng.normal(size=(200, 10))
    positive = rng.normal(size=(200, 10)) + 4 * v
    found = Concepts.probe(positive, negative, "planted")
    assert abs(found.vectors[0] @ v) > 0.95
    assert found.vectors[0] @ v > 0
    assert found.names == ("planted",)
    assert found.accuracy[0] > 0.95
    noise = Concepts.probe(rng.normal(size=(200, 10)), negative)
    assert 0.35 < noise.accuracy[0] < 0.65


def test_most_active_samples():
    concepts = Concepts.of([[1.0, 0.0], [0.0, -1.0]])
    features = np.array([[3.0, 1.0], [5.0, 0.0], [4.0, -2.0]])
    assert concepts.top_samples(features, 2).tolist() == [[1, 2], [2, 1]]


@pytest.mark.parametrize("basis", ["neurons", "rotation"])
def test_maps_over_a_basis_sum_to_the_maps_of_the_pair(fitted, basis):
    explainer, images = fitted
    model, layer = explainer.model_.extractor.model, explainer.model_.extractor.layer
    model = model.double()
    try:
        extractor = Extractor(model, layer)
        x, z = images[:1].double(), images[7:8].double()
        test, train = (trace(extractor, inputs, "epsilon_plus_flat") for inputs in (x, z))
        d = test.features.shape[1]
        concepts = Concepts.neurons(d) if basis == "neurons" else Concepts.of(rotation(d))
        v = torch.as_tensor(concepts.vectors)
        on_test, on_train = (0.3 * (v @ one.features[0].detach())[:, None] * v for one in (train, test))
        maps = concept_maps(test, train, on_test, on_train)
        R = 0.3 * test.features * train.features
        whole = [lrp(extractor, inputs, R, "epsilon_plus_flat")[0] for inputs in (x, z)]
        for found, expected in zip(maps, whole, strict=True):
            torch.testing.assert_close(found.sum(0), expected, rtol=1e-9, atol=1e-12)
    finally:
        model.float()


def test_explain_concepts(fitted):
    explainer, images = fitted
    (why,) = explainer.explain_concepts(images[:1], n=3, k=4)
    top = explainer.top_k(images[:1], 1)
    assert why.index == int(top.proponents.indices[0, 0])
    assert why.score == pytest.approx(float(explainer.attribute(images[:1])[0, why.index]), rel=1e-5)
    assert why.scores.sum() + why.bias == pytest.approx(why.score, rel=1e-5)
    assert why.is_basis
    assert len(why.names) == len(why.scores) == 6
    assert [part.score for part in why.parts] == sorted(why.scores, reverse=True)[:3]
    vectors = explainer.vectors_.numpy()
    for part in why.parts:
        j = int(part.name.removeprefix("neuron "))
        strongest = explainer.support_[np.argsort(-vectors[:, j], kind="stable")[:4]]
        assert list(part.indices) == strongest.tolist()
        assert part.test_map.shape == part.train_map.shape == (1, 8, 8)
        np.testing.assert_array_equal(part.samples[0].image, images[part.indices[0], 0].numpy())
    assert why.to_dict()["scores"]["neuron 0"] == why.scores[0]


def test_explain_concepts_of_an_opponent(fitted):
    explainer, images = fitted
    opponent = int(explainer.top_k(images[:1], 1).opponents.indices[0, 0])
    (why,) = explainer.explain_concepts(images[:1], index=opponent, n=2)
    assert why.score < 0
    assert [part.score for part in why.parts] == sorted(why.scores)[:2]


def test_bad_concepts(fitted):
    explainer, images = fitted
    with pytest.raises(InvalidInputError, match="Row 1 has length 0"):
        Concepts.of([[1.0, 0.0], [0.0, 0.0]])
    with pytest.raises(InvalidInputError, match=r"'vectors' must be finite"):
        Concepts.of([[float("nan"), 1.0]])
    with pytest.raises(InvalidInputError, match=r"'names' must be one per concept, 1\. Got 2"):
        Concepts.of([[1.0, 0.0]], ["a", "b"])
    with pytest.raises(InvalidInputError, match=r"3 dimensions\. Got 6"):
        explainer.explain_concepts(images[:1], Concepts.neurons(3))
    with pytest.raises(InvalidInputError, match=r"as many features as 'positive', 4\. Got 5"):
        Concepts.probe(np.ones((3, 4)), np.ones((3, 5)))
    idle = next(i for i in range(60) if i not in explainer.support_)
    with pytest.raises(InvalidInputError, match=f"Got {idle}, whose scores are all 0"):
        explainer.explain_concepts(images[:1], index=idle)


def texts(figure):
    return " | ".join(text.get_text() for text in figure.texts)


def test_figure(fitted, tmp_path):
    explainer, images = fitted
    (why,) = explainer.explain_concepts(images[:1])
    figure = why.plot()
    found = texts(figure)
    for expected in (f"training sample {why.index} ", why.parts[0].name, "maps by epsilon_plus_flat"):
        assert expected in found
    assert len(figure.axes) == 3 + 3 * (2 + 9)
    figure.savefig(tmp_path / "concepts.png")


def test_figure_of_texts_and_of_values(fitted, tmp_path):
    explainer, images = fitted
    (why,) = explainer.explain_concepts(images[:1], n=2, k=3)
    relevance = np.array([0.5, -0.25], dtype=np.float32)
    for sample in (
        Sample(tokens=(" stocks", " $fell_{")),
        Sample(values=np.array([1.0, -2.0], dtype=np.float32)),
    ):
        parts = tuple(
            dataclasses.replace(part, test_map=relevance, train_map=relevance, samples=(sample,) * 3)
            for part in why.parts
        )
        shown = dataclasses.replace(why, test=sample, train=sample, parts=parts)
        figure = shown.plot()
        figure.savefig(tmp_path / "figure.png")
        if sample.tokens is not None:
            assert "$fell_{" in texts(figure)
            assert "−0.250" in texts(figure)
