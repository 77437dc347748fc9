"""Each metric: a case by hand, the best attributor, chance, and the worst."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import matthews_corrcoef, roc_auc_score
from torch import nn

from tests.helpers.nets import mlp, train
from whence import DualDA, engine
from whence.errors import InvalidInputError, StoreError
from whence.methods import get
from whence.metrics.scores import mislabeling_placements
from whence_studies import (
    FRACTIONS,
    RandomAttributor,
    compare_lds,
    coreset,
    coreset_order,
    fooled,
    group_classes,
    identical_class,
    identical_subclass,
    lds,
    lds_reliability,
    measure,
    mislabeling_auc,
    mislabeling_curve,
    negative_ratio,
    performance,
    pruned,
    random_scores,
    random_subsets,
    shortcut_ap,
    sparsified,
    sparsified_faithfulness,
    sparsity_curve,
    support_counts,
    surrogate_faithfulness,
    weighted_mean,
)
from whence_studies.comparison import ties_of_runs

RNG = np.random.default_rng(7)
T, N, K = 40, 300, 5
TRAIN, TESTS = RNG.integers(K, size=N), RNG.integers(K, size=T)
SAME = (TESTS[:, None] == TRAIN).astype(float)


@pytest.mark.parametrize("metric", [identical_class, identical_subclass])
def test_identical_class(metric) -> None:
    by_hand = np.array([[0.9, 0.8, 0.7, -5.0, 0.1], [-1.0, -2.0, -3.0, -4.0, -5.0]])
    found = metric(by_hand, np.array([1, 0]), np.array([1, 0, 1, 0, 1]), k=3)
    np.testing.assert_allclose(found, [2 / 3, 1 / 3])
    assert metric(SAME, TESTS, TRAIN).mean() == 1
    assert metric(-SAME, TESTS, TRAIN).mean() == 0
    shares = np.bincount(TRAIN, minlength=K)[TESTS] / N
    many = np.mean([metric(random_scores(T, N, seed), TESTS, TRAIN).mean() for seed in range(20)])
    # Each of 20 · T tests draws 5 without replacement, so its variance is at most p (1 − p)/5.
    assert abs(many - shares.mean()) < 4 * math.sqrt(np.mean(shares * (1 - shares)) / 5 / T / 20)


def test_equal_scores_count_as_if_drawn_by_lot() -> None:
    scores, labels = np.array([[2.0, 0.0, 0.0, 0.0, -1.0]]), np.array([1, 1, 0, 0, 1])
    orders = [[0, *rest] for rest in itertools.permutations([1, 2, 3])]
    expected = np.mean([np.mean(labels[order[:3]] == 1) for order in orders])
    np.testing.assert_allclose(identical_class(scores, np.array([1]), labels, k=3), expected)
    # Constant scores say nothing, in whatever order samples are stored.
    np.testing.assert_allclose(identical_class(np.zeros((1, 5)), np.array([1]), labels, k=2), 3 / 5)


FLIPPED = np.isin(np.arange(N), RNG.choice(N, 30, replace=False))


def areas(found: np.ndarray) -> float:
    """The trapezoids under a curve at 0, 1/n, … 1."""
    return float(((found[1:] + found[:-1]) / 2).mean())


def by_definition(order: np.ndarray, flipped: np.ndarray) -> float:
    """Area under the cumulative detection curve, between the worst order's and the best one's."""

    def area(marks: np.ndarray) -> float:
        return areas(np.append(0, np.cumsum(marks) / marks.sum()))

    worst, best = area(np.sort(flipped)), area(np.sort(flipped)[::-1])
    return (area(flipped[order]) - worst) / (best - worst)


def test_mislabeling() -> None:
    influence = RNG.permutation(N).astype(float) + 40 * FLIPPED
    influence += 1e-3 * np.arange(N)  # no two alike
    assert mislabeling_auc(influence, FLIPPED) == pytest.approx(
        by_definition(np.argsort(-influence), FLIPPED)
    )
    # By hand: found after 1, 2, 3, 4 of 4 samples: 0.5, 0.5, 0.5, 1.
    curve = mislabeling_curve(np.array([0.1, 0.9, 0.5, 0.0]), np.array([False, True, False, True]))
    np.testing.assert_allclose(curve.inspected, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.found, [0, 0.5, 0.5, 0.5, 1])
    assert mislabeling_auc(FLIPPED + 0.0, FLIPPED) == 1
    assert mislabeling_auc(-1.0 * FLIPPED, FLIPPED) == 0
    assert mislabeling_auc(np.zeros(N), FLIPPED) == 0.5
    lots = np.mean([mislabeling_auc(random_scores(1, N, s)[0], FLIPPED) for s in range(50)])
    assert abs(lots - 0.5) < 4 * math.sqrt((N + 1) / (12 * 30 * (N - 30)) / 50)


def test_the_mislabeling_curve_of_equal_scores_is_the_mean_over_their_orders() -> None:
    influence, flipped = np.array([2.0, 1.0, 1.0, 1.0, 0.0]), np.array([False, True, False, False, True])
    curves = [
        np.append(0, np.cumsum(flipped[[0, *middle, 4]]) / 2) for middle in itertools.permutations([1, 2, 3])
    ]
    found = mislabeling_curve(influence, flipped).found
    np.testing.assert_allclose(found, np.mean(curves, axis=0))
    scaled = (areas(found) - 0.2) / (0.8 - 0.2)  # worst and best curve of 2 among 5, by hand
    assert mislabeling_auc(influence, flipped) == pytest.approx(scaled)


@pytest.mark.parametrize("values", [300, 7])  # few values: many are equal
def test_placements_of_wrong_labels_have_the_roc_area_as_their_mean(values: int) -> None:
    influence = np.random.default_rng(3).integers(values, size=N) + 0.2 * values * FLIPPED
    found = mislabeling_placements(influence, FLIPPED)
    assert found.mean() == pytest.approx(roc_auc_score(FLIPPED, influence), rel=1e-12)
    right = influence[~FLIPPED]
    by_loop = [np.mean([1.0 if v > r else 0.5 if v == r else 0.0 for r in right]) for v in influence[FLIPPED]]
    np.testing.assert_allclose(found, by_loop, rtol=1e-12)


def test_methods_with_the_same_seeds_are_tied_by_hand() -> None:
    # Two degrees of freedom: t = 4.302653 leaves 2.5 % above it. Differences of the first two are −1, −1 and
    # −1.3, with mean −1.1 and s = .1732: apart by more than t s/√3 = .43. Those with the third are 0, −2, 2.
    values = np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 3.3], [0.0, 3.0, 0.0]])
    expected = [[True, False, True], [False, True, True], [True, True, True]]
    np.testing.assert_array_equal(ties_of_runs(values), expected)
    # An effect that a seed has on all methods changes nothing, and neither does a method with a large spread.
    np.testing.assert_array_equal(ties_of_runs(values + np.array([0.0, 1e3, 5.0])), expected)
    wide = np.vstack([values, [[-90.0, 0.0, 90.0]]])
    np.testing.assert_array_equal(ties_of_runs(wide)[:3, :3], expected)
    with pytest.raises(InvalidInputError, match=r"at least two runs.*Got 1"):
        ties_of_runs(np.zeros((3, 1)))


@pytest.mark.parametrize("S", [3, 5])
def test_methods_that_are_alike_differ_by_chance_as_often_as_said(S: int) -> None:
    rng = np.random.default_rng(S)
    said = []
    for _ in range(4_000):
        values = rng.standard_normal((6, S)) + 10 * rng.standard_normal(S)
        said.append(not ties_of_runs(values)[0, 1])
    assert abs(np.mean(said) - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 4_000)
    shifted = rng.standard_normal((200, 6, S)) + 12 * (np.arange(6) == 1)[:, None]
    assert np.mean([ties_of_runs(values)[0, 1] for values in shifted]) < 0.05


def test_shortcut_detection() -> None:
    # Marked samples come 1st and 3rd: (1/1 + 2/3)/2.
    by_hand = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
    poisoned = np.array([True, False, True, False])
    np.testing.assert_allclose(shortcut_ap(by_hand, poisoned), [5 / 6, (1 / 2 + 2 / 4) / 2])
    marks, n = FLIPPED, 30
    np.testing.assert_allclose(shortcut_ap(marks[None] + 0.0, marks), 1)
    last = np.mean([(j + 1) / (N - n + j + 1) for j in range(n)])
    reversed_ = -(marks * 1000.0 + np.arange(N))[None]
    np.testing.assert_allclose(shortcut_ap(reversed_, marks), last)
    found = shortcut_ap(random_scores(400, N), marks)
    harmonic = sum(1 / k for k in range(1, N + 1))
    expected = (harmonic + (n - 1) * (N - harmonic) / (N - 1)) / N
    assert abs(found.mean() - expected) < 4 * found.std() / math.sqrt(400)
    np.testing.assert_allclose(shortcut_ap(np.zeros((1, N)), marks), n / N)


def test_only_tests_that_the_shortcut_flipped_are_fooled() -> None:
    before, after = np.array([0, 0, 1, 0, 1]), np.array([1, 0, 1, 1, 1])
    labels = np.array([0, 0, 0, 1, 1])
    assert fooled(before, after, labels, 1).tolist() == [True, False, False, False, False]


def test_the_lds_of_linear_models_is_perfect() -> None:
    truth = RNG.standard_normal((T, N))
    subsets = random_subsets(N, 30, seed=1)
    assert (subsets.sum(axis=1) == N // 2).all()
    assert len(np.unique(subsets, axis=0)) == 30
    outputs = np.exp(subsets @ truth.T / 10)  # (m, T); any monotone function does
    np.testing.assert_allclose(lds(truth, subsets, outputs), 1)
    np.testing.assert_allclose(lds(-truth, subsets, outputs), -1)
    found = lds(random_scores(T, N, 3), subsets, outputs)
    assert abs(found.mean()) < 4 / math.sqrt(29 * T)
    mixed = truth + random_scores(T, N, 4)
    expected = [spearmanr(subsets @ mixed[t], outputs[:, t]).statistic for t in range(T)]
    np.testing.assert_allclose(lds(mixed, subsets, outputs), expected)
    several = np.stack([outputs, outputs**2])
    np.testing.assert_allclose(lds(mixed, subsets, several), lds(mixed, subsets, several.mean(axis=0)))
    # Constant sums predict nothing; ties are ranked as in scipy.
    assert lds(np.zeros((T, N)), subsets, outputs).tolist() == [0] * T
    few = np.zeros((T, N))
    few[:, :3] = 1
    expected = [spearmanr(subsets @ few[t], outputs[:, t]).statistic for t in range(T)]
    np.testing.assert_allclose(lds(few, subsets, outputs), expected)


def simulated(seed: int, noise: float, m: int = 60, seeds: int = 4):
    """Outputs of models that depend linearly on their subset, and on the training seed by noise."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((12, 100))
    subsets = random_subsets(100, m, seed=seed)
    signal = subsets @ truth.T
    outputs = signal + noise * signal.std(axis=0) * rng.standard_normal((seeds, m, 12))
    return truth, subsets, outputs, rng


