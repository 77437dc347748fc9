"""Files that are written whole or not at all, locks that end with their process, and tables as files."""

from __future__ import annotations

import csv
import io
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from whence.core.checks import check_path
from whence.core.display import Columns, no_formula
from whence.core.naming import optional_import
from whence.errors import StoreError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Return a file to write to, which then takes the place of ``path`` at once and on the disk itself.

    Where ``path`` is a link, what it points to is replaced. A new file has the mode that the umask gives, one
    that is replaced keeps its own. Whatever goes wrong, what was there before is still there. A device or a
    pipe, which has nothing to keep, is written to directly. Raises StoreError where the system cannot write.
    """
    target = Path(os.path.realpath(path))
    scratch: Path | None = None
    try:
        if target.exists() and not target.is_file():
            with open(target, "wb") as device:
                yield device
            return
        _sweep(target)
        scratch, file = _scratch(target)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if target.exists():
                os.chmod(scratch, target.stat().st_mode & 0o7777)
            if sys.platform != "win32":  # before it is closed, which lifts the lock
                os.replace(scratch, target)
        if sys.platform == "win32":  # where an open file cannot be moved
            os.replace(scratch, target)
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be written ({error.strerror or error}). What was there before is unchanged. "
            "Free some space there, or name another place."
        ) from error
    finally:
        if scratch is not None:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)


def lock(handle: int) -> bool:
    """Lock an open file for this process alone; False when another one has it.

    Not filelock's, which locks a second file and leaves it there: here the very file that is
    written is locked, so that whoever finds it knows whether its writer lives.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_same(handle: int, path: Path) -> bool:
    """Whether an open file still has that name: another process may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _scratch(target: Path) -> tuple[Path, IO[bytes]]:
    """Open a new file next to its place, locked, so that others can tell that it is in use."""
    while True:
        path = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        file = open(path, "xb")  # noqa: SIM115
        if sys.platform == "win32":  # whose locks keep this process off as well
            return path, file
        with suppress(OSError):  # a disk without locks: what is left there is left
            lock(file.fileno())
        if is_same(file.fileno(), path):
            return path, file
        file.close()  # swept just before it was locked


def _sweep(target: Path) -> None:
    """Remove what processes that were killed while they wrote this file left: nobody holds its lock."""
    if sys.platform == "win32":
        return
    start = f".{target.name}."
    for name in os.listdir(target.parent):
        if not (name.startswith(start) and name.endswith(".tmp")):
            continue
        scrap = target.with_name(name)
        with suppress(OSError), open(scrap, "rb") as file:
            if lock(file.fileno()):
                scrap.unlink(missing_ok=True)


# Tables as columns of plain values: CSV that any program reads, Parquet, a DataFrame


def to_csv(columns: Columns, path: str | os.PathLike[str]) -> None:
    """Write a CSV file; several values stand in one cell, with spaces between.

    A text that begins with =, +, -, @, a tab or a carriage return gets a ' before it: spreadsheets would take
    it for a formula, and run it.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    with replacing(check_path("path", path)) as file:
        file.write(text.getvalue().encode())


def to_parquet(columns: Columns, path: str | os.PathLike[str]) -> None:
    """Write a Parquet file, lists as lists; needs pyarrow."""
    pyarrow, parquet = require_parquet()
    table = pyarrow.table({name: list(values) for name, values in columns.items()})
    with replacing(check_path("path", path)) as file:
        parquet.write_table(table, file)


def to_pandas(columns: Columns) -> Any:
    """Return a DataFrame; needs pandas."""
    with optional_import(
        "A DataFrame needs pandas, which is not installed. Run pip install pandas, or use to_csv."
    ):
        import pandas
    return pandas.DataFrame({name: list(values) for name, values in columns.items()})


def require_parquet() -> tuple[Any, Any]:
    """Return what writes Parquet, or raise where it is not installed."""
    with optional_import(
        "Writing Parquet needs pyarrow, which is not installed. Run pip install pyarrow, or use to_csv."
    ):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        members = [no_formula(member) if isinstance(member, str) else str(member) for member in value]
        return " ".join(members)
    return no_formula(value) if isinstance(value, str) else value
