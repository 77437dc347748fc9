"""Other training samples, labels or C: the surrogate solved anew, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import oracle
from whence import DualDA
from whence.errors import InvalidInputError, NotFittedError
from whence.features import FeatureBank
from whence.svm import solve


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150)
    X = (np.eye(3, 6)[y] * 2 + rng.normal(size=(150, 6))).astype(np.float32)
    head = rng.normal(size=(3, 6)), rng.normal(size=3)
    explainer = DualDA(metric="raw", C=0.05, tol=1e-10, show_progress=False).fit(
        features=FeatureBank.of(X, y, head=head)
    )
    return explainer, X, y, head


def fresh(X, y, constant, C=0.05):
    return solve(X, y, C=C, bias=constant, tol=1e-10).weight


def test_without_some_samples(problem):
    explainer, X, y, head = problem
    gone = explainer.support_[:7].tolist()
    other = explainer.what_if(remove=gone, training_features=X).explainer
    keep = np.setdiff1d(np.arange(150), gone)
    np.testing.assert_allclose(other.coef_, fresh(X[keep], y[keep], explainer.constant_), atol=1e-5)
    assert other.gap_ <= 1e-10
    scores = other.attribute(features=X[:4])
    assert scores.shape == (4, 150)
    assert not scores[:, gone].any()
    assert other.skipped_.tolist() == gone
    np.testing.assert_allclose(scores.sum(1), (X[:4] @ other.coef_[:, :6].T + other.coef_[:, 6])[
        np.arange(4), (X[:4] @ head[0].T + head[1]).argmax(1)
    ], rtol=1e-4, atol=1e-6)  # fmt: skip


def test_with_other_labels_and_with_another_C(problem):
    explainer, X, y, _ = problem
    changed = y.copy()
    changed[[3, 5]] = (y[[3, 5]] + 1) % 3
    other = explainer.what_if(relabel={3: int(changed[3]), 5: int(changed[5])}, training_features=X).explainer
    np.testing.assert_allclose(other.coef_, fresh(X, changed, explainer.constant_), atol=1e-5)
    np.testing.assert_array_equal(other.labels_, changed)
    smaller = explainer.what_if(C=0.001, training_features=X).explainer
    assert smaller.C_ == 0.001
    np.testing.assert_allclose(smaller.coef_, fresh(X, y, explainer.constant_, C=0.001), atol=1e-6)


def test_the_gap_is_that_of_the_weights_that_are_explained():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 600)
    X = (np.eye(3, 6)[y] + rng.normal(size=(600, 6))) * np.logspace(1, -1, 6)
    explainer = DualDA(metric="raw", C=10.0, tol=1e-3, show_progress=False).fit(features=FeatureBank.of(X, y))
    for e in (
        explainer,
        explainer.what_if(remove=[0, 1, 2], training_features=X).explainer,
        explainer.what_if(C=0.3, training_features=X).explainer,
    ):
        kept = e.labels_ >= 0
        # The constant as a last column of the features, and the weight on it as a last column of W.
        F = np.hstack([X[kept], np.full((kept.sum(), 1), e.constant_)])
        W = np.hstack([e.coef_[:, :-1], e.coef_[:, -1:] / e.constant_])
        primal = oracle.primal(F, y[kept], W, e.C_, False)
        dual = oracle.dual(F, y[kept], e.lam_.toarray()[kept], False)
        assert e.gap_ == pytest.approx((primal - dual) / primal, abs=1e-12)
        assert e.gap_ <= 1e-3


def test_the_explainer_itself_stays_as_it_was(problem):
    explainer, X, _, _ = problem
    before = explainer.coef_.copy(), explainer.lam_.toarray(), explainer.labels_.copy()
    explainer.what_if(remove=[0, 1], relabel={2: 0}, training_features=X)
    np.testing.assert_array_equal(explainer.coef_, before[0])
    np.testing.assert_array_equal(explainer.lam_.toarray(), before[1])
    np.testing.assert_array_equal(explainer.labels_, before[2])


def test_a_second_question_asks_from_the_first(problem):
    explainer, X, y, _ = problem
    other = (
        explainer.what_if(remove=[0], training_features=X)
        .explainer.what_if(relabel={1: int((y[1] + 1) % 3)}, training_features=X)
        .explainer
    )
    changed = y.copy()
    changed[1] = (y[1] + 1) % 3
    np.testing.assert_allclose(other.coef_, fresh(X[1:], changed[1:], explainer.constant_), atol=1e-5)


def test_bad_questions(problem):
    explainer, X, _, _ = problem
    with pytest.raises(InvalidInputError, match=r"one row per sample, \(150, 6\)\. Got \(10, 6\)"):
        explainer.what_if(training_features=X[:10])
    with pytest.raises(InvalidInputError, match=r"'remove' .*Got 150"):
        explainer.what_if(remove=[150], training_features=X)
    with pytest.raises(InvalidInputError, match=r"Got 3 for sample 0"):
        explainer.what_if(relabel={0: 3}, training_features=X)
    with pytest.raises(InvalidInputError, match="leave a training sample"):
        explainer.what_if(remove=range(150), training_features=X)
    with pytest.raises(InvalidInputError, match="'C' must be"):
        explainer.what_if(C=-1, training_features=X)
    with pytest.raises(InvalidInputError, match=r"'remove' .*Got 0"):
        explainer.what_if(remove=[0], training_features=X).explainer.what_if(remove=[0], training_features=X)
    with pytest.raises(NotFittedError):
        DualDA(metric="raw").what_if(training_features=X)


def test_it_says_which_predictions_change(problem):
    explainer, X, y, _ = problem
    chosen = [0, 1, *np.flatnonzero(y == y[0])[2:40].tolist()]
    relabel = {i: int((y[i] + 1) % 3) for i in chosen}
    answer = explainer.what_if(features=X[:30], relabel=relabel, training_features=X)
    # Fits of their own, of the old labels and of the new ones.
    new = np.array([relabel.get(i, y[i]) for i in range(150)])
    before, after = (
        X[:30] @ weight[:, :6].T + weight[:, 6]
        for weight in (fresh(X, labels, explainer.constant_) for labels in (y, new))
    )
    moved = before.argmax(1) != after.argmax(1)
    assert 0 < moved.sum() < 30
    np.testing.assert_array_equal(answer.changed, moved)
    rows = np.arange(30), before.argmax(1)
    np.testing.assert_allclose(answer.change, (after - before)[rows], atol=1e-4)
    frame = answer.to_pandas()
    assert (frame["before"] != frame["after"]).tolist() == sorted(moved, reverse=True)  # those first
    strongest = int(frame["test"][0])
    assert moved[strongest]
    assert abs(answer.change[strongest]) == pytest.approx(np.abs(answer.change[moved]).max())
    text = str(answer)
    assert f"{moved.sum()} of 30 predictions (" in text
    assert f"test {strongest} from {before.argmax(1)[strongest]} to {after.argmax(1)[strongest]}" in text
    assert "<td" in answer._repr_html_()


def test_without_tests_it_reports_on_the_training_samples_that_are_left(problem):
    explainer, X, _, _ = problem
    gone = explainer.support_[:40].tolist()
    answer = explainer.what_if(remove=gone, training_features=X)
    left = np.setdiff1d(np.arange(150), gone)
    assert answer.places.tolist() == left.tolist()
    expected = explainer.predict(features=X[left]) != answer.explainer.predict(features=X[left])
    np.testing.assert_array_equal(answer.changed, expected.numpy())
    assert str(answer).startswith(f"Without 40 training samples, {int(expected.sum())} of 110 predictions")
    assert "With nothing changed, none of 110 predictions changes" in str(
        explainer.what_if(remove=gone, training_features=X).explainer.what_if(
            C=explainer.C_, training_features=X
        )
    )
