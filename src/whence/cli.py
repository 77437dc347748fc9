"""The command line: one thin function a command."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from whence import __version__
from whence.errors import WhenceError

app = typer.Typer(
    name="whence",
    help="Which training samples a prediction of a neural network comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whence {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figures and the page.", metavar="DIR")] = Path(
        "whence-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the training and of the explainer.", min=0)] = 0,
) -> None:
    """Train a small network on the embedded clothes photos and explain three of its predictions."""
    from whence.demo import run  # only this command needs it

    page = run(out, seed=seed, show_progress=sys.stderr.isatty(), say=typer.echo)
    typer.echo(page.resolve())


class _Interrupted(BaseException):
    """Ctrl-C, for a command that should end: the solver answers KeyboardInterrupt with its best so far."""


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    raise _Interrupted


def main() -> None:
    """Run the command line. A user's mistake is one line and exit code 2, Ctrl-C is exit code 130."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
    except WhenceError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except _Interrupted:
        typer.echo("Interrupted.", err=True)
        sys.exit(130)
