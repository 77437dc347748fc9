"""How well colours can be distinguished."""

from __future__ import annotations

from typing import Any

import numpy as np


def luminance(colour: Any) -> float:
    """Relative luminance as WCAG 2 defines it."""
    rgb = np.asarray(colour, dtype=np.float64)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: Any, b: Any) -> float:
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


def rgb(name: str) -> list[float]:
    return [int(name[i : i + 2], 16) / 255 for i in (1, 3, 5)]
