"""How far a surrogate can be trusted about tokens, by how often they are in the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.core.arrays import Ints, Mask
from whence.core.display import displayed

EDGES = (0, 1, 10, 100)
"""How often a token is at least in the corpus, of each band."""
LOW = 0.5
"""Agreement below which a surrogate is more often wrong about the model's token than right."""


@displayed()
class Band(NamedTuple):
    """Places where the token that the model writes is about as frequent in the corpus.

    Attributes
    ----------
    least, most : how often the token is learned there; None where there is no upper end
    places : that were looked at
    agreement : share of these where the surrogate names the model's token; None where there is none
    """

    least: int
    most: int | None
    places: int
    agreement: float | None

    @property
    def low(self) -> bool:
        """Whether the surrogate names another token than the model more often than not."""
        return self.agreement is not None and self.agreement < LOW

    @property
    def name(self) -> str:
        """The band in a few letters."""
        if self.most is None:
            return f"{self.least:,}+"
        return str(self.least) if self.most == self.least else f"{self.least:,}–{self.most:,}"


@displayed("held_out", "places", "agreement", rows="columns")
@dataclass(frozen=True)
class Bands:
    """Share of places where the surrogate names the model's next token, by the token's frequency.

    Attributes
    ----------
    bands : from tokens that are not in the corpus to the most frequent
    held_out : whether the places are of documents that the surrogate was not fitted on
    """

    bands: tuple[Band, ...]
    held_out: bool

    @classmethod
    def of(cls, counts: Ints, agrees: Mask, *, held_out: bool) -> Bands:
        """Sort places (P,) by how often the model's token is in the corpus."""
        most = [*(edge - 1 for edge in EDGES[1:]), None]
        which = np.digitize(counts, EDGES) - 1
        found = []
        for i, (least, last) in enumerate(zip(EDGES, most, strict=True)):
            here = agrees[which == i]
            found.append(Band(least, last, len(here), float(here.mean()) if len(here) else None))
        return cls(tuple(found), held_out)

    @property
    def places(self) -> int:
        """How many places were looked at."""
        return sum(band.places for band in self.bands)

    @property
    def agreement(self) -> float:
        """The share of all places."""
        return sum(band.places * (band.agreement or 0.0) for band in self.bands) / self.places

    @property
    def columns(self) -> dict[str, list[object]]:
        """The bands as columns of a table."""
        return {
            "token in the corpus": [band.name for band in self.bands],
            "places": [band.places for band in self.bands],
            "agreement": [band.agreement for band in self.bands],
        }

    def of_count(self, count: int) -> Band:
        """Return the band of a token that is so often in the corpus."""
        return self.bands[int(np.digitize(count, EDGES)) - 1]
