"""Work in the background that starts once, reports its progress and can be stopped."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Generic, NamedTuple, TypeVar

from whence.core.progress import listening
from whence.errors import WhenceError

Result = TypeVar("Result")


class StoppedError(WhenceError):
    """Work was stopped before it ended."""


class Status(NamedTuple):
    """Progress of some work: ``done`` of ``total`` units of the step ``what``; total is 0 if unknown."""

    seconds: float
    what: str = ""
    done: int = 0
    total: int = 0


_NICE = 10  # a ninth of the processor time where requests compete for it


def yield_to_requests() -> None:
    """Lower the priority of this thread and of those that it starts, on Linux, whose threads have their own.

    Otherwise an explanation waits for its share among the threads of a solver.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # not allowed everywhere
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def start_thread(work: Callable[[], object]) -> threading.Thread:
    """Start work in another thread, on the current engine: a new thread would use the default one."""
    thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
    thread.start()
    return thread


class Background(Generic[Result]):
    """Work whose result is cached. It can be restarted after a failure or a stop.

    Parameters
    ----------
    work : the function to run; it reports progress by ``whence.core.progress``
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work, self._lock = work, threading.Lock()
        self._run: Run[Result] | None = None

    def begin(self) -> Run[Result]:
        """Start unless it is running or done; return the run."""
        with self._lock:
            if self._run is None or self._run.lost:
                self._run = Run(self._work)
            return self._run

    def result(self) -> Result:
        """Return the result, computed if necessary; raise the error of a failed run."""
        return self.begin().result()

    @property
    def ready(self) -> Result | None:
        """The result; None until there is one."""
        return None if self._run is None else self._run.value

    def stop(self) -> None:
        """Stop the work at its next step."""
        if self._run is not None:
            self._run.stop()


class Run(Generic[Result]):
    """One attempt, which starts immediately.

    Parameters
    ----------
    work : as for ``Background``
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        self.value: Result | None = None
        self._error: Exception | None = None
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._began = time.perf_counter()
        self._heard = ("", 0, 0)
        start_thread(lambda: self._try(work))

    @property
    def lost(self) -> bool:
        """Whether it ended without a result, or is about to."""
        return self.value is None and (self._error is not None or self._stopping.is_set())

    def stop(self) -> None:
        """Stop at the next step."""
        self._stopping.set()

    def ends_within(self, seconds: float) -> bool:
        """Wait at most this long; return whether the run has ended."""
        return self._ended.wait(seconds)

    def result(self) -> Result:
        """Wait for the result; raise the error if the run failed."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self.value is not None
        return self.value

    @property
    def progress(self) -> Status:
        """How far the run is."""
        return Status(round(time.perf_counter() - self._began, 1), *self._heard)

    def _hear(self, what: str, done: int, total: int) -> None:
        self._heard = what, done, total
        if self._stopping.is_set():
            raise StoppedError(
                "The work was stopped. Start it again to continue; cached parts are not computed again."
            )

    def _try(self, work: Callable[[], Result]) -> None:
        yield_to_requests()
        try:
            with listening(self._hear):
                self.value = work()
        except Exception as error:  # raised again in ``result``
            self._error = error
        finally:
            self._ended.set()
