"""The engine that runs all work in this process, piece after piece."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from whence.engine.base import ENGINES, Engine, Outcome, Piece, attempt
from whence.engine.threads import limited


@ENGINES.add
class Local(Engine):
    """Runs pieces here, in order."""

    name = "local"

    def run(self, function: Piece, items: list[Any], threads: int | None) -> Generator[Outcome]:
        """Give every item's outcome in order."""
        for place, item in enumerate(items):
            with limited(threads):
                outcome = attempt(function, place, item)
            yield outcome
