"""Pages of HTML: one environment, one content security policy, one style that others build on."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup, escape

from whence.core.display import number
from whence.pages import style, texts
from whence.pages.glossary import GLOSSARY, glossed
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


_FILTERS = (
    data_uri, glossed, named, number, style.a_bar, style.bars, style.ends, style.heights, style.level,
    style.percent, style.signed, texts.begun, texts.breaks, texts.headline, texts.readable,
)  # fmt: skip
_FUNCTIONS = (style.drawn, style.heat, style.scale, style.strongest, style.unwritten)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'" if text else "'none'"
