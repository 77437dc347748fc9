"""The cache of costly results: each entry is stored under the fingerprint of all that it depends on.

An entry is a folder, ``kind-digest``, with its files and ``about.json``, which says what they are for and
whether they are all there. The fingerprint holds the code that makes the entry too, so that other code never
finds it::

    slot = Cache("whence-cache").slot("model", {"code training": source("mine.training"), "seed": "0"})
    with slot.locked():
        if not slot.complete:
            with slot.filling("LeNet, seed 0") as folder:
                store.write(folder / "weights.safetensors", trained(), {})
        weights, _ = store.read(slot.path / "weights.safetensors")
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from whence.core import store
from whence.core.checks import check_path, shown
from whence.core.files import sweep
from whence.errors import InvalidInputError, StoreError

__all__ = ["Cache", "Entry"]

FORMAT = 2
Parts = Mapping[str, str]
Say = Callable[[str], None]

_NAME = re.compile(r"(?P<kind>.+)-[0-9a-f]{16}")


@dataclass(frozen=True)
class Entry:
    """One entry of the cache, as of its listing."""

    kind: str  # such as "bank" (features of a training set) or "solution" (of the solver on a bank)
    name: str  # name of its folder
    title: str  # description for users
    parts: Parts  # its fingerprint
    made: float  # when it was started, in seconds since 1970
    bytes: int  # on disk
    complete: bool = False
    progress: Mapping[str, Any] = field(default_factory=dict)  # how far it is filled


class Cache:
    """All entries, in one folder, which is made when the first entry is stored."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = check_path("cache_dir", folder)
        if os.path.exists(self.folder) and not self.folder.is_dir():
            raise InvalidInputError(
                f"'cache_dir' must be a folder or a new path. Got the file '{self.folder}'. Name another."
            )

    def make(self) -> Path:
        """Make the folder if it is missing, and return it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"'cache_dir' must be a folder that can be made. Got '{self.folder}' ({error.strerror})."
            ) from error
        return self.folder

    def slot(self, kind: str, parts: Parts) -> Slot:
        """Return the slot of a fingerprint, whether or not there is an entry."""
        text = json.dumps([FORMAT, kind, sorted(parts.items())])
        path = self.folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return Slot(self, kind, dict(parts), path)

    def entries(self) -> list[Entry]:
        """List the entries, newest first. Other folders are left out."""
        entries = [read_entry(path) for path in self.folder.iterdir()] if os.path.isdir(self.folder) else []
        return sorted((entry for entry in entries if entry is not None), key=lambda entry: -entry.made)

    def remove(self, names: list[str]) -> list[Entry]:
        """Remove entries by name or by the beginning of a name; remove none if a name is wrong."""
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InvalidInputError(f"'names' must be a list of names of entries. Got {shown(names)}.")
        there = {entry.name: entry for entry in self.entries()}
        chosen: dict[str, Entry] = {}
        for name in names:
            fits = [full for full in there if full == name or full.startswith(name)]
            if len(fits) != 1:
                got = f"{len(fits)} fit" if fits else "no match"
                raise InvalidInputError(
                    f"'names' must each name one entry of {self.folder}. Got {name!r}: {got}. "
                    "whence cache ls lists them."
                )
            chosen[fits[0]] = there[fits[0]]
        for entry in chosen.values():
            slot = Slot(self, entry.kind, entry.parts, self.folder / entry.name)
            with slot.locked(wait=False):
                slot.drop()
        return list(chosen.values())

    def sweep(self) -> None:
        """Remove what killed processes left behind while removing or writing."""
        if not os.path.isdir(self.folder):
            return
        for scrap in self.folder.glob(".*.tmp"):
            shutil.rmtree(scrap, ignore_errors=True)
        for folder in (self.folder, *(path for path in self.folder.iterdir() if path.is_dir())):
            with suppress(OSError):  # removed meanwhile
                sweep(folder)


@dataclass(frozen=True)
class Slot:
    """The place of one entry, whether or not it exists.

    Only ``locked``, ``entry``, ``complete`` and ``why_new`` may be called without the entry's lock.
    """

    cache: Cache
    kind: str
    parts: Parts  # its fingerprint
    path: Path  # its folder

    @property
    def entry(self) -> Entry | None:
        """The entry with this fingerprint, complete or not; None without one."""
        entry = read_entry(self.path)
        return entry if entry is not None and entry.parts == self.parts else None

    @property
    def complete(self) -> bool:
        """Whether there is a complete entry with this fingerprint."""
        entry = self.entry
        return entry is not None and entry.complete

    def begin(self, title: str) -> None:
        """Make an empty entry with its description."""
        self.drop()
        self.path.mkdir()
        self._write({"format": FORMAT, "title": title, "made": time.time(), "parts": self.parts})

    def note(self, **state: Any) -> None:
        """Record ``progress``, or that the entry is ``complete``, after its files are safely on disk."""
        about = json.loads((self.path / "about.json").read_text(encoding="utf-8"))
        self._write({**about, **state})

    def drop(self) -> None:
        """Remove the entry atomically, even if the process ends in the middle."""
        if self.path.exists():
            # Rename first: processes that have mapped the files keep them, and nobody sees a partial entry.
            grave = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
            self.path.rename(grave)
            shutil.rmtree(grave, ignore_errors=True)  # another process may be sweeping

    @contextmanager
    def filling(self, title: str) -> Iterator[Path]:
        """Yield the folder of a new entry, which is complete at the end, and removed after an error."""
        try:
            self.begin(title)
            yield self.path
            self.note(complete=True)
        except BaseException:
            with suppress(OSError):
                self.drop()
            raise

    @contextmanager
    def locked(self, wait: bool = True, say: Say | None = None) -> Iterator[None]:
        """Lock the entry against other processes; the system releases the lock when a process dies.

        Wait for another process to finish, after a call of ``say``, or raise StoreError.
        """
        folder = self.cache.make()
        lock = FileLock(folder / f".{self.path.name}.lock", poll_interval=0.1, fallback_to_soft=False)
        try:
            try:
                lock.acquire(blocking=False)
            except Timeout:
                if not wait:
                    raise StoreError(
                        f"{self.path.name} is in use by another process. Try again when it is done."
                    ) from None
                if say is not None:
                    say(f"Another process is filling {self.path}; waiting for it.")
                lock.acquire()
        except OSError as error:
            raise StoreError(
                "'cache_dir' must be a folder whose files can be written to and locked. "
                f"Got '{folder}' ({error.strerror}). Name another, on a local disk, or none."
            ) from error
        try:
            yield
        finally:
            # Removed before the release: a waiting process then sees that the file is gone and makes its own.
            with suppress(OSError):  # on Windows, where an open file cannot be removed
                os.unlink(lock.lock_file)
            lock.release()

    def why_new(self) -> str:
        """Return what differs from the nearest entry of the same kind; empty without one."""
        others = [
            entry
            for entry in self.cache.entries()
            if entry.kind == self.kind and entry.parts not in ({}, self.parts)
        ]
        if not others:
            return ""
        nearest = min(others, key=lambda entry: len(set(entry.parts.items()) ^ set(self.parts.items())))
        return f"{'; '.join(store.differences(nearest.parts, self.parts))} (compared with {nearest.name})"

    def _write(self, about: Mapping[str, Any]) -> None:
        store.write_text(self.path / "about.json", json.dumps(about))


def read_entry(path: Path) -> Entry | None:
    """Read the description of a cache folder; None if it is not an entry."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        return None
    try:
        size, made = sum(file.stat().st_size for file in path.iterdir()), path.stat().st_mtime
    except OSError:  # no folder, or removed meanwhile
        return None
    kind = named["kind"]
    try:
        about = json.loads((path / "about.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError
        title, made, parts = str(about["title"]), float(about["made"]), dict(about["parts"])
        state = about.get("complete") is True, dict(about.get("progress", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Entry(kind, path.name, "damaged, or of another version", {}, made, size)
    return Entry(kind, path.name, title, parts, made, size, *state)
