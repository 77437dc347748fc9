"""The change list and the slices of an explainer: what counts, what is saved, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whence
from whence.core.ranges import format_ranges, parse_ranges
from whence.errors import InvalidInputError, StoreError
from whence.project import Worklist

N, K = 20, 3
Y = np.arange(N) % K


@pytest.fixture(scope="module")
def explainer() -> Any:
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
    bank = whence.features.FeatureBank.of(x, torch.from_numpy(Y))
    return whence.DualDA(C=0.1, show_progress=False).fit(features=bank, class_names=["a", "b", "c"])


def work(explainer: Any, folder: Path) -> Worklist:
    return Worklist(explainer, folder / "x.whence.work.json", n_tests=10)


@pytest.mark.parametrize("seed", range(5))
def test_ranges_are_read_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random(200) < rng.random()
    places = np.flatnonzero(mask)
    assert parse_ranges(format_ranges(places), 200).tolist() == places.tolist()
    first = rng.integers(0, 200, 30)
    last = np.minimum(first + rng.integers(0, 40, 30), 199)
    text = ", ".join(f"{a}-{b}" for a, b in zip(first, last, strict=True))
    union = sorted(set().union(*(range(a, b + 1) for a, b in zip(first, last, strict=True))))
    assert parse_ranges(text, 200).tolist() == union


@pytest.mark.parametrize("text", ["1-", "-3", "a", "3,,4", "5-4", "200", "0-999999999999999", "1" * 16, "१"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="'samples' must"):
        parse_ranges(text, 200)


def test_the_last_entry_counts(explainer: Any, tmp_path: Path) -> None:
    list_ = work(explainer, tmp_path)
    list_.add("remove", "0-9", why="blurred")
    list_.add("relabel", [3, 4, 5], label=[1, 2, 2], who="Ada")  # 4 is 1, 5 is 2 already
    list_.add("flag", np.array([0, 15]))
    marks = list_.marks()
    assert marks.remove == [1, 2, 6, 7, 8, 9]
    assert marks.relabel == {3: 1, 4: 2}
    assert marks.of("keep").tolist() == [5], "a label that is there already is kept"
    assert marks.of("flag").tolist() == [0, 15]
    list_.add("clear", "1-2, 15")
    marks = list_.marks()
    assert marks.remove == [6, 7, 8, 9]
    assert marks.of("flag").tolist() == [0]
    assert marks.entry[1] == 0
    again = work(explainer, tmp_path)
    assert again.entries == list_.entries
    assert again.marks().entry.tolist() == marks.entry.tolist()
    assert [entry.who for entry in again.entries][1] == "Ada"
    assert again.entries[0].when.endswith("+00:00")


def test_changes_are_taken_back(explainer: Any, tmp_path: Path) -> None:
    list_ = work(explainer, tmp_path)
    one, two = list_.add("remove", [1]), list_.add("remove", [2])
    list_.remove(one.id)
    assert list_.marks().remove == [2]
    list_.clear()
    assert not list_.entries
    list_.undo()
    list_.undo()
    assert list_.marks().remove == [1, 2]
    assert list_.add("flag", [3]).id > two.id
    later = work(explainer, tmp_path)  # knows no steps: the last entries go first
    later.undo()
    later.undo()
    assert later.marks().remove == [1]
    later.undo()
    with pytest.raises(InvalidInputError, match="nothing to undo"):
        later.undo()
    with pytest.raises(InvalidInputError, match="'id' must be"):
        later.remove(1)


def test_two_that_share_a_file_see_each_other(explainer: Any, tmp_path: Path) -> None:
    one, two = work(explainer, tmp_path), work(explainer, tmp_path)
    one.add("remove", [1])
    two.add("remove", [2])
    assert one.marks().remove == [1, 2]
    (tmp_path / "x.whence.work.json").unlink()
    assert not one.entries
    assert not two.marks().remove


def test_slices(explainer: Any, tmp_path: Path) -> None:
    list_ = work(explainer, tmp_path)
    list_.save_slice("night", "tests", [3, 1, 1])
    list_.save_slice("dark rooms", "training", "5-8")
    list_.save_slice("night", "tests", [4])
    assert [(one.name, one.samples) for one in work(explainer, tmp_path).slices] == [
        ("dark rooms", "5-8"), ("night", "4"),
    ]  # fmt: skip
    assert list_.members("dark rooms", "training").tolist() == [5, 6, 7, 8]
    with pytest.raises(InvalidInputError, match="which is of tests"):
        list_.members("night", "training")
    more = Worklist(explainer, tmp_path / "x.whence.work.json", n_tests=11)
    with pytest.raises(InvalidInputError, match="was made of 10 tests"):
        more.members("night", "tests")
    list_.delete_slice("night")
    with pytest.raises(InvalidInputError, match="known: 'dark rooms'"):
        list_.members("night", "tests")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"action": "burn", "samples": [1]}, "'action' must be one of"),
        ({"action": "remove", "samples": []}, "at least one sample"),
        ({"action": "remove", "samples": [N]}, r"'samples' must lie in \[0, 20\)"),
        ({"action": "remove", "samples": [-1]}, r"'samples' must lie in \[0, 20\)"),
        ({"action": "remove", "samples": [1], "label": 1}, "'label' must be given to relabel, and only then"),
        ({"action": "relabel", "samples": [1]}, "'label' must be given to relabel, and only then"),
        ({"action": "relabel", "samples": [1], "label": K}, r"'label' must lie in \[0, 3\)"),
        ({"action": "relabel", "samples": [1, 2], "label": [0, 1, 2]}, "one per sample"),
        ({"action": "flag", "samples": [1], "why": "x" * 501}, "at most 500 characters"),
        ({"action": "flag", "samples": [1], "who": "\ud800"}, "valid Unicode"),
    ],
)
def test_a_wrong_entry_is_refused(explainer: Any, given: dict[str, Any], words: str) -> None:
    list_, samples = Worklist(explainer), given.pop("samples")
    with pytest.raises(InvalidInputError, match=words):
        list_.add(given.pop("action"), samples, **given)
    assert not list_.entries


@pytest.mark.parametrize("name", ["", "  ", "..", "a/b", "a\nb", "x" * 81])
def test_a_wrong_name_is_refused(explainer: Any, name: str) -> None:
    with pytest.raises(InvalidInputError, match="'name' must"):
        Worklist(explainer).save_slice(name, "training", [1])


def test_samples_that_were_left_out_cannot_be_marked(explainer: Any) -> None:
    smaller = explainer.what_if(remove=[7]).explainer
    with pytest.raises(InvalidInputError, match=r"took part in the fit\. Got 7\."):
        Worklist(smaller).add("remove", "5-9")


def altered(**change: Any) -> Any:
    def alter(values: dict[str, Any]) -> dict[str, Any]:
        return values | change

    return alter


def entry(**change: Any) -> Any:
    return lambda values: values | {"entries": [values["entries"][0] | change]}


@pytest.mark.parametrize(
    "alter",
    [
        altered(format=2),
        altered(n_train=21),
        altered(labels="0" * 32),
        altered(next_id=1),
        altered(next_id=1 << 80),
        altered(more=1),
        altered(entries=7),
        entry(samples={"": "0-99999999"}),
        entry(samples={"": ""}),
        entry(samples={"0": "1"}),
        entry(samples={}),
        entry(action="relabel", samples={"3": "1"}),
        entry(id=0),
        entry(why=None),
        entry(why="x" * 1000),
        lambda values: values | {"slices": [values["slices"][0] | {"total": -1}]},
        lambda values: values | {"slices": values["slices"] * 2},
        lambda values: values | {"slices": [values["slices"][0] | {"samples": "0-999999999999", "of": "x"}]},
        lambda values: [values],
    ],
)
def test_a_crafted_file_is_refused(explainer: Any, tmp_path: Path, alter: Any) -> None:
    list_, path = work(explainer, tmp_path), tmp_path / "x.whence.work.json"
    list_.add("remove", [1])
    list_.save_slice("s", "training", [2])
    path.write_text(json.dumps(alter(json.loads(path.read_text()))))
    with pytest.raises(StoreError, match="Rename or delete"):
        work(explainer, tmp_path)
    with pytest.raises(StoreError):  # neither read nor overwritten by one that was open
        list_.add("remove", [2])
    path.unlink()
    assert not work(explainer, tmp_path).entries


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\xff", "null", '{"format": NaN}'])
def test_a_truncated_file_is_refused(explainer: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.whence.work.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match="not a change list"):
        work(explainer, tmp_path)


def test_a_file_that_cannot_be_written_changes_nothing(explainer: Any, tmp_path: Path) -> None:
    list_ = Worklist(explainer, tmp_path / "gone" / "x.whence.work.json")
    with pytest.raises(StoreError, match="cannot be written"):
        list_.add("remove", [1])
    assert not list_.entries
    assert not list_.marks().remove


def test_a_million_samples_take_one_entry(tmp_path: Path) -> None:
    n = 1_000_000
    text = format_ranges(np.arange(0, n, 2))
    assert len(parse_ranges(text, n)) == n // 2
    assert format_ranges(np.arange(n)) == "0-999999"
