"""Rankings of wrong labels against closed forms and planted errors of both kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from torch import nn

import whence
from tests.audit.cases import around_centres, dualda
from whence import audit
from whence.audit import heldout, rankings
from whence.audit.heldout import LISTED, Listed, calibrate, held_out_scores
from whence.audit.rankings import Evidence, concentration, destinations

K, N = 8, 1200


def planted(kind: str, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features around a centre per class, labels of which a tenth is wrong, and which.

    Classes c and c + 1 (c even) are near each other, and "pairs" of them are confused; "symmetric" errors go
    to any other class.
    """
    rng = np.random.default_rng(3)
    truth = np.arange(N) % K
    centres = 3.0 * np.eye(K) + 2.0 * np.eye(K)[np.arange(K) // 2 * 2]
    X = around_centres(centres, truth, spread, rng)
    rows = rng.permutation(N)[: N // 10]
    y = truth.copy()
    y[rows] = truth[rows] ^ 1 if kind == "pairs" else (truth[rows] + rng.integers(1, K, len(rows))) % K
    return X, y, y != truth


def fitted(X: np.ndarray, y: np.ndarray, head: bool = True) -> whence.DualDA:
    """An explainer; the head, where known, is fitted to the labels as a model's would be."""
    model = LogisticRegression(C=0.1).fit(X, y) if head else None
    return dualda(X, y, 1e-3, None if model is None else (model.coef_, model.intercept_))


def precision(found: audit.WrongLabels, wrong: np.ndarray) -> float:
    """Average precision of a list of all samples."""
    return float(average_precision_score(wrong[found.indices], found.scores))


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("kind", ["symmetric", "pairs"])
def test_odds_find_errors_of_both_kinds(kind: str, head: bool) -> None:
    X, y, wrong = planted(kind, spread=1.5)
    explainer = fitted(X, y, head)
    found = audit.wrong_labels(explainer, features=X)
    assert found.ranking == "odds"
    theirs = precision(audit.wrong_labels(explainer, features=X, ranking="confidence"), wrong)
    if kind == "pairs":
        assert precision(found, wrong) > theirs + 0.05
    else:  # even errors: the same order
        assert precision(found, wrong) == pytest.approx(theirs)
    assert precision(found, wrong) > 0.6


def test_odds_are_those_of_the_equation() -> None:
    X, y, _ = planted("pairs")
    evidence = Evidence(fitted(X, y), X)
    p, D = np.exp(evidence.logs), destinations(evidence.logs, evidence.scores.listed)
    scores, suggested = audit.RANKINGS["odds"](evidence)
    for i in range(0, N, 97):
        other = sum(p[i, c] * D[c, y[i]] for c in range(K) if c != y[i])
        assert scores[i] == pytest.approx(np.log(other / p[i, y[i]]))
        assert suggested[i] == p[i].argmax()


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_where_errors_go_is_found_where_their_probabilities_are_known(share: float) -> None:
    """Classes are drawn from p itself, and labels from a D of its own per class."""
    rng = np.random.default_rng(5)
    n, k = 20_000, 5
    scores = 2.5 * np.eye(k)[np.arange(n) % k] + rng.normal(size=(n, k))
    p = softmax(2.0 * scores, axis=1)
    truth = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    D = np.roll(np.eye(k), 1, axis=1) * 0.8 + np.roll(np.eye(k), 2, axis=1) * 0.2
    taken = (D[truth].cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    labels = np.where(rng.random(n) < share, taken, truth)
    np.testing.assert_allclose(destinations(scores, Listed.all_of(labels)), D, atol=0.08)
    even = np.where(rng.random(n) < share, (truth + rng.integers(1, k, n)) % k, truth)
    np.testing.assert_array_equal(destinations(scores, Listed.all_of(even)), (1 - np.eye(k)) / (k - 1))


def test_classes_without_labels_and_few_errors_tell_nothing_of_where_errors_go() -> None:
    y = np.array([0, 1, 3] * 20)
    D = destinations(np.eye(4)[y][:, [0, 1, 3]], Listed.all_of(y))
    np.testing.assert_array_equal(D, (1 - np.eye(3)) / 2)
    pairs = np.roll(np.eye(6), 1, axis=1)
    # Of n even errors over five classes a part of 1/5 + √(2 log 5 / (5 n)) is of one kind by chance.
    half = 0.5 * pairs + 0.5 * (1 - np.eye(6)) / 5
    chance = 1 / 5 + np.sqrt(2 * np.log(5) / (5 * 40))
    assert concentration(half, np.full(6, 40.0)) == pytest.approx((0.6 - chance) / (1 - chance))
    assert concentration(pairs, np.zeros(6)) == 0.0


def test_all_labels_of_one_class_are_unsuspicious() -> None:
    X, y = np.eye(3)[np.arange(12) % 3], np.zeros(12, dtype=int)
    y[0] = 1
    explainer = fitted(X, y, head=False)
    evidence = Evidence(explainer, X)
    evidence.labels = np.zeros(12, dtype=int)
    assert (audit.RANKINGS["odds"](evidence)[0] == 0).all()


def test_an_earlier_layer_finds_what_the_last_has_memorised() -> None:
    """The last layer sees nothing but the label, which is a faint mark on the inputs before."""
    X, y, wrong = planted("pairs", spread=0.7)
    inputs = torch.tensor(np.hstack([X, 0.5 * np.eye(K)[y]]), dtype=torch.float32)
    model = nn.Sequential(nn.Linear(2 * K, K), nn.Linear(K, K))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(K, 2 * K).roll(K, 1))
        model[1].weight.copy_(torch.eye(K))
        model[0].bias.zero_()
        model[1].bias.zero_()
    data = inputs, torch.tensor(y)
    one = whence.DualDA(metric="raw", C=1e-3, show_progress=False).fit(model, data)
    all_layers = whence.DualDA(metric="raw", C=1e-3, layers=["0", "1"], show_progress=False).fit(model, data)
    found = [precision(audit.wrong_labels(e), wrong) for e in (one, all_layers)]
    assert found[1] > found[0] + 0.3
    assert found[1] > 0.8


def test_confidence_trusts_the_model_as_far_as_it_disagrees_with_labels() -> None:
    X, y, _ = planted("symmetric")
    explainer = fitted(X, y)
    head = explainer.head_
    logits = X @ head.weight.T + head.bias
    share = 2 * (logits.argmax(1) != y).mean()
    assert 0.2 < share < 0.6
    options: dict[str, Any] = {"bias": explainer.constant_ or False, "seed": explainer.seed}
    listed = Listed.all_of(y)
    crude = [calibrate(scores, listed) for scores in held_out_scores(X, y, K, **options).held_out]
    logs = (1 - share) * np.mean(crude, axis=0) + share * calibrate(logits, listed)
    expected = -np.log(softmax(logs, axis=1)[np.arange(N), y])
    found = audit.wrong_labels(explainer, ranking="confidence", features=X)
    np.testing.assert_allclose(found.scores, expected[found.indices], rtol=1e-4, atol=1e-6)
    # A model that agrees with every label is not asked.
    seen = np.hstack([X, np.eye(K)[y]])
    evidence = Evidence(dualda(seen, y, 1e-3, (np.eye(K, 2 * K, K), np.zeros(K))), seen)
    assert (evidence.scores.head.argmax(axis=1) == y).all()
    alone = np.mean([calibrate(scores, listed) for scores in evidence.scores.held_out], axis=0)
    ranked = audit.RANKINGS["confidence"](evidence)[0]
    np.testing.assert_allclose(ranked, -np.log(softmax(alone, axis=1)[np.arange(N), y]), rtol=1e-6)


def test_two_classes_are_a_pair() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    X = 2.0 * np.eye(2)[y] + 0.3 * rng.normal(size=(100, 2))
    y[:4] = 1 - y[:4]
    found = audit.wrong_labels(fitted(X, y, head=False), features=X, n=4)
    assert set(found.indices) == {0, 1, 2, 3}


def many(n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features around one centre per class, labels, of which a tenth is wrong, and which those are."""
    rng = np.random.default_rng(7)
    truth = np.arange(12 * n_classes) % n_classes
    X = rng.normal(size=(n_classes, 24))[truth] + 0.6 * rng.normal(size=(len(truth), 24))
    wrong = rng.random(len(truth)) < 0.1
    return X, np.where(wrong, (truth + rng.integers(1, n_classes, len(truth))) % n_classes, truth), wrong


def test_of_many_classes_the_likely_ones_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 classes 32 per sample give the order of all 60, and all of the labels are among them."""
    X, y, wrong = many(60)
    explainer = fitted(X, y)
    some = Evidence(explainer, X)
    listed = some.scores.listed
    assert listed.classes.shape == (len(y), LISTED)
    np.testing.assert_array_equal(listed.name(listed.label_column), y)
    assert (np.diff(listed.classes, axis=1) > 0).all()
    head = explainer.head_
    logits = X @ head.weight.T + (0.0 if head.bias is None else head.bias)
    np.testing.assert_allclose(some.scores.head, np.take_along_axis(logits, listed.classes, 1), atol=1e-5)
    np.testing.assert_array_equal(listed.name(some.scores.head.argmax(axis=1)), logits.argmax(axis=1))
    monkeypatch.setattr(heldout, "LISTED", 60)
    whole = Evidence(explainer, X)
    assert whole.scores.listed.classes.shape == (len(y), 60)
    for ranking in ("odds", "confidence"):
        (ours, names), (theirs, named) = (audit.RANKINGS[ranking](each) for each in (some, whole))
        assert spearmanr(ours, theirs).statistic > 0.999
        assert (names == named).mean() > 0.999
        assert set(np.argsort(-ours)[: wrong.sum()]) - set(np.argsort(-theirs)[: wrong.sum() + 3]) == set()


def test_with_thousands_of_classes_errors_count_as_even(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = many(40)
    evidence = Evidence(fitted(X, y, head=False), X)
    monkeypatch.setattr(rankings, "_MANY", 39)
    scores, _ = audit.RANKINGS["odds"](evidence)
    p = np.exp(evidence.logs)[np.arange(len(y)), evidence.scores.listed.label_column]
    np.testing.assert_allclose(scores, np.log((1 - p) / p) - np.log(39), atol=1e-6)
