"""Inputs of a visitor's own: pictures and texts, made into what the model takes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch

from whence.core.naming import optional_import
from whence.errors import InvalidInputError
from whence.ui.explorer import Explorer

MOST_PIXELS = 16_000_000
"""The largest picture that is decoded."""
MOST_LETTERS = 20_000
"""The longest text that is read, the same as the page's own limit: tokenisers read all of a text first."""


def own_input(explorer: Explorer, kind: str, body: bytes) -> Any:
    """Make a batch of one of an upload with its content type."""
    if kind.startswith("text/plain"):
        return text_input(explorer, body)
    if kind.startswith("image/"):
        return image_input(explorer, decoded(body))
    raise InvalidInputError(f"An upload must be a picture or plain text. Got {kind or 'no content type'}.")


def text_input(explorer: Explorer, body: bytes) -> Any:
    """Make a batch of one of a text in UTF-8."""
    try:
        text = body.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InvalidInputError("A text must be UTF-8.") from None
    if not text:
        raise InvalidInputError("A text must not be empty.")
    if len(text) > MOST_LETTERS:
        raise InvalidInputError(f"A text may have {MOST_LETTERS:,} characters. Got {len(text):,}; cut it.")
    if explorer.project.attributor.fitted_.require_model().prepare.preprocess is None:
        raise InvalidInputError(
            "A text needs the tokeniser that the explainer was fitted with. Fit with --preprocess."
        )
    return [text]


def image_input(explorer: Explorer, pixels: Any) -> Any:
    """Make a batch of one of a picture (height, width, 3) of bytes, in the training samples' shape."""
    from PIL import Image

    explainer = explorer.project.attributor
    if explainer.fitted_.require_model().prepare.preprocess is not None:
        return [Image.fromarray(pixels)]
    rows = np.linspace(0, explainer.n_train_ - 1, 16).astype(int).tolist()
    like = np.asarray(explainer.fitted_.require_data().take(rows), dtype=np.float32)
    if like.ndim != 4 or like.shape[1] not in (1, 3):
        raise InvalidInputError("A picture needs a model of pictures. This one's inputs have another shape.")
    if like.min() < 0 or (1 < like.max() < 32) or like.max() > 255:
        raise InvalidInputError(
            "The training samples are scaled in a way that is not known here. Fit with --preprocess, "
            "which then scales a picture too."
        )
    _, channels, height, width = like.shape
    picture = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(picture.convert("L" if channels == 1 else "RGB"), dtype=np.float32)
    planes = values[None] if channels == 1 else np.moveaxis(values, -1, 0)
    return torch.from_numpy((planes if like.max() > 1 else planes / 255)[None].copy())


def decoded(body: bytes) -> Any:
    """Decode a picture to bytes (height, width, 3), or raise."""
    with optional_import("Pictures need Pillow. Install whence[images]."):
        from PIL import Image, ImageOps
    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG", "WEBP", "BMP", "GIF")) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                size = f"{opened.width}×{opened.height}"
                most = MOST_PIXELS // 1_000_000
                raise InvalidInputError(f"A picture may have {most} megapixels. Got {size}.")
            return np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(f"The picture cannot be read: {error}.") from None
