"""Hyper-parameters of methods: dataclass fields with a check that runs before a fit does any work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from typing import Any, Literal, get_args

from whence.core.checks import check_choice, check_seed

Params = Literal["last", "all"]
"""Which parameters gradients are taken of: those of the last layer, or all trainable ones."""

Check = Callable[[str, Any], Any]
"""Takes a parameter's name and value; returns the value in its plain form, or raises."""


def parameter(default: Any, check: Check, *, or_none: bool = False) -> Any:
    """Declare a hyper-parameter with its default and its check; with ``or_none`` None is not checked."""
    return field(default=default, metadata={"check": check, "or_none": or_none})


def a_seed(name: str, value: Any) -> int:
    """Check the seed of random numbers."""
    return check_seed(value, name)


def one_of(words: Any) -> Check:
    """Return the check of a parameter that is one of the words of a ``Literal``."""
    return partial(check_choice, choices=get_args(words))


def check_fields(method: Any) -> None:
    """Check all declared hyper-parameters of a method, in their order, and store their plain form."""
    for hyper in fields(method):
        rule = hyper.metadata
        if "check" in rule:
            value = getattr(method, hyper.name)
            if value is not None or not rule["or_none"]:
                setattr(method, hyper.name, rule["check"](hyper.name, value))
