"""The engine that runs pieces in processes of this machine: one that dies takes no other with it."""

from __future__ import annotations

import atexit
import pickle
import signal
import sys
import warnings
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from whence.core.checks import check_count
from whence.engine.base import ENGINES, Engine, Outcome, Piece
from whence.engine.local import Local, attempt, limited
from whence.errors import InvalidInputError, WhenceError, WorkerError


@ENGINES.add
class Processes(Engine):
    """Runs pieces in ``n`` processes, one piece at a time each.

    They take some seconds to begin, which a single piece would not win back: that runs here. When this
    process ends, even when it is killed, they end too, after the piece that is under way. Functions of a
    script are sent as they are; those of a module are imported there.

    Parameters
    ----------
    n
        How many; None for one per core. There are never more than items.
    """

    name = "processes"

    def __init__(self, n: int | None = None) -> None:
        self.n = n if n is None else check_count("n", n)

    def run(self, function: Piece, items: list[Any], threads: int | None) -> Generator[Outcome]:
        """Give every item's outcome as it ends."""
        if len(items) < 2:
            yield from Local().run(function, items, threads)
            return
        from joblib import cpu_count

        torch: Any = sys.modules.get("torch")
        start = _Start(_sendable("function", function), threads, torch.get_num_threads() if torch else None)
        yield from _Pool(start, items).run(min(self.n or cpu_count(), len(items)))


class _Start(NamedTuple):
    """What a process begins with: the function, threads of a piece, and those of torch where that is None."""

    function: bytes
    threads: int | None
    torch_threads: int | None


class _Pool:
    """Processes at work on items.

    loky starts them: not forked, since a forked process that has used torch's threads can hang, and not by
    running the user's script again, as Python's own would. But loky's executor, measured with version 3.6,
    gives up all work when one process dies; leaves its processes waiting for ever when this one is killed;
    and when it is ended right after a piece was given, its thread dies and the piece runs on. A pipe to each
    process has none of these: it closes when either side is gone.
    """

    def __init__(self, start: _Start, items: list[Any]) -> None:
        self.start, self.items = start, items
        self.left = list(reversed(range(len(items))))
        self.at_work: dict[Connection, tuple[BaseProcess, int]] = {}
        self.processes: list[BaseProcess] = []

    def run(self, n: int) -> Generator[Outcome]:
        """Give outcomes as they come from ``n`` processes."""
        atexit.register(self._end)  # else Python would wait for them where nobody closes this generator
        try:
            for new in [self._begin() for _ in range(n)]:
                self._give(*new)
            while self.at_work:
                for connection in wait(list(self.at_work)):
                    assert isinstance(connection, Connection)
                    yield self._take(connection)
        finally:
            self._end()
            atexit.unregister(self._end)

    def _begin(self) -> tuple[Connection, BaseProcess]:
        from joblib.externals.loky.backend import get_context

        context = get_context("loky")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.start))
        process.start()
        self.processes.append(process)
        theirs.close()
        return ours, process

    def _give(self, connection: Connection, process: BaseProcess) -> None:
        """Give a process the next piece, or let it go."""
        if not self.left:
            connection.close()
            process.join()
            return
        place = self.left.pop()
        self.at_work[connection] = process, place
        with suppress(BrokenPipeError):  # it has died, which is found out when its outcome is waited for
            connection.send_bytes(_sendable("items", (place, self.items[place])))

    def _take(self, connection: Connection) -> Outcome:
        """Take a piece's outcome and give its process more to do; where that died, begin another."""
        process, place = self.at_work.pop(connection)
        try:
            outcome, heard = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            connection.close()
            process.join()
            if self.left:
                self._give(*self._begin())
            return Outcome(place, error=_lost(process.exitcode))
        self._give(connection, process)
        return _warned(outcome, heard)

    def _end(self) -> None:
        for connection in self.at_work:
            connection.close()
        for process in self.processes:
            process.terminate()
            process.join()


def _sendable(name: str, value: Any) -> bytes:
    from cloudpickle import dumps

    try:
        return dumps(value)  # type: ignore[no-any-return]
    except Exception as error:  # whatever an object's own __reduce__ raises
        raise InvalidInputError(
            f"'{name}' must be sendable to other processes, with all that is in it: {error}. "
            'Leave out what cannot be, such as open files and locks, or use engine="local".'
        ) from error


def _lost(code: int | None) -> WorkerError:
    killed = " (killed, perhaps for want of memory)" if code == -signal.SIGKILL else ""
    return WorkerError(f"its process ended with exit code {code}{killed}")


def _warned(outcome: Outcome, heard: list[tuple[str, type[Warning], str, int]]) -> Outcome:
    """Warn here of what a process was warned of; a warning that is made an error is the piece's error."""
    for each in heard:
        try:
            warnings.warn_explicit(*each)
        except Warning as error:
            outcome = replace(outcome, value=None, error=outcome.error or error)
    return outcome


def _work(connection: Connection, start: _Start) -> None:
    """Run in a process: do what comes, until nobody is left to ask for more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that began this one ends it
    try:
        while True:
            place, item = pickle.loads(connection.recv_bytes())
            connection.send_bytes(_answer(start, place, item))
    except (EOFError, OSError):
        return


_LOADED: dict[str, Piece] = {}


def _piece(start: _Start, item: Any) -> Any:
    if not _LOADED:
        _LOADED["function"] = pickle.loads(start.function)
        torch: Any = sys.modules.get("torch")
        if torch and start.torch_threads:
            torch.set_num_threads(start.torch_threads)
    with limited(start.threads):
        return _LOADED["function"](item)


def _answer(start: _Start, place: int, item: Any) -> bytes:
    """Run a piece and give its outcome and the warnings it made, as they are sent."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        outcome = attempt(partial(_piece, start), place, item)
    told = [(str(each.message), each.category, each.filename, each.lineno) for each in heard]
    try:
        if outcome.error is not None:
            pickle.loads(pickle.dumps(outcome.error))
        return pickle.dumps((outcome, told))
    except Exception as error:  # a value that cannot be sent, or an error that cannot be made anew
        why = outcome.error or error
        line = WhenceError(f"{type(why).__name__}: {why}")
        return pickle.dumps((Outcome(place, error=line, details=outcome.details), told))
