"""Work that is begun once and goes on beside all else, tells how far it is, and can be stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

from whence.core.progress import listening
from whence.errors import WhenceError
from whence.ui.schema import Progress

Found = TypeVar("Found")


class StoppedError(WhenceError):
    """Work was stopped before it ended."""


def beside(work: Callable[[], object]) -> threading.Thread:
    """Begin work in another thread, on the engine that is used here: of itself a thread has the default."""
    thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
    thread.start()
    return thread


class Background(Generic[Found]):
    """Work whose result is kept; where it failed or was stopped, it can be begun again.

    Parameters
    ----------
    work : what is to be done; it tells how far it is by ``whence.core.progress``
    """

    def __init__(self, work: Callable[[], Found]) -> None:
        self._work, self._lock = work, threading.Lock()
        self._run: Run[Found] | None = None

    def begin(self) -> Run[Found]:
        """Begin, unless it is under way or done; give the run."""
        with self._lock:
            if self._run is None or self._run.lost:
                self._run = Run(self._work)
            return self._run

    def result(self) -> Found:
        """Return the result, beginning and waiting for it where it is not there; raise what went wrong."""
        return self.begin().result()

    @property
    def ready(self) -> Found | None:
        """The result where it is there."""
        return None if self._run is None else self._run.found

    def stop(self) -> None:
        """End the work at its next step."""
        if self._run is not None:
            self._run.stop()


class Run(Generic[Found]):
    """One attempt, begun at once.

    Parameters
    ----------
    work : as for ``Background``
    """

    def __init__(self, work: Callable[[], Found]) -> None:
        self.found: Found | None = None
        self._error: Exception | None = None
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._began = time.perf_counter()
        self._told = ("", 0, 0)
        beside(lambda: self._try(work))

    @property
    def lost(self) -> bool:
        """Whether it ended without a result, or is about to."""
        return self.found is None and (self._error is not None or self._stopping.is_set())

    def stop(self) -> None:
        """End at the next step."""
        self._stopping.set()

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most; tell whether it has ended."""
        return self._ended.wait(seconds)

    def result(self) -> Found:
        """Wait for the result; raise what went wrong."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self.found is not None
        return self.found

    @property
    def progress(self) -> Progress:
        """How far it is."""
        what, done, total = self._told
        return Progress(
            seconds=round(time.perf_counter() - self._began, 1), what=what, done=done, total=total
        )

    def _hear(self, what: str, done: int, total: int) -> None:
        self._told = what, done, total
        if self._stopping.is_set():
            raise StoppedError(
                "It was stopped. Ask again to go on; what the cache holds is not computed anew."
            )

    def _try(self, work: Callable[[], Found]) -> None:
        try:
            with listening(self._hear):
                self.found = work()
        except Exception as error:  # whoever waits must hear of it, whatever it is
            self._error = error
        finally:
            self._ended.set()
