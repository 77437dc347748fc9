"""HTML pages: one environment, one content security policy, one base style."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from whence.core import store
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
    """The style and script of a page, which determine its content security policy.

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
        """The common style, followed by the page's own."""
        return f"{read(__package__, 'templates/base.css')}\n{self.style}"

    @property
    def policy(self) -> str:
        """The content security policy: it allows the page's own style and script, by their hashes."""
        connect, action = ("'self'" if allowed else "'none'" for allowed in (self.live, self.asks))
        return (
            f"default-src 'none'; script-src {_hash(self.script)}; style-src {_hash(self.whole_style)}; "
            f"img-src data:; connect-src {connect}; base-uri 'none'; form-action {action}"
        )


def render(template: str, packages: Sequence[str], look: Look, **context: Any) -> str:
    """Render a template as a page; all texts from outside are escaped.

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
    """Read a text file of a package."""
    return resources.files(package).joinpath(path).read_text(encoding="utf-8")


def named(name: str) -> Markup:
    """Write a class's name; a long one is shortened to its ends, with the full name as its title."""
    short = style.ends(name)
    return escape(name) if short == name else Markup('<span title="{}">{}</span>').format(name, short)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'" if text else "'none'"


# The glossary is in a page once; in texts the first occurrence of each term is a control that shows its
# meaning on hover, keyboard focus or tap.


class Meaning(NamedTuple):
    """A term, its key in addresses, a pattern of its forms in texts, and its meaning."""

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
            "An upper bound on how far the surrogate’s objective is from the optimum, as a share: 1e-6 is "
            "a millionth. Logits may differ by more: their bound grows with its square root."),
    Meaning("τ (tau)", "tau", r"τ",
            "What one training sample adds to the logit of the explained class, from 0 on: its weight λ "
            "times its similarity to the test sample."),
    Meaning("λ (lambda)", "lambda", r"λ",
            "The weight of a training sample for a class, the same for every test; 0 for those that are no "
            "support vectors."),
    Meaning("C", "C", r"\bC(?= = )",
            "The largest weight of a training sample: a small C spreads a prediction over many samples, a "
            "large C over few."),
    Meaning("at the bound", "bound", r"\bat the bound\b",
            "A sample whose weight is C: the surrogate does not classify it with a margin, so it is hard, "
            "atypical or labelled wrong."),
    Meaning("logit", "logit", r"\b[Ll]ogit\b",
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
    Meaning("base value", "base", r"\bbase value\b",
            "What scores start from: the output for the average training sample, or for the average sample "
            "of the class that is compared with. The output is the base value plus all scores."),
)  # fmt: skip
"""All terms, in order of precedence."""

_ANY = re.compile("|".join(f"(?P<t{i}>{term.forms})" for i, term in enumerate(GLOSSARY)))
_TAG = re.compile(r"(<[^>]*>)")


def glossed(text: str) -> Markup:
    """Write a text, escaped unless it is HTML, with the first occurrence of each term as a control."""
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
_FUNCTIONS = (
    style.drawn,
    style.heat,
    style.named_values,
    style.scale,
    style.strongest,
    style.unwritten,
)


def show(thing: Any, page: str) -> None:
    """Display an object in the notebook that runs this, or else open its page in the browser."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        sys.modules["IPython"].display.display(thing)
        return
    path = Path(tempfile.mkdtemp(prefix="whence-")) / "page.html"  # it must outlive this call
    store.write_text(path, page)
    if not webbrowser.open(path.as_uri()):
        print(f"No browser was found. The page is {path}")
