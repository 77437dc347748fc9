"""What a change list consists of, and how its file is read and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from whence.core import contents
from whence.core.arrays import Array, Ints
from whence.core.checks import check_choice, check_text, shown
from whence.core.ranges import count_ranges, parse_ranges
from whence.errors import InvalidInputError, StoreError

Action = Literal["keep", "flag", "remove", "relabel", "clear"]
"""keep: the label was checked and is right; flag: to be looked at again; clear: nothing is said any more."""
Of = Literal["training", "tests"]
ACTIONS: tuple[Action, ...] = get_args(Action)
MARKS = ACTIONS[:-1]
"""The actions that leave a mark."""

FORMAT = 1
MOST_ENTRIES, MOST_SLICES, MOST_NAMED = 10_000, 200, 50_000_000
"""Entries, slices, and samples that all entries name together."""
MOST_WHY, MOST_NAME = 500, 80
"""Characters of a reason and of a name."""
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class Decision:
    """One decision about some training samples.

    Attributes
    ----------
    id : its number; numbers are not used again
    action : "keep", "flag", "remove", "relabel" or "clear"
    samples : ranges of indices by the new label, of all other actions under ""
    why, who, when : the reason, the author, date and time (UTC, ISO 8601)
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    id: int
    action: Action
    samples: dict[str, str]
    why: str
    who: str
    when: str


@dataclass(frozen=True)
class Slice:
    """A named set of training samples or of tests.

    Attributes
    ----------
    name : unique
    of : "training" or "tests"
    samples : ranges of indices
    total : number of samples of the set that they index
    who, when : as of an entry
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    of: Of
    samples: str
    total: int
    who: str
    when: str


@dataclass(frozen=True)
class Contents:
    """Everything in the file of a change list.

    Attributes
    ----------
    format : version of this form
    n_train, labels : number of training samples and digest of their labels, to which the list is bound
    next_id : id of the next entry
    entries, slices : oldest first
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    format: int
    n_train: int
    labels: str
    next_id: int = 1
    entries: tuple[Decision, ...] = ()
    slices: tuple[Slice, ...] = ()


class Marks(NamedTuple):
    """What the entries come to, sample by sample.

    Attributes
    ----------
    action : (N,) indices into ``ACTIONS``; −1 where nothing is said
    label : (N,) the new label where a sample is relabelled, else −1
    entry : (N,) id of the entry that counts, else 0
    """

    action: Array
    label: Ints
    entry: Ints

    def of(self, action: Action) -> Ints:
        """Return the indices of the samples with an action."""
        return np.flatnonzero(self.action == ACTIONS.index(check_choice("action", action, ACTIONS)))

    @property
    def remove(self) -> list[int]:
        """The samples to remove."""
        removed: list[int] = self.of("remove").tolist()
        return removed

    @property
    def relabel(self) -> dict[int, int]:
        """The new labels, by sample."""
        places = self.of("relabel")
        return dict(zip(places.tolist(), self.label[places].tolist(), strict=True))


def replay(entries: tuple[Decision, ...], labels: Array) -> Marks:
    """Return what entries come to for samples with labels (N, …); the last that names a sample counts."""
    n, left = len(labels), MOST_NAMED
    action, label, entry = np.full(n, -1, np.int8), np.full(n, -1, np.int64), np.zeros(n, np.int64)
    for one in entries:
        for c, text in one.samples.items():
            places = parse_ranges(text, n)
            if (left := left - len(places)) < 0:
                raise InvalidInputError(
                    f"The entries of a change list can name {MOST_NAMED:,} samples in all. Export the list "
                    "and clear it."
                )
            if one.action == "clear":
                action[places], label[places], entry[places] = -1, -1, 0
                continue
            action[places], label[places], entry[places] = ACTIONS.index(one.action), -1, one.id
            if one.action == "relabel":
                same = labels[places] == int(c)
                action[places[same]] = ACTIONS.index("keep")
                label[places[~same]] = int(c)
    return Marks(action, label, entry)


def read_contents(path: Path, bound: Contents, labels: Array, n_classes: int) -> Contents:
    """Read the file of a change list, or raise StoreError unless it belongs to a training set.

    Parameters
    ----------
    path : the file
    bound : an empty list of the training set
    labels, n_classes : of the training set; 0 classes if labels are not single classes
    """
    remedy = f"Rename or delete '{path}' to begin a new one."
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
        read = contents.manifest(Contents, json.loads(path.read_bytes()))
        if read.format != FORMAT:
            raise ValueError(f"its format is {read.format}, and this version reads {FORMAT}")
        _check(read, n_classes)
        fits = (read.n_train, read.labels) == (bound.n_train, bound.labels)
        if fits:
            replay(read.entries, labels)
    except (OSError, ValueError, RecursionError, StoreError, InvalidInputError) as error:
        reason = str(error).rstrip(".")
        raise StoreError(f"'{path}' is not a change list: {reason}. {remedy}") from error
    if not fits:
        raise StoreError(
            f"'{path}' is the change list of another training set: of {read.n_train:,} samples, where this "
            f"one has {bound.n_train:,}, or of other labels. Serve it with the explainer that it was made "
            f"for. {remedy}"
        )
    return read


def _check(read: Contents, n_classes: int) -> None:
    """Raise InvalidInputError unless entries and slices are such as a change list writes."""
    ids, names = [one.id for one in read.entries], [one.name for one in read.slices]
    if not 0 < read.next_id < 1 << 53 or ids != sorted({i for i in ids if 0 < i < read.next_id}):
        raise InvalidInputError("'id' must ascend from entry to entry")
    if len(ids) > MOST_ENTRIES or len(names) > MOST_SLICES or len(set(names)) != len(names):
        raise InvalidInputError("it has too many entries or slices, or two slices with one name")
    classes = {str(c) for c in range(n_classes)}
    for entry in read.entries:
        if not entry.samples or entry.samples.keys() - (classes if entry.action == "relabel" else {""}):
            raise InvalidInputError(f"'samples' of entry {entry.id} must be ranges by label")
        for text in entry.samples.values():
            _check_some(text, read.n_train)
        for name, text, most in (("why", entry.why, MOST_WHY), ("who", entry.who, MOST_NAME)):
            check_text(name, text, most)
    for part in read.slices:
        check_name(part.name)
        _check_some(part.samples, part.total)


def _check_some(text: str, n: int) -> None:
    if not count_ranges(text, n):
        raise InvalidInputError("'samples' must name at least one sample")


def check_name(name: Any) -> str:
    """Return the name of a slice, or raise."""
    plain = check_text("name", name, MOST_NAME).strip()
    if not any(map(str.isalnum, plain)) or "/" in plain or not plain.isprintable():
        raise InvalidInputError(
            f"'name' must have a letter or a digit, and no / or line break. Got {shown(plain)}."
        )
    return plain
