"""The engine for processes of this machine; a process that dies does not affect the others."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Generator
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

from whence.core.checks import check_count
from whence.engine.base import (
    ENGINES,
    Engine,
    Outcome,
    Piece,
    Surroundings,
    answer,
    answered,
    limited,
    sendable,
)
from whence.errors import WorkerError


@ENGINES.add
class Processes(Engine, AbstractContextManager["Processes"]):
    """Runs pieces in ``n`` processes, one piece at a time each.

    A process takes some seconds to begin, most of them to import torch and whence, so it stays for the runs
    to come as long as this object does: hold on to it, or give it to ``using``. When this Python ends, even
    when it is killed, they end too, after the piece that is under way. Functions of a script are sent as they
    are; those of a module are imported there, once per process.

    Parameters
    ----------
    n
        How many; None for as many as there are cores for, when every piece has its threads: one per core
        where a piece has one. There are never more than items, and at most 1,024.

    Examples
    --------
    >>> from whence import engine
    >>> with engine.Processes(2) as processes:  # doctest: +SKIP
    ...     engine.results(abs, [-1, 2], processes)
    ...     engine.results(abs, [-3, 4], processes)  # begins at once
    """

    name = "processes"

    def __init__(self, n: int | None = None) -> None:
        self.n = n if n is None else check_count("n", n, most=1_024)
        self._crew = _Crew()
        # When this object is deleted, or at Python's exit, which would otherwise wait for the processes.
        Finalize(self, self._crew.end, exitpriority=0)

    def run(self, function: Piece, items: list[Any], threads: int | None) -> Generator[Outcome]:
        """Yield every item's outcome as it ends."""
        from joblib import cpu_count

        crew, at_work = self._crew, dict[Connection, tuple[_Worker, int]]()
        n = min(self.n or max(1, cpu_count() // (threads or 1)), len(items))
        start = pickle.dumps(Surroundings.here(threads)), sendable("function", function)
        left = deque(range(len(items)))

        def give(worker: _Worker | None = None) -> None:
            """Send the next piece to a used process, or to another; if no piece is left, let it wait."""
            if left:
                place = left.popleft()
                item = sendable("items", items[place])
                messages = (item,) if worker else (*start, item)
                worker = worker or crew.take()
                at_work[worker.connection] = worker, place
                worker.send(*messages)
            elif worker:
                del at_work[worker.connection]
                crew.free(worker)

        try:
            # All start before the first gets a large message, which they must be running to read.
            crew.idle += [crew.begin() for _ in range(n - len(crew.idle))]
            for _ in range(n):
                give()
            while at_work:
                for connection in wait(list(at_work)):
                    assert isinstance(connection, Connection)
                    worker, place = at_work[connection]
                    try:
                        sent = connection.recv_bytes()
                    except (EOFError, OSError):
                        worker.process.join()  # its exit code is its own
                        del at_work[connection]
                        crew.dismiss(worker)
                        give()
                        yield Outcome(place, error=_lost(worker.process.exitcode))
                    else:
                        give(worker)
                        yield answered(sent, place)
        finally:
            for worker, _ in at_work.values():
                crew.dismiss(worker)

    def __exit__(self, *error: object) -> None:
        """End the processes; another run would start new ones."""
        self._crew.end()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the state of a copy, which has its own processes."""
        return type(self), (self.n,)


class _Worker:
    """A process, and the pipe to it.

    loky starts it: not forked, since a forked process that has used torch's threads can hang, and not by
    running the user's script again, as Python's own would. But loky's executor, measured with version 3.6,
    gives up all work when one process dies; leaves its processes waiting for ever when this one is killed;
    and when it is ended right after a piece was given, its thread dies and the piece runs on. A pipe to each
    process has none of these: it closes when either side is gone.
    """

    def __init__(self) -> None:
        from joblib.externals.loky.backend import get_context

        context = get_context("loky")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,))
        self.process.start()
        theirs.close()

    def send(self, *messages: bytes) -> None:
        with suppress(OSError):  # it has died, which shows when its outcome is requested
            for message in messages:
                self.connection.send_bytes(message)


class _Crew:
    """The processes of an engine: all, and those that are free."""

    def __init__(self) -> None:
        self.everyone: set[_Worker] = set()
        self.idle: list[_Worker] = []

    def begin(self) -> _Worker:
        worker = _Worker()
        self.everyone.add(worker)
        return worker

    def take(self) -> _Worker:
        """Return a free process, or start another."""
        with suppress(IndexError):  # pop is atomic between threads
            while True:
                worker = self.idle.pop()
                if worker.process.is_alive():
                    return worker
                self.dismiss(worker)
        return self.begin()

    def free(self, worker: _Worker) -> None:
        """Keep a process for another run; an empty message ended this one."""
        worker.send(b"")
        self.idle.append(worker)

    def dismiss(self, worker: _Worker) -> None:
        worker.connection.close()
        worker.process.terminate()
        worker.process.join()
        self.everyone.discard(worker)

    def end(self) -> None:
        for worker in list(self.everyone):
            self.dismiss(worker)


def _lost(code: int | None) -> WorkerError:
    killed = " (killed, perhaps for want of memory)" if code == -signal.SIGKILL else ""
    return WorkerError(f"its process ended with exit code {code}{killed}")


def _work(connection: Connection) -> None:
    """Main loop of a process: do one run after another, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    with suppress(EOFError, OSError):
        while True:
            _serve(connection)


def _serve(connection: Connection) -> None:
    """Do the pieces of one run, until an empty message ends it; then free its function."""
    there: Surroundings = pickle.loads(connection.recv_bytes())
    sys.path[:] = there.path
    os.chdir(there.folder)
    function: Any = connection.recv_bytes()

    def piece(sent: bytes) -> Any:
        nonlocal function
        if isinstance(function, bytes):
            function = pickle.loads(function)
            there.import_torch()
        with limited(there.threads):
            return function(pickle.loads(sent))

    while sent := connection.recv_bytes():
        connection.send_bytes(answer(piece, sent))
