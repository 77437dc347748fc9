"""What ``whence cache`` does: show and clear what fits have kept."""

from __future__ import annotations

import time
from pathlib import Path

from whence.app.telling import say
from whence.core.cache import Cache
from whence.core.display import counted, in_words
from whence.errors import InvalidInputError


def show(folder: Path) -> None:
    """List the entries of a cache, newest first."""
    entries = Cache(folder).entries()
    for entry in entries:
        state = "" if entry.complete else ", unfinished"
        age = _age(time.time() - entry.made)
        say(f"{entry.name:25}  {in_words(entry.bytes):>8}  {age:>8}  {entry.title}{state}")
    total = in_words(sum(entry.bytes for entry in entries))
    say(f"{counted(len(entries), 'entry', 'entries')}, {total} in {folder}")


def remove(folder: Path, names: list[str], *, everything: bool) -> None:
    """Remove entries by how their names begin, or all of them."""
    if everything == bool(names):
        raise InvalidInputError("Name the entries to remove, or pass --all. whence cache ls lists them.")
    cache = Cache(folder)
    removed = cache.remove([entry.name for entry in cache.entries()] if everything else names)
    cache.sweep()
    size = in_words(sum(entry.bytes for entry in removed))
    say(f"Removed {counted(len(removed), 'entry', 'entries')}, {size}")


def _age(seconds: float) -> str:
    """Write an age by its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
