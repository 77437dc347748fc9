"""Checks of hyper-parameters that several methods share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from whence.errors import InvalidInputError


def check_positive(name: str, value: Any, why: str = "") -> None:
    """Raise unless a parameter is a finite number above 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise InvalidInputError(f"'{name}' must be a finite number above 0{why}. Got {value!r}.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless a parameter is one of the words it may be."""
    if value not in choices:
        words = ", ".join(f'"{choice}"' for choice in choices)
        raise InvalidInputError(f"'{name}' must be one of {words}. Got {value!r}.")
