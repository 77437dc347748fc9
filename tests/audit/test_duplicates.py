"""Near-duplicates against scikit-learn's neighbours, NumPy's distances and planted copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

import whence
from tests.audit.cases import dualda
from whence.audit import Duplicates, duplicates
from whence.errors import InvalidInputError, UnsupportedError


def planted(seed: int = 0, n: int = 80, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels: a copy of sample 3, two of sample 10, one of sample 20 with another label."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)).astype(np.float32), np.arange(n) % 3
    X[50], y[50] = X[3], y[3]
    X[[60, 61]], y[[60, 61]] = X[10], y[10]
    X[70] = X[20] + 1e-4 * rng.normal(size=d)
    y[70] = (y[20] + 1) % 3
    return X, y


def groups(found: Duplicates) -> list[list[tuple[str, int]]]:
    kinds = np.where(found.tests, "test", "train")
    rows = list(zip(kinds.tolist(), found.indices.tolist(), strict=True))
    return [rows[found.members(group)] for group in range(len(found))]


def test_copies_are_grouped_and_different_labels_come_first() -> None:
    X, y = planted()
    tests = np.stack([X[10], X[40], X[0] + 5])
    found = duplicates(dualda(X, y), test_features=tests, test_labels=[y[10], (y[40] + 1) % 3, 0])
    assert groups(found) == [
        [("test", 1), ("train", 40)],  # another label, and a leak
        [("train", 20), ("train", 70)],
        [("test", 0), ("train", 10), ("train", 60), ("train", 61)],
        [("train", 3), ("train", 50)],
    ]
    assert (found.n_groups, found.n_different, found.n_leaks) == (4, 2, 2)
    assert found.different.tolist() == [True, True, False, False]
    assert found.leaks.tolist() == [True, False, True, False]
    assert found.extra().tolist() == [10, 40, 50, 60, 61, 70]
    assert found.extra(different=False).tolist() == [10, 50, 60, 61]
    assert found.nearest.max() < 0.01


@pytest.mark.parametrize("metric", ["raw", "whitened"])
def test_pairs_are_those_within_a_share_of_the_tenth_neighbour(metric: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3)).astype(np.float32)
    explainer = dualda(X, np.arange(150) % 3, metric=metric)
    found = duplicates(explainer, radius=0.5)
    Z = explainer.surrogate_.metric.rows(X).astype(np.float64)
    far, near = NearestNeighbors(n_neighbors=11).fit(Z).kneighbors(Z)
    tenth = np.maximum(far[:, 10], 0.1 * np.median(far[:, 10]))
    bound = 0.5 * np.minimum(tenth[:, None], tenth[near[:, 1:]])
    inside = {
        (i, int(j))
        for i in range(150)
        for j, ok in zip(near[i, 1:], far[i, 1:] <= bound[i], strict=True)
        if ok
    }
    linked = {i for pair in inside for i in pair}
    assert linked
    assert set(found.indices.tolist()) == linked
    of = dict(zip(found.indices.tolist(), found.groups.tolist(), strict=True))
    assert all(of[i] == of[j] for i, j in inside)
    distance = np.linalg.norm(Z[:, None] - Z[None], axis=-1)
    for row, share in zip(found.indices, found.nearest, strict=True):
        shares = [distance[row, j] / min(tenth[row], tenth[j]) for i, j in inside if i == row]
        assert share == pytest.approx(min(shares), rel=1e-3)


def test_many_copies_are_one_group_whatever_their_units() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(100, 30)) + 300
    X[30:70] = X[5]
    for size in (1.0, 1e-6, 1e6):
        found = duplicates(
            dualda((X * size).astype(np.float64), np.arange(100) % 2, C="auto", metric="centred")
        )
        assert [len(group) for group in groups(found)] == [41]


def test_tests_are_compared_in_parts() -> None:
    rng = np.random.default_rng(3)
    X, tests = rng.normal(size=(2500, 20)).astype(np.float32), rng.normal(size=(3000, 20)).astype(np.float32)
    tests[2900] = X[2400]
    found = duplicates(dualda(X, np.arange(2500) % 2, C=1e-4, tol=0.5), test_features=tests)
    assert groups(found) == [[("test", 2900), ("train", 2400)]]


def test_inputs_are_compared_by_the_model_and_skipped_samples_have_no_part() -> None:
    X, y = planted()
    model = nn.Sequential(nn.Identity(), nn.Linear(6, 3))
    x = torch.from_numpy(X)
    explainer = whence.DualDA(C=0.1, metric="raw", show_progress=False)
    explainer.fit(model, (x, torch.from_numpy(y)))
    by_inputs = duplicates(explainer, x[[3, 4]])
    by_features = duplicates(explainer, test_features=X[[3, 4]])
    assert groups(by_inputs) == groups(by_features)
    assert [("test", 0), ("train", 3), ("train", 50)] in groups(by_inputs)
    assert (
        by_inputs.label_names[[*zip(by_inputs.tests, by_inputs.indices, strict=True)].index((True, 0))] == ""
    )


def test_samples_that_were_skipped_have_no_part() -> None:
    X, y = planted()

    class Broken:
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, i: int) -> Any:
            if i in (0, 50):
                raise OSError("it cannot be read")
            return torch.from_numpy(X[i]), int(y[i])

    explainer = whence.DualDA(C=0.1, metric="raw", show_progress=False)
    with pytest.warns(whence.errors.AgreementWarning):
        explainer.fit(nn.Sequential(nn.Identity(), nn.Linear(6, 3)), Broken(), on_error="skip")
    found = duplicates(explainer, ids=[f"file {i}" for i in range(len(X))])
    assert groups(found) == [[("train", 20), ("train", 70)], [("train", 10), ("train", 60), ("train", 61)]]
    assert found.ids == ("file 20", "file 70", "file 10", "file 60", "file 61")


def test_nothing_is_found_where_nothing_is_alike() -> None:
    found = duplicates(dualda(np.eye(12), np.arange(12) % 3))
    assert len(found) == 0
    assert found.extra().tolist() == []
    assert str(found) == "Nothing found: no two samples are nearly the same."
    assert duplicates(dualda(np.eye(2), np.arange(2))).columns()["index"] == []


def test_results_are_tables(tmp_path: Any) -> None:
    X, y = planted()
    names = [f"file {i}" for i in range(len(X))]
    found = duplicates(dualda(X, y), test_features=X[[10]], ids=names)
    columns = found.columns()
    assert columns["set"][2:4] == ["test", "train"]
    assert columns["id"][:4] == ["file 20", "file 70", None, "file 10"]
    assert "| 0 | file 20, file 70 |" in str(found)
    assert "3 groups of near-duplicates: 1 with different labels, 1 with tests" in found.summary
    found.to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().count("\n") == 1 + len(found.indices)
    assert found.to_dict()["radius"] == 0.3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"radius": 1.0}, "'radius' must be a number above 0 and below 1. Got 1.0"),
        ({"radius": "a"}, "'radius' must be a number"),
        (
            {"test_features": np.ones((2, 6)), "test_labels": [1]},
            "'test_labels' must .* one per test, 2 of them",
        ),
        ({"test_features": np.ones((1, 6)), "test_labels": [7]}, "'test_labels' must .* 7"),
        ({"test_labels": [1]}, "'test_labels' must be None without tests"),
        ({"ids": ["a"]}, "'ids' must have one name per training sample"),
    ],
)
def test_wrong_calls_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        duplicates(dualda(*planted()), **given)


def test_explainers_without_features_in_common_are_refused() -> None:
    X, y = planted()
    model, data = nn.Sequential(nn.Identity(), nn.Linear(6, 3)), (torch.from_numpy(X), torch.from_numpy(y))
    other = whence.methods.GradDot(show_progress=False).fit(model, data)
    with pytest.raises(UnsupportedError, match="'explainer' must be a fitted DualDA"):
        duplicates(other)
