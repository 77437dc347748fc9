"""Tables of results in the explorer's page of the docs, between comments that name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "research" / "explorer.md"


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def filled(page: str, name: str, table: str) -> str:
    """Return a page with a table at its place."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{table}\n\n{end}", page, flags=re.DOTALL)


def publish(name: str, table: str) -> None:
    """Print a table, and write it where the docs have it."""
    print(f"\n{table}", flush=True)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), name, table), encoding="utf-8")
