"""Hyper-parameters of methods: dataclass fields with a check that runs before a fit does any work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import partial
from typing import Any, Literal, get_args

from whence.core.checks import check_choice, check_seed
from whence.errors import InvalidInputError

Params = Literal["last", "all"]
"""Which parameters gradients are taken of: those of the last layer, or all trainable ones."""

MOST_PAIRS = 10_000
"""The most proponents of one explanation, and the most opponents: each has two maps of the input's size."""

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


def read_params(method: Any, deep: bool) -> dict[str, Any]:
    """Return the hyper-parameters of a method by name, with ``deep`` also those of a method in them."""
    values = {name: getattr(method, name) for name in inspect.signature(type(method)).parameters}
    nested = {name: value for name, value in values.items() if hasattr(value, "get_params")}
    if deep:
        for name, inner in nested.items():
            if not isinstance(inner, type):
                values |= {f"{name}__{key}": value for key, value in inner.get_params().items()}
    return values


def write_params(method: Any, parameters: Mapping[str, Any]) -> None:
    """Set hyper-parameters of a method by name, or raise for a name that it does not have."""
    known = read_params(method, deep=True)
    for name in parameters:
        if name not in known:
            raise InvalidInputError(
                f"A parameter of {type(method).__name__} must be one of {', '.join(known)}. Got {name!r}."
            )
    for name, value in parameters.items():
        outer, inside, key = name.partition("__")
        if inside:
            getattr(method, outer).set_params(**{key: value})
        else:
            setattr(method, name, value)


def changed_params(method: Any) -> dict[str, Any]:
    """Return the hyper-parameters of a method that differ from their defaults."""
    defaults = {name: rule.default for name, rule in inspect.signature(type(method)).parameters.items()}
    values = read_params(method, deep=False)
    return {name: value for name, value in values.items() if not _same(value, defaults[name])}


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
