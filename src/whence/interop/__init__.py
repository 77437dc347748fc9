"""Adapters for captum, quanda and cleanlab, each imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whence.core.naming import optional_import

if TYPE_CHECKING:
    from whence.interop.captum import CaptumInfluence
    from whence.interop.cleanlab import add_to_datalab
    from whence.interop.quanda import QuandaExplainer

__all__ = ["CaptumInfluence", "QuandaExplainer", "add_to_datalab"]

_HOMES = {"CaptumInfluence": "captum", "QuandaExplainer": "quanda", "add_to_datalab": "cleanlab"}


def __getattr__(name: str) -> Any:
    """Import the adapter of another library, or say that the library is missing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'whence.interop' has no attribute {name!r}")
    home = _HOMES[name]
    extra = {"cleanlab": "'cleanlab[datalab]'"}.get(home, home)
    with optional_import(f"{name} needs {home}, which is not installed. Run: pip install {extra}"):
        return getattr(import_module(f"whence.interop.{home}"), name)
