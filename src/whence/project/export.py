"""The corrected training set in the form it came in, the decisions, and a script that measures the gain."""

from __future__ import annotations

import json
import os
import pprint
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from whence.core import store
from whence.core.arrays import Array, Ints, Mask
from whence.core.checks import check_is, check_path, check_text, check_that
from whence.core.files import replacing, to_csv
from whence.core.naming import make_named
from whence.data import as_training_set
from whence.data.items import LABEL_NAMES
from whence.data.sources import ImageFolder
from whence.data.tables import is_table
from whence.errors import InvalidInputError, StoreError
from whence.pages.render import read
from whence.project.project import Project
from whence.project.work_records import ACTIONS

REMOVED = "_removed"
"""What the name of a folder of images gets for those that are moved out of it."""
_LABELS = "label", "label_", "new_label"  # of a table whose labels are apart


def export_changes(
    project: Project,
    folder: str | os.PathLike[str],
    *,
    data: Any = None,
    train: str | None = None,
) -> list[Path]:
    """Write the corrected training set, the change list and a script that retrains; return the files.

    Always written are ``changes.csv`` (one row per sample), ``indices.json`` and ``retrain.py``. A table, or
    a pair of a table and labels, becomes ``corrected.csv``; a dataset of Hugging Face the folder
    ``corrected``, as by its ``save_to_disk``; for a folder of images there are ``moves.csv`` and
    ``apply_moves.py``, which moves files when it is run with ``--apply``. Nothing of the original is changed.

    Cells of ``corrected.csv`` and paths in ``moves.csv`` are the original ones, so that a program reads the
    same values; open them in a spreadsheet only if you trust the data. In ``changes.csv``, which is for
    people, texts that a spreadsheet would take for formulas are quoted.

    Parameters
    ----------
    project : an explainer with its data, and its change list as ``project.work``
    folder : where to write; it is made if needed
    data : the training set as ``fit`` took it; None loads it by the configuration's name, or takes the fit's
    train : ``module:function`` of a function ``train(data, seed)`` that returns a trained model, for
        ``retrain.py``; None trains a fresh copy of the model in a plain loop

    Examples
    --------
    >>> import tempfile, torch, whence
    >>> from whence.project import Project, export_changes
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> explainer = whence.DualDA(show_progress=False).fit(model, (torch.randn(20, 4), torch.arange(20) % 2))
    >>> project = Project.of(explainer)
    >>> _ = project.work.add("remove", [3, 17], why="blurred")
    >>> sorted(path.name for path in export_changes(project, tempfile.mkdtemp()))
    ['changes.csv', 'indices.json', 'retrain.py']
    """
    check_is("project", project, Project, "a Project, such as Project.of(explainer)")
    out = check_path("folder", folder)
    if train is not None and not all(check_text("train", train).partition(":")[::2]):
        raise InvalidInputError(f"'train' must be given as module:function. Got {train!r}.")
    corrected = _Corrected.of(project, data)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"'{out}' cannot be made ({error.strerror}). Name a folder, or a path where one can be made."
        ) from error
    written = [_changes(project, corrected, out), _indices(project, corrected, out)]
    written += _data(corrected, out)
    written.append(_retrain(project, out, train))
    return written


@dataclass(frozen=True, eq=False)
class _Corrected:
    """A training set and its corrected labels.

    Attributes
    ----------
    data : as the user has it
    labels, keep : (N,) the corrected labels, and which samples stay
    raw : (N,) labels as the user has them; None where they are not in one list
    changed : samples with another label than in ``raw``
    spell : writes a label as the user does
    """

    data: Any
    labels: Array
    keep: Mask
    raw: Any = None
    changed: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    spell: Callable[[int], Any] = int

    @classmethod
    def of(cls, project: Project, data: Any) -> _Corrected:
        fitted, marks = project.attributor.fitted_, project.work.marks()
        labels, keep = fitted.labels.copy(), fitted.used.copy()
        keep[marks.remove] = False
        places = marks.of("relabel")
        labels[places] = marks.label[places]
        given = data is not None
        data = data if given else _raw(project)
        if isinstance(data, str | Path):
            data = ImageFolder(Path(data))
        raw = _raw_labels(data)
        if raw is None or not fitted.task.has_classes:
            if given:  # raises where these are no data
                as_training_set(data, task=fitted.task, names=fitted.class_names)
            return cls(data, labels, keep)
        if len(raw) != len(labels):
            raise InvalidInputError(
                f"'data' must be the training set that the explainer was fitted on, {len(labels):,} samples. "
                f"Got {len(raw):,}."
            )
        before = fitted.task.encode(raw)
        names = fitted.task.output_names
        known = {
            int(c): raw[int(first)] for c, first in zip(*np.unique(before, return_index=True), strict=True)
        }
        words = isinstance(raw[0], str)
        return cls(
            data,
            labels,
            keep,
            raw,
            np.flatnonzero(keep & (before != labels)),
            lambda c: known.get(c, names[c] if words else c),
        )

    @cached_property
    def spelled(self) -> list[Any]:
        """All labels as the user writes them, with the corrected ones."""
        labels = list(self.raw)
        for place in self.changed.tolist():
            labels[place] = self.spell(int(self.labels[place]))
        return labels


