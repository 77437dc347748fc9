"""whence update, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import whence
from tests.helpers.commands import mistake, run
from whence.errors import InvalidInputError


def test_update_changes_the_file_and_what_is_beside_it(fitted: Path) -> None:
    first = whence.load(fitted / "x.whence")
    label = int((first.labels_[4] + 1) % 3)
    options = ["--remove", "0,2-3", "--relabel", f"4={label}", "--add", "my_module:test"]
    said = run("update", "x.whence", *options, "--out", "y.whence").stdout
    assert "30 samples added, 3 samples removed, 1 sample relabelled" in said
    second = whence.load(fitted / "y.whence")
    assert isinstance(second, whence.DualDA)
    assert (second.n_train_, second.skipped_.tolist(), second.labels_[4]) == (120, [0, 2, 3], label)
    assert whence.load(fitted / "x.whence").n_train_ == 90
    assert json.loads((fitted / "y.whence.json").read_text())["data"] == "my_module:train+my_module:test"
    run("explain", "y.whence", "--tests", "1", "-k", "2", "--out", "why")
    run("audit", "y.whence", "-n", "3")
    assert "1 sample relabelled" in run("info", "y.whence").stdout
    # In its own place, from where it stands.
    run("update", "y.whence", "--remove", "5")
    third = whence.load(fitted / "y.whence")
    assert isinstance(third, whence.DualDA)
    assert len(third.history_) == 2
    assert third.skipped_.tolist() == [0, 2, 3, 5]
    # A fit of its configuration takes the sets as they are.
    run("fit", "--config", "y.whence.json", "--out", "z.whence")
    again = whence.load(fitted / "z.whence")
    assert (again.n_train_, len(again.skipped_)) == (120, 0)


def test_update_is_a_fit_of_the_changed_set(fitted: Path) -> None:
    run("update", "x.whence", "--remove", "0-9", "--add", "my_module:test", "--out", "y.whence")
    import my_module  # type: ignore[import-not-found]

    x, y = my_module.x[10:], my_module.y[10:]
    fresh = whence.DualDA(C=0.1, show_progress=False).fit(my_module.build(), (x, y))
    found = whence.load(fitted / "y.whence")
    assert isinstance(found, whence.DualDA)
    np.testing.assert_allclose(found.coef_, fresh.coef_, atol=2e-3 * np.abs(fresh.coef_).max())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "One of 'add', 'remove' and 'relabel'"),
        (["--remove", "90"], r"Got 90"),
        (["--remove", "a-b"], "'remove' must be a list such as 0,4-7"),
        (["--relabel", "3"], "--relabel must be PLACE=CLASS"),
        (["--relabel", "3=7"], "'relabel' must be one of the classes"),
        (["--add", "my_module:nothing"], "'add'"),
    ],
)
def test_update_names_mistakes(fitted: Path, options: list[str], message: str) -> None:
    before = (fitted / "x.whence").read_bytes()
    error = mistake("update", "x.whence", *options)
    assert isinstance(error, InvalidInputError)
    assert message in str(error)
    assert (fitted / "x.whence").read_bytes() == before
