"""Trainings in processes of their own, each started anew: one that dies takes no other with it."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import nn

from whence.errors import InvalidInputError, WhenceError
from whence.evaluate.scenes.training import save_weights
from whence.evaluate.scenes.views import View

TrainFn = Callable[[View, int], nn.Module]


@dataclass(frozen=True, eq=False)
class Task:
    """One training: its number, data, seed, the file for its weights, and what the file says of them."""

    number: int
    data: View
    seed: int
    path: Path
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a training ended: after how long, and with which error, in a line and in full."""

    number: int
    seconds: float
    error: str | None = None
    details: str | None = None


def attempt(train_fn: TrainFn, task: Task) -> Outcome:
    """Train one model and save its weights; an error is an outcome too."""
    started = time.perf_counter()
    try:
        with torch.random.fork_rng():
            torch.manual_seed(task.seed)
            model: Any = train_fn(task.data, task.seed)
        if not isinstance(model, nn.Module):
            raise TypeError(f"'train_fn' must return the trained model. Got {type(model).__name__}.")
        seconds = time.perf_counter() - started
        save_weights(task.path, model, {**task.manifest, "seconds": seconds})
    except Exception as error:
        line = f"{type(error).__name__}: {error}"
        return Outcome(task.number, time.perf_counter() - started, line, traceback.format_exc())
    return Outcome(task.number, seconds)


def outcomes(train_fn: TrainFn, tasks: Sequence[Task], workers: int) -> Iterator[Outcome]:
    """Give the outcomes of trainings as they end: here with one worker, else in processes."""
    if workers == 1:
        yield from (attempt(train_fn, task) for task in tasks)
    else:
        yield from _Pool(train_fn, tasks, min(workers, len(tasks))).run()


class _Pool:
    """Processes that train, one task at a time each.

    They are spawned, not forked: a forked process that has used torch's threads can hang. Each gets the
    function and the data once and then only what a task adds; it ends when this process does, even when that
    is killed, because its pipe then closes, and a training that was under way is finished and saved first.
    """

    def __init__(self, train_fn: TrainFn, tasks: Sequence[Task], workers: int) -> None:
        self.left, self.workers = list(reversed(tasks)), workers
        bases: dict[int, Any] = {id(task.data.data): task.data.data for task in tasks}
        self.numbers = {key: number for number, key in enumerate(bases)}
        try:
            self.payload = pickle.dumps((train_fn, list(bases.values())))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidInputError(
                "'train_fn' and the data must be sendable to other processes with more than one worker: "
                f"{error}. Define the function at the top level of a module, or use workers=1."
            ) from error
        self.threads = max(1, torch.get_num_threads() // workers)
        self.at_work: dict[Connection, tuple[BaseProcess, Task]] = {}
        self.processes: list[BaseProcess] = []

    def run(self) -> Iterator[Outcome]:
        """Give outcomes as they come."""
        try:
            # All at once, since a process takes seconds to begin.
            for new in [self._start() for _ in range(self.workers)]:
                self._give(*self._begun(*new))
            while self.at_work:
                for connection in wait(list(self.at_work)):
                    assert isinstance(connection, Connection)
                    yield self._take(connection)
        finally:
            for process in self.processes:
                process.terminate()
                process.join()

    def _start(self) -> tuple[Connection, BaseProcess]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.payload, self.threads), daemon=True)
        process.start()
        self.processes.append(process)
        theirs.close()
        return ours, process

    def _begun(self, connection: Connection, process: BaseProcess) -> tuple[Connection, BaseProcess]:
        """Wait until a process is ready, or raise where it cannot be."""
        try:
            trouble = connection.recv()
        except EOFError:
            process.join()
            trouble = f"it ended with exit code {process.exitcode}"
        if trouble is not None:
            raise WhenceError(
                f"A process for training could not begin: {trouble}. With more than one worker, 'train_fn' "
                'must be importable, and a script must have its work under if __name__ == "__main__":. '
                "Or use workers=1."
            )
        return connection, process

    def _give(self, connection: Connection, process: BaseProcess) -> None:
        """Give a process the next task, or let it go."""
        if not self.left:
            connection.close()
            process.join()
            return
        task = self.left.pop()
        base = self.numbers[id(task.data.data)]
        connection.send((base, replace(task, data=_over(task.data, None))))
        self.at_work[connection] = (process, task)

    def _take(self, connection: Connection) -> Outcome:
        """Take a process's outcome and give it more to do; where it died, start another."""
        process, task = self.at_work.pop(connection)
        try:
            outcome: Outcome = connection.recv()
        except EOFError:
            connection.close()
            process.join()
            cause = f"the process ended with exit code {process.exitcode}"
            killed = " (killed, perhaps for want of memory)" if process.exitcode == -signal.SIGKILL else ""
            if self.left:
                self._give(*self._begun(*self._start()))
            return Outcome(task.number, 0.0, cause + killed)
        self._give(connection, process)
        return outcome


def _over(view: View, source: Any) -> View:
    """Give a view that reads from another source."""
    return replace(view, samples=replace(view.samples, source=source))


def _work(connection: Connection, payload: bytes, threads: int) -> None:
    """Train what comes, until nobody is left to ask for more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    torch.set_num_threads(threads)
    try:
        train_fn, bases = pickle.loads(payload)
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    while True:
        try:
            base, task = connection.recv()
            connection.send(attempt(train_fn, replace(task, data=_over(task.data, bases[base]))))
        except (EOFError, BrokenPipeError):
            return
