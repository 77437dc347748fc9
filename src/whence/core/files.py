"""Atomic files, locks that end with their process, and tables as files."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from whence.core.checks import check_path
from whence.core.display import Columns, no_formula
from whence.core.naming import optional_import
from whence.errors import InvalidInputError, MissingFileError, StoreError

_SCRATCH = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Return a file to write to, which then replaces ``path`` atomically and durably.

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
        sweep(target.parent)
        scratch, file = _scratch(target)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if target.exists():
                os.chmod(scratch, target.stat().st_mode & 0o7777)
            if sys.platform != "win32":  # before it is closed, which releases the lock
                os.replace(scratch, target)
        if sys.platform == "win32":  # where an open file cannot be moved
            os.replace(scratch, target)
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be written ({error.strerror or error}). What was there before is unchanged. "
            "Free some space there, or choose another place."
        ) from error
    finally:
        if scratch is not None:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)


def lock(handle: int) -> bool:
    """Lock an open file for this process; return False if another process has the lock.

    Not filelock's, which locks a second file and leaves it there: here the very file that is
    written is locked, so that other processes can see whether its writer is alive.
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
    """Return whether an open file still has its name: another process may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _scratch(target: Path) -> tuple[Path, IO[bytes]]:
    """Open a new, locked file next to its place, so that other processes see that it is in use."""
    while True:
        path = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        file = open(path, "xb")  # noqa: SIM115
        if sys.platform == "win32":  # whose locks keep this process off as well
            return path, file
        with suppress(OSError):  # a disk without locks: leftovers stay there
            lock(file.fileno())
        if is_same(file.fileno(), path):
            return path, file
        file.close()  # removed by another process just before it was locked


def sweep(folder: Path) -> None:
    """Remove leftovers of killed writers of any file in a folder, whose locks nobody has."""
    if sys.platform == "win32":
        return
    for name in os.listdir(folder):
        if not _SCRATCH.fullmatch(name):
            continue
        scrap = folder / name
        with suppress(OSError), open(scrap, "rb") as file:
            if lock(file.fileno()):
                scrap.unlink(missing_ok=True)


# Tables as columns of plain values: CSV, Parquet, DataFrame


def to_csv(columns: Columns, path: str | os.PathLike[str]) -> None:
    """Write a CSV file; lists are separated by spaces.

    A text that begins with =, +, - or @, also after blanks or a byte order mark, or with a tab or a carriage
    return gets a ' before it: spreadsheets would take it for a formula, and run it.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    with replacing(check_path("path", path)) as file:
        file.write(text.getvalue().encode())


def to_parquet(
    columns: Columns, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None
) -> None:
    """Write a Parquet file, with metadata of texts and JSON values; requires pyarrow."""
    pyarrow, parquet = require_parquet()
    table = pyarrow.table({name: list(values) for name, values in columns.items()})
    if about is not None:
        text = {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
        table = table.replace_schema_metadata(text)
    with replacing(check_path("path", path)) as file:
        parquet.write_table(table, file)


def read_parquet(path: str | os.PathLike[str]) -> tuple[Any, dict[str, str]]:
    """Read a Parquet file as a table of pyarrow and its metadata as texts; requires pyarrow."""
    where = existing_path(path)
    pyarrow, parquet = require_parquet()
    try:
        table = parquet.read_table(where)
    except pyarrow.ArrowException as error:
        raise InvalidInputError(f"'{where}' must be a Parquet file. It cannot be read: {error}.") from error
    metadata = table.schema.metadata or {}
    return table, {name.decode(): value.decode() for name, value in metadata.items()}


def existing_path(path: str | os.PathLike[str], name: str = "path") -> Path:
    """Return the path of a file or folder that exists, or raise."""
    where = check_path(name, path)
    if not os.path.exists(where):  # of a name that is too long, Path.exists raises
        raise MissingFileError(f"There is no file or folder at '{where}'.")
    return where


def to_pandas(columns: Columns) -> Any:
    """Return a pandas DataFrame; requires pandas."""
    with optional_import(
        "A DataFrame needs pandas, which is not installed. Run pip install pandas, or use to_csv."
    ):
        import pandas
    return pandas.DataFrame({name: list(values) for name, values in columns.items()})


def require_parquet() -> tuple[Any, Any]:
    """Import pyarrow, or raise if it is not installed."""
    with optional_import(
        "Parquet needs pyarrow, which is not installed. Run pip install pyarrow, or write CSV instead."
    ):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        members = [no_formula(member) if isinstance(member, str) else str(member) for member in value]
        return " ".join(members)
    return no_formula(value) if isinstance(value, str) else value