def test_reliability_predicts_how_well_a_perfect_attributor_does() -> None:
    # Signal and noise of equal variance: seeds correlate by 1/2, four together by 4/5. Spearman's correlation
    # of normal variables is (6/π) asin(r/2).
    found = [lds_reliability(simulated(s, 1.0)[2]) for s in range(10)]
    spearman = 6 / math.pi * math.asin(0.25)
    assert np.mean([r.one_seed for r in found]) == pytest.approx(spearman, abs=0.03)
    assert np.mean([r.all_seeds for r in found]) == pytest.approx(4 * spearman / (1 + 3 * spearman), abs=0.03)
    reached = [
        lds(truth, subsets, outputs).mean()
        for truth, subsets, outputs, _ in (simulated(s, 1.0) for s in range(10))
    ]
    assert np.mean(reached) == pytest.approx(np.mean([r.ceiling for r in found]), abs=0.03)
    noise = lds_reliability(np.random.default_rng(0).standard_normal((3, 50, 30)))
    assert noise.ceiling < 0.3
    with pytest.raises(InvalidInputError, match="at least 2 seeds"):
        lds_reliability(np.zeros((1, 10, 3)))


def test_the_bootstrap_ranks_each_draw_anew() -> None:
    truth, subsets, outputs, rng = simulated(0, 1.0)
    scores = np.round(truth + rng.standard_normal(truth.shape))  # with ties
    found = compare_lds({"a": scores}, subsets, outputs, draws=40, seed=5)
    counts = np.random.default_rng(5).multinomial(60, np.full(60, 1 / 60), size=40)
    rows = [np.repeat(np.arange(60), c) for c in counts]
    mean = outputs.mean(axis=0)
    draws = [
        np.mean([spearmanr(subsets[r] @ scores[t], mean[r, t]).statistic for t in range(12)]) for r in rows
    ]
    np.testing.assert_allclose([found.low[0], found.high[0]], np.quantile(draws, [0.025, 0.975]))
    assert found.mean[0] == pytest.approx(lds(scores, subsets, outputs).mean())