def _raw(project: Project) -> Any:
    """Return the training set as the configuration names it; else as the fit has it."""
    name = project.configuration.data
    if name and "+" not in name:
        return make_named("data", name, project.path.resolve().parent)
    data = project.attributor.data_
    return data.source if data is not None and data.places is None and not data.marks else None


def _raw_labels(data: Any) -> Any:
    """Return the labels of a table, a dataset of Hugging Face or a folder of images, as they are there."""
    if _is_pair(data):
        return _values(data[1])
    if is_table(data):
        return _values(data[_label_of(data.columns)])
    if _is_hugging_face(data):
        return list(data.with_format(None)[_label_of(data.column_names)])
    if isinstance(data, ImageFolder):
        return data.labels
    if _is_folder(data):
        return [label for _, label in data.samples]
    return None


def _values(labels: Any) -> list[Any]:
    """Return a column as plain values."""
    values = labels if isinstance(labels, list) else np.asarray(labels).tolist()
    return list(values)


def _label_of(names: Any) -> Any:
    """Return the name of the column of labels, of which ``fit`` found one."""
    found = next((name for name in names if name in LABEL_NAMES), None)
    rule = f"have labels in a column named {' or '.join(map(repr, LABEL_NAMES))}"
    check_that(found is not None, "data", rule, list(names))
    return found


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple) and len(data) == 2 and is_table(data[0]) and hasattr(data[0], "to_dict")


def _is_hugging_face(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("save_to_disk", "select", "features", "column_names"))


def _is_folder(data: Any) -> bool:
    """Whether data are image files in a folder per class, in torchvision's form."""
    return all(hasattr(data, name) for name in ("samples", "classes", "root"))


# What was decided


def _changes(project: Project, corrected: _Corrected, out: Path) -> Path:
    """Write one row per marked sample, for people."""
    fitted, marks = project.attributor.fitted_, project.work.marks()
    entries = {entry.id: entry for entry in project.work.entries}
    places = np.flatnonzero(marks.action >= 0).tolist()
    which = [entries[int(marks.entry[place])] for place in places]
    text = fitted.task.label_text
    columns: dict[str, list[Any]] = {
        "index": places,
        "action": [ACTIONS[marks.action[place]] for place in places],
        "old_label": [text(fitted.labels[place]) for place in places],
        "new_label": [text(marks.label[place]) if marks.label[place] >= 0 else "" for place in places],
        "who": [entry.who for entry in which],
        "when": [entry.when for entry in which],
        "why": [entry.why for entry in which],
    }
    to_csv(columns, out / "changes.csv")
    return out / "changes.csv"


def _indices(project: Project, corrected: _Corrected, out: Path) -> Path:
    """Write the same for programs; ``earlier`` is what ``update`` had changed before."""
    fitted, marks = project.attributor.fitted_, project.work.marks()
    history = fitted.surrogate.history if fitted.surrogate is not None else ()
    classes = fitted.task.has_classes
    before = {i: int(new) for change in history if classes for i, _, new in change.relabelled}
    values = {
        "n_train": len(fitted.labels),
        "remove": marks.remove,
        "relabel": marks.relabel,
        "keep": marks.of("keep").tolist(),
        "flag": marks.of("flag").tolist(),
        "earlier": {"remove": np.flatnonzero(~fitted.used).tolist(), "relabel": before},
    }
    store.write_text(out / "indices.json", json.dumps(values) + "\n")
    return out / "indices.json"


# The corrected training set


