"""The explainer of quanda, in its metrics. quanda needs torchvision, and so an environment of its own."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import whence
from tests.helpers.nets import train

pytest.importorskip("quanda", reason="quanda is not installed: it needs an environment of its own")
pytestmark = pytest.mark.filterwarnings("ignore")

N, K = 60, 3


@functools.cache
def case() -> tuple[nn.Module, TensorDataset]:
    """A trained network; samples of a class have one bright pixel."""
    torch.manual_seed(0)
    y = torch.arange(N) % K
    x = 0.3 * torch.randn(N, 1, 6, 6)
    x[torch.arange(N), 0, y, y] += 4
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, K))
    train(model, x, y, 60, 0.02)
    return model.eval(), TensorDataset(x, y)


OPTIONS: dict[str, Any] = {"parameters": {"C": 0.1, "show_progress": False}}


def test_it_gives_the_scores_of_the_method() -> None:
    model, data = case()
    x, y = data.tensors
    e = whence.interop.QuandaExplainer(model, data, **OPTIONS)
    own = whence.DualDA(**OPTIONS["parameters"]).fit(model, data)
    torch.testing.assert_close(e.explain(x[:4], y[:4].tolist()), own.attribute(x[:4], y[:4]))
    torch.testing.assert_close(e.self_influence(), own.self_influence())
    with pytest.raises(ValueError, match="not supported"):
        whence.interop.QuandaExplainer(model, data, task="causal_lm")


def test_it_goes_through_quandas_metrics() -> None:
    from quanda.metrics.downstream_eval import ClassDetectionMetric, MislabelingDetectionMetric

    model, data = case()
    x, y = data.tensors
    e = whence.interop.QuandaExplainer(model, data, method="Similarity", parameters={"show_progress": False})
    metric = ClassDetectionMetric(model=model, train_dataset=data)
    metric.update(e.explain(x[:12], y[:12]), y[:12])
    assert metric.compute()["score"] == 1.0
    wrong = y.clone()
    wrong[[4, 9]] = (wrong[[4, 9]] + 1) % K
    flipped = TensorDataset(x, wrong)
    found = MislabelingDetectionMetric(
        model=model, train_dataset=flipped, mislabeling_indices=[4, 9],
        explainer_cls=whence.interop.QuandaExplainer, expl_kwargs=OPTIONS,
    ).compute()  # fmt: skip
    assert found["score"] > 0.9
