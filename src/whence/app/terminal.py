"""What commands print, where they write, and how they end: one line per error, one exit code, no thread left.

Names of classes and files are printed so that they cannot control the terminal.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from whence.core.display import plain, plain_line
from whence.errors import InvalidInputError, StoreError, WhenceError

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


# Files and folders, checked before the work: where writing fails after all, nothing is lost


def check_file(out: Path, endings: Sequence[str] = ()) -> None:
    """Raise unless a file can be written at a place, before any work is done for it."""
    if out.is_dir() or not out.resolve().parent.is_dir():
        what = "a folder" if out.is_dir() else f"in a folder that does not exist, '{out.parent}'"
        raise InvalidInputError(f"'out' must be a file in a folder that exists. Got '{out}', {what}.")
    if endings and out.suffix not in endings:
        raise InvalidInputError(f"'out' must end in {', '.join(endings)} here. Got '{out}'.")
    _check_writable(out.resolve().parent, out)


def check_folder(out: Path) -> None:
    """Make a folder, or raise where files cannot be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"'out' must be a folder or a new path. Got '{out}' ({error.strerror}). Name another folder."
        ) from error
    _check_writable(out, out)


def _check_writable(folder: Path, out: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInputError(
            f"'out' must be where files can be written. Got '{out}' ({error.strerror}). Name another place."
        ) from error


def write_out(out: Path, write: Callable[[Path], object]) -> None:
    """Write what was computed; where that fails, write it among the temporary files and say where.

    Parameters
    ----------
    out : the file or folder to write
    write : writes to the path that it is given
    """
    try:
        write(out)
    except (OSError, StoreError) as error:
        if isinstance(error, StoreError) and not isinstance(error.__cause__, OSError):
            raise  # what cannot be saved here cannot be saved elsewhere
        kept = Path(tempfile.mkdtemp(prefix="whence-")) / out.name
        try:
            write(kept)
        except (OSError, StoreError) as again:
            raise StoreError(
                f"'{out}' could not be written ({_reason(error)}), and '{kept}' neither ({_reason(again)}). "
                "Free some space and run again."
            ) from error
        raise StoreError(
            f"'{out}' could not be written ({_reason(error)}). What was computed is kept as '{kept}'."
        ) from error


def _reason(error: OSError | StoreError) -> str:
    """Return what the system said, where a StoreError came of that."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return getattr(cause, "strerror", None) or str(error)