def test_methods_that_cannot_be_told_apart_are_tied() -> None:
    truth, subsets, outputs, rng = simulated(1, 1.0)
    noisy = truth + 0.7 * rng.standard_normal(truth.shape)
    methods = {"truth": truth, "same": 2 * truth, "noisy": noisy, "random": random_scores(12, 100)}
    found = compare_lds(methods, subsets, outputs)
    assert found.methods == tuple(methods)
    assert found.ties[0, 1]
    assert not found.ties[0, 3]
    assert not found.ties[2, 3]
    assert (found.ties == found.ties.T).all()
    assert found.reliability is not None
    assert found.low[3] < 0 < found.high[3]
    assert "| same |" in str(found).splitlines()[2] + str(found).splitlines()[3]
    assert compare_lds({"a": truth}, subsets, outputs[0]).reliability is None


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    # The truth is what very many subsets give: the same scores on 1,500 of them.
    held = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal((6, 80))
        scores = truth + rng.standard_normal(truth.shape)
        subsets = random_subsets(80, 1_560, seed=seed)
        outputs = subsets @ truth.T + 3 * rng.standard_normal((1_560, 6))
        expected = lds(scores, subsets[60:], outputs[60:]).mean()
        found = compare_lds({"a": scores}, subsets[:60], outputs[:60], draws=300)
        held += found.low[0] <= expected <= found.high[0]
    assert held >= 25  # 28.5 expected, standard deviation 1.2


