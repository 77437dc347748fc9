"""Work in the background: begun once, cached, stopped, and begun again."""

from __future__ import annotations

import threading

import pytest

from whence import engine
from whence.core import progress
from whence.ui.background import Background, StoppedError


def test_work_is_begun_once_and_kept() -> None:
    begun, go = [], threading.Event()

    def work() -> int:
        begun.append(threading.current_thread())
        assert go.wait(60)
        return 7

    job = Background(work)
    first = job.begin()
    assert job.begin() is first
    assert (job.ready, first.ends_within(0.01)) == (None, False)
    go.set()
    assert (job.result(), job.result(), job.ready) == (7, 7, 7)
    job.stop()  # too late
    assert job.result() == 7
    assert len(begun) == 1
    assert begun[0] is not threading.current_thread()


def test_work_reports_its_progress_and_stops_between_pieces() -> None:
    done: list[int] = []
    second = threading.Event()

    def piece(item: int) -> int:
        done.append(item)
        if item == 1:
            assert second.wait(60)
        return item

    job = Background(lambda: engine.results(piece, range(5), title="Pieces"))
    run = job.begin()
    while len(done) < 2:
        assert not run.ends_within(0.01)
    assert (run.progress.what, run.progress.done, run.progress.total) == ("Pieces", 1, 5)
    job.stop()
    second.set()
    with pytest.raises(StoppedError, match="The work was stopped"):
        run.result()
    assert done == [0, 1]
    assert job.result() == [0, 1, 2, 3, 4]  # another run
    assert job.begin() is not run


def test_what_went_wrong_is_raised_and_can_be_tried_again() -> None:
    tries: list[int] = []

    def work() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        return 3

    job = Background(work)
    with pytest.raises(ValueError, match="once"):
        job.result()
    assert job.result() == 3


def test_nobody_needs_to_listen() -> None:
    heard: list[tuple[str, int, int]] = []
    progress.report("work", 1, 2)
    with progress.listening(lambda *heard_now: heard.append(heard_now)):
        progress.report("work", 2, 2)
    progress.report("work", 3, 3)
    assert heard == [("work", 2, 2)]
