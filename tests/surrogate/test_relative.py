"""Scores relative to the mean, contrasts and base values, for every metric, against numpy by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.metrics import METRICS, parts, read
from whence import DualDA
from whence.errors import InvalidInputError, UnsupportedError
from whence.features import FeatureBank
from whence.methods import Effects, Ensemble
from whence.tasks import ManyLabels, Regression

N, D, B = 80, 6, 7
EXACT = {"rtol": 1e-9, "atol": 1e-9}
every_metric = pytest.mark.parametrize("name", METRICS)
with_and_without_bias = pytest.mark.parametrize("bias", [True, False])


class Case(NamedTuple):
    """A fit on features in float64, and its parts by hand.

    Attributes
    ----------
    z, tests : features of training samples and of tests as the metric reads them
    lam : (N, K)
    weight, biases : (K, d) and (K,), sums of λ over training samples
    """

    explainer: DualDA
    f: np.ndarray
    z: np.ndarray
    tests: np.ndarray
    lam: np.ndarray
    weight: np.ndarray
    biases: np.ndarray

    def tau(self, shift: Any, c: int, other: int | None = None, bias: bool = True) -> np.ndarray:
        """λ_ic z_i·(z(x) − shift), with b² in the product where ``bias``."""
        lam = self.lam[:, c] - (0.0 if other is None else self.lam[:, other])
        square = self.explainer.constant_**2 if bias else 0.0
        return lam * ((self.tests - shift) @ self.z.T + square)

    def logit(self, z: np.ndarray, c: int) -> np.ndarray:
        return z @ self.weight[c] + self.biases[c]


def case(name: str, labels: np.ndarray, head: Any = None, **options: Any) -> Case:
    rng = np.random.default_rng(3)
    shown = labels if labels.ndim == 1 else labels[:, 0]
    X = 2.0 + np.eye(8, D)[shown.astype(int) % 6] + rng.normal(size=(N, D)) * np.geomspace(0.2, 2, D)
    f = 2.0 + rng.normal(size=(B, D))
    task = options.pop("task", None)
    given = {"C": 0.3, "tol": 1e-8, "show_progress": False, **options}
    explainer = DualDA(metric=METRICS[name], **given)
    explainer.fit(features=FeatureBank.of(X, labels, head=head, task=task))
    z, lam = read(name, X, X), explainer.lam_.toarray()
    return Case(explainer, f, z, read(name, X, f), lam, lam.T @ z, explainer.constant_**2 * lam.sum(axis=0))


@every_metric
@with_and_without_bias
@pytest.mark.parametrize("K", [2, 4])
def test_scores_sum_to_the_logit_and_to_what_it_is_above_its_base(name: str, bias: bool, K: int) -> None:
    one = case(name, np.arange(N) % K, bias=bias)
    explainer, mean = one.explainer, one.z.mean(axis=0)
    for c in range(K):
        logit = one.logit(one.tests, c)
        scores = explainer.attribute(features=one.f, target=c)
        np.testing.assert_allclose(scores, one.tau(0.0, c), **EXACT)
        np.testing.assert_allclose(scores.sum(1), logit, **EXACT)
        moved = explainer.attribute(features=one.f, target=c, relative=True)
        base = explainer.base_values(features=one.f, target=c)
        np.testing.assert_allclose(moved, one.tau(mean, c, bias=False), **EXACT)
        np.testing.assert_allclose(base, one.logit(mean, c), **EXACT)
        np.testing.assert_allclose(base + moved.sum(1), logit, **EXACT)
        np.testing.assert_allclose(explainer.surrogate_.logits(torch.from_numpy(one.f))[:, c], logit, **EXACT)


@every_metric
@with_and_without_bias
@pytest.mark.parametrize("K", [2, 4])
def test_a_contrast_sums_to_the_difference_of_two_logits(name: str, bias: bool, K: int) -> None:
    """Relative scores start from the mean of the class that they are against."""
    labels = np.arange(N) % K
    one = case(name, labels, bias=bias)
    explainer = one.explainer
    for c in range(K):
        for other in set(range(K)) - {c}:
            difference = one.logit(one.tests, c) - one.logit(one.tests, other)
            asked = {"features": one.f, "target": c, "against": other}
            scores = explainer.attribute(**asked)
            np.testing.assert_allclose(scores, one.tau(0.0, c, other), **EXACT)
            np.testing.assert_allclose(scores.sum(1), difference, **EXACT)
            mean = one.z[labels == other].mean(axis=0)
            moved, base = explainer.attribute(**asked, relative=True), explainer.base_values(**asked)
            np.testing.assert_allclose(moved, one.tau(mean, c, other, bias=False), **EXACT)
            np.testing.assert_allclose(base, one.logit(mean, c) - one.logit(mean, other), **EXACT)
            np.testing.assert_allclose(base + moved.sum(1), difference, **EXACT)


@pytest.mark.parametrize("name", ["raw", "whitened"])
def test_the_runner_up_is_the_models_second_class(name: str) -> None:
    head = np.random.default_rng(5).normal(size=(4, D)), np.array([0.5, 0.0, 0.0, -0.5])
    one = case(name, np.arange(N) % 4, head)
    logits = one.f @ head[0].T + head[1]  # of the model, which reads raw features
    order = np.argsort(-logits, axis=1)
    last = order[:, -1].copy()  # every class but the last has the first as its runner-up
    for target, expected in ((None, order[:, 1]), (last, order[:, 0])):
        asked = {"features": one.f, "target": target}
        for verb in (one.explainer.attribute, one.explainer.base_values):
            np.testing.assert_array_equal(verb(**asked, against="runner-up"), verb(**asked, against=expected))
    top = one.explainer.top_k(features=one.f, k=3, against="runner-up")
    scores = one.explainer.attribute(features=one.f, against="runner-up", relative=True)
    np.testing.assert_allclose(top.proponents.scores, scores.clamp(min=0).topk(3).values, **EXACT)


@every_metric
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("against", [None, 2])
def test_rankings_and_sparse_scores_are_those_of_the_dense_ones(
    name: str, relative: bool, against: int | None
) -> None:
    one = case(name, np.arange(N) % 4)
    asked: dict[str, Any] = {"features": one.f, "target": 1, "against": against, "relative": relative}
    scores = one.explainer.attribute(**asked)
    np.testing.assert_allclose(one.explainer.attribute(**asked, sparse=True).toarray(), scores, **EXACT)
    top = one.explainer.top_k(**asked, k=5)
    for side, sign in ((top.proponents, 1), (top.opponents, -1)):
        expected = sign * (sign * scores).clamp(min=0).topk(5).values
        torch.testing.assert_close(side.scores, expected, **EXACT)
        found = scores.gather(1, side.indices.clamp(min=0)) * (side.indices >= 0)
        torch.testing.assert_close(found, expected, **EXACT)


@every_metric
@with_and_without_bias
def test_of_numbers_the_base_is_the_prediction_at_the_mean(name: str, bias: bool) -> None:
    rng = np.random.default_rng(4)
    y = rng.normal(size=(N, 2)) * [3.0, 0.1] + [50.0, -1.0]
    one = case(name, y, bias=bias, task=Regression(2, epsilon=0.1))
    start, mean = y.mean(axis=0), one.z.mean(axis=0)
    for c in range(2):
        outputs = start[c] + one.logit(one.tests, c)
        asked = {"features": one.f, "target": c}
        np.testing.assert_allclose(one.explainer.decision_function(features=one.f)[:, c], outputs, **EXACT)
        np.testing.assert_allclose(start[c] + one.explainer.attribute(**asked).sum(1), outputs, **EXACT)
        base, moved = one.explainer.base_values(**asked), one.explainer.attribute(**asked, relative=True)
        np.testing.assert_allclose(base, start[c] + one.logit(mean, c), **EXACT)
        np.testing.assert_allclose(base + moved.sum(1), outputs, **EXACT)
    with pytest.raises(InvalidInputError, match="An explanation against another class must have classes"):
        one.explainer.attribute(features=one.f, target=0, against=1)


@every_metric
def test_of_many_labels_each_is_relative_to_the_one_mean(name: str) -> None:
    labels = np.random.default_rng(6).integers(0, 2, size=(N, 3)).astype(float)
    one = case(name, labels, task=ManyLabels(3))
    mean = one.z.mean(axis=0)
    for c in range(3):
        asked = {"features": one.f, "target": c}
        moved = one.explainer.attribute(**asked, relative=True)
        np.testing.assert_allclose(moved, one.tau(mean, c, bias=False), **EXACT)
        base = one.explainer.base_values(**asked)
        np.testing.assert_allclose(base, one.logit(mean, c), **EXACT)
        np.testing.assert_allclose(base + moved.sum(1), one.logit(one.tests, c), **EXACT)


# Maps


def net() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Linear(5, D, bias=False), nn.ReLU()
    return nn.Sequential(*body, nn.Linear(D, 3)).double()


@every_metric
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("against", [None, 0, "runner-up"])
def test_a_score_is_the_sum_of_its_map_and_its_share_of_the_bias(
    name: str, relative: bool, against: Any
) -> None:
    """Without biases in the model all relevance arrives: e·f for the start e = S v/‖S(f − μ)‖ by hand."""
    model = net()
    x, y = torch.randn(45, 5).double(), torch.arange(45) % 3
    explainer = DualDA(C=0.2, metric=METRICS[name], tol=1e-9, show_progress=False).fit(model, (x, y))
    why = explainer.explain(x[:1], k=45, target=1, method="epsilon", relative=relative, against=against)[0]
    with torch.no_grad():
        F, model_logits = model[:2](x).numpy(), model(x[:1])[0].numpy()
    other = why.against
    if against == "runner-up":
        assert other == max({0, 2}, key=lambda c: model_logits[c])
    mean, S, unit = parts(name, F)
    lengths = np.linalg.norm((F - mean) @ S, axis=1) if unit else np.ones(45)
    Z = (F - mean) @ S / lengths[:, None]
    lam = explainer.lam_.toarray()
    lam = lam[:, 1] - (0.0 if other is None else lam[:, other])
    shift = np.zeros(D)
    if relative:
        shift = Z.mean(axis=0) if other is None else Z[y.numpy() == other].mean(axis=0)
    square = 0.0 if relative else explainer.constant_**2
    near = {"rel": 1e-4, "abs": 1e-5 * np.abs(lam[:, None] * Z).sum()}  # ε of the rule takes a little
    for one in why.pairs:
        i = one.index
        on_test, on_train = lam[i] * Z[i] @ S / lengths[0], lam[i] * (Z[0] - shift) @ S / lengths[i]
        assert one.score == pytest.approx(lam[i] * (Z[i] @ (Z[0] - shift) + square), **near)
        assert float(one.test_map.sum()) == pytest.approx(on_test @ F[0], **near)
        assert one.bias == pytest.approx(one.score - on_test @ F[0], **near)
        assert one.bias == pytest.approx(lam[i] * (square - Z[i] @ shift) - on_test @ mean, **near)
        assert float(one.train_map.sum()) == pytest.approx(on_train @ F[i], **near)
    total = np.sum([one.test_map for one in why.pairs], axis=0)
    np.testing.assert_allclose(total, why.logit_map, atol=near["abs"])
    assert why.base + sum(one.score for one in why.pairs) == pytest.approx(why.logit, **near)
    assert sum(one.bias for one in why.pairs) == pytest.approx(why.bias, **near)


# What is refused


def test_effects_and_ensembles_have_no_base() -> None:
    x, y = torch.randn(20, 5).double(), torch.arange(20) % 3
    effects = Effects(C=0.1, show_progress=False).fit(net(), (x, y))
    members = Ensemble(DualDA(C=0.1, show_progress=False)).fit(net(), (x, y))
    for explainer in (effects, members):
        assert not explainer.explain(x[:1])[0].relative
        with pytest.raises(UnsupportedError, match="'relative' must be None or False for"):
            explainer.explain(x[:1], relative=True)
        with pytest.raises(UnsupportedError, match="'against' must be None for"):
            explainer.explain(x[:1], against=1)


def test_a_class_is_not_against_itself() -> None:
    one = case("raw", np.arange(N) % 4)
    for verb in (one.explainer.attribute, one.explainer.top_k, one.explainer.base_values):
        with pytest.raises(InvalidInputError, match=r"'against' must be another class.*Got '1' for test 2"):
            verb(features=one.f[:3], target=[0, 2, 1], against=1)
        with pytest.raises(InvalidInputError, match=r"'against' must lie in \[0, 4\)"):
            verb(features=one.f, target=0, against=4)
    x, y = torch.randn(20, 5).double(), torch.arange(20) % 3
    explainer = DualDA(C=0.1, show_progress=False).fit(net(), (x, y))
    with pytest.raises(InvalidInputError, match="'against' must be another class than the target, '2'"):
        explainer.explain(x[:1], target=2, against=2)
