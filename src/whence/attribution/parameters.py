"""Hyper-parameters of methods: fields that say what they may be, checked before a fit does any work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from typing import Any, Literal, Self, get_args

from whence.core.checks import check_choice, check_seed
from whence.errors import InvalidInputError

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
    """Return the check of a parameter that is one of the words of a ``Literal``."""
    return partial(check_choice, choices=get_args(words))


class Parametrised:
    """A method whose hyper-parameters are read and set as scikit-learn does it; its ``clone`` copies them."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        """Name what the constructor takes."""
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Give the hyper-parameters by name; with ``deep`` also those of a method in them, as ``name__own``.

        Examples
        --------
        >>> import whence
        >>> whence.DualDA(C=0.1).get_params()["C"]
        0.1
        >>> whence.Ensemble(whence.DualDA(C=0.1)).get_params()["members__C"]
        0.1
        """
        found = {name: getattr(self, name) for name in self._parameter_names()}
        inner = {name: value for name, value in found.items() if isinstance(value, Parametrised)}
        if deep:
            for name, one in inner.items():
                found |= {f"{name}__{own}": value for own, value in one.get_params().items()}
        return found

    def set_params(self, **parameters: Any) -> Self:
        """Set hyper-parameters by name, of a method in them as ``name__own``; the next ``fit`` uses them.

        Examples
        --------
        >>> import whence
        >>> whence.DualDA().set_params(C=0.1).C
        0.1
        """
        known = self.get_params()
        for name in parameters:
            if name not in known:
                raise InvalidInputError(
                    f"A parameter of {type(self).__name__} must be one of {', '.join(known)}. Got {name!r}."
                )
        for name, value in parameters.items():
            outer, inside, own = name.partition("__")
            if inside:
                getattr(self, outer).set_params(**{own: value})
            else:
                setattr(self, name, value)
        return self

    def _changed_parameters(self) -> dict[str, Any]:
        """Return the hyper-parameters that are not what they are by default."""
        usual = {name: each.default for name, each in inspect.signature(type(self)).parameters.items()}
        return {name: v for name, v in self.get_params(False).items() if not _same(v, usual[name])}


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def check_fields(method: Any) -> None:
    """Check all parameters of a method that have a check, in their order."""
    for each in fields(method):
        value, rule = getattr(method, each.name), each.metadata
        if "check" in rule and not (rule["or_none"] and value is None):
            setattr(method, each.name, rule["check"](each.name, value))
