"""How typical tests are, next to their explanations, for every task; expected values by scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

import whence
from tests.helpers.explained import explanation
from tests.helpers.nets import mlp
from whence.errors import InvalidInputError
from whence.explanation import Neighbour, Sample, Typicality

N = 60
LABELS = {
    "classes": (torch.arange(N) % 3, 3),
    "one-logit": (torch.arange(N) % 2, 1),
    "many-labels": ((torch.arange(N)[:, None] % torch.tensor([2, 3]) == 0).float(), 2),
    "regression": (torch.linspace(-1, 1, N), 1),
}


def data() -> torch.Tensor:
    return torch.randn(N, 4, generator=torch.Generator().manual_seed(0)) * 0.1 + torch.tensor([1.0, 1, 0, 0])


@pytest.mark.parametrize("task", LABELS)
def test_of_every_task_it_is_the_neighbours_of_unit_features(task: str) -> None:
    (y, K), x = LABELS[task], data()
    model = mlp(4, 6, K, activation=nn.Tanh)
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y), task=task)
    tests = torch.cat([x[:2] + 0.001, -x[:1]])
    usual = [
        why.typicality for why in explainer.explain(tests, k=1, target=0, novelty=explainer.novelty(k=3))
    ]
    with torch.no_grad():
        X, T = (nn.functional.normalize(model[:2](part).double(), dim=1).numpy() for part in (x, tests))
    known = NearestNeighbors(n_neighbors=4).fit(X)
    own = known.kneighbors(X)[0][:, 3]  # the first is the sample itself
    distances, places = known.kneighbors(T, 3)
    for one, far, near in zip(usual, distances, places, strict=True):
        assert [neighbour.index for neighbour in one.neighbours] == near.tolist()
        np.testing.assert_allclose([neighbour.distance for neighbour in one.neighbours], far, atol=1e-3)
        assert one.neighbours[0].label_text == explainer.task_.label_text(explainer.labels_[near[0]])
    alone = explainer.novelty(k=3).of(torch.from_numpy(T))
    np.testing.assert_allclose(alone.shares, [(own < far[-1]).mean() for far in distances], atol=0.04)
    assert [one.novel for one in usual] == alone.novel.tolist() == [False, False, True]
    assert usual[0].spaces == ("features", "values")
    assert (usual[2].share, usual[2].n_compared) == (1.0, N)
    assert "further from it than all of 60 training samples" in usual[2].detail
    json.dumps(explainer.explain(tests[2:], k=1, target=0, novelty=explainer.novelty()).to_dict())


def test_the_mark_stands_next_to_the_prediction() -> None:
    near = tuple(Neighbour(i, f"<b>{i}</b>", 0.1 * i, Sample(image=np.zeros((6, 5)))) for i in range(1, 6))
    novel = explanation(typicality=Typicality(True, 0.999, 0.99, 2000, near))
    page = whence.explanation.Explanations([novel]).to_html()
    assert "The input is unlike the training data" in page
    assert "further from it than 99.9" in page
    assert "<b>1</b>" not in page
    written = [text.get_text() for text in novel.plot().axes[0].texts] if novel.plot().axes else []
    written += [text.get_text() for text in novel.plot().texts]
    assert any("unlike the" in text for text in written)
    usual = explanation(typicality=Typicality(False, 0.25, 0.99, 2000, near))
    page = whence.explanation.Explanations([usual]).to_html()
    assert "unlike the training" not in page
    assert "nearer to it than 75.0" in page
    assert explanation().to_dict()["typicality"] is None
    first = usual.to_dict()["typicality"]["neighbours"][0]
    assert first == {"index": 1, "label_text": "<b>1</b>", "distance": 0.1}


def test_what_is_no_usualness_of_the_explainer_is_refused() -> None:
    x, y = data(), torch.arange(N) % 2
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(nn.Linear(4, 2), (x, y))
    other = whence.DualDA(C=0.1, show_progress=False).fit(nn.Linear(3, 2), (x[:, :3], y))
    with pytest.raises(InvalidInputError, match="'novelty' must be what novelty"):
        explainer.explain(x[:1], novelty=True)
    with pytest.raises(InvalidInputError, match="of the explainer's own features, of which there are 4"):
        explainer.explain(x[:1], novelty=other.novelty())
