"""What one training sample contributes to a prediction, and what all contributions have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from whence.core.words import counted
from whence.pages.samples import Array, Sample


@dataclass(frozen=True)
class Full:
    """The relevance of the full colour: in the logit's map, and in those of pairs on either sample."""

    logit: float
    test: float
    train: float


@dataclass(frozen=True)
class Foretold:
    """What effects are on, and how far to trust them.

    Attributes
    ----------
    output : "logit", "margin" or "log_prob", of the target class
    solves : halves of the training set that they are means over; 0 to first order at the whole
    reliability : how well the effects of some halves foretell the outputs of others; None if not known
    """

    output: str
    solves: int
    reliability: float | None

    @property
    def told(self) -> str:
        """The last two in words."""
        if not self.solves:
            return "to first order, at the surrogate of the whole training set"
        known = "" if self.reliability is None else f", reliability {self.reliability:.2f}"
        return f"means over {counted(self.solves, 'random half', 'random halves')}{known}"


def facts(record: Any) -> dict[str, Any]:
    """Give the fields of a record that are numbers or names, or several of them, in types that JSON takes."""
    found = {}
    for field in fields(record):
        value = getattr(record, field.name)
        several = value if isinstance(value, tuple) else (value,)
        if all(isinstance(one, int | float | str | None) for one in several):
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one training sample contributes to a prediction.

    Attributes
    ----------
    index : its place in the training set
    label : its class, or its label of another kind
    told, differs : the label in words, and whether it is another than the target
    score : τ, or the effect; positive is evidence for the target class, or raises its output
    share : its part of all scores of its sign, in [0, 1]
    error : standard error of an effect; None where there is none
    bias : the part of the score that comes from the bias, which no feature carries
    coefficient : what multiplies both samples' features in the part of the score that they have in common:
        λ, the global attribution for the target class; of an effect e·f(x) it is (e·f_i)/(f_i·f_i)
    common : that part, coefficient × f_i·f(x). Of τ it is all but the bias; of an effect the rest comes from
        how other samples make up for this one
    sample : the sample itself
    test_map : relevance of the score on the test sample, in the input's shape; of a text, one value per
        token. Positive speaks for the target class.
    train_map : relevance of ``common`` on the training sample
    """

    index: int
    label: Any
    told: str
    differs: bool
    score: float
    share: float
    error: float | None
    bias: float
    coefficient: float
    common: float
    sample: Sample
    test_map: Array
    train_map: Array
