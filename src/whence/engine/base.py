"""Engines: the interface, the local engine, and the functions that run work on an engine."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Self

from whence.core import progress
from whence.core.checks import check_callable, check_count, check_is, check_several, shown
from whence.core.machine import thread_pools
from whence.core.registry import Registry
from whence.errors import InvalidInputError, WhenceError, WorkerError

Piece = Callable[[Any], Any]
"""A function of one item that depends on nothing else: a seed is part of the item."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a piece of work."""

    place: int  # index of its item
    value: Any = None  # return value of the function
    error: BaseException | None = None  # why it failed; ``WorkerError`` if its process ended
    details: str | None = None  # the traceback


@contextmanager
def limited(n: int | None) -> Iterator[None]:
    """Limit torch and linear algebra libraries to ``n`` threads; None leaves their number unchanged.

    The last bits of a result can depend on it.
    """
    if n is None:
        yield
        return
    n = check_count("n", n, most=_MOST_THREADS)
    torch: Any = sys.modules.get("torch")  # without torch there are no torch threads
    before = torch.get_num_threads() if torch else 0
    try:
        with thread_pools().limit(limits=n):
            if torch:
                torch.set_num_threads(n)
            yield
    finally:
        if torch:
            torch.set_num_threads(before)


def attempt(function: Piece, place: int, item: Any) -> Outcome:
    """Run one piece in this process; an error is an outcome."""
    try:
        return Outcome(place, function(item))
    except Exception as error:
        return Outcome(place, error=error, details=traceback.format_exc())


class Group:
    """Objects where an engine runs, one per item, which live as long as this group."""

    def __init__(self, members: list[Any]) -> None:
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    def call(self, method: str, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of every object by its name, and return the results in order.

        Arguments are one value of ``each`` per object, if any, and then the ``shared`` ones. Raises LostError
        where objects were lost and made again; the others have been called.
        """
        return [
            getattr(member, method)(*first, *shared)
            for member, first in zip(self._members, self._firsts(each), strict=True)
        ]

    def _firsts(self, each: Sequence[Any] | None) -> list[tuple[Any, ...]]:
        return [()] * len(self) if each is None else [(value,) for value in each]


class Engine(ABC):
    """Runs a function on independent items. Subclass and register it to add an engine."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, function: Piece, items: list[Any], threads: int | None) -> Generator[Outcome]:
        """Call the function once per item and yield the outcomes as they end, in any order.

        An error of a piece is an outcome too. ``threads`` are those inside a piece; None leaves their number
        unchanged.
        """

    def shards(self, on_disk: bool) -> int:
        """Return the number of shards of training samples for solving and scoring; 1 means no division.

        ``on_disk`` is whether their features lie in a memory map, since they would fill the memory here.
        """
        return 1

    def group(self, make: Callable[[Any], Any], items: list[Any], threads: int | None = None) -> Group:
        """Make one object per item where the engine runs, by default in this process, for later calls.

        ``threads`` are those of a call; None leaves their number unchanged.
        """
        return Group([make(item) for item in items])

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if name[0] != "_")
        return f"{type(self).__name__}({options})"


ENGINES: Registry[type[Engine]] = Registry(
    "engine", lambda thing: isinstance(thing, type) and issubclass(thing, Engine)
)


@ENGINES.add
class Local(Engine):
    """Runs pieces in this process, in order."""

    name = "local"

    def run(self, function: Piece, items: list[Any], threads: int | None) -> Generator[Outcome]:
        """Yield every item's outcome in order."""
        for place, item in enumerate(items):
            with limited(threads):
                outcome = attempt(function, place, item)
            yield outcome


_MOST_THREADS = 1_024  # more than machines have
_DEFAULT: ContextVar[str | Engine] = ContextVar("engine", default="local")


def names() -> list[str]:
    """Return the names of all engines."""
    return ENGINES.names()


def find(engine: str | Engine | None) -> Engine:
    """Return the engine of a name, an engine itself, or the default for None.

    The name may be followed by a colon and arguments: ``"processes:4"`` is ``Processes(4)``.
    """
    if engine is None:
        engine = _DEFAULT.get()
    if isinstance(engine, Engine):
        return engine
    check_is("engine", engine, str, "an engine or the name of one")
    length = 1 if engine.partition(":")[0] in ENGINES else 2  # module:name has two parts
    parts = engine.split(":", length)
    kind = ENGINES.get(":".join(parts[:length]), "engine")
    try:
        return kind(*(int(part) if part.isdecimal() else part for part in parts[length:]))
    except (TypeError, InvalidInputError) as error:
        raise InvalidInputError(
            "'engine' must be a name, and after a colon what that engine takes, as in processes:4. "
            f"Got {engine!r}: {error}"
        ) from error


def current() -> Engine:
    """Return the engine that ``using`` set."""
    return find(None)


@contextmanager
def using(engine: str | Engine | None) -> Iterator[None]:
    """Make an engine the default for all work inside the block; None changes nothing.

    Examples
    --------
    >>> from whence import engine
    >>> with engine.using("local"):
    ...     engine.results(abs, [-1, 2])
    [1, 2]
    """
    token = _DEFAULT.set(find(engine))
    try:
        yield
    finally:
        _DEFAULT.reset(token)


