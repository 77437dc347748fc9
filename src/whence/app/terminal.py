"""What commands print, and how they end: one line for an error, one exit code, and no thread that hangs.

Names of classes and files are printed so that they cannot control the terminal.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from types import FrameType
from typing import NoReturn

import typer

from whence.core.display import plain, plain_line
from whence.errors import WhenceError

_state = {"debug": False, "interrupted": False}


def say(text: object, err: bool = False) -> None:
    """Print a text, to the standard error stream where ``err`` is set."""
    typer.echo(plain(str(text)), err=err)


def show_progress() -> bool:
    """Return whether long steps show their progress: where a user watches."""
    return sys.stderr.isatty()


def show_tracebacks(wanted: bool) -> None:
    """Let errors show where they come from."""
    _state["debug"] = wanted


class _Interrupted(SystemExit):
    """Ctrl-C, for a command that should end: the solver answers KeyboardInterrupt with its best so far.

    An event loop lets SystemExit through wherever it arises, and holds others back in its callbacks.
    """


def run(app: typer.Typer) -> NoReturn:
    """Run a command line, and end the process.

    A user's mistake is one line and exit code 2, any other error one line and exit code 1, and Ctrl-C exit
    code 130. With --debug an error shows where it comes from. A warning is one line too.
    """
    signal.signal(signal.SIGINT, _interrupt)
    warnings.showwarning = _warn
    try:
        code = app(standalone_mode=False)
    except BaseException as error:
        _leave(_report(error, app))
    sys.exit(code)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the line of code that it comes from, as ``warnings.showwarning``."""
    say(f"Warning: {plain_line(str(message))}", err=True)


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    _state["interrupted"] = True
    raise _Interrupted(130)


def _leave(code: int) -> NoReturn:
    """End the process, whatever threads still compute: Python's own exit aborts inside torch's code."""
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _report(error: BaseException, app: typer.Typer) -> int:
    """Print what ended a command, and return its exit code."""
    if _state["interrupted"]:  # whatever an interrupt became on its way up
        say("Interrupted.", err=True)
        return 130
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    if _state["debug"]:
        traceback.print_exception(error)
        return 1
    if hasattr(error, "show"):  # typer's own message for a command line that it does not understand
        message = io.StringIO()
        error.show(message)
        say(message.getvalue().rstrip(), err=True)
        return 2
    mistake = isinstance(error, WhenceError)
    other = f"{type(error).__name__}: {error} (whence --debug … shows where)"
    text = _with_options(str(error), app) if mistake else other
    say(f"Error: {plain_line(text)}", err=True)
    return 2 if mistake else 1


def _with_options(text: str, app: typer.Typer) -> str:
    """Replace arguments in a message by the options of the command line: on_error="skip", --on-error skip."""
    options = {
        parameter.name: parameter.opts[-1]
        for command in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
        for parameter in command.params
        if parameter.opts[-1].startswith("-")
    }
    text = re.sub(r'\b(\w+)="(\w+)"', lambda m: f"{options[m[1]]} {m[2]}" if m[1] in options else m[0], text)
    text = re.sub(r"^'(\w+)'(?= must)", lambda m: options.get(m[1], m[0]), text)
    return text.replace("cache_dir", "--cache-dir")