def _data(corrected: _Corrected, out: Path) -> list[Path]:
    """Write it in the form it came in; nothing where that has no file."""
    if corrected.raw is None:
        return []
    if isinstance(corrected.data, ImageFolder) or _is_folder(corrected.data):
        return _moves(corrected, out)
    if _is_hugging_face(corrected.data):
        return [_hugging_face(corrected, out)]
    return [_table(corrected, out)]


def _table(corrected: _Corrected, out: Path) -> Path:
    """Write a table without the removed rows and with the corrected labels; cells are unchanged otherwise."""
    pair = _is_pair(corrected.data)
    table, labels = corrected.data if pair else (corrected.data, None)
    name = _label_of(table.columns) if not pair else getattr(labels, "name", None)
    name = name or next(one for one in _LABELS if one not in table.columns)
    rows = np.flatnonzero(corrected.keep)
    if hasattr(table, "iloc"):  # pandas
        chosen = table.iloc[rows].copy()
        if pair or len(corrected.changed):
            chosen[name] = [corrected.spelled[row] for row in rows]
        plain = table.index.name is None and table.index.equals(type(table.index)(range(len(table))))
        text = chosen.to_csv(index=not plain)
    else:  # polars
        new = type(table[table.columns[0]])(name, [corrected.spelled[row] for row in rows])
        text = table[rows].with_columns(new).write_csv()
    with replacing(out / "corrected.csv") as file:
        file.write(text.encode())
    return out / "corrected.csv"


def _hugging_face(corrected: _Corrected, out: Path) -> Path:
    """Save a dataset with the features of the original."""
    data = corrected.data.with_format(None)
    name, order = _label_of(data.column_names), data.column_names
    rows, spelled = np.flatnonzero(corrected.keep), corrected.spelled
    chosen = data.select(rows)
    if len(corrected.changed):
        chosen = chosen.remove_columns(name).add_column(name, [spelled[row] for row in rows])
        chosen = chosen.select_columns(order).cast(data.features)
    chosen.save_to_disk(str(out / "corrected"))
    return out / "corrected"


def _moves(corrected: _Corrected, out: Path) -> list[Path]:
    """Write where files of images go, and the script that moves them."""
    data = corrected.data
    ours = isinstance(data, ImageFolder)
    root = Path(data.root).resolve()
    files = [
        Path(path).resolve().relative_to(root)
        for path in (data.paths if ours else (p for p, _ in data.samples))
    ]
    names = data.classes
    taken, pairs = {path.as_posix() for path in files}, []
    gone = set(np.flatnonzero(~corrected.keep).tolist())
    for place in sorted({*corrected.changed.tolist(), *gone}):
        old = files[place]
        if place in gone:
            new = Path(os.pardir, root.name + REMOVED, *old.parts)
        else:
            spelled = corrected.spell(int(corrected.labels[place]))
            new = Path(spelled if isinstance(spelled, str) else names[spelled], *old.parts[1:])
        new = _free(new, taken)
        taken.add(new.as_posix())
        pairs.append((old.as_posix(), new.as_posix()))
    # Not by to_csv, which would alter a name that a spreadsheet takes for a formula.
    lines = [
        ",".join(f'"{text.replace(chr(34), chr(34) * 2)}"' for text in pair)
        for pair in [("from", "to"), *pairs]
    ]
    store.write_text(out / "moves.csv", "\n".join(lines) + "\n")
    script = read(__package__, "templates/apply_moves.txt").replace("__ROOT__", pprint.pformat(str(root)))
    store.write_text(out / "apply_moves.py", script)
    return [out / "moves.csv", out / "apply_moves.py"]


def _free(path: Path, taken: set[str]) -> Path:
    """Return a path that no other file has."""
    number, free = 2, path
    while free.as_posix() in taken:
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return free


# The script that retrains


def _retrain(project: Project, out: Path, train: str | None) -> Path:
    named = project.configuration
    values = {
        "MODEL": named.model,
        "DATA": named.data,
        "TEST": named.test,
        "PREPROCESS": named.preprocess,
        "TOKENIZER": named.tokenizer,
        "TASK": named.task,
        "FOLDER": str(project.path.resolve().parent) if project.path.is_file() else ".",
        "TRAIN": train,
    }
    script = read(__package__, "templates/retrain.txt")
    for name, value in values.items():
        script = script.replace(
            f"__{name}__", json.dumps(value, ensure_ascii=False) if value else repr(value)
        )
    store.write_text(out / "retrain.py", script)
    return out / "retrain.py"
