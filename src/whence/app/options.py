"""Options that several commands have, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NAMED = "MODULE:NAME"
CACHE = Path("whence-cache")

Explainer = Annotated[Path, typer.Argument(help="The explainer that 'whence fit' wrote.", metavar="FILE")]
Tests = Annotated[str, typer.Option(help="Places of test samples, such as 0,4-7.", metavar="LIST")]
Shown = Annotated[int, typer.Option("-k", help="Proponents and opponents to show.", min=1)]
Target = Annotated[str | None, typer.Option(help="Class to explain, by number or name; the model's if none.")]
Model = Annotated[
    str | None, typer.Option(help="The model, instead of the one the file names.", metavar=NAMED)
]
Data = Annotated[
    str | None, typer.Option(help="The training set, instead of the one the file names.", metavar=NAMED)
]
Test = Annotated[str | None, typer.Option(help="Other test samples than the fit's.", metavar=NAMED)]
Preprocess = Annotated[
    str | None, typer.Option(help="The preprocessing, instead of the one the file names.", metavar=NAMED)
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Import and run the code that the file beside FILE names.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
