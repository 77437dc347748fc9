"""What goes between this process and others: pieces of work, their outcomes, and the warnings they made."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Self

from whence.engine.base import Outcome, Piece, attempt
from whence.errors import InvalidInputError, WhenceError


@dataclass(frozen=True)
class Surroundings:
    """What a process needs to be like this one."""

    threads: int | None  # of a piece
    with_torch: bool  # whether torch is imported, without which ``threads`` does not reach it
    path: tuple[str, ...]  # where modules are looked for
    folder: str  # where relative paths begin

    @classmethod
    def here(cls, threads: int | None) -> Self:
        """Describe this process."""
        return cls(threads, "torch" in sys.modules, tuple(sys.path), os.getcwd())

    def import_torch(self) -> None:
        """Have torch where it is there: a piece that imports it later would have other threads than here."""
        if self.with_torch:
            import_module("torch")


def sendable(name: str, value: Any) -> bytes:
    """Pickle an argument, or raise with its name."""
    from cloudpickle import dumps

    try:
        return dumps(value)  # type: ignore[no-any-return]
    except Exception as error:  # whatever an object's own __reduce__ raises
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
    except Exception as error:  # a value that cannot be sent, or an error that cannot be made again
        why = outcome.error or error
        line = WhenceError(f"{type(why).__name__}: {why}")
        return pickle.dumps((Outcome(0, error=line, details=outcome.details), warned))


def answered(answer: bytes, place: int) -> Outcome:
    """Read an answer, and warn here of what the piece was warned of.

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
