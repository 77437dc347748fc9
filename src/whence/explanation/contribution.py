"""What one training sample contributes to a prediction, and what all contributions have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from whence.core.display import displayed
from whence.pages.samples import Array, Sample


@dataclass(frozen=True)
class Full:
    """The relevance of the full colour: in the logit's map, and in those of pairs on either sample."""

    logit: float
    test: float
    train: float


@displayed()
@dataclass(frozen=True)
class Foretold:
    """What effects are on, and how far to trust them.

    Attributes
    ----------
    output : "logit", "margin" or "log_prob", of the target class
    surrogate : which, in words
    """

    output: str
    surrogate: str = "softmax surrogate"

    @property
    def told(self) -> str:
        """How they are foretold, in words."""
        return f"to first order, at the {self.surrogate} of the whole training set"


def facts(record: Any) -> dict[str, Any]:
    """Give the fields of a record that are numbers or names, or several of them, in types that JSON takes."""
    found = {}
    for field in fields(record):
        value = getattr(record, field.name)
        several = value if isinstance(value, tuple) else (value,)
        if all(isinstance(one, int | float | str | None) for one in several):
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


@displayed()
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
    bias : the part of the score that comes from the bias, which no feature carries
    coefficient : λ, the global attribution for the target class, by which τ = λ f_i·f(x); None of effects
    sample : the sample itself
    test_map, train_map : relevance of the score on either sample, in the input's shape; of a text, one value
        per token. Positive speaks for the target class.
    spread : standard deviation of the score over the members of an ensemble; None elsewhere
    """

    index: int
    label: Any
    told: str
    differs: bool
    score: float
    share: float
    bias: float
    coefficient: float | None
    sample: Sample
    test_map: Array
    train_map: Array
    spread: float | None = None
