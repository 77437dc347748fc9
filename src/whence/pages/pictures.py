"""Pictures inside of pages: small ones pixel for pixel as PNG, large ones as WebP, which are for the eye."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import numpy as np
from PIL import Image  # comes with matplotlib

from whence.pages.samples import Picture

FINE = 128
"""Pixels per side up to which each pixel can be seen, and is kept as it is."""
_QUALITY = 80  # of WebP: some 10 kB for a photo of 224 pixels per side


def encoded(picture: Picture) -> tuple[bytes, str]:
    """Encode a picture (height, width) or (height, width, 3) in [0, 1]; give its bytes and their format."""
    pixels = np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    kind, options = (
        ("webp", {"quality": _QUALITY, "method": 6}) if max(pixels.shape[:2]) > FINE else ("png", {})
    )
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue(), kind


def data_uri(picture: Picture) -> str:
    """Encode a picture as a ``data:`` address."""
    found, kind = encoded(picture)
    return f"data:image/{kind};base64,{base64.b64encode(found).decode('ascii')}"


class Pictures:
    """The pictures of a page that may be shown more than once: each stands in it once, under a name."""

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
