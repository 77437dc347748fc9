"""Hyper-parameters of methods: fields that say what they may be, checked before a fit does any work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from typing import Any, Literal, get_args

from whence.core.checks import check_choice, check_seed

Params = Literal["last", "all"]
"""Of which parameters of a model gradients are taken: of the last layer, or of all that are trainable."""

Check = Callable[[str, Any], Any]
"""Of a parameter's name and value: gives the value in its plain form, or raises."""


def parameter(default: Any, check: Check, *, or_none: bool = False) -> Any:
    """Make a field of a method with a check; with ``or_none`` a value of None goes without."""
    return field(default=default, metadata={"check": check, "or_none": or_none})


def a_seed(name: str, value: Any) -> int:
    """Check what random numbers are seeded with."""
    return check_seed(value, name)


def one_of(words: Any) -> Check:
    """Give the check of a parameter that is one of the words of a ``Literal``."""
    return partial(check_choice, choices=get_args(words))


def check_fields(method: Any) -> None:
    """Check all parameters of a method that have a check, in their order."""
    for each in fields(method):
        value, rule = getattr(method, each.name), each.metadata
        if "check" in rule and not (rule["or_none"] and value is None):
            setattr(method, each.name, rule["check"](each.name, value))
