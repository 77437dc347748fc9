"""One store for all that is costly to make: found by its fingerprint, whole or not at all, by one process."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from whence.core import store
from whence.core.cache import Cache
from whence.errors import StoreError

PARTS = {"seed": "0", "code training": "source 12"}


def fill(cache: Cache, kind: str = "model", **parts: str) -> None:
    with cache.slot(kind, {**PARTS, **parts}).filling("a model") as folder:
        store.write_text(folder / "weights.txt", "1 2 3")


def test_an_entry_is_found_by_its_fingerprint_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "cache")
    slot = cache.slot("model", PARTS)
    assert slot.entry is None
    with slot.locked():
        fill(cache)
    for other, found in ((dict(reversed(PARTS.items())), True), ({**PARTS, "seed": "1"}, False), ({}, False)):
        assert cache.slot("model", other).complete is found
    assert not cache.slot("cell", PARTS).complete
    assert (slot.path / "weights.txt").read_text() == "1 2 3"
    (entry,) = cache.entries()
    assert (entry.kind, entry.title, entry.parts, entry.complete) == ("model", "a model", PARTS, True)
    assert entry.bytes > 5
    assert [path.name for path in cache.folder.iterdir()] == [entry.name]  # no lock is left


def test_an_entry_that_is_being_filled_is_not_complete(tmp_path: Path) -> None:
    slot = Cache(tmp_path).slot("states", PARTS)
    slot.begin("texts")
    assert slot.entry is not None
    assert not slot.complete
    slot.note(progress={"texts": 3})
    assert slot.entry.progress == {"texts": 3}
    assert not slot.complete
    slot.note(complete=True)
    assert slot.complete


def test_what_goes_wrong_while_filling_leaves_nothing(tmp_path: Path) -> None:
    slot = Cache(tmp_path).slot("cell", PARTS)
    with pytest.raises(StoreError), slot.filling("rows") as folder:
        store.write_text(folder / "no folder" / "rows", "")
    assert slot.entry is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', '{"format": 2, "title": 1, "parts": 3}'])
def test_an_entry_that_does_not_say_what_it_is_for_is_not_found(tmp_path: Path, text: str) -> None:
    cache = Cache(tmp_path)
    fill(cache)
    slot = cache.slot("model", PARTS)
    (slot.path / "about.json").write_text(text)
    assert slot.entry is None
    (entry,) = cache.entries()
    assert entry.title == "damaged, or of another version"
    cache.remove([entry.name])
    assert cache.entries() == []


def test_why_an_entry_is_new_is_what_differs_from_the_nearest_of_its_kind(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    slot = cache.slot("model", {**PARTS, "seed": "7"})
    assert slot.why_new() == ""
    fill(cache, "cell", seed="7")
    assert slot.why_new() == ""
    fill(cache)
    fill(cache, seed="1", steps="3")
    near = cache.slot("model", PARTS).path.name
    assert slot.why_new() == f"the seed is '7', was '0' (compared with {near})"


def _hold(folder: Path, held: Any, go: Any) -> None:
    with Cache(folder).slot("model", PARTS).locked():
        held.set()
        go.wait(30)
        time.sleep(0.2)


def _count(folder: Path, times: int) -> None:
    slot = Cache(folder).slot("model", PARTS)
    file = folder / "count.txt"
    for _ in range(times):
        with slot.locked():
            file.write_text(str(int(file.read_text()) + 1))


def test_a_process_says_that_it_waits_and_waits(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held, go))
    process.start()
    assert held.wait(60)
    slot, said = Cache(tmp_path).slot("model", PARTS), list[str]()

    def say(line: str) -> None:
        said.append(line)
        go.set()

    with pytest.raises(StoreError, match="in use by another process"), slot.locked(wait=False):
        pass
    with slot.locked(say=say):
        assert said == [f"Another process is filling {slot.path}; waiting for it."]
    process.join()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_one_although_its_file_goes_each_time(tmp_path: Path) -> None:
    (tmp_path / "count.txt").write_text("0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count, args=(tmp_path, 300)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert (tmp_path / "count.txt").read_text() == "600"


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held, go))
    process.start()
    assert held.wait(60)
    process.kill()
    process.join()
    with Cache(tmp_path).slot("model", PARTS).locked(wait=False):
        fill(Cache(tmp_path))
