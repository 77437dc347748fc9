"""The rules of maps that the benchmark compares, and how it counts them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("captum.attr")

from benchmarks.flipping.candidates import PositiveOutputs, SameSign
from benchmarks.flipping.columns import Column, Task, counted, verdict

from tests.helpers.relevance_nets import random, relevance
from whence.relevance import Rules


def test_shares_of_the_same_sign() -> None:
    layer, x = nn.Linear(5, 4).double(), random(3, 5)
    got, z, c = relevance(layer, x, rules=Rules(SameSign(), epsilon=0.1))
    W, b = layer.weight.detach(), layer.bias.detach()
    shares = x[:, None] * W  # (B, out, in)
    same = torch.where(z[..., None] > 0, shares.clamp(min=0), shares.clamp(max=0))
    part = same.sum(2) + torch.where(z > 0, b.clamp(min=0), b.clamp(max=0))
    expected = (same * (c * z / (part + 0.1 * z.sign()))[..., None]).sum(1)
    torch.testing.assert_close(got, expected)
    assert bool((z < 0).any())


def test_outputs_below_0_pass_nothing() -> None:
    layer, x = nn.Linear(5, 4).double(), random(3, 5)
    flow = Rules(PositiveOutputs(), epsilon=1e-6)
    got, z, _ = relevance(layer, x, rules=flow)
    above = nn.Sequential(layer, nn.ReLU())
    torch.testing.assert_close(got, relevance(above, x, rules=Rules("plus", epsilon=1e-6))[0])
    assert bool((z < 0).any())


def task(name: str, *columns: tuple[float, float]) -> Task:
    """Columns of two methods with these means, which differ alike for every test, or only by noise."""
    noise = np.random.default_rng(0).normal(size=20)
    made = {
        f"column {k}": Column(
            np.stack([a + noise, b + noise if a != b else a + noise[::-1]]), np.arange(20), True
        )
        for k, (a, b) in enumerate(columns)
    }
    return Task(name, ("new", "old"), made, {})


def test_a_rule_is_met_where_no_task_speaks_against_it() -> None:
    good, even = task("good", (0.1, 0.2), (0.1, 0.2), (0.3, 0.3)), task("even", (0.1, 0.2), (0.2, 0.1))
    bad = task("bad", (0.3, 0.3), (0.2, 0.1))
    assert counted(good, "new", "old") == (2, 0, 1)
    assert verdict([good, even], "new", "old").endswith("The rule is met.")
    assert verdict([even], "new", "old").endswith("The rule is not met.")  # no better on the whole
    assert verdict([good, bad], "new", "old").endswith("The rule is not met.")
    assert good.ranks(["new", "old"]).tolist() == pytest.approx([1 + 0.5 / 3, 2 - 0.5 / 3])
    again = Task.of(good.to_dict())
    assert counted(again, "new", "old") == (2, 0, 1)
    assert again.of_tests(0, 5).columns["column 0"].values.shape == (2, 5)