def test_coresets() -> None:
    scores = np.array([[0.0, 1.0, -3.0, 0.0], [0.0, -1.0, 0.0, 0.5]])
    order = coreset_order(scores)
    assert order.tolist() == [2, 1, 3, 0]  # means of |τ|: 0, 1, 1.5, 0.25
    assert coreset(order, 0.5).tolist() == [2, 1]
    assert pruned(order, 0.5).tolist() == [3, 0]
    assert coreset_order(torch.from_numpy(scores)).tolist() == order.tolist()
    assert coreset_order(-scores).tolist() == order.tolist()
    # What is worth nothing comes in no particular order, another one for each seed.
    none = np.zeros((2, 200))
    assert sorted(coreset_order(none)) == list(range(200))
    assert abs(np.corrcoef(coreset_order(none), np.arange(200))[0, 1]) < 0.3
    assert coreset_order(none, 1).tolist() != coreset_order(none, 2).tolist()


def test_the_weighted_mean_is_the_papers() -> None:
    p = [10, 20, 30, 40, 50, 60, 70, 80, 90]
    losses = RNG.random(9)
    expected = sum(v / q for v, q in zip(losses, p, strict=True)) / sum(1 / q for q in p)
    assert weighted_mean(losses) == pytest.approx(expected)
    assert weighted_mean(losses, np.array(p)) == pytest.approx(expected)
    assert weighted_mean([3.0, 0.0], [0.1, 0.2]) == pytest.approx(2)
    assert list(FRACTIONS) == [q / 100 for q in p]


