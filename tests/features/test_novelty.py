"""Novel samples by features and inputs; expected values by numpy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

import whence
from tests.helpers.nets import mlp
from whence.errors import InvalidInputError
from whence.features import InputViews, Novelty, reference

N = 300


def images(n: int, seed: int) -> Tensor:
    """Smooth images: a bright blob somewhere on a dark ground."""
    rng = np.random.default_rng(seed)
    row, column = rng.uniform(2, 6, (2, n, 1, 1))
    grid = np.arange(8.0)
    blob = np.exp(-((grid[:, None] - row) ** 2 + (grid - column) ** 2) / 4)
    return torch.tensor(blob[:, None], dtype=torch.float32)


def test_views_of_images_are_pattern_and_statistics() -> None:
    x = images(N, 0)
    views = InputViews([{"input": x[:200]}, {"input": x[200:]}])
    flat = x.numpy().reshape(N, -1)
    found = views({"input": torch.cat([x[:3], 3 * x[:3], torch.full((1, 1, 8, 8), 0.7)])})
    unit = flat[:3] / np.linalg.norm(flat[:3], axis=1, keepdims=True)
    np.testing.assert_allclose(found["direction"][:3, :-1], unit, atol=1e-6)
    np.testing.assert_allclose(found["direction"][3:6], found["direction"][:3], atol=1e-6)
    assert found["direction"][6].tolist() == [0.0] * 64 + [2.0]
    np.testing.assert_allclose(views.views["values"].mean(axis=0), 0, atol=1e-4)  # centred
    pictures = x.numpy()[:, 0].astype(np.float64)
    down, right = np.diff(pictures, axis=1), np.diff(pictures, axis=2)
    rough = [np.sqrt((step**2).mean(axis=(1, 2))) for step in (down, right)]
    plain = np.stack([pictures.mean((1, 2)), pictures.std((1, 2)), *rough], axis=1)
    values, vectors = np.linalg.eigh(np.cov(plain.T, bias=True))
    whiten = vectors / np.sqrt(values + 0.1 * values.mean()) @ vectors.T
    np.testing.assert_allclose(views.views["statistics"], (plain - plain.mean(0)) @ whiten, atol=2e-2)


def test_scores_join_the_distances_in_all_spaces() -> None:
    x, rng = images(N, 0), np.random.default_rng(1)
    features = rng.normal(size=(N, 5)).astype(np.float32)
    order = reference(N, 0)
    views = InputViews([{"input": x[torch.from_numpy(order)]}])
    novelty = Novelty(features, np.arange(N), k=3, seed=0, inputs=views)
    tests, t = images(4, 5), rng.normal(size=(4, 5)).astype(np.float32)
    found, read = novelty.of(torch.from_numpy(t), {"input": tests}), views({"input": tests})
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (features[order], t)]
    pairs = [unit, *((views.views[name], read[name]) for name in ("values", "direction", "statistics"))]
    excess, typical = [], []
    for rows, wanted in pairs:
        known = NearestNeighbors(n_neighbors=4).fit(rows.astype(np.float64))
        own = known.kneighbors(rows)[0][:, 3]  # the first is the sample itself
        middle, far = np.median(own), np.quantile(own, 0.99)
        excess.append((known.kneighbors(wanted, 3)[0][:, 2] - middle) / (far - middle))
        typical.append((own - middle) / (far - middle))
    np.testing.assert_allclose(found.excess, np.stack(excess, axis=1), atol=2e-2)
    scores, own = (np.log(np.exp(2 * np.stack(part)).sum(0)) for part in (excess, typical))
    np.testing.assert_allclose(found.shares, [(own < s).mean() for s in scores], atol=0.02)
    assert novelty.spaces == ("features", "values", "direction", "statistics")
    assert novelty.of(torch.from_numpy(t)).spaces == ("features",)


def test_noise_constants_and_inverted_images_are_novel_and_held_out_ones_are_not() -> None:
    x, y = images(N, 0), torch.arange(N) % 3
    model = torch.nn.Sequential(torch.nn.Flatten(), mlp(64, 6, 3))
    explainer = whence.DualDA(C=0.1, metric="raw", show_progress=False).fit(model, (x, y))
    noise = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    flat = torch.tensor([0.0, 0.5, 1.0])[:, None, None, None].expand(3, 1, 8, 8)
    unlike = torch.cat([noise, flat, 1 - images(20, 3)])
    found = whence.audit.novel_inputs(explainer, unlike)
    assert found.novel.all()
    assert whence.audit.novel_inputs(explainer, images(200, 7)).novel.mean() <= 0.03
    first, second = explainer.explain(torch.cat([images(1, 8), noise[:1]]), k=1)  # by itself
    assert (first.typicality.novel, second.typicality.novel) == (False, True)
    assert first.summary.checks[1].passed
    assert explainer.explain(noise[:1], k=1, novelty=False)[0].typicality is None
    with pytest.raises(InvalidInputError, match="must have the shape of the training samples"):
        explainer.novelty().of(torch.zeros(1, 6), {"input": torch.zeros(1, 1, 9, 9)})


def test_inputs_of_a_bank_are_not_compared_and_few_samples_are_left_out() -> None:
    rng = np.random.default_rng(0)
    bank = whence.features.FeatureBank.of(rng.normal(size=(60, 4)), np.arange(60) % 2)
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    assert explainer.novelty(bank).spaces == ("features",)
    x, y = images(60, 0), torch.arange(60) % 3
    model = torch.nn.Sequential(torch.nn.Flatten(), mlp(64, 6, 3))
    few = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y))
    assert few.explain(x[:1], k=1)[0].summary.checks[1].passed is None
