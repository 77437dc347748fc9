"""Work that takes a while, as JSON: how far it is, and what was fitted."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from whence.methods import Effects


class Progress(BaseModel):
    """How far work is: ``done`` of ``total`` of what is counted, where that is known."""

    seconds: float
    what: str = ""
    done: int = 0
    total: int = 0


class Foretelling(BaseModel):
    """The effects that questions of what would change are answered by, once they are fitted."""

    told: str
    seconds: float

    @classmethod
    def of(cls, fitted: Effects) -> Self:
        """Tell of effects that are fitted."""
        return cls(told=fitted.foretold_.told, seconds=fitted.fit_seconds_)