def test_performance_is_against_true_labels() -> None:
    logits, labels = torch.randn(50, K, dtype=torch.float64), torch.from_numpy(RNG.integers(K, size=50))
    found = performance(logits, labels)
    assert found.loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item())
    assert found.accuracy == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    assert performance(1e4 * logits, labels).loss > 0  # without overflow
    with pytest.raises(InvalidInputError, match=r"'true_labels' must lie in \[0, 5\)"):
        performance(logits, labels + 1)


def test_sparsity() -> None:
    scores = np.array([[6.0, -3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 2.0]])
    found = sparsity_curve(scores, [0, 0.125, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(found.absolute, np.mean([[0, 0.3, 0.6, 0.9, 1, 1], [0, 0.5, 1, 1, 1, 1]], 0))
    np.testing.assert_allclose(
        found.positive, np.mean([[0, 3 / 7, 6 / 7, 6 / 7, 1, 1], [0, 0.5, 1, 1, 1, 1]], 0)
    )
    np.testing.assert_allclose(found.negative, [0, 0, 0, 1, 1, 1])  # of the one test that has any
    np.testing.assert_allclose(sparsity_curve(np.ones((2, 10)), [0.05, 0.3]).absolute, [0.05, 0.3])
    assert np.isnan(sparsity_curve(np.ones((2, 10)), [0.3]).negative).all()
    # Of |z| the top x hold exp(−q²/2), q the normal quantile of 1 − x/2: 0.4398 for a fifth.
    normal = sparsity_curve(random_scores(200, 500), [0.2])
    assert normal.absolute[0] == pytest.approx(0.4398, abs=0.004)
    assert normal.positive[0] == pytest.approx(0.44, abs=0.01)
    # Equal sizes of both signs: neither sign comes first by the order of storage.
    both = sparsity_curve(np.array([[1.0, 1.0, -1.0, -1.0]]), [0.5])
    assert (both.positive[0], both.negative[0]) == (0.5, 0.5)


def pairings(rest: list[int]):
    if not rest:
        yield []
    for j in range(1, len(rest)):
        for others in pairings(rest[1:j] + rest[j + 1 :]):
            yield [(rest[0], rest[j]), *others]


def test_groups_are_of_classes_that_are_not_confused() -> None:
    confusion = RNG.integers(50, size=(10, 10)) + 300 * np.eye(10, dtype=int)
    rates = confusion / confusion.sum(axis=1, keepdims=True)

    def cost(pairs) -> float:
        return sum(rates[a, b] + rates[b, a] for a, b in pairs)

    best = min(cost(pairs) for pairs in pairings(list(range(10))))
    groups = group_classes(confusion, 5)
    found = [tuple(np.flatnonzero(groups == g)) for g in range(5)]
    assert all(len(pair) == 2 for pair in found)
    assert cost(found) == pytest.approx(best)
    assert groups.tolist() == group_classes(confusion, 5).tolist()
    assert [g for i, g in enumerate(groups) if g not in groups[:i]] == [0, 1, 2, 3, 4]
    # Without any confusion the seed decides.
    assert len({tuple(group_classes(np.eye(10), 5, seed)) for seed in range(5)}) > 1
    assert sorted(np.bincount(group_classes(confusion, 3))) == [3, 3, 4]
    # A class of which there are no tests is confused with none.
    assert group_classes(np.diag([1, 0, 1, 1]), 2).shape == (4,)


@pytest.fixture(scope="module")
def case():
    model = mlp(6, 8, 3)
    y = torch.arange(90) % 3
    x = torch.randn(3, 6)[y] + 0.7 * torch.randn(90, 6)
    train(model, x, y, 80, 0.02)
    with torch.no_grad():
        features = model[:2](x)
    return model, x, y, features


def test_faithfulness_is_the_surrogates_own(case) -> None:
    model, x, y, features = case
    explainer = DualDA(C=0.1, show_progress=False).fit(model, (x, y))
    head = (model[2].weight, model[2].bias)
    found = surrogate_faithfulness(explainer.coef_, head, features)
    W, V = explainer.coef_[:, :8], model[2].weight.detach().double().numpy()
    ours = features.double().numpy() @ W.T + explainer.coef_[:, 8]
    theirs = model(x).detach().double().numpy()
    assert found.mcc == pytest.approx(matthews_corrcoef(theirs.argmax(1), ours.argmax(1)))
    W, V = W - W.mean(0), V - V.mean(0)
    assert found.weight_cosine == pytest.approx((W * V).sum() / np.linalg.norm(W) / np.linalg.norm(V))
    a, b = (z - z.mean(1, keepdims=True) for z in (ours, theirs))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert found.logit_cosine == pytest.approx(cosines.mean(), abs=1e-5)
    same = surrogate_faithfulness(torch.hstack([head[0], head[1][:, None]]), head, features)
    assert (same.mcc, same.agreement) == (1, 1)
    assert same.weight_cosine == pytest.approx(1)
    worst = surrogate_faithfulness(-torch.hstack([head[0], head[1][:, None]]), head, features)
    assert worst.weight_cosine == pytest.approx(-1)
    assert worst.mcc < 0


def test_representer_points_made_sparse(case) -> None:
    model, x, y, features = case
    points = get("representer")(show_progress=False).fit(model, (x, y))
    lam = DualDA(C=0.1, show_progress=False).fit(model, (x, y)).lam_
    counts = support_counts(lam)
    assert counts.tolist() == [int((lam.toarray()[:, c] != 0).sum()) for c in range(3)]
    head = (model[2].weight, model[2].bias)
    alpha = points.alpha_.double()
    kept = sparsified(alpha, counts)
    for c in range(3):
        largest = np.sort(np.abs(alpha[:, c].numpy()))[::-1][: counts[c]]
        np.testing.assert_allclose(np.sort(np.abs(kept[kept[:, c] != 0, c]))[::-1], largest)
    full = sparsified_faithfulness(alpha, [90] * 3, features, head, features, bias=True)
    own = surrogate_faithfulness(points.coef_, head, features)
    assert full.weight_cosine == pytest.approx(own.weight_cosine, abs=1e-5)
    assert full.mcc == own.mcc
    none = sparsified_faithfulness(alpha, [0] * 3, features, head, features, bias=True)
    assert (none.weight_cosine, none.logit_cosine, none.mcc) == (0, 0, 0)
    with pytest.raises(InvalidInputError, match="'counts' must be 3 integers"):
        sparsified(alpha, [91, 1, 1])


def test_the_random_attributor_keeps_the_contract(case) -> None:
    model, x, y, _ = case
    explainer = RandomAttributor(seed=3).fit(model, (x, y))
    scores = explainer.attribute(x[:20])
    assert scores.shape == (20, 90)
    torch.testing.assert_close(explainer.attribute(x[4:5]), scores[4:5])
    torch.testing.assert_close(explainer.attribute(x[:20], model(x[:20]).argmax(1)), scores)
    other = (model(x[:20]).argmax(1) + 1) % 3
    assert (explainer.attribute(x[:20], other) != scores).all()
    again = RandomAttributor(seed=4).fit(model, (x, y))
    assert (again.attribute(x[:20]) != scores).all()
    assert abs(scores.mean()) < 4 / math.sqrt(1800)
    assert scores.std() == pytest.approx(1, abs=0.1)
    assert len(torch.unique(explainer.self_influence())) == 90
    assert (explainer.n_train_, explainer.n_classes_, explainer.cache_bytes_) == (90, 3, 0)
    assert explainer.top_k(x[:2], k=3).target.tolist() == model(x[:2]).argmax(1).tolist()
    with pytest.raises(StoreError):
        explainer.save("nowhere")


def test_identical_class_is_perfect_by_construction_on_relu_features(case) -> None:
    """λ_ic and α_ic are positive only for a sample's own class; ReLU features have no negative products."""
    model, x, y, _ = case
    tests = torch.randn(30, 6)
    target = model(tests).argmax(1)
    for explainer in (DualDA(C=1e-4, show_progress=False), get("representer")(show_progress=False)):
        scores = explainer.fit(model, (x, y)).attribute(tests)
        np.testing.assert_allclose(identical_class(scores, target, y), 1)
        shuffled = identical_class(scores[:, torch.randperm(90)], target, y).mean()
        assert shuffled < 0.7


def test_resources_are_recorded_in_this_process(case) -> None:
    class Elsewhere(engine.Engine):
        def run(self, function, items, threads):
            raise AssertionError

    model, x, y, _ = case
    with engine.using(Elsewhere()):
        attributor, scores, cost = measure(lambda: RandomAttributor().fit(model, (x, y)), x[:7])
    assert scores.shape == (7, 90)
    assert (cost.n_tests, cost.cache_bytes) == (7, 0)
    assert cost.fit_seconds == attributor.fit_seconds_ > 0
    assert cost.explain_seconds > 0


def test_peak_memory_is_recorded_in_a_fresh_process() -> None:
    """One that has freed memory before fills that first, without a rise."""
    code = """
import numpy as np, torch
from whence_studies import RandomAttributor, measure

class Hungry(RandomAttributor):
    def attribute(self, x, target=None):
        np.ones(5_000_000).sum()
        return super().attribute(x, target)

model = torch.nn.Linear(4, 2)
cost = measure(lambda: Hungry().fit(model, (torch.randn(9, 4), torch.arange(9) % 2)), torch.randn(3, 4))[2]
assert cost.peak_bytes is None or 36_000_000 < cost.peak_bytes < 120_000_000, cost.peak_bytes
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: identical_class(np.zeros((2, 3)), [0], [0, 1, 2], 1), r"'target' must have shape \(2,?\)"),
        (lambda: identical_class(np.zeros((1, 3)), [0], [0, 1, 2]), "'k' must be at most the 3"),
        (
            lambda: identical_class(np.full((1, 9), np.nan), [0], [0] * 9),
            r"'scores' must be finite.*\(0, 0\)",
        ),
        (lambda: identical_class(np.zeros((1, 9)), [0.5], [0] * 9), "'target' must be integers"),
        (lambda: mislabeling_auc(np.zeros(3), np.array([0, 1, 0])), "'flipped_mask' must be booleans"),
        (lambda: mislabeling_auc(np.zeros(3), np.zeros(3, bool)), "mark some of the 3 samples.*Got 0"),
        (lambda: shortcut_ap(np.zeros((0, 3)), np.array([True, False, True])), "'scores' must have shape"),
        (lambda: lds(np.zeros((2, 4)), random_subsets(4, 2), np.zeros((2, 2))), "at least 3 subsets"),
        (lambda: lds(np.zeros((2, 4)), random_subsets(4, 5), np.zeros((2, 5))), "'outputs' must have shape"),
        (lambda: random_subsets(4, 5, 1.0), "'fraction' must be a number in"),
        (lambda: compare_lds({}, random_subsets(4, 5), np.zeros((5, 2))), "at least one method"),
        (lambda: coreset(np.arange(4), 0.1), "must take some of the 4"),
        (lambda: weighted_mean([1.0], [0.0]), "'fractions' must be above 0"),
        (lambda: sparsity_curve(np.ones((1, 2)), [2.0]), r"'shares' must lie in \[0, 1\]"),
        (lambda: group_classes(np.ones((2, 3)), 1), "'confusion' must be a square matrix"),
        (lambda: group_classes(np.ones((2, 2)), 3), "'n_groups' must be at most the 2"),
    ],
)
def test_what_is_wrong_is_said(call, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_the_negative_ratio_by_hand_and_of_normal_scores() -> None:
    scores = [[3.0, -1.0, 1.0], [-2.0, 0.0, 0.5], [-1.0, 0.0, -1.0]]
    np.testing.assert_array_equal(negative_ratio(scores), [0.25, 4.0, np.nan])
    shifted = np.random.default_rng(0).standard_normal((1, 400_000)) + 0.5
    # E max(−z, 0) / E max(z, 0) of N(m, 1): (φ(m) − m Φ(−m)) / (φ(m) + m Φ(m))
    density, below = math.exp(-0.125) / math.sqrt(2 * math.pi), 0.5 * math.erfc(0.5 / math.sqrt(2))
    expected = (density - 0.5 * below) / (density + 0.5 * (1 - below))
    assert negative_ratio(shifted)[0] == pytest.approx(expected, rel=0.01)
