"""The records that an explanation holds: training samples with their scores, and how typical its test is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from whence.core.display import displayed
from whence.pages.samples import Array, Sample
from whence.pages.style import percent

Trust = Literal["yes", "care", "no"]
"""Whether to trust an explanation: yes, with care, or not."""


class Reason(NamedTuple):
    """Why to trust an explanation, or why not."""

    trust: Trust
    words: str


@displayed()
@dataclass(frozen=True)
class EffectOf:
    """Which output effects are on, and which surrogate predicts them.

    Attributes
    ----------
    output : "logit", "margin" or "log_prob", of the target class
    surrogate : its name
    """

    output: str
    surrogate: str = "softmax surrogate"

    @property
    def description(self) -> str:
        """How effects are predicted, in words."""
        return f"to first order, at the {self.surrogate} of the whole training set"


def facts(record: Any) -> dict[str, Any]:
    """Return the fields of a record that hold a number, a name or several of these, in types of JSON."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if all(
            isinstance(v, int | float | str | None) for v in (value if isinstance(value, tuple) else [value])
        )
    }


@displayed()
@dataclass(frozen=True, eq=False)
class Contribution:
    """What one training sample contributes to a prediction.

    Attributes
    ----------
    index : its place in the training set
    label : its class, or its label of another kind
    label_text, differs : the label in words, and whether it is another than the target
    score : τ, or the effect; positive is evidence for the target class, or raises its output
    share : its part of all scores of its sign, in [0, 1]
    bias : the part of the score that comes from the bias, that no feature accounts for
    coefficient : λ, the global attribution for the target class, by which τ = λ f_i·f(x); None of effects
    sample : the sample itself
    test_map, train_map : relevance of the score on either sample, in the input's shape; of a text, one value
        per token. Positive supports the target class.
    spread : standard deviation of the score over the members of an ensemble; None elsewhere
    """

    index: int
    label: Any
    label_text: str
    differs: bool
    score: float
    share: float
    bias: float
    coefficient: float | None
    sample: Sample
    test_map: Array
    train_map: Array
    spread: float | None = None


@displayed()
@dataclass(frozen=True, eq=False)
class Neighbour:
    """A training sample near the test.

    Attributes
    ----------
    index : its place in the training set
    label_text : its label, in words
    distance : of features of unit length, from 0 to 2
    sample : the sample itself
    """

    index: int
    label_text: str
    distance: float
    sample: Sample


@displayed()
@dataclass(frozen=True, eq=False)
class Typicality:
    """How typical a test sample is of the training set.

    Attributes
    ----------
    novel : whether nothing like it is in the training set: ``share`` is beyond ``quantile``
    share : of training samples that are nearer to their own k-th neighbour than the test is to its
    quantile : the share that counts as typical
    n_compared : the number of training samples that the share is of
    neighbours : the k nearest training samples, the nearest first
    """

    novel: bool
    share: float
    quantile: float
    n_compared: int
    neighbours: tuple[Neighbour, ...]

    @property
    def heading(self) -> str:
        """The result in a phrase."""
        return "Nothing like this in the training set" if self.novel else "Typical of the training set"

    @property
    def detail(self) -> str:
        """How typical it is, in a sentence without its full stop."""
        k = len(self.neighbours)
        rank = {1: "", 2: "second ", 3: "third "}.get(k, f"{k}th ")
        way, link, share = (
            ("further", "from", self.share) if self.share > 0.5 else ("nearer", "to", 1 - self.share)
        )
        than = "all" if share == 1 else percent(share)
        return (
            f"{way} {link} its {rank}nearest training sample than {than} of {self.n_compared:,} training "
            f"samples are {link} theirs"
        )

    @property
    def reason(self) -> Reason:
        """Whether it is a reason to trust what training samples say of the test."""
        if self.novel:
            return Reason("care", "nothing like this is in the training set")
        return Reason("yes", "the training set has similar samples")

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the samples, in plain types that JSON takes."""
        return {**facts(self), "neighbours": [facts(near) for near in self.neighbours]}
