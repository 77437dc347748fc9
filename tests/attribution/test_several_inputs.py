"""Explanations of models with several inputs: maps on each, under its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from whence.errors import InvalidInputError, ModelError
from whence.explanation.page import explanation_data

K, N = 3, 40


class Both(nn.Module):
    """An image and some values, or tokens and values: linear without bias, for closed forms."""

    def __init__(self, tokens: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(20, 4) if tokens else None
        self.image, self.values = nn.Linear(4 if tokens else 16, 5, bias=False), nn.Linear(3, 4, bias=False)
        self.head = nn.Linear(9, K)

    def forward(self, scan: Tensor, facts: Tensor) -> Tensor:
        a = scan.flatten(1) if self.tokens is None else self.tokens(scan).mean(1)
        return self.head(torch.cat([self.image(a), self.values(facts)], 1))


def data(tokens: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    scan = torch.randint(0, 20, (N, 6), generator=g) if tokens else torch.randn(N, 1, 4, 4, generator=g)
    return scan, torch.randn(N, 3, generator=g), torch.arange(N) % K


@pytest.mark.parametrize("form", ["mapping", "tuple"])
def test_maps_are_on_each_input_under_its_name(form: str) -> None:
    model = Both()
    scan, facts, y = data()
    pairs: Any = {"scan": scan, "facts": facts}
    tests: Any = {"scan": scan[:2], "facts": facts[:2]}
    names = ["scan", "facts"]
    if form == "tuple":
        pairs, tests, names = (
            [(a, b) for a, b in zip(scan, facts, strict=True)],
            (scan[:2], facts[:2]),
            ["0", "1"],
        )
    collate = None if form == "mapping" else by_place
    explainer = whence.DualDA(metric="raw", C=0.05, show_progress=False)
    explainer.fit(model, (pairs, y), collate_fn=collate)
    why = explainer.explain(tests, k=2, target=1, method="epsilon", relative=False)[1]
    assert list(why.inputs) == names
    first, second = why.inputs.values()
    # w·f(x) without the bias is linear in the inputs: relevance is input times weight, in closed form.
    w = torch.as_tensor(explainer.coef_[1, :9], dtype=torch.float32)
    expected = (
        (w[:5] @ model.image.weight).reshape(1, 4, 4) * scan[1],
        (w[5:] @ model.values.weight) * facts[1],
    )
    for each, relevance in zip((first, second), expected, strict=True):
        np.testing.assert_allclose(each.logit_map, relevance.detach(), rtol=1e-3, atol=2e-4)
        assert each.logit == why.logit
    assert first.sample.image is not None
    assert second.sample.values is not None
    assert first.logit_map.sum() + second.logit_map.sum() == pytest.approx(why.logit - why.bias, abs=1e-3)
    for a, b in zip(first.pairs, second.pairs, strict=True):
        assert a.index == b.index
        np.testing.assert_array_equal(b.sample.values, facts[a.index])
        assert a.test_map.sum() + b.test_map.sum() == pytest.approx(a.score - a.bias, abs=1e-3)
        assert a.train_map.sum() + b.train_map.sum() == pytest.approx(a.score - a.bias, abs=1e-3)


def by_place(samples: list[Any]) -> Any:
    inputs, labels = zip(*samples, strict=True)
    return tuple(torch.stack(part) for part in zip(*inputs, strict=True)), torch.stack(labels)


def test_tokens_beside_values() -> None:
    model = Both(tokens=True)
    scan, facts, y = data(tokens=True)
    explainer = whence.DualDA(metric="raw", C=0.05, show_progress=False).fit(
        model, ({"scan": scan, "facts": facts}, y)
    )
    with pytest.warns(whence.DataWarning, match="Tokens are shown as numbers"):
        (why,) = explainer.explain({"scan": scan[:1], "facts": facts[:1]}, k=1)
    assert set(why.inputs) == {"tokens", "facts"}
    assert why.inputs["tokens"].sample.tokens == tuple(f" {i}" for i in scan[0].tolist())
    assert why.inputs["tokens"].logit_map.shape == (6,)
    np.testing.assert_array_equal(why.inputs["facts"].sample.values, facts[0])


def test_figures_and_pages_show_each_input(tmp_path: Path) -> None:
    scan, facts, y = data()
    explainer = whence.DualDA(metric="raw", C=0.05, show_progress=False).fit(
        Both(), ({"scan": scan, "facts": facts}, y)
    )
    found = explainer.explain({"scan": scan[:1], "facts": facts[:1]}, k=1)
    page = Path(found.to_html(tmp_path / "why.html")).read_text(encoding="utf-8")
    assert page.index("Input “") < page.rindex("Input “")
    for name in ("scan", "facts"):
        figure = found[0].plot(name)
        assert any(f"test sample: {name}" in text.get_text() for text in figure.texts)
    plain = found[0].to_dict()
    assert plain["input"] == "scan"
    assert [each["input"] for each in plain["others"]] == ["facts"]
    assert explanation_data(found[0])["logit"] == found[0].logit
    with pytest.raises(InvalidInputError, match="'input' must be one of the model's inputs, 'scan', 'facts'"):
        found.plot(0, "sound")
    with pytest.raises(ModelError, match="Concepts and measures of maps need a model with one input"):
        explainer.explain_concepts({"scan": scan[:1], "facts": facts[:1]})


def test_tests_have_the_inputs_of_training_samples_whatever_a_single_one_is_called() -> None:
    model, x = nn.Linear(3, 2), torch.randn(20, 3)
    explainer = whence.DualDA(metric="raw", C=0.05, show_progress=False).fit(model, (x, torch.arange(20) % 2))
    (named,), (plain,) = (explainer.explain(one, k=1) for one in ({"values": x[:1]}, x[:1]))
    np.testing.assert_array_equal(named.logit_map, plain.logit_map)
    np.testing.assert_array_equal(named.pairs[0].train_map, plain.pairs[0].train_map)
    scan, facts, y = data()
    both = whence.DualDA(metric="raw", C=0.05, show_progress=False).fit(
        Both(), ({"scan": scan, "facts": facts}, y)
    )
    with pytest.raises(ModelError, match="the inputs of the training samples, by the same names"):
        both.explain((scan[:1], facts[:1]), k=1)
