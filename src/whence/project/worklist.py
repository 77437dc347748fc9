"""The change list of a training set: what was marked, by whom and why; and named sets of samples.

One JSON file next to the explainer. Entries are never rewritten: the last one that names a sample counts.
"""

from __future__ import annotations

import dataclasses
import getpass
import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np

from whence.core import store
from whence.core.arrays import Ints
from whence.core.checks import (
    check_choice,
    check_count,
    check_is,
    check_path,
    check_places,
    check_text,
    shown,
)
from whence.core.fingerprint import Digest
from whence.core.ranges import format_ranges, parse_ranges
from whence.errors import InvalidInputError, StoreError, UnsupportedError
from whence.methods import Attributor
from whence.project.work_records import (
    ACTIONS,
    FORMAT,
    MOST_ENTRIES,
    MOST_NAME,
    MOST_SLICES,
    MOST_WHY,
    Action,
    Contents,
    Decision,
    Marks,
    Of,
    Slice,
    check_name,
    read_contents,
    replay,
)

WORK = ".work.json"
"""What the name of a change list has in addition to that of the explainer."""

_UNDONE = 100  # steps that can be taken back


class Worklist:
    """The change list and the slices of an explainer, saved after every change.

    A list is bound to the training set by its size and a digest of its labels.

    Parameters
    ----------
    explainer : a fitted attributor
    path : the file; None keeps the list in memory
    n_tests : number of tests, of which there can be slices

    Examples
    --------
    >>> import torch, whence
    >>> from whence.project import Worklist
    >>> bank = whence.features.FeatureBank.of(torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> explainer = whence.DualDA(show_progress=False).fit(features=bank)
    >>> work = Worklist(explainer)
    >>> _ = work.add("remove", [0, 4], why="blurred")
    >>> _ = work.add("relabel", [3], label=0)
    >>> work.marks().remove, work.marks().relabel
    ([0, 4], {3: 0})
    """

    def __init__(self, explainer: Attributor, path: Path | None = None, n_tests: int = 0) -> None:
        check_is("explainer", explainer, Attributor, "a fitted attribution method")
        fitted = explainer.fitted_
        if fitted.task.of_documents:
            raise UnsupportedError(
                "A change list names samples. The samples of a generative language model are tokens; use "
                "'whence update --remove' with documents instead."
            )
        self.path = None if path is None else check_path("path", path)
        self.who = _user()
        self._labels, self._used = fitted.labels, fitted.used
        self._n_classes = len(fitted.task.output_names) if fitted.task.has_classes else 0
        n_tests = check_count("n_tests", n_tests, 0)
        self._totals: dict[str, int] = {"training": len(fitted.labels), "tests": n_tests}
        self._lock = threading.RLock()
        digest = Digest().of(np.ascontiguousarray(fitted.labels))
        self._bound = self._file = Contents(FORMAT, len(fitted.labels), digest)
        self._seen: tuple[int, ...] | None = None
        self._before: list[tuple[Decision, ...]] = []
        self._marks: Marks | None = None
        self._read()

    # The change list

    @property
    def entries(self) -> tuple[Decision, ...]:
        """The decisions, oldest first."""
        with self._lock:
            self._read()
            return self._file.entries

    def marks(self) -> Marks:
        """Return what the entries come to, sample by sample."""
        with self._lock:
            self._read()
            if self._marks is None:
                self._marks = replay(self._file.entries, self._labels)
            return self._marks

    def add(
        self,
        action: Action,
        samples: Sequence[int] | Ints | str,
        *,
        label: int | Sequence[int] | Ints | None = None,
        why: str = "",
        who: str | None = None,
    ) -> Decision:
        """Add a decision about some training samples, and return its entry.

        Parameters
        ----------
        action : "keep" (the label was checked), "flag" (to be looked at again), "remove", "relabel", or
            "clear" for samples of which nothing is said any more
        samples : indices, or text such as "3,17,40-60"
        label : for "relabel" the new class, or one per sample. A sample that has it already is kept
        why : the reason
        who : the author; None is the user of this computer
        """
        check_choice("action", action, ACTIONS)
        places = self._places("samples", samples, "training")
        if (action == "relabel") == (label is None):
            raise InvalidInputError(
                f"'label' must be given to relabel, and only then. Got {shown(label)} to {action}."
            )
        spans = {"": format_ranges(np.unique(places))} if label is None else self._spans(places, label)
        unused = places[~self._used[places]]
        if len(unused):
            raise InvalidInputError(
                f"'samples' must name training samples that took part in the fit. Got {unused[0]}."
            )
        why, who = check_text("why", why, MOST_WHY), self._author(who)
        with self._lock:
            self._read()
            entry = Decision(self._file.next_id, action, spans, why, who, _now())
            self._write(self._changed([*self._file.entries, entry], next_id=entry.id + 1), self._file.entries)
            return entry

    def undo(self) -> None:
        """Take back the last change of the list, also ``remove`` and ``clear``.

        What was changed before the list was opened is taken back entry by entry.
        """
        with self._lock:
            self._read()
            if not self._before and not self._file.entries:
                raise InvalidInputError("There is nothing to undo: the change list is empty.")
            entries = self._before[-1] if self._before else self._file.entries[:-1]
            self._write(self._changed(entries))
            del self._before[-1:]

    def remove(self, id: int) -> None:
        """Remove an entry by its id."""
        with self._lock:
            self._read()
            id = check_count("id", id)
            entries = [entry for entry in self._file.entries if entry.id != id]
            if len(entries) == len(self._file.entries):
                raise InvalidInputError(f"'id' must be that of an entry of the change list. Got {shown(id)}.")
            self._write(self._changed(entries), self._file.entries)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._read()
            if self._file.entries:
                self._write(self._changed([]), self._file.entries)

    # Slices

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The named sets, oldest first."""
        with self._lock:
            self._read()
            return self._file.slices

    def save_slice(
        self, name: str, of: Of, samples: Sequence[int] | Ints | str, who: str | None = None
    ) -> Slice:
        """Name a set of training samples or of tests; a set with the same name is replaced."""
        name = check_name(name)
        check_choice("of", of, get_args(Of))
        places = np.unique(self._places("samples", samples, of))
        new = Slice(name, of, format_ranges(places), self._totals[of], self._author(who), _now())
        with self._lock:
            self._read()
            others = tuple(one for one in self._file.slices if one.name != name)
            if len(others) >= MOST_SLICES:
                raise InvalidInputError(
                    f"There can be {MOST_SLICES} slices. Delete one that is not needed first."
                )
            self._write(dataclasses.replace(self._file, slices=(*others, new)))
            return new

    def delete_slice(self, name: str) -> None:
        """Delete a named set; its samples stay."""
        with self._lock:
            self._find(name)
            others = tuple(one for one in self._file.slices if one.name != name)
            self._write(dataclasses.replace(self._file, slices=others))

    def members(self, name: str, of: Of) -> Ints:
        """Return the indices of the samples in a slice, or raise."""
        found = self._find(name)
        if found.of != check_choice("of", of, get_args(Of)):
            raise InvalidInputError(f"'slice' must be one of {of}. Got {name!r}, which is of {found.of}.")
        if found.total != self._totals[of]:
            raise InvalidInputError(
                f"'slice' {name!r} was made of {found.total:,} {of}, of which there are now "
                f"{self._totals[of]:,}. Delete it, and make it again."
            )
        return parse_ranges(found.samples, found.total)

    def _find(self, name: str) -> Slice:
        known = self.slices
        for one in known:
            if one.name == name:
                return one
        names = ", ".join(repr(one.name) for one in known[:20]) or "none"
        raise InvalidInputError(f"'slice' must be the name of a slice. Got {shown(name)}; known: {names}.")

    # Checks

    def _places(self, name: str, samples: Any, of: Of) -> Ints:
        n = self._totals[of]
        places = parse_ranges(samples, n, name) if isinstance(samples, str) else None
        if places is None:
            places = check_places(name, samples, n)
        if not len(places):
            raise InvalidInputError(f"'{name}' must name at least one sample. Got none.")
        return places

    def _spans(self, places: Ints, label: Any) -> dict[str, str]:
        """Return ranges by new label."""
        if not self._n_classes:
            raise InvalidInputError(
                "'action' must not be \"relabel\" for this task: its labels are not single classes. "
                "Flag or remove the samples."
            )
        labels = check_places("label", [label] if np.ndim(label) == 0 else label, self._n_classes)
        labels = np.broadcast_to(labels, len(places)) if len(labels) == 1 else labels
        if len(labels) != len(places):
            raise InvalidInputError(
                f"'label' must be one class, or one per sample. Got {len(labels)} for {len(places)} samples."
            )
        _, first = np.unique(places, return_index=True)
        if len(first) != len(places):
            raise InvalidInputError("'samples' must be different where each has its own 'label'.")
        return {str(c): format_ranges(np.sort(places[labels == c])) for c in np.unique(labels).tolist()}

    def _author(self, who: str | None) -> str:
        return self.who if who is None else check_text("who", who, MOST_NAME).strip() or self.who

    # State and file

    def _changed(self, entries: Sequence[Decision], next_id: int | None = None) -> Contents:
        if len(entries) > MOST_ENTRIES:
            raise InvalidInputError(
                f"A change list can have {MOST_ENTRIES:,} entries. Mark several samples with one entry, or "
                "export the list and clear it."
            )
        return dataclasses.replace(self._file, entries=tuple(entries), next_id=next_id or self._file.next_id)

    def _write(self, file: Contents, undone: tuple[Decision, ...] | None = None) -> None:
        """Save first, so that a failure changes nothing; ``undone`` are the entries that undo restores."""
        marks = self._marks if file.entries == self._file.entries else replay(file.entries, self._labels)
        if self.path is not None:
            store.write_text(self.path, json.dumps(dataclasses.asdict(file), indent=1, ensure_ascii=False))
            self._seen = _state(self.path)
        self._file, self._marks = file, marks
        if undone is not None:
            self._before = [*self._before, undone][-_UNDONE:]

    def _read(self) -> None:
        """Read the file where it is new, or was changed by another process."""
        if self.path is None or (now := _state(self.path)) == self._seen:
            return
        if now is None:  # deleted: begin again
            self._file = self._bound
        else:
            self._file = read_contents(self.path, self._bound, self._labels, self._n_classes)
        self._seen, self._marks, self._before = now, None, []


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file; None where there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"'{path}' cannot be read ({error.strerror}). Name a file in a folder.") from error
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()[:MOST_NAME]
    except (OSError, KeyError, ImportError):  # a system without users
        return ""
