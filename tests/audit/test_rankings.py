"""Rankings of wrong labels against closed forms and planted errors of both kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

import whence
from whence import audit
from whence.audit.confusion import Confusion, confusion
from whence.audit.heldout import KAPPAS, calibrated, held_out_scores
from whence.audit.rankings import Evidence, disagreement, suited
from whence.features import FeatureBank

K, N = 8, 1200


def planted(kind: str, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features around a centre per class, labels of which a tenth is wrong, and which.

    Classes c and c + 1 (c even) are near each other, and "pairs" of them are confused; "symmetric" errors go
    to any other class.
    """
    rng = np.random.default_rng(3)
    truth = np.arange(N) % K
    centres = 3.0 * np.eye(K) + 2.0 * np.eye(K)[np.arange(K) // 2 * 2]
    X = centres[truth] + spread * rng.normal(size=(N, K))
    rows = rng.permutation(N)[: N // 10]
    y = truth.copy()
    y[rows] = truth[rows] ^ 1 if kind == "pairs" else (truth[rows] + rng.integers(1, K, len(rows))) % K
    return X, y, y != truth


def fitted(X: np.ndarray, y: np.ndarray, head: bool = True) -> whence.DualDA:
    """An explainer; the head, where known, is fitted to the labels as a model's would be."""
    bank = FeatureBank.of(X, y)
    if head:
        model = LogisticRegression(C=0.1).fit(X, y)
        bank = FeatureBank.of(X, y, head=(model.coef_, model.intercept_))
    return whence.DualDA(C=1e-3, show_progress=False).fit(features=bank)


def precision(found: audit.WrongLabels, wrong: np.ndarray) -> float:
    """Average precision of a list of all samples."""
    return float(average_precision_score(wrong[found.indices], found.scores))


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize(("kind", "suits"), [("symmetric", "confidence"), ("pairs", "confusion")])
def test_the_ranking_that_suits_the_errors_is_taken(kind: str, suits: str, head: bool) -> None:
    X, y, wrong = planted(kind)
    explainer = fitted(X, y, head)
    found = audit.wrong_labels(explainer, features=X)
    assert found.ranking == suits
    other = "confusion" if suits == "confidence" else "confidence"
    theirs = audit.wrong_labels(explainer, features=X, ranking=other)
    assert precision(found, wrong) > max(0.7, precision(theirs, wrong) - 0.01)
    # The same samples come first as by the name of the ranking.
    named = audit.wrong_labels(explainer, features=X, ranking=suits)
    np.testing.assert_array_equal(found.indices, named.indices)


def test_memorised_errors_are_ranked_by_confidence() -> None:
    X, y, wrong = planted("pairs", spread=0.5)
    marks = np.zeros((N, K))
    marks[wrong, y[wrong]] = 1.5  # what a network that has learnt its wrong labels adds to their features
    X = np.hstack([X, marks])
    explainer = fitted(X, y)
    evidence = Evidence(explainer, X)
    at_300, at_3000 = (disagreement(evidence.held_out[KAPPAS.index(kappa)], y) for kappa in (300, 3000))
    assert at_300 > 2 * at_3000
    assert suited(evidence) == "confidence"
    assert precision(audit.wrong_labels(explainer, features=X), wrong) > 0.9


def drawn(rates: np.ndarray, n: int = 6000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores whose softmax is the true class's probability, classes drawn from it, labels drawn by rates."""
    rng = np.random.default_rng(5)
    scores = 2.0 * rng.normal(size=(n, len(rates)))
    truth = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    labels = (np.log(rates[truth] + 1e-30) + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return scores, truth, labels


PAIRED = 0.8 * np.eye(4) + 0.2 * np.eye(4)[[1, 0, 3, 2]]
SPREAD = 0.8 * np.eye(4) + 0.2 / 3 * (1 - np.eye(4))


@pytest.mark.parametrize(("rates", "low", "high"), [(PAIRED, 0.7, 1.0), (SPREAD, 0.0, 0.1)])
def test_rates_of_errors_are_found_from_labels_alone(rates: np.ndarray, low: float, high: float) -> None:
    scores, _, labels = drawn(rates)
    found = confusion(5.0 * scores + 1.0, labels)  # neither scale nor shift matter
    np.testing.assert_allclose(found.rates.sum(axis=1), 1.0)
    assert np.abs(found.rates - rates).max() < 0.06
    assert low <= found.concentration <= high
    # The probabilities are those of classes, before errors flattened them.
    assert np.abs(np.exp(found.logs) - softmax(scores, axis=1)).mean() < 0.02


def test_confusion_ranks_by_the_odds_of_an_error() -> None:
    scores, truth, labels = drawn(PAIRED)
    found = confusion(scores, labels)
    p, rows = softmax(scores, axis=1), np.arange(len(labels))
    known = p * PAIRED[:, labels].T
    right = known[rows, labels] / known.sum(axis=1)
    odds = np.exp(found.joint)
    ours = odds[rows, labels] / odds.sum(axis=1)
    assert np.abs(ours - right).mean() < 0.03
    wrong = labels != truth
    best = average_precision_score(wrong, -right)
    assert average_precision_score(wrong, -ours) > best - 0.01
    assert best > average_precision_score(wrong, -p[rows, labels]) + 0.05


def test_classes_without_labels_and_single_classes_have_no_rates() -> None:
    scores, _, labels = drawn(PAIRED, 600)
    wider = np.hstack([scores, np.full((600, 2), -np.inf)])
    found = confusion(wider, labels)
    assert (found.rates[4:] == 0).all()
    assert (found.rates[:, 4:] == 0).all()
    assert np.isneginf(found.logs[:, 4:]).all()
    assert found.concentration == confusion(scores, labels).concentration
    # One error per class: chance alone makes it the most frequent. Fifty to one other class are no chance.
    for errors, known in ((1, False), (50, True)):
        counts = 200 * np.eye(4) + errors * np.eye(4)[[1, 2, 3, 0]]
        assert (Confusion(found.logs, found.rates, counts, labels).concentration > 0.9) == known
    assert confusion(scores, np.zeros(600, dtype=int)).concentration == 0.0
    assert confusion(scores[:, :2], np.arange(600) % 2).concentration == 1.0


def test_confidence_trusts_the_model_as_far_as_it_disagrees_with_labels() -> None:
    X, y, _ = planted("symmetric")
    explainer = fitted(X, y)
    head = explainer.head_
    assert head is not None
    assert head.bias is not None
    logits = X @ head.weight.T + head.bias
    share = 2 * (logits.argmax(1) != y).mean()
    assert 0.2 < share < 0.6
    options: dict[str, Any] = {"bias": explainer.constant_ or False, "seed": explainer.seed}
    crude = [calibrated(scores, y) for scores in held_out_scores(X, y, K, **options)[:2]]
    logs = (1 - share) * np.mean(crude, axis=0) + share * calibrated(logits, y)
    expected = -np.log(softmax(logs, axis=1)[np.arange(N), y])
    found = audit.wrong_labels(explainer, ranking="confidence", features=X)
    np.testing.assert_allclose(found.scores, expected[found.indices], rtol=1e-4, atol=1e-6)
    # A model that agrees with every label is not asked.
    fits = FeatureBank.of(np.hstack([X, np.eye(K)[y]]), y, head=(np.eye(K, 2 * K, K), np.zeros(K)))
    evidence = Evidence(whence.DualDA(C=1e-3, show_progress=False).fit(features=fits), fits.features)
    assert evidence.logits is not None
    assert disagreement(evidence.logits, y) == 0.0
    alone = np.mean([calibrated(scores, y) for scores in evidence.held_out[:2]], axis=0)
    ranked = audit.RANKINGS["confidence"](evidence)[0]
    np.testing.assert_allclose(ranked, -np.log(softmax(alone, axis=1)[np.arange(N), y]), rtol=1e-6)


def test_two_classes_are_a_pair() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    X = 2.0 * np.eye(2)[y] + 0.3 * rng.normal(size=(100, 2))
    y[:4] = 1 - y[:4]
    found = audit.wrong_labels(fitted(X, y, head=False), features=X, n=4)
    assert found.ranking == "confusion"
    assert set(found.indices) == {0, 1, 2, 3}
