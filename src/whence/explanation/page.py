"""Explanations as one page that needs no network and no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING

from whence.core import store
from whence.core.checks import check_path
from whence.explanation.wording import MADE_OF
from whence.pages.pictures import Pictures
from whence.pages.render import Look, read, render
from whence.pages.style import marks

if TYPE_CHECKING:
    from whence.explanation.record import Explanation


def write(explanations: Sequence[Explanation], path: str | PathLike[str] | None) -> str:
    """Render the page, and write it where a path is given."""
    words = explanations[0].words if explanations else MADE_OF["class"]
    html = render(
        "page.html",
        [__package__],
        Look(style()),
        explanations=explanations,
        words=words,
        pictures=Pictures(),
        pictured=any(one.sample.image is not None for why in explanations for one in why.inputs.values()),
    )
    if path is not None:
        store.write_text(check_path("path", path), html)
    return html


@cache
def style() -> str:
    """Read the style of pages that show explanations."""
    return read(__package__, "templates/explanation.css") + marks()
