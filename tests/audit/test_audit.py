"""The audit against closed forms, a generic QP solver, plain loops and planted errors."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

import whence
from tests.audit.cases import dualda
from tests.helpers.lazy import Samples
from tests.helpers.oracle import qp
from whence import audit
from whence.attribution.training_features import training_features
from whence.audit.heldout import Listed, calibrate, folds, held_out_scores
from whence.errors import InvalidInputError, NotFittedError, UnsupportedError
from whence.features import extract
from whence.features.metric import METRICS
from whence.features.novelty import nearest
from whence.tasks import Classes

K, D, N = 4, 6, 120


def data(noise: float = 0.35) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (float64), labels of which a tenth is wrong, and which."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    X = 2.0 * np.eye(K, D)[y] + noise * rng.normal(size=(N, D))
    wrong = rng.permutation(N)[: N // 10]
    y[wrong] = (y[wrong] + rng.integers(1, K, len(wrong))) % K
    return X, y, wrong


def fitted(C: float = 0.02, **options: Any) -> whence.DualDA:
    return dualda(*data()[:2], C, head=(2.0 * np.eye(K, D), np.zeros(K)), **options)


def net() -> nn.Module:
    """Return a model whose features are the input, with the head that a trained one would have."""
    model = nn.Sequential(nn.Identity(), nn.Linear(D, K))
    with torch.no_grad():
        model[1].weight.copy_(2.0 * torch.eye(K, D))
        model[1].bias.zero_()
    return model


# Held-out scores and their calibration


@pytest.mark.parametrize("bias", [True, False])
def test_leaving_single_samples_out_is_solving_without_them(bias: bool) -> None:
    X, y, _ = data()
    X, y = X[:14], y[:14]
    kappa = 20.0
    (found,) = held_out_scores(X, y, K, bias=bias, kappas=[kappa], n_folds=14, tol=1e-8).held_out
    scale = (X**2).sum()
    for i in range(14):
        rest = np.arange(14) != i
        _, W = qp(X[rest], y[rest], K, kappa / scale * 14 / 13, bias)
        expected = W @ np.append(X[i], 1.0)[: W.shape[1]]
        # A gap of 1e-8 leaves ‖W − W*‖² ≤ 2e-8·P, with P below 14 C, the value at W = 0.
        near = np.sqrt(2e-8 * 14 * kappa / scale * (X[i] @ X[i] + 1))
        np.testing.assert_allclose(found[i], expected, atol=near)


def test_folds_have_equal_sizes_and_their_part_of_every_class() -> None:
    y = np.repeat([0, 1, 2], [50, 10, 7])
    fold = folds(y, 5, seed=3)
    assert np.bincount(fold).max() - np.bincount(fold).min() <= 1
    for c in range(3):
        counts = np.bincount(fold[y == c], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold, folds(y, 5, seed=4))


def test_calibration_meets_the_conditions_of_the_most_likely() -> None:
    rng = np.random.default_rng(1)
    y = np.arange(200) % 3
    scores = np.eye(3)[y] + rng.normal(size=(200, 3)) + [3.0, 0.0, -1.0]
    p = np.exp(calibrate(scores, Listed.all_of(y)))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p.sum(axis=0), np.bincount(y), atol=1e-3)
    np.testing.assert_allclose((p * scores).sum(), scores[np.arange(200), y].sum(), atol=1e-2)
    # Scores that are shifted, scaled and favour a class mean the same.
    moved = 7.0 * scores + rng.normal(size=(200, 1)) + [0.0, 5.0, 0.0]
    np.testing.assert_allclose(np.exp(calibrate(moved, Listed.all_of(y))), p, atol=1e-4)


def test_calibration_of_a_class_without_labels_and_of_separable_scores() -> None:
    y = np.array([0, 0, 2, 2])
    listed = Listed.all_of(y)
    np.testing.assert_array_equal(listed.seen, [0, 2])
    logs = calibrate(np.eye(2)[y // 2], listed)
    np.testing.assert_allclose(np.exp(logs[np.arange(4), listed.label_column]), 1.0)


def test_nearest_agrees_with_scikit_learn() -> None:
    X, _, _ = data()
    rows = np.array([3, 50, 119])
    theirs = NearestNeighbors(n_neighbors=8, metric="cosine").fit(X).kneighbors(X[rows])[1]
    unit = METRICS["unit"].fit(X).rows(X)
    np.testing.assert_array_equal(nearest(unit[rows], unit, 7, rows)[1], theirs[:, 1:])


# Wrong labels


@pytest.mark.parametrize("ranking", ["odds", "confidence", "slack"])
def test_planted_labels_come_first_and_get_their_class_back(ranking: str) -> None:
    X, y, wrong = data()
    found = audit.wrong_labels(fitted(), ranking=ranking, features=X)
    assert len(found) == N
    assert set(found.indices[: len(wrong)]) == set(wrong)
    truth = np.arange(N) % K
    np.testing.assert_array_equal(found.suggested[: len(wrong)], truth[found.indices[: len(wrong)]])
    assert (np.diff(found.scores) <= 0).all()
    np.testing.assert_array_equal(found.labels, y[found.indices])


def test_it_says_how_many_labels_are_likely_wrong_and_that_nothing_was_found() -> None:
    f, y, _ = data()
    explainer = fitted()
    found = audit.wrong_labels(explainer, features=f, n=5)
    whole = audit.wrong_labels(explainer, features=f)
    more = int(((whole.scores > 0) & (whole.suggested != y[whole.indices])).sum())
    assert more >= 5  # of all, not of those listed
    assert str(found).startswith(
        f"{more} of {len(y)} labels are more likely wrong than right: log-odds above 0."
    )
    assert "| log-odds |" in str(found)
    assert f"n_likely={more}, n_audited={len(y)}" in repr(found)
    eye = np.eye(3)[np.arange(60) % 3] + 0.01 * np.random.default_rng(0).normal(size=(60, 3))
    clean = whence.DualDA(C=0.1, show_progress=False).fit(
        features=whence.features.FeatureBank.of(eye, np.arange(60) % 3)
    )
    text = str(audit.wrong_labels(clean, features=eye))
    assert text.startswith("Nothing found: none of 60 labels is more likely wrong than right.")


def test_slack_is_the_loss_of_every_sample() -> None:
    X, y, _ = data()
    explainer = fitted(tol=1e-9)
    found = audit.wrong_labels(explainer, ranking="slack")
    W = explainer.coef_
    for i, score in zip(found.indices, found.scores, strict=True):
        s = W @ np.append(X[i], 1.0)
        assert score == pytest.approx(max(s[c] - s[y[i]] + (c != y[i]) for c in range(K)), abs=1e-3)


def test_self_influence_ties_at_the_bound_up_to_the_lengths_of_features() -> None:
    X, _, _ = data()
    C = 1e-4  # so small that no margin is reached
    explainer = fitted(C=C)
    found = audit.wrong_labels(explainer, ranking="self_influence", features=X)
    np.testing.assert_allclose(
        found.scores, C * ((X[found.indices] ** 2).sum(1) + explainer.constant_**2), rtol=1e-5
    )
    np.testing.assert_array_equal(found.scores, found.self_influence)


def test_neighbours_are_those_of_the_nearest_that_disagree() -> None:
    X, y, _ = data()
    found = audit.wrong_labels(fitted(), features=X, n=15, k=6)
    assert found.neighbours.shape == found.neighbour_labels.shape == (15, 6)
    near = NearestNeighbors(n_neighbors=7, metric="cosine").fit(X).kneighbors(X)[1][:, 1:]
    for j, i in enumerate(found.indices):
        expected = [other for other in near[i] if y[other] != y[i]]
        kept = found.neighbours[j][found.neighbours[j] >= 0]
        assert kept.tolist() == expected
        assert found.neighbour_labels[j, : len(kept)].tolist() == y[kept].tolist()
    assert found.among == "training samples"


def test_a_saved_explainer_without_model_ranks_by_its_support_vectors(tmp_path: Path) -> None:
    explainer = fitted()
    explainer.save(tmp_path / "e.whence")
    loaded = whence.load(tmp_path / "e.whence")
    found = audit.wrong_labels(loaded, ranking="slack", n=20)
    assert found.among == "support vectors"
    whole = audit.wrong_labels(explainer, ranking="slack", features=data()[0], n=20)
    np.testing.assert_array_equal(found.indices, whole.indices)
    kept = found.neighbours[found.neighbours >= 0]
    assert len(kept)
    assert np.isin(kept, explainer.support_).all()
    with pytest.raises(InvalidInputError, match="'features' must be given"):
        audit.wrong_labels(loaded)


def test_features_come_from_the_model_where_none_are_given() -> None:
    X, y, wrong = data()
    x = torch.from_numpy(X).float()
    model = net()
    explainer = whence.DualDA(metric="raw", C=0.02, show_progress=False).fit(model, (x, y))
    ours = audit.wrong_labels(explainer)
    bank = extract(model, (x, y), show_progress=False)
    same = audit.wrong_labels(explainer, features=bank)
    assert ours.ranking == "odds"
    np.testing.assert_array_equal(ours.indices, same.indices)
    assert set(ours.indices[: len(wrong)]) == set(wrong)
    np.testing.assert_allclose(training_features(explainer.fitted_, None), x.numpy())


def test_skipped_samples_are_never_listed_and_indices_are_the_users() -> None:
    X, y, wrong = data()
    broken = Samples(X.astype(np.float32), y, (0, 40))
    explainer = whence.DualDA(metric="raw", C=0.02, show_progress=False).fit(net(), broken, on_error="skip")
    found = audit.wrong_labels(explainer, ids=[f"n{i}" for i in range(N)])
    assert len(found) == N - 2
    assert not {0, 40} & set(found.indices.tolist())
    readable = set(wrong) - {0, 40}
    assert set(found.indices[: len(readable)]) == readable
    assert found.ids[0] == f"n{found.indices[0]}"
    assert not np.isin(found.neighbours, [0, 40]).any()
    kept = audit.coreset(explainer, features=X, share=1.0)
    assert not {0, 40} & set(kept.indices.tolist())


# Files


HOSTILE = ['a,"b"\n', "<script>", "=1+1", "naïve ünï", " two  spaces ", "line\r\nbreak"]


def test_csv_and_parquet_give_back_what_was_written(tmp_path: Path) -> None:
    X, _, _ = data()
    ids = [f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(N)]
    explainer = fitted()
    task = Classes(4, ('cat,"tabby"', "dog\n", "<b>", "Äpfel"))
    explainer.fitted_ = dataclasses.replace(explainer.fitted_, task=task)
    found = audit.wrong_labels(explainer, features=X, n=30, ids=ids)
    found.to_csv(tmp_path / "f.csv")
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows] == found.indices.tolist()
    assert [row["id"].removeprefix("'") for row in rows] == [ids[i] for i in found.indices]
    assert not any(row["id"].startswith("=") for row in rows)
    assert [float(row["score"]) for row in rows] == found.scores.tolist()
    assert rows[0]["label_name"] == explainer.class_names_[found.labels[0]]
    near = [[int(v) for v in row["neighbours"].split()] for row in rows]
    assert near == [row[row >= 0].tolist() for row in found.neighbours]
    parquet = pytest.importorskip("pyarrow.parquet")
    found.to_parquet(tmp_path / "f.parquet")
    table = parquet.read_table(tmp_path / "f.parquet").to_pydict()
    assert table == found.columns()
    assert json.loads(json.dumps(found.to_dict()))["columns"]["neighbours"] == near


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = audit.wrong_labels(fitted(), ranking="slack", n=3)
    with pytest.raises(InvalidInputError, match="pip install pyarrow"):
        found.to_parquet(tmp_path / "f.parquet")


def test_ids_may_be_numpy_values(tmp_path: Path) -> None:
    found = audit.wrong_labels(fitted(), ranking="slack", n=3, ids=np.arange(N) + 1000)
    assert json.loads(json.dumps(found.to_dict()))["columns"]["id"] == (found.indices + 1000).tolist()
    assert str(int(found.indices[0]) + 1000) in str(found)
    pandas = pytest.importorskip("pandas")
    column = pandas.Series([f"n{i}" for i in range(N)], index=np.arange(N)[::-1])
    named = audit.wrong_labels(fitted(), ranking="slack", n=3, ids=column)
    assert named.ids == tuple(f"n{i}" for i in named.indices)


# Sets of tests


@pytest.mark.parametrize("target", [None, 2, "each"])
@pytest.mark.parametrize("bias", [True, False])
def test_group_attribution_is_the_mean_of_the_dense_scores(target: Any, bias: bool) -> None:
    explainer = fitted(bias=bias, batch_size=7)
    tests = np.random.default_rng(5).normal(size=(53, D))
    classes = np.arange(53) % K if target == "each" else target
    dense = explainer.attribute(features=tests, target=classes).numpy()
    group = audit.group_attribution(explainer, features=tests, target=classes)
    np.testing.assert_allclose(group.mean, dense.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(group.mean_absolute, np.abs(dense).mean(0), rtol=1e-9, atol=1e-12)
    assert group.n_tests == group.targets.sum() == 53
    order = np.argsort(-dense.mean(0))[:5]
    np.testing.assert_array_equal(group.top(5), order)


def test_a_coreset_keeps_the_largest_mean_absolute_scores(tmp_path: Path) -> None:
    explainer = fitted()
    tests = np.random.default_rng(5).normal(size=(20, D))
    scores = np.abs(explainer.attribute(features=tests).numpy()).mean(0)
    kept = audit.coreset(explainer, features=tests, share=0.101, ids=range(N))
    assert len(kept.indices) == 13  # 12.12 rounded up
    np.testing.assert_array_equal(kept.indices, np.argsort(-scores, kind="stable")[:13])
    assert kept.coverage == pytest.approx(np.sort(scores)[-13:].sum() / scores.sum())
    kept.to_csv(tmp_path / "c.csv")
    with (tmp_path / "c.csv").open(newline="") as file:
        assert [int(row["id"]) for row in csv.DictReader(file)] == kept.indices.tolist()
    assert audit.coreset(explainer, features=tests, share=1.0).coverage == pytest.approx(1.0)
    assert json.loads(json.dumps(kept.to_dict()))["n_train"] == N


# Classes


def test_class_view_counts_and_margins() -> None:
    X, y, _ = data()
    explainer = fitted(tol=1e-9)
    view = audit.class_view(explainer, k=4)
    lam, W = explainer.lam_.toarray(), explainer.coef_
    scores = np.hstack([X, np.ones((N, 1))]) @ W.T
    for c, found in enumerate(view.classes):
        own = (y == c) & (np.abs(lam).max(1) > 0)
        assert found.n_train == (y == c).sum()
        assert found.n_support == own.sum()
        assert found.n_bounded == (lam[own, c] >= explainer.C_ * (1 - 1e-9)).sum()
        assert found.bounded == pytest.approx(found.n_bounded / found.n_support)
        rivals = np.delete(scores[own], c, axis=1).max(1)
        np.testing.assert_allclose(found.margins, np.sort(scores[own, c] - rivals), atol=1e-9)
        np.testing.assert_allclose(found.coefficients, np.sort(lam[:, c])[::-1][:4])
        share = lam[:, c] * scores[:, c] / ((W[c, :-1] ** 2).sum() + (W[c, -1] / explainer.constant_) ** 2)
        assert share.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(found.shares, share[found.proponents])
    assert str(view).count("\n") == K + 1
    assert json.loads(json.dumps(view.to_dict()))["C"] == explainer.C_


@pytest.mark.filterwarnings("ignore:No training sample has class")
def test_a_class_without_samples_is_empty() -> None:
    y = np.arange(30) % 3
    X = np.eye(3, 5)[y] + 0.1 * np.random.default_rng(2).normal(size=(30, 5))
    explainer = dualda(X, y, task=Classes(4))
    empty = audit.class_view(explainer).classes[3]
    assert (empty.n_train, empty.n_support, empty.bounded, len(empty.margins)) == (0, 0, 0.0, 0)
    assert len(empty.proponents) == 0
    found = audit.wrong_labels(explainer, features=X)
    assert not (found.suggested == 3).any()
    assert np.isfinite(found.scores).all()


# Input that cannot be used


def test_bad_input_is_named() -> None:
    X, y, _ = data()
    explainer = fitted()
    holes = np.where(np.arange(N * D).reshape(N, D) == 20, np.nan, X)
    for options, message in (
        ({"ranking": "best"}, r"'ranking' must be one of \"odds\".*'best'"),
        ({"features": holes}, r"'features' must be finite. Got nan at row 3, column 2"),
        ({"features": X[1:]}, r"\(120, 6\). Got \(119, 6\)"),
        ({"features": X[::-1]}, "in its order"),
        ({"ids": ["a"]}, "'ids' must have one name per training sample, 120"),
        ({"n": 0}, "at least 1"),
        ({"k": 0}, "at least 1"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            audit.wrong_labels(explainer, **{"features": X, **options})
    with pytest.raises(UnsupportedError, match="fitted DualDA"):
        audit.wrong_labels("x.whence")  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        audit.class_view(whence.DualDA())
    with pytest.raises(InvalidInputError, match=r"'n_folds' must lie between 2 and .* 120"):
        held_out_scores(X, y, K, n_folds=1)


def test_bad_sets_are_named() -> None:
    X, _, _ = data()
    explainer = fitted()
    for options, message in (
        ({}, "Either 'x' or 'features'"),
        ({"features": X[:0]}, "one row per test"),
        ({"features": np.full((2, D), np.nan)}, "finite"),
        ({"features": X, "target": K}, "'target'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            audit.group_attribution(explainer, **options)
    with pytest.raises(NotFittedError, match="no model"):
        audit.group_attribution(explainer, torch.zeros(2, D))
    for share in (0, 1.5, float("nan"), True):
        with pytest.raises(InvalidInputError, match="'share' must be a number in"):
            audit.coreset(explainer, features=X, share=share)
    for options, message in (
        ({"features": X}, "suspicious samples, or a class"),
        ({"features": X, "target": [0, 1]}, "one class for all samples"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            audit.shortcuts(explainer, **options)
