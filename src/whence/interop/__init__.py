"""Adapters for captum, quanda and cleanlab, banks of retrained networks, scores of other tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whence.core.naming import optional_import

if TYPE_CHECKING:
    from whence.interop.banks import RetrainingBank, read_bank, write_bank
    from whence.interop.captum import CaptumInfluence
    from whence.interop.cleanlab import add_to_datalab
    from whence.interop.foreign_banks import open_bank, read_dattri, read_kronfluence
    from whence.interop.quanda import QuandaExplainer
    from whence.interop.scores import ForeignScores, open_scores

__all__ = [
    "CaptumInfluence",
    "ForeignScores",
    "QuandaExplainer",
    "RetrainingBank",
    "add_to_datalab",
    "open_bank",
    "open_scores",
    "read_bank",
    "read_dattri",
    "read_kronfluence",
    "write_bank",
]

_HOMES = {"CaptumInfluence": "captum", "QuandaExplainer": "quanda", "add_to_datalab": "cleanlab"}
_OWN = {
    "RetrainingBank": "banks",
    "read_bank": "banks",
    "write_bank": "banks",
    "open_bank": "foreign_banks",
    "read_dattri": "foreign_banks",
    "read_kronfluence": "foreign_banks",
    "ForeignScores": "scores",
    "open_scores": "scores",
}


def __getattr__(name: str) -> Any:
    """Import what a name stands for, or say that the library it adapts is missing."""
    if name in _OWN:
        return getattr(import_module(f"whence.interop.{_OWN[name]}"), name)
    if name not in _HOMES:
        raise AttributeError(f"module 'whence.interop' has no attribute {name!r}")
    home = _HOMES[name]
    extra = {"cleanlab": "'cleanlab[datalab]'"}.get(home, home)
    with optional_import(f"{name} needs {home}, which is not installed. Run: pip install {extra}"):
        return getattr(import_module(f"whence.interop.{home}"), name)
