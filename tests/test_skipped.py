"""Row i is sample i, always: with samples that cannot be read, all is as with a set without them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import whence
from whence.app import cli
from whence.audit import class_view, shortcuts, wrong_labels
from whence.errors import InvalidInputError
from whence.features import extract
from whence.project import Project
from whence.ui.changes import what_if
from whence.ui.classes import classes
from whence.ui.explorer import Explorer
from whence.ui.requests import Wanted, WhatIfRequest

BAD, BAD_TESTS = [0, 17, 50, 89], [0, 3]
N, M = 90, 30

MODULE = f"""
import torch
from torch.utils.data import Dataset
from tests.helpers.explored import N, M, network, pictures

BAD, BAD_TESTS = {BAD}, {BAD_TESTS}

class Pictures(Dataset):
    def __init__(self, n, seed, bad):
        (self.x, self.targets), self.bad = pictures(n, seed), bad

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if i in self.bad:
            raise OSError("image file is truncated")
        return self.x[i], int(self.targets[i])

def without(n, seed, bad):
    x, y = pictures(n, seed)
    keep = torch.tensor([i not in bad for i in range(n)])
    return x[keep], y[keep]

build = network
train, test = (lambda: Pictures(N, 0, BAD)), (lambda: Pictures(M, 1, BAD_TESTS))
fewer, fewer_tests = (lambda: without(N, 0, BAD)), (lambda: without(M, 1, BAD_TESTS))
"""


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with an explainer of a set with samples that cannot be read, and one of the set without."""
    folder = tmp_path_factory.mktemp("skipped")
    (folder / "pictured.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [str(folder), str(Path(__file__).parents[2]), *sys.path])
        common = ["fit", "--model", "pictured:build", "--C", "0.05", "--tol", "1e-9"]
        run(*common, "--data", "pictured:train", "--test", "pictured:test", "--on-error", "skip",
            "--out", "some.whence")  # fmt: skip
        run(*common, "--data", "pictured:fewer", "--test", "pictured:fewer_tests", "--out", "fewer.whence")
        yield folder


def kept(bad: list[int], n: int) -> list[int]:
    return [i for i in range(n) if i not in bad]


TRAIN, TESTS = kept(BAD, N), kept(BAD_TESTS, M)


@pytest.fixture(scope="module")
def projects(place: Path) -> tuple[Project, Project]:
    opened = [
        Project.open(place / f"{name}.whence", trust=True, show_progress=False) for name in ("some", "fewer")
    ]
    return opened[0], opened[1]


def test_a_bank_has_a_row_per_sample(projects: tuple[Project, Project]) -> None:
    some, fewer = (project.train_bank for project in projects)
    assert some.features.shape == (N, 12)
    assert some.skipped.tolist() == BAD
    assert not some.features[BAD].any()
    np.testing.assert_allclose(some.features[TRAIN], fewer.features, rtol=1e-4, atol=1e-5)
    assert some.labels[TRAIN].tolist() == fewer.labels.tolist()


def test_the_named_test_is_scored(place: Path) -> None:
    for at in (1, 2, 4, 29):
        found = json.loads(run("attribute", "some.whence", "--trust", "--tests", str(at), "--json"))[0]
        expected = json.loads(
            run("attribute", "fewer.whence", "--trust", "--tests", str(TESTS.index(at)), "--json")
        )[0]
        assert found["test"] == at
        for fact in ("predicted", "truth", "target"):
            assert found[fact] == expected[fact]
        for side in ("proponents", "opponents"):
            assert [p["index"] for p in found[side]] == [TRAIN[p["index"]] for p in expected[side]]
            np.testing.assert_allclose(
                [p["score"] for p in found[side]], [p["score"] for p in expected[side]], rtol=1e-3
            )


def test_a_test_that_cannot_be_read_is_refused(place: Path, projects: tuple[Project, Project]) -> None:
    error = CliRunner().invoke(cli.app, ["attribute", "some.whence", "--trust", "--tests", "3"]).exception
    assert isinstance(error, InvalidInputError)
    assert "Test 3 cannot" in str(error)
    with pytest.raises(InvalidInputError, match="Test 0 cannot"):
        projects[0].explain([0])


def test_what_if_and_other_C_are_those_of_the_set_without_them(projects: tuple[Project, Project]) -> None:
    some, fewer = (project.explainer for project in projects)
    X = projects[0].train_bank.features
    gone = int(some.support_[2])
    pairs = [
        (
            some.what_if(C=0.5, training_features=X).explainer,
            fewer.what_if(C=0.5, training_features=X[TRAIN]).explainer,
        ),
        (
            some.what_if(remove=[gone], training_features=X).explainer,
            fewer.what_if(remove=[TRAIN.index(gone)], training_features=X[TRAIN]).explainer,
        ),
        (
            some.what_if(relabel={gone: 1}, training_features=X).explainer,
            fewer.what_if(relabel={TRAIN.index(gone): 1}, training_features=X[TRAIN]).explainer,
        ),
    ]
    for found, expected in pairs:
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-5)
        assert found.support_.tolist() == [TRAIN[i] for i in expected.support_]
    with pytest.raises(InvalidInputError, match=r"'remove' .*Got 17"):
        some.what_if(remove=[17], training_features=X)


