"""Killed at any moment, extraction and fit resume and end with the bytes of an uninterrupted run."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import zygote
from tests.helpers.killing import Kills, Zygote

pytestmark = [pytest.mark.alone, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


@pytest.fixture(scope="module")
def processes() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


def bank_of(cache: Path) -> Path:
    (bank,) = cache.glob("bank-*")
    return bank


def contents(cache: Path) -> dict[str, bytes]:
    return {name: (bank_of(cache) / name).read_bytes() for name in ("features.npy", "labels.npy")}


def test_extraction_killed_anywhere_ends_with_the_same_bytes(processes: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "out"
    processes.run(out, start="extract", cache=str(tmp_path / "warm"))  # the first one also fills caches
    started = time.perf_counter()
    found = processes.run(out, start="extract", cache=str(tmp_path / "whole"))
    usual = time.perf_counter() - started
    assert found == {"note": "computed", "skipped": sorted(zygote.Items.bad)}
    expected = contents(tmp_path / "whole")
    rng = random.Random(0)
    trial, places = 0, set()
    while trial < 6 or len(places) < 3:
        trial += 1
        assert trial < 60, "too few of the kills came while rows were written"
        job = {"start": "extract", "cache": str(tmp_path / f"{trial}")}
        for _ in range(2):
            processes.run_and_kill(out, rng.uniform(0, 0.6 * usual), **job)
        found = processes.run(out, **job)
        places |= {found["note"]} if found["note"].startswith("resumed at sample") else set()
        assert found["skipped"] == sorted(zygote.Items.bad)
        assert contents(tmp_path / f"{trial}") == expected
        scraps = [p for p in (tmp_path / f"{trial}").rglob(".*") if not p.name.endswith(".lock")]
        assert not scraps


def test_a_fit_killed_anywhere_ends_with_the_same_explainer(processes: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = {"start": "fit", "cache": str(tmp_path / "whole"), "save": str(tmp_path / "x.whence")}
    started = time.perf_counter()
    assert processes.run(out, **job) == {"features": "computed", "solution": "computed"}
    usual = time.perf_counter() - started
    expected = (tmp_path / "x.whence").read_bytes()
    assert processes.run(out, **job) == {"features": "reused", "solution": "reused"}
    assert (tmp_path / "x.whence").read_bytes() == expected
    rng = random.Random(0)
    trial, origins = 0, set()
    while trial < 4 or not {"resumed", "reused"} <= origins:
        trial += 1
        assert trial < 60, "too few of the kills came while rows were written, or while solving"
        cache = tmp_path / f"{trial}"
        job = {"start": "fit", "cache": str(cache), "save": str(tmp_path / f"{trial}.whence")}
        processes.run_and_kill(out, rng.uniform(0, usual), **job)
        origins.add(processes.run(out, **job)["features"].split()[0])
        assert (tmp_path / f"{trial}.whence").read_bytes() == expected


def test_after_a_kill_during_the_solve_the_bank_is_reused(processes: Zygote, tmp_path: Path) -> None:
    job = {"start": "fit", "cache": str(tmp_path / "cache"), "save": str(tmp_path / "x.whence")}
    pid = processes.ask(out=str(tmp_path / "out"), **job)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        banks = list((tmp_path / "cache").glob("bank-*/about.json"))
        if banks and json.loads(banks[0].read_text()).get("complete"):
            break
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    assert processes.ask(wait=pid) == signal.SIGKILL
    assert not list((tmp_path / "cache").glob("solution-*"))
    (tmp_path / "cache" / "solution-0").mkdir()  # as one that was killed at its very beginning leaves it
    assert processes.run(tmp_path / "out", **job) == {"features": "reused", "solution": "computed"}


def test_processes_that_fill_the_same_cache_wait_for_each_other(processes: Zygote, tmp_path: Path) -> None:
    processes.run(tmp_path / "out", start="extract", cache=str(tmp_path / "whole"))
    jobs = [
        {"start": "extract", "cache": str(tmp_path / "cache"), "out": str(tmp_path / f"{i}")}
        for i in range(4)
    ]
    pids = [processes.ask(**job) for job in jobs]
    assert [processes.ask(wait=pid) for pid in pids] == [0] * 4
    notes = sorted(json.loads((tmp_path / f"{i}").read_text())["note"] for i in range(4))
    assert notes == ["computed", "reused", "reused", "reused"]
    assert contents(tmp_path / "cache") == contents(tmp_path / "whole")


def test_a_disk_that_fills_up_is_an_error_that_can_be_resumed(processes: Zygote, tmp_path: Path) -> None:
    """A limit of the system on the size of files stands in for the disk: the same refusal to write."""
    job = {"start": "extract", "cache": str(tmp_path / "cache")}
    found = processes.run(tmp_path / "out", **job, file_size=20_000)
    assert found["error"].startswith("StoreError: The disk of ")
    assert "is kept" in found["error"]
    done = json.loads((bank_of(tmp_path / "cache") / "about.json").read_text())["progress"]["samples"]
    assert 0 < done < zygote.N
    found = processes.run(tmp_path / "out", **job)
    assert found["note"] == f"resumed at sample {done}"
    processes.run(tmp_path / "out", start="extract", cache=str(tmp_path / "whole"))
    assert contents(tmp_path / "cache") == contents(tmp_path / "whole")


def test_a_command_killed_while_solving_or_saving_ends_with_the_same_files(
    processes: Zygote, tmp_path: Path
) -> None:
    """The long version is ``python -m benchmarks kills``."""
    kills = Kills(processes, tmp_path, seed=0)
    while min(kills.counts["solving"], kills.counts["saving"]) < 2:
        assert sum(kills.counts.values()) < 60, (
            f"too few of the kills came where they were to: {kills.counts}"
        )
        kills.trial(("solving", "saving"))
