"""Options that several commands have, and what commands do with those of a saved explainer: open and read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whence.app.telling import show_progress
from whence.errors import InvalidInputError

if TYPE_CHECKING:  # they take time to import
    from whence.project import Project
    from whence.tasks import Task

NAMED = "MODULE:NAME"
CACHE = Path("whence-cache")

Tests = Annotated[str, typer.Option(help="Places of test samples, such as 0,4-7.", metavar="LIST")]
Shown = Annotated[int, typer.Option("-k", help="Proponents and opponents to show.", min=1)]
Target = Annotated[str | None, typer.Option(help="Class to explain, by number or name; the model's if none.")]
Explainer = Annotated[Path, typer.Argument(help="The explainer that 'whence fit' wrote.", metavar="FILE")]
Engine = Annotated[
    str | None,
    typer.Option(help="Where work runs: local, processes, processes:4, or module:name.", metavar="NAME"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Saved:
    """A saved explainer, and what the user names in the place of what its configuration does."""

    explainer: Explainer
    model: Annotated[
        str | None, typer.Option(help="The model, instead of the one the file names.", metavar=NAMED)
    ] = None
    data: Annotated[
        str | None, typer.Option(help="The training set, instead of the one the file names.", metavar=NAMED)
    ] = None
    test: Annotated[str | None, typer.Option(help="Other test samples than the fit's.", metavar=NAMED)] = None
    preprocess: Annotated[
        str | None, typer.Option(help="The preprocessing, instead of the one the file names.", metavar=NAMED)
    ] = None
    method: Annotated[
        str | None, typer.Option(help="The method, instead of the one the file names.", metavar=NAMED)
    ] = None
    trust: Annotated[
        bool, typer.Option("--trust", help="Import and run the code that the file beside FILE names.")
    ] = False
    engine: Engine = None

    def open(self) -> Project:
        """Read it with its model, data and tests, which takes time: what can be checked is, before."""
        from whence.project import Project

        names = {
            name: value for name, value in vars(self).items() if name not in ("explainer", "trust", "engine")
        }
        return Project.open(self.explainer, trust=self.trust, show_progress=show_progress(), **names)


def of_saved(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command, whose first parameter is a ``Saved``, have the options that make one."""
    shared = inspect.signature(Saved, eval_str=True).parameters
    explainer, *others = shared.values()
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        from whence.engine import using

        saved = Saved(**{name: given.pop(name) for name in shared})
        with using(saved.engine):
            command(saved, **given)

    signature = inspect.Signature([explainer, *own, *others])
    with_options.__signature__ = signature  # type: ignore[attr-defined]
    return with_options


def places(text: str, project: Project) -> list[int]:
    """Read a list of test samples such as ``0,4-7``, or raise."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            found += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise InvalidInputError(f"'tests' must be a list such as 0,4-7. Got {text!r}.") from None
    if not found:
        raise InvalidInputError(f"'tests' must name at least one test sample. Got {text!r}.")
    return project.check_tests(found)


def as_class(text: str | None, task: Task) -> int | None:
    """Read a class by its number or its name, or raise."""
    if text is None:
        return None
    names = task.names or ()
    if text in names:
        return names.index(text)
    if text.isdigit() and int(text) < task.n_outputs:
        return int(text)
    known = ", ".join(names) or f"0 … {task.n_outputs - 1}"
    raise InvalidInputError(f"'target' must be a class: {known}. Got {text!r}.")