def test_the_explorer_shows_the_same(projects: tuple[Project, Project]) -> None:
    some, fewer = map(Explorer, projects)
    assert some.info()["n_tests"] == M - len(BAD_TESTS)
    for fact in ("kind", "accuracy", "agreement", "n_support"):
        assert some.info()[fact] == fewer.info()[fact]
    rows, expected = some.tests.rows(Wanted(limit=100)), fewer.tests.rows(Wanted(limit=100))
    assert rows["total"] == expected["total"]
    assert [row["index"] for row in rows["rows"]] == [TESTS[row["index"]] for row in expected["rows"]]
    C = some.solved.Cs()[3]
    shown, other = some.explain(4, C=C), fewer.explain(TESTS.index(4), C=fewer.solved.Cs()[3])
    assert [pair["index"] for pair in shown["pairs"]] == [TRAIN[pair["index"]] for pair in other["pairs"]]
    gone = int(projects[0].explainer.support_[0])
    answers = (
        what_if(some, WhatIfRequest(test=4, remove=[gone])),
        what_if(fewer, WhatIfRequest(test=TESTS.index(4), remove=[TRAIN.index(gone)])),
    )
    for fact in ("target", "changed_tests", "n_tests"):
        assert answers[0][fact] == answers[1][fact]
    logits = [answer["after"]["logits"] for answer in answers]
    np.testing.assert_allclose(*logits, atol=1e-5)
    tops = [[view["top"] for view in classes(explorer)["rows"]] for explorer in (some, fewer)]
    assert tops[0] == [[TRAIN[i] for i in top] for top in tops[1]]
    suspects = [explorer.training.suspects(0, 5)["rows"] for explorer in (some, fewer)]
    assert [row["index"] for row in suspects[0]] == [TRAIN[row["index"]] for row in suspects[1]]


AUDITS: dict[str, Callable[[whence.DualDA, Any], Any]] = {
    "labels": lambda e, X: wrong_labels(e, features=X).indices,
    "confidence": lambda e, X: wrong_labels(e, features=X, ranking="confidence").indices,
    "slack": lambda e, X: wrong_labels(e, features=X, ranking="slack", n=20).indices,
    "classes": lambda e, X: class_view(e).classes[1].proponents,
    "shared": lambda e, X: shortcuts(e, target=1, features=X).samples,
}


@pytest.mark.parametrize("name", AUDITS)
def test_audits_are_those_of_the_set_without_them(name: str, projects: tuple[Project, Project]) -> None:
    some, fewer = projects
    expected = [TRAIN[i] for i in AUDITS[name](fewer.explainer, fewer.train_bank).tolist()]
    if name in ("labels", "confidence"):  # folds are drawn anew for another number of samples
        expected = expected[:3]
    for features in (some.train_bank, some.train_bank.features, None):
        found = AUDITS[name](some.explainer, features).tolist()
        assert found[: len(expected)] == expected
        assert not set(found) & set(BAD)


def test_features_of_fewer_rows_are_refused(projects: tuple[Project, Project]) -> None:
    some, fewer = projects
    with pytest.raises(InvalidInputError, match=r"90 samples\. Got 86"):
        wrong_labels(some.explainer, features=fewer.train_bank)


def test_large_sets_are_taken_apart_on_disk(monkeypatch: pytest.MonkeyPatch, projects: Any) -> None:
    from whence.features import rows, taken

    X = np.asarray(projects[0].train_bank.features)
    mask = np.arange(N) % 3 > 0
    monkeypatch.setattr("whence.features.rows._BLOCK_BYTES", 1000)
    monkeypatch.setattr(rows, "free_memory", lambda: 1000)
    found = taken(X, mask)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, X[mask])
    assert taken(X, np.ones(N, bool)) is X


def test_extract_keeps_the_places() -> None:
    from tests.helpers.lazy import Lazy, arrays, net

    bank = extract(net(), Lazy(bad=(2, 5)), on_error="skip", batch_size=1, show_progress=False)
    expected = extract(net(), arrays(), batch_size=1, show_progress=False)
    assert bank.skipped.tolist() == [2, 5]
    np.testing.assert_allclose(bank.features[bank.valid], expected.features[bank.valid], rtol=1e-6)
