"""A one-page HTML summary of a model's explanations, which needs no network and no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whence import __version__
from whence.attributors.surrogate import Faithfulness
from whence.explanation import Explanation
from whence.explanation.page import render

CITATION = (
    "Galip Ümit Yolcu, Moritz Weckbecker, Thomas Wiegand, Wojciech Samek, Sebastian Lapuschkin: "
    "Sparse, Efficient and Explainable Data Attribution with DualXDA. "
    "Transactions on Machine Learning Research, 2025, arXiv:2402.12118"
)


@dataclass(frozen=True)
class Facts:
    """What a reader needs to judge the explanations below.

    Attributes
    ----------
    title : of the page
    model, data : what was explained, and what it was trained on, in words
    accuracy : share of the test samples that the model gets right
    n_test : test samples that accuracy and faithfulness were measured on
    faithfulness : how well the surrogate stands for the model
    C, C_reason : the surrogate's C, and why it was taken
    """

    title: str
    model: str
    data: str
    accuracy: float
    n_test: int
    faithfulness: Faithfulness
    C: float
    C_reason: str


@dataclass(frozen=True)
class Case:
    """One explained test sample: a heading, why it is shown, and the file name of its figure."""

    heading: str
    lesson: str
    explanation: Explanation
    figure: str


def render_report(facts: Facts, cases: Sequence[Case]) -> str:
    """Render the page as HTML; every text that comes from outside is escaped.

    Parameters
    ----------
    facts
        What holds for all cases.
    cases
        The explained test samples, at least one, all from one explainer.
    """
    return render(
        "report.html",
        packages=("whence.ui", "whence.explanation"),
        styles=("explanation.css", "report.css"),
        facts=facts,
        cases=cases,
        citation=CITATION,
        version=__version__,
    )
