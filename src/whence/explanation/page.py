"""Explanations as one page that needs no network and no scripts, and what pages of them are made of."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from whence.core import store
from whence.core.checks import check_path
from whence.explanation.passages import readable
from whence.pages.png import data_uri
from whence.pages.policy import of_file
from whence.pages.samples import Array
from whence.pages.style import (
    a_bar,
    drawn,
    ends,
    heat,
    heights,
    marker,
    percent,
    scale,
    signed,
    strength,
)

if TYPE_CHECKING:
    from whence.explanation.record import Explanation

LEVELS = 10
"""Steps of a token's colour; steps need no styles in the text, which the page's policy forbids."""
LIGHT, DARK = "#FFFFFF", "#1F2125"


def write(explanations: Sequence[Explanation], path: str | PathLike[str] | None) -> str:
    """Render the page, and write it where a path is given."""
    html = render("page.html", explanations=explanations)
    if path is not None:
        store.write_text(check_path("path", path), html)
    return html


def render(
    template: str,
    *,
    packages: Sequence[str] = ("whence.explanation",),
    styles: Sequence[str] = ("explanation.css",),
    **context: Any,
) -> str:
    """Render a template as a page; every text that comes from outside is escaped.

    Parameters
    ----------
    template
        One that extends ``base.html``.
    packages
        Those whose folders of templates are looked through, the first first.
    styles
        Files of the page's styles. The page's policy allows these, by their hash, and no others.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package) for package in packages])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "a_bar": a_bar,
        "bars": bars,
        "data_uri": data_uri,
        "ends": ends,
        "heights": heights,
        "level": level,
        "named": named,
        "percent": percent,
        "readable": readable,
        "signed": signed,
    }
    environment.globals |= {"drawn": drawn, "heat": heat, "scale": scale}
    style = "\n".join(loader.get_source(environment, name)[0] for name in styles) + _marks()
    return environment.get_template(template).render(style=style, policy=of_file(style), **context)


def named(name: str) -> Markup:
    """Write a class's name: of a long one the ends, and all of it where one points at it."""
    short = ends(name)
    return escape(name) if short == name else Markup('<span title="{}">{}</span>').format(name, short)


def level(relevance: float, full: float) -> str:
    """Name the class of a token's colour: p1 to p10 for, n1 to n10 against, none where it has no colour."""
    step = round(LEVELS * float(strength(np.array([relevance], dtype=np.float32), full)[0]))
    return f"{'p' if step > 0 else 'n'}{abs(step)}" if step else ""


def bars(values: Array, full: float) -> list[tuple[float, float, float, float, str]]:
    """Lay values out as bars of an area of 100 by 40 with 0 in its middle: x, y, width, height, class."""
    width = 100 / max(len(values), 1)
    found = []
    for i, value in enumerate(strength(values, full).tolist()):
        top = 20 - 20 * max(value, 0)
        found.append((i * width, top, 0.9 * width, 20 * abs(value), "for" if value > 0 else "against"))
    return found


def _marks() -> str:
    """Write the styles of tokens' colours, for light and dark pages."""

    def rules(ground: str) -> str:
        steps = np.arange(1, LEVELS + 1, dtype=np.float32)
        lines = []
        for sign, name in ((1, "p"), (-1, "n")):
            colours = (255 * marker(sign * steps, LEVELS, ground)).round().astype(int)
            lines += [
                f".{name}{step:.0f} {{ background: #{r:02x}{g:02x}{b:02x}; }}"
                for step, (r, g, b) in zip(steps, colours, strict=True)
            ]
        return "\n".join(lines)

    return f"\n{rules(LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{rules(DARK)}\n}}\n"
