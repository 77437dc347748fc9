"""Whence: which training samples a prediction comes from, and which of their features."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from whence.core.registry import register
from whence.errors import (
    AgreementWarning,
    ChoiceWarning,
    ConvergenceWarning,
    DataWarning,
    InvalidInputError,
    ModelError,
    NotFittedError,
    StoreError,
    UnsupportedError,
    WhenceError,
)

if TYPE_CHECKING:
    from whence.methods import DualDA, Effects, Ensemble, OneClass, load

__version__ = "0.1.0"

__all__ = [
    "AgreementWarning",
    "ChoiceWarning",
    "ConvergenceWarning",
    "DataWarning",
    "DualDA",
    "Effects",
    "Ensemble",
    "InvalidInputError",
    "ModelError",
    "NotFittedError",
    "OneClass",
    "StoreError",
    "UnsupportedError",
    "WhenceError",
    "__version__",
    "load",
    "register",
]


def __dir__() -> list[str]:
    """Name what there is, packages too, which are imported when they are asked for."""
    packages = {module.name for module in iter_modules(__path__)}
    return sorted({*__all__, *packages - {"__main__"}})


def __getattr__(name: str) -> Any:
    """Import what takes time when it is asked for: the command line answers, and can be stopped, before."""
    if name in ("DualDA", "Effects", "Ensemble", "OneClass", "load"):
        return getattr(import_module("whence.methods"), name)
    if not name.startswith("_"):
        try:
            return import_module(f"whence.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"whence.{name}":
                raise
    raise AttributeError(f"module 'whence' has no attribute {name!r}")
