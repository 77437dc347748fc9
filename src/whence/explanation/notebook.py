"""Figures inside the cells of a notebook."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

from whence.core.display import plain_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 110  # of a screen


def as_html(figures: Sequence[tuple[str, Figure]], note: str = "") -> str:
    """Write figures as pictures inside HTML, each below what it shows in words; all text is escaped.

    A figure has a white ground of its own, so that it reads the same on light and dark pages.
    """
    parts = []
    for words, figure in figures:
        file = BytesIO()
        figure.savefig(file, format="png", dpi=_DPI)
        picture = base64.b64encode(file.getvalue()).decode("ascii")
        width = round(figure.get_figwidth() * _DPI)
        style = f"width: {width}px; max-width: 100%; background: white"
        alt = escape(plain_line(words))
        parts.append(f"<p>{alt}</p>")
        parts.append(f'<img alt="{alt}" src="data:image/png;base64,{picture}" style="{style}">')
    end = f"<p><small>{escape(plain_line(note))}</small></p>" if note else ""
    return f"<div>{''.join(parts)}{end}</div>"
