"""Options that several commands have, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NAMED = "MODULE:NAME"
CACHE = Path("whence-cache")

Tests = Annotated[str, typer.Option(help="Places of test samples, such as 0,4-7.", metavar="LIST")]
Shown = Annotated[int, typer.Option("-k", help="Proponents and opponents to show.", min=1)]
Target = Annotated[str | None, typer.Option(help="Class to explain, by number or name; the model's if none.")]
Explainer = Annotated[Path, typer.Argument(help="The explainer that 'whence fit' wrote.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
