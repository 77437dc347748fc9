"""Pages of HTML: one environment, one content security policy, one style that others build on."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from whence.core.display import number
from whence.pages import style, texts
from whence.pages.pictures import data_uri

CITATION = (
    "Galip Ümit Yolcu, Moritz Weckbecker, Thomas Wiegand, Wojciech Samek, Sebastian Lapuschkin: "
    "Sparse, Efficient and Explainable Data Attribution with DualXDA. "
    "Transactions on Machine Learning Research, 2025, arXiv:2402.12118"
)


@dataclass(frozen=True)
class Look:
    """What a page contains besides its text, and so what it may load and do.

    Attributes
    ----------
    style : its own, which follows what all pages have
    script : none where it is empty
    live : whether the script may ask the machine that serves the page
    asks : whether a form of the page may ask it
    """

    style: str
    script: str = ""
    live: bool = False
    asks: bool = False

    @property
    def whole_style(self) -> str:
        """The style of all pages, then the page's own."""
        return f"{read(__package__, 'templates/base.css')}\n{self.style}"

    @property
    def policy(self) -> str:
        """The content security policy: the style and the script inside the page, by their hashes."""
        connect, action = ("'self'" if allowed else "'none'" for allowed in (self.live, self.asks))
        return (
            f"default-src 'none'; script-src {_hash(self.script)}; style-src {_hash(self.whole_style)}; "
            f"img-src data:; connect-src {connect}; base-uri 'none'; form-action {action}"
        )


def render(template: str, packages: Sequence[str], look: Look, **context: Any) -> str:
    """Render a template as a page; every text that comes from outside is escaped.

    Parameters
    ----------
    template : one that extends ``base.html``
    packages : packages whose templates are searched, in this order; this one's come last
    look : the page's style and script
    context : what the template shows
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, __package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in _FILTERS}
    environment.globals |= {"citation": CITATION, "terms": GLOSSARY, **{f.__name__: f for f in _FUNCTIONS}}
    return environment.get_template(template).render(look=look, **context)


def read(package: str, path: str) -> str:
    """Read a text that lies in a package."""
    return resources.files(package).joinpath(path).read_text(encoding="utf-8")


def named(name: str) -> Markup:
    """Write a class's name: of a long one the ends, and the whole as its title."""
    short = style.ends(name)
    return escape(name) if short == name else Markup('<span title="{}">{}</span>').format(name, short)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'" if text else "'none'"


# The glossary: a page holds it once, and in its texts the first of each term is a control that shows its
# sentence on hover, on keyboard focus or on tap


class Meaning(NamedTuple):
    """A word, its name in addresses, the forms in which texts have it (a pattern), and what it means."""

    name: str
    key: str
    forms: str
    meaning: str


GLOSSARY = (
    Meaning("surrogate", "surrogate", r"\b[Ss]urrogate\b",
            "A support vector machine on the model’s last features, which replaces its last layer here: its "
            "outputs are exact sums over training samples."),
    Meaning("support vector", "support-vector", r"\b[Ss]upport vectors?\b",
            "A training sample that the surrogate needs; without all the others it would be the same."),
    Meaning("duality gap", "gap", r"\b(?:relative )?duality gap\b",
            "An upper bound on how far the surrogate is from the optimum, relative to its objective: 1e-6 is "
            "a millionth."),
    Meaning("τ (tau)", "tau", r"τ",
            "What one training sample adds to the logit of the explained class: its weight λ times its "
            "similarity to the test sample."),
    Meaning("λ (lambda)", "lambda", r"λ",
            "The weight of a training sample for a class, the same for every test; 0 for those that are no "
            "support vectors."),
    Meaning("C", "C", r"\bC(?= = )",
            "The largest weight of a training sample: a small C spreads a prediction over many samples, a "
            "large C over few."),
    Meaning("at the bound", "bound", r"\bat the bound\b",
            "A sample whose weight is C: the surrogate does not classify it with a margin, so it is hard, "
            "atypical or labelled wrong."),
    Meaning("logit", "logit", r"\blogit\b",
            "The score of a class before softmax turns scores into probabilities; the class with the largest "
            "is predicted."),
    Meaning("bias", "bias", r"\bbias\b",
            "The part of an output that is the same for every input, so that no pixel or word accounts for "
            "it."),
    Meaning("relevance", "relevance", r"\b[Rr]elevance\b",
            "How much of a score comes from a pixel, a word or a value: blue parts support what is "
            "explained, orange ones contradict it."),
    Meaning("rules", "rules", r"\b(?:epsilon_plus_flat|attn_lrp_cp|attn_lrp|epsilon|[Rr]ules)\b",
            "How a score is propagated from layer to layer back to the input (layer-wise relevance "
            "propagation)."),
    Meaning("effect", "effect", r"\b[Ee]ffects?\b",
            "How much higher the output is with the training sample than if the model were trained without "
            "it, as the surrogate predicts."),
    Meaning("to first order", "first-order", r"\bto first order\b",
            "Predicted from the derivative of the surrogate, without solving it again: exact for small "
            "changes only."),
    Meaning("halves", "halves", r"\bhalves\b",
            "The surrogate is solved again on random halves of the training set, to see which samples stay "
            "among the strongest."),
    Meaning("concept", "concept", r"\b[Cc]oncepts?\b|\bcomponents?\b",
            "A direction in the model’s features that samples share; a component is one along which the "
            "support vectors differ most."),
    Meaning("base", "base", r"\bbase\b",
            "The prediction without any score: for regression, the mean of the training targets."),
)  # fmt: skip
"""All terms, in the order in which they matter."""

_ANY = re.compile("|".join(f"(?P<t{i}>{term.forms})" for i, term in enumerate(GLOSSARY)))
_TAG = re.compile(r"(<[^>]*>)")


def glossed(text: str) -> Markup:
    """Write a text, escaped unless it is HTML already, with the first of each term as a control."""
    seen: set[str] = set()

    def control(match: re.Match[str]) -> str:
        assert match.lastgroup is not None
        term = GLOSSARY[int(match.lastgroup[1:])]
        if term.key in seen:
            return match[0]
        seen.add(term.key)
        return (
            f'<button type="button" class="term" aria-describedby="term-{term.key}" '
            f'data-meaning="{escape(term.meaning)}">{match[0]}</button>'
        )

    parts = _TAG.split(str(escape(text)))
    return Markup("".join(part if part.startswith("<") else _ANY.sub(control, part) for part in parts))


_FILTERS = (
    data_uri, glossed, named, number, style.a_bar, style.bars, style.ends, style.heights, style.level,
    style.percent, style.signed, texts.begun, texts.breaks, texts.headline, texts.readable,
)  # fmt: skip
_FUNCTIONS = (style.drawn, style.heat, style.scale, style.strongest, style.unwritten)
