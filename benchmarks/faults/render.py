"""The table of planted faults in docs/research/explorer.md, from saved results alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "research" / "explorer.md"


def publish(known: dict[str, Any]) -> None:
    """Print the table."""
    print(known)
