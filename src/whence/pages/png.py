"""Pictures as PNG, pixel for pixel."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from whence.pages.samples import Picture


def png(picture: Picture) -> bytes:
    """Encode a picture (height, width) or (height, width, 3) in [0, 1], 8 bits per colour."""
    pixels = np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    # Each row begins with the filter of its bytes: none.
    data = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1).tobytes()
    colour = 0 if picture.ndim == 2 else 2
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(data, 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def data_uri(picture: Picture) -> str:
    """Encode a picture as a PNG inside a ``data:`` address."""
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
