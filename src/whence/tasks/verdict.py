"""What a model and its surrogate say of one sample, in words."""

from __future__ import annotations

from typing import Literal, NamedTuple

Speech = Literal["class", "label", "number"]
"""Which words an explanation is told in: of one class, of one of many labels, of a number."""


class Verdict(NamedTuple):
    """What is said of one test sample.

    Attributes
    ----------
    predicted : by the model
    probability : that the model gives it, or the label that is explained; None of numbers
    truth : what is true, None where that is not known
    right : whether that is what is predicted; None where it is a matter of degree, or not known
    surrogate : what the surrogate says
    agrees : whether that is what the model says, as far as it is explained
    """

    predicted: str
    probability: float | None
    truth: str | None
    right: bool | None
    surrogate: str
    agrees: bool
