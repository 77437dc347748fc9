"""A folder of banks and solutions, each under the fingerprint of everything it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from whence.core import files, store
from whence.core.checks import check_path, shown
from whence.errors import InvalidInputError, StoreError
from whence.features import bank

FORMAT = 2
SOLUTION = "solution.safetensors"
Kind = Literal["bank", "solution"]
Parts = Mapping[str, str]

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Entry:
    """One thing in the cache.

    Attributes
    ----------
    kind : "bank" (features of a training set) or "solution" (of the solver on a bank)
    name : its folder's name
    title : what it is for, in words
    parts : the fingerprint it is kept under
    made : when it was begun, in seconds since 1970
    bytes : its size on disk
    complete : False while, or when, it is being filled
    """

    kind: Kind
    name: str
    title: str
    parts: Parts
    made: float
    bytes: int
    complete: bool


class Cache:
    """Banks and solutions in one folder.

    Parameters
    ----------
    folder
        Made when something is first put there.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = check_path("cache_dir", folder)
        if os.path.exists(self.folder) and not self.folder.is_dir():
            raise InvalidInputError(
                f"'cache_dir' must be a folder or a new path. Got the file '{self.folder}'. Name another."
            )

    def path(self, kind: Kind, parts: Parts) -> Path:
        """Tell where an entry with this fingerprint lies, whether or not it exists."""
        text = json.dumps([FORMAT, kind, sorted(parts.items())])
        return self.folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def holds(self, path: Path, parts: Parts) -> bool:
        """Whether there is an entry that says it is for this fingerprint."""
        entry = self._entry(path) if path.is_dir() else None
        return entry is not None and entry.parts == parts

    def begin(self, path: Path, kind: Kind, parts: Parts, title: str) -> None:
        """Make an empty entry that says what it is for; call it under the entry's lock."""
        self.drop(path)
        path.mkdir()
        about = {"format": FORMAT, "kind": kind, "title": title, "made": time.time(), "parts": dict(parts)}
        store.write_text(path / "about.json", json.dumps(about))

    def drop(self, path: Path) -> None:
        """Remove an entry at once, even if the process ends in the middle; call it under its lock."""
        if path.exists():
            # A new name first: whoever has mapped the files keeps them, and no half entry is ever seen.
            grave = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
            path.rename(grave)
            shutil.rmtree(grave, ignore_errors=True)  # another process may be sweeping

    def entries(self) -> list[Entry]:
        """List what is there, newest first. Folders that are no entries are left out."""
        found = [self._entry(path) for path in self.folder.iterdir()] if os.path.isdir(self.folder) else []
        return sorted((entry for entry in found if entry is not None), key=lambda entry: -entry.made)

    def why_new(self, kind: Kind, parts: Parts) -> str:
        """Say what differs between this fingerprint and the nearest entry's; empty in an empty cache."""
        others = [entry for entry in self.entries() if entry.kind == kind and entry.parts not in ({}, parts)]
        if not others:
            return ""
        nearest = min(others, key=lambda entry: len(set(entry.parts.items()) ^ set(parts.items())))
        return f"{'; '.join(store.differences(nearest.parts, parts))} (beside {nearest.name})"

    @contextmanager
    def locked(
        self, path: Path, wait: bool = True, say: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Keep other processes off an entry; the system lifts the lock when a process dies.

        Parameters
        ----------
        path
            The entry's folder, which need not exist.
        wait
            Wait for another process to finish, or raise StoreError.
        say
            Told once that there is something to wait for.
        """
        self._make()
        file = self.folder / f".{path.name}.lock"
        while True:
            try:
                handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)  # of which the umask takes its part
            except OSError as error:
                raise StoreError(
                    f"'cache_dir' must be a folder that can be written to. Got '{self.folder}' "
                    f"({error.strerror}). Name another, or none."
                ) from error
            try:
                mine = files.lock(handle)
            except OSError as error:
                os.close(handle)
                raise StoreError(
                    f"Files in '{self.folder}' cannot be locked ({error.strerror}). "
                    "Name a cache_dir on a local disk."
                ) from error
            if mine and files.is_same(handle, file):
                break
            os.close(handle)
            if mine:
                continue
            if not wait:
                raise StoreError(f"{path.name} is in use by another process. Try again when it is done.")
            if say is not None:
                say(f"Another process is filling {path}; waiting for it.")
                say = None
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            if sys.platform != "win32":  # where an open file cannot be removed
                file.unlink(missing_ok=True)
            os.close(handle)

    def remove(self, names: list[str]) -> list[Entry]:
        """Remove entries by name or by the beginning of a name; all or, on a mistake, none."""
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InvalidInputError(f"'names' must be a list of names of entries. Got {shown(names)}.")
        there = {entry.name: entry for entry in self.entries()}
        chosen: dict[str, Entry] = {}
        for name in names:
            fits = [full for full in there if full == name or full.startswith(name)]
            if len(fits) != 1:
                got = f"{len(fits)} fit" if fits else "none fits"
                raise InvalidInputError(
                    f"'names' must each name one entry of {self.folder}. Got {name!r}: {got}. "
                    "whence cache ls lists them."
                )
            chosen[fits[0]] = there[fits[0]]
        for name in chosen:
            with self.locked(self.folder / name, wait=False):
                self.drop(self.folder / name)
        return list(chosen.values())

    def sweep(self) -> None:
        """Remove what processes that were killed while removing or writing left behind."""
        for scrap in self.folder.glob(".*.tmp") if os.path.isdir(self.folder) else ():
            shutil.rmtree(scrap, ignore_errors=True)

    def _make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"'cache_dir' must be a folder that can be made. Got '{self.folder}' ({error.strerror})."
            ) from error

    def _entry(self, path: Path) -> Entry | None:
        kind = next((kind for kind in get_args(Kind) if path.name.startswith(f"{kind}-")), None)
        if kind is None:
            return None
        try:
            size, made = sum(file.stat().st_size for file in path.iterdir()), path.stat().st_mtime
        except OSError:  # no folder, or removed just now
            return None
        try:
            about = json.loads((path / "about.json").read_text(encoding="utf-8"))
            if about["format"] != FORMAT:
                raise ValueError
            title, made, parts = str(about["title"]), float(about["made"]), dict(about["parts"])
        except (OSError, ValueError, KeyError, TypeError):
            return Entry(
                kind, path.name, "damaged, or of another version", {}, path.stat().st_mtime, size, False
            )
        journal = bank.read_journal(path) if kind == "bank" else None
        complete = journal.complete if journal else (path / SOLUTION).is_file()
        return Entry(kind, path.name, title, parts, made, size, complete)
