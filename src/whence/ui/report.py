"""A one-page HTML summary of a model's explanations, which needs no network and no scripts."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from whence import __version__
from whence.attributors.surrogate import Faithfulness
from whence.explanation import Explanation, Picture
from whence.explanation.figure import percent, signed

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
    environment = Environment(
        loader=PackageLoader("whence.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "signed": signed, "data_uri": data_uri}
    template = environment.get_template("report.html")
    return template.render(facts=facts, cases=cases, citation=CITATION, version=__version__)


def data_uri(picture: Picture) -> str:
    """Encode a picture as a PNG inside a ``data:`` address, pixel for pixel."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, picture, cmap="gray", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
