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
from whence.audit.heldout import KAPPAS, calibrated, held_out_scores
from whence.audit.rankings import Evidence, disagreement, evenness, suited
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
@pytest.mark.parametrize(("kind", "suits"), [("symmetric", "confidence"), ("pairs", "margin")])
def test_the_ranking_that_suits_the_errors_is_taken(kind: str, suits: str, head: bool) -> None:
    X, y, wrong = planted(kind)
    explainer = fitted(X, y, head)
    found = audit.wrong_labels(explainer, features=X)
    assert found.ranking == suits
    other = "margin" if suits == "confidence" else "confidence"
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


def test_evenness_counts_places_of_labels() -> None:
    scores = np.tile(np.arange(5.0)[::-1], (8, 1))  # class c is in place c
    y = np.array([0, 0, 0, 1, 2, 3, 4, 4])
    # Five labels are not in the first place; three have more than 2.5 classes before them, by chance 2 of 4.
    assert disagreement(scores, y) == 5 / 8
    assert evenness(scores, y) == pytest.approx((3 / 5) / (2 / 4))
    assert evenness(scores, np.zeros(8, dtype=int)) == 0.0
    assert evenness(scores[:, :2], np.array([0, 1] * 4)) == 0.0
    absent = np.hstack([scores, np.full((8, 4), -np.inf)])
    assert evenness(absent, y) == evenness(scores, y)


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_at_random_are_even(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(20_000, 7))
    # Given that the label is not first, its place is uniform over the other six.
    assert evenness(scores, rng.integers(0, 7, 20_000)) == pytest.approx(1.0, abs=0.03)


def test_margin_is_a_difference_of_probabilities() -> None:
    X, y, _ = planted("pairs")
    explainer = fitted(X, y)
    options: dict[str, Any] = {"bias": explainer.constant_ or False, "seed": explainer.seed}
    p = softmax(np.mean(held_out_scores(X, y, K, **options), axis=0), axis=1)
    found = audit.wrong_labels(explainer, ranking="margin", features=X)
    for i, score, other in zip(found.indices, found.scores, found.suggested, strict=True):
        assert score == pytest.approx(np.delete(p[i], y[i]).max() - p[i, y[i]], abs=1e-5)
        assert other == p[i].argmax()


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
    assert found.ranking == "margin"
    assert set(found.indices) == {0, 1, 2, 3}
