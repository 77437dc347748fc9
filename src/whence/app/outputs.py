"""Where commands write to: checked before the work, and where it fails after all, nothing is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from whence.errors import InvalidInputError, StoreError


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
    out
        The file or folder to write.
    write
        Writes to the path that it is given.
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
    """What the system said, where a StoreError came of that."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return getattr(cause, "strerror", None) or str(error)
