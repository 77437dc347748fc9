"""Samples and relevance maps in pages, as pictures and as data for the page's script.

Small pictures are lossless PNG; large ones are WebP.
"""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from whence.core.display import plain_line
from whence.pages.samples import Array, Picture, Sample
from whence.pages.style import drawn, unwritten
from whence.pages.texts import begun, headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINE = 128
"""Pixels per side up to which a picture is lossless."""
_QUALITY = 80  # WebP quality: about 10 kB for a photo of 224 pixels per side
_SMALL = 96  # pixels per side, and tokens, of samples in lists
_DPI = 110  # resolution of a screen


def encode_picture(picture: Picture) -> tuple[bytes, str]:
    """Encode a picture (height, width) or (height, width, 3) in [0, 1]; return its bytes and their format."""
    from PIL import Image  # comes with matplotlib

    pixels = np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    kind, options = (
        ("webp", {"quality": _QUALITY, "method": 6}) if max(pixels.shape[:2]) > FINE else ("png", {})
    )
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue(), kind


def data_uri(picture: Picture) -> str:
    """Encode a picture as a ``data:`` address."""
    content, kind = encode_picture(picture)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def can_draw() -> bool:
    """Return whether matplotlib is installed; notebooks show plain text without it."""
    return find_spec("matplotlib") is not None


def as_html(figures: Sequence[tuple[str, Figure]], note: str = "") -> str:
    """Render figures for a notebook cell, below lines of text; all text is escaped.

    A figure has a white ground of its own, so that it reads the same on light and dark pages.
    """
    parts = []
    for words, figure in figures:
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=_DPI)
        picture = base64.b64encode(file.getvalue()).decode("ascii")
        style = f"width: {round(figure.get_figwidth() * _DPI)}px; max-width: 100%; background: white"
        lines = [escape(plain_line(line)) for line in words.splitlines()]
        alt = " ".join(lines)
        parts.append(f"<p>{'<br>'.join(lines)}</p>")
        parts.append(f'<img alt="{alt}" src="data:image/png;base64,{picture}" style="{style}">')
    end = f"<p><small>{escape(plain_line(note))}</small></p>" if note else ""
    return f"<div>{''.join(parts)}{end}</div>"


class Pictures:
    """The pictures of a page, each stored once under a name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int, int]] = {}

    def place(self, picture: Picture) -> str:
        """Return the name of a picture."""
        height, width = picture.shape[:2]
        uri = data_uri(picture)
        return self._known.setdefault(uri, (f"picture-{len(self._known)}", width, height))[0]

    def __iter__(self) -> Iterator[tuple[str, str, int, int]]:
        """Return the name, the address, the width and the height of each."""
        return iter((name, uri, width, height) for uri, (name, width, height) in self._known.items())


# Data for the page's script, as JSON


def plain(value: Any) -> Any:
    """Convert records, arrays and their contents to lists, dictionaries and Python numbers."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def as_view(sample: Sample) -> dict[str, Any]:
    """Return a sample's view: a picture, the tokens of a text, or values."""
    if sample.image is not None:
        height, width = sample.image.shape[:2]
        return {"kind": "image", "src": data_uri(sample.image), "width": width, "height": height}
    if sample.tokens is not None:
        return {"kind": "text", "tokens": list(sample.tokens), "headline": headline(sample.tokens)}
    assert sample.values is not None
    named = {} if sample.names is None else {"names": list(sample.names)}
    return {"kind": "values", "values": _rounded(sample.values), **named}


def as_small_view(sample: Sample) -> dict[str, Any]:
    """Return a small view of a sample, for lists."""
    return as_view(smaller(sample))


def smaller(sample: Sample, side: int = _SMALL) -> Sample:
    """Return a small view of a sample: a picture of at most ``side`` pixels, or the beginning of a text."""
    if sample.tokens is not None:
        return Sample(tokens=begun(sample.tokens, _SMALL))
    if sample.image is None or max(sample.image.shape[:2]) <= side:
        return sample
    height, width = sample.image.shape[:2]
    ratio = side / max(height, width)
    size = max(1, round(height * ratio)), max(1, round(width * ratio))
    planes = torch.from_numpy(np.ascontiguousarray(sample.image)).reshape(1, height, width, -1)
    less = interpolate(planes.permute(0, 3, 1, 2), size, mode="area")[0].permute(1, 2, 0).numpy()
    return Sample(image=less.reshape(*size, *sample.image.shape[2:]))


def map_view(sample: Sample, relevance: Array) -> dict[str, Any]:
    """Return the view of a map on its sample.

    On a picture it is one in grey, from −``most`` in black to ``most`` in white, where 128 of 255 is 0. On a
    text or on values it is ``values``, with that on tokens which are not part of the text as ``outside``.
    """
    values = drawn(sample, relevance)
    if values.ndim == 1:
        return {"values": _rounded(values), "outside": unwritten(sample, relevance)}
    most = float(np.abs(values).max(initial=0)) or 1.0
    height, width = values.shape
    grey = ((128 + 127 * values / most) / 255).astype(np.float32)
    return {"width": width, "height": height, "most": most, "src": data_uri(grey)}


def _rounded(values: Array) -> list[float]:
    return [float(f"{value:.5g}") for value in values.ravel().tolist()]
