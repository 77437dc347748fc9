"""explain() of effects: all of them is there, on either sample."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.attribution.test_explain import K, cnn, images
from tests.helpers.lazy import Samples
from whence import Effects
from whence.surrogate.effects import Output
from whence.surrogate.scores import Contrast

OUTPUTS: list[Output] = ["logit", "margin", "log_prob"]


def fitted(bias: bool = True, **options: Any) -> Effects:
    given: dict[str, Any] = {"C": 0.05, "layers": "last", "show_progress": False}
    return Effects(**(given | {"bias": bias} | options)).fit(cnn(bias), images())


@pytest.fixture(scope="module")
def explainer() -> Effects:
    return fitted()


def features(explainer: Effects, x: Tensor) -> Tensor:
    return explainer.fitted_.require_model().read(x, 64).features


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("layers", ["last", "auto"])
def test_vectors_at_the_features_give_back_the_effects(output: Output, layers: str) -> None:
    explainer, x = fitted(False, output=output, layers=layers), images()[0][:3]
    effects, f = explainer.attribute(x).double(), features(explainer, x)
    for n, why in enumerate(explainer.explain(x, k=K)):
        indices = [one.index for one in why.pairs]
        parts = explainer.fitted_.scorer.parts(f[n : n + 1], Contrast(why.target), indices)
        expected = effects[n, indices]
        assert len(indices) == int((effects[n] != 0).sum())
        near = {"rtol": 1e-4, "atol": 1e-5 * float(expected.abs().max())}
        torch.testing.assert_close(parts.on_test.double() @ f[n].double(), expected, **near)
        torch.testing.assert_close((parts.on_train * parts.vectors.double()).sum(1), expected, **near)
        assert [one.score for one in why.pairs] == pytest.approx(
            expected.tolist(), rel=1e-4, abs=near["atol"]
        )


def test_with_a_bias_they_are_the_slope_of_the_effects(explainer: Effects) -> None:
    """Effects on a logit are linear in the features of the test, but for what the bias adds."""
    f = features(explainer, images()[0][:1])
    moved = f + torch.randn(f.shape, generator=torch.Generator().manual_seed(0))
    parts = explainer.fitted_.scorer.parts(f, Contrast(1), list(range(45)))
    before, after = (explainer.attribute(features=at, target=1)[0].double() for at in (f, moved))
    near = {"rtol": 1e-3, "atol": 1e-5 * float(before.abs().max())}
    torch.testing.assert_close(parts.on_test @ (moved - f)[0].double(), after - before, **near)
    left = before - parts.on_test @ f[0].double()
    assert (left.abs() > 0).all()
    (why,) = explainer.explain(images()[0][:1], k=K, target=1)
    assert [one.bias for one in why.pairs] == pytest.approx(
        left[[one.index for one in why.pairs]].tolist(), rel=1e-3, abs=near["atol"]
    )


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_effect_is_the_slope_of_its_output(output: Output) -> None:
    """Along the change of all logits, by finite differences of the output itself."""
    explainer = fitted(output=output)
    on_logits, x, h = fitted(), images()[0][:4], 1e-5
    logits = explainer.surrogate_.logits(features(explainer, x))
    target = logits.argmin(1)
    moves = torch.stack([on_logits.attribute(x, c).double() for c in range(3)], 2)  # (test, train, class)

    def value(logits: Tensor) -> Tensor:
        own = logits.gather(-1, target[:, None, None].expand(*logits.shape[:2], 1))[..., 0]
        if output == "logit":
            return own
        if output == "log_prob":
            return own - logits.logsumexp(-1)
        others = logits.clone()
        others.scatter_(-1, target[:, None, None].expand(*logits.shape[:2], 1), -torch.inf)
        return own - others.amax(-1)

    slope = (value(logits[:, None] + h * moves) - value(logits[:, None] - h * moves)) / (2 * h)
    found = explainer.attribute(x, target).double()
    torch.testing.assert_close(found, slope, rtol=1e-3, atol=1e-4 * float(slope.abs().max()))


@pytest.mark.parametrize("output", OUTPUTS)
def test_maps_sum_to_the_effect(output: Output) -> None:
    """Where nothing absorbs relevance: a network without biases, and a surrogate without one."""
    explainer = fitted(bias=False, output=output)
    for why in explainer.explain(images()[0][:3], k=4, method="epsilon"):
        for one in why.pairs:
            assert one.bias == pytest.approx(0, abs=1e-6 * abs(one.score))
            assert one.coefficient is None
            assert float(one.test_map.sum()) == pytest.approx(one.score, rel=1e-4)
            assert float(one.train_map.sum()) == pytest.approx(one.score, rel=1e-4)


def test_the_record_knows_its_question(explainer: Effects) -> None:
    x = images()[0][:2]
    for n, why in enumerate(explainer.explain(x, k=3)):
        assert why.question == "would change"
        assert why.effect.output == "logit"
        logit = float(explainer.surrogate_.logits(features(explainer, x))[n, why.target])
        assert why.logit == pytest.approx(logit)
        assert why.total == pytest.approx(float(explainer.attribute(x)[n].sum()), abs=1e-6)
        assert why.waterfall[-1][1] == pytest.approx(why.total)
    json.dumps(why.to_dict())


def test_samples_that_were_skipped_keep_their_places() -> None:
    """Sample 4 cannot be read: effects of those after it are of those after it."""
    x, y = images()
    options: dict[str, Any] = {"C": 0.05, "layers": "last", "show_progress": False}
    explainer = Effects(**options).fit(cnn(), Samples(x, y, (4,)), on_error="skip")
    kept = [i for i in range(len(x)) if i != 4]
    fewer = Effects(**options).fit(cnn(), (x[kept], y[kept]))
    found, expected = explainer.explain(x[:1], k=3)[0], fewer.explain(x[:1], k=3)[0]
    assert [one.index for one in found.pairs] == [kept[one.index] for one in expected.pairs]
    for one, other in zip(found.pairs, expected.pairs, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-3)
        np.testing.assert_allclose(one.train_map, other.train_map, rtol=1e-2, atol=1e-6)


def test_concepts_are_refused(explainer: Effects) -> None:
    with pytest.raises(AttributeError, match=r"Effects has no 'explain_concepts'. DualDA has it"):
        explainer.explain_concepts(images()[0][:1])