def run(
    function: Piece,
    items: Iterable[Any],
    engine: str | Engine | None = None,
    *,
    threads: int | None = None,
) -> Generator[Outcome]:
    """Run a function on items and yield the outcomes as they end, each with its index.

    The bits of a result are the same on every engine: a piece depends on its item alone and has the same
    number of threads everywhere. So it is not the engine that chooses their number; an engine may choose how
    many pieces run at a time. Closing the generator ends all that still runs.

    Parameters
    ----------
    function
        Of one item. Processes get it once each, with all it holds (bind large data with
        ``functools.partial``), and then only items.
    items
        One per piece.
    engine
        A name, such as ``"processes"`` or ``"processes:4"``, or an engine, such as ``Processes(4)``, whose
        processes serve many runs; None is what ``using`` set, and ``"local"`` without it.
    threads
        Of torch and linear algebra inside a piece; None for as many as torch has here. Small pieces in
        processes are fastest with 1. At most 1,024.
    """
    check_callable("function", function, "a function of one item")
    if threads is not None:
        threads = check_count("threads", threads, most=_MOST_THREADS)
    elif "torch" in sys.modules:
        threads = sys.modules["torch"].get_num_threads()
    return find(engine).run(function, _listed(items), threads)


def results(
    function: Piece,
    items: Iterable[Any],
    engine: str | Engine | None = None,
    *,
    threads: int | None = None,
    title: str | None = None,
    unit: str = "pieces",
) -> list[Any]:
    """Run a function on items and return its results in order; raise the first error, and end the rest.

    The parameters are those of ``run``, and ``title`` and ``unit`` of the progress bar; without a title there
    is none.

    Examples
    --------
    >>> from whence import engine
    >>> engine.results(len, ["a", "bcd"], engine="local")
    [1, 3]
    """
    listed = _listed(items)
    done: list[Any] = []
    with (
        closing(ordered(function, listed, engine, threads=threads)) as values,
        progress.bar(title or "", len(listed), unit, show=title is not None) as bar,
    ):
        if title is not None:
            progress.report(title, 0, len(listed))
        for value in values:
            done.append(value)
            bar.update()
            if title is not None:
                progress.report(title, len(done), len(listed))
    return done


def ordered(
    function: Piece,
    items: Iterable[Any],
    engine: str | Engine | None = None,
    *,
    threads: int | None = None,
) -> Generator[Any]:
    """Yield the results of ``results`` one by one, with the parameters of ``run``."""
    listed = _listed(items)
    waiting: dict[int, Any] = {}
    due = 0
    with closing(run(function, listed, engine, threads=threads)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise _error_of(outcome, listed)
            waiting[outcome.place] = outcome.value
            while due in waiting:
                yield waiting.pop(due)
                due += 1


def _listed(items: Any) -> list[Any]:
    check_several("items", items, "a list, one item per piece")
    return list(items)


def _error_of(outcome: Outcome, items: list[Any]) -> BaseException:
    """Return a piece's error with its item and, for other processes, their traceback."""
    error = outcome.error
    assert error is not None
    which = f"piece {outcome.place} of {len(items)}, {shown(items[outcome.place])}"
    if isinstance(error, WorkerError):
        return WorkerError(f"Of {which}: {error}.")
    error.add_note(f"In {which}")
    if error.__traceback__ is None and outcome.details is not None:
        error.add_note(outcome.details)
    return error


# Messages between processes: pieces of work, their outcomes, and their warnings.


@dataclass(frozen=True)
class Surroundings:
    """The settings that a process needs to behave like this one."""

    threads: int | None  # threads of a piece
    with_torch: bool  # whether torch is imported; ``threads`` has no effect on a later import
    path: tuple[str, ...]  # sys.path
    folder: str  # working folder

    @classmethod
    def here(cls, threads: int | None) -> Self:
        """Describe this process."""
        return cls(threads, "torch" in sys.modules, tuple(sys.path), os.getcwd())

    def import_torch(self) -> None:
        """Import torch if this process has it: a later import would have another number of threads."""
        if self.with_torch:
            import_module("torch")


def sendable(name: str, value: Any) -> bytes:
    """Pickle an argument, or raise with its name."""
    from cloudpickle import dumps

    try:
        return dumps(value)  # type: ignore[no-any-return]
    except Exception as error:  # any error of an object's __reduce__
        raise unsendable(name, error) from error


def unsendable(name: str, error: Exception) -> InvalidInputError:
    """Return the error of an argument that cannot be pickled."""
    return InvalidInputError(
        f"'{name}' must be sendable to other processes, with all in it, as model and data: {error}. "
        'Leave out what cannot be, such as open files and locks, or use engine="local".'
    )


def answer(piece: Piece, item: Any) -> bytes:
    """Run a piece and return its outcome and its warnings, pickled."""
    from cloudpickle import dumps

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        outcome = attempt(piece, 0, item)
    warned = [(str(each.message), each.category, each.filename, each.lineno) for each in heard]
    try:
        if outcome.error is not None:
            pickle.loads(dumps(outcome.error))
        return dumps((outcome, warned))  # type: ignore[no-any-return]
    except Exception as error:  # a value or an error that cannot be pickled
        why = outcome.error or error
        line = WhenceError(f"{type(why).__name__}: {why}")
        return pickle.dumps((Outcome(0, error=line, details=outcome.details), warned))


def answered(answer: bytes, place: int) -> Outcome:
    """Read an answer, and repeat the piece's warnings here.

    A warning that is made an error is the piece's error.
    """
    done, warned = pickle.loads(answer)
    outcome: Outcome = replace(done, place=place)
    for warning in warned:
        try:
            warnings.warn_explicit(*warning)
        except Warning as error:
            outcome = replace(outcome, value=None, error=outcome.error or error)
    return outcome
