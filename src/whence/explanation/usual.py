"""How usual a test sample is for the training set, and which training samples are nearest to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from whence.core.display import displayed
from whence.explanation.contribution import facts
from whence.pages.samples import Sample
from whence.pages.style import percent

Trust = Literal["yes", "care", "no"]
"""Whether to trust an explanation: yes, with care, or not."""

STRANGE = "Nothing like this was in the training set"
"""The mark of a test that is like no training sample."""


class Reason(NamedTuple):
    """Why to trust an explanation, or why not."""

    trust: Trust
    words: str


@displayed()
@dataclass(frozen=True, eq=False)
class Neighbour:
    """A training sample near the test.

    Attributes
    ----------
    index : its place in the training set
    told : its label, in words
    distance : of features of unit length, from 0 to 2
    sample : the sample itself
    """

    index: int
    told: str
    distance: float
    sample: Sample


@displayed()
@dataclass(frozen=True, eq=False)
class Usual:
    """How usual a test sample is.

    Attributes
    ----------
    strange : whether nothing like it was in the training set: ``share`` is beyond ``quantile``
    share : of training samples that are nearer to their own k-th neighbour than the test is to its
    quantile : the share that counts as usual
    asked : the number of training samples that the share is of
    neighbours : the k nearest training samples, the nearest first
    """

    strange: bool
    share: float
    quantile: float
    asked: int
    neighbours: tuple[Neighbour, ...]

    @property
    def heading(self) -> str:
        """What it is, in a phrase."""
        return STRANGE if self.strange else "Like samples of the training set"

    @property
    def detail(self) -> str:
        """How usual it is, in a sentence without its full stop."""
        k = len(self.neighbours)
        place = "nearest training sample" if k == 1 else f"{k}th nearest training sample" if k > 3 else ""
        place = place or f"{('', '', 'second', 'third')[k]} nearest training sample"
        way, link, share = (
            ("further", "from", self.share) if self.share > 0.5 else ("nearer", "to", 1 - self.share)
        )
        than = "all" if share == 1 else percent(share)
        return f"{way} {link} its {place} than {than} of {self.asked:,} training samples are {link} theirs"

    @property
    def reason(self) -> Reason:
        """Whether it is a reason to trust what training samples say of the test."""
        if self.strange:
            return Reason("care", "nothing like this was in the training set")
        return Reason("yes", "the training set has samples like this one")

    def to_dict(self) -> dict[str, Any]:
        """Everything but the samples, in plain types that JSON takes."""
        return {**facts(self), "neighbours": [facts(near) for near in self.neighbours]}
