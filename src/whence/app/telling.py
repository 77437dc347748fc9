"""What commands print. Names of classes and files are printed so that they cannot control the terminal."""

from __future__ import annotations

import sys

import typer

from whence.core.display import plain, plain_line


def say(text: object, err: bool = False) -> None:
    """Print a text, to the standard error stream where ``err`` is set."""
    typer.echo(plain(str(text)), err=err)


def show_progress() -> bool:
    """Whether someone watches, so that long steps show their progress."""
    return sys.stderr.isatty()


def warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the line of code that it arose from, in place of ``warnings.showwarning``."""
    say(f"Warning: {plain_line(str(message))}", err=True)
