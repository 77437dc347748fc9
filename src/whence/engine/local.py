"""The engine that runs all work in this process, piece after piece, and how any engine runs one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from whence.core.checks import check_count
from whence.core.resources import thread_pools
from whence.engine.base import ENGINES, Engine, Outcome, Piece


@contextmanager
def limited(n: int | None) -> Iterator[None]:
    """Let torch and the libraries of linear algebra use ``n`` threads; None leaves them as they are.

    The last bits of a result can depend on it.
    """
    if n is None:
        yield
        return
    n = check_count("n", n)
    torch: Any = sys.modules.get("torch")  # without torch there are no threads of torch
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
    """Run one piece here; an error is an outcome."""
    try:
        return Outcome(place, function(item))
    except Exception as error:
        return Outcome(place, error=error, details=traceback.format_exc())


@ENGINES.add
class Local(Engine):
    """Runs pieces here, in order."""

    name = "local"

    def run(self, function: Piece, items: list[Any], threads: int | None) -> Generator[Outcome]:
        """Return every item's outcome in order."""
        for place, item in enumerate(items):
            with limited(threads):
                outcome = attempt(function, place, item)
            yield outcome
