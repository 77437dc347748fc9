"""Banks of retrained networks: what outputs became on subsets of a training set, as one open Parquet file.

Scores are judged by what networks retrained on parts of the data output. Such networks are expensive and
their outputs small, so a bank is written once and judges anyone's scores. One row per retraining:

- ``seed``: int64, of the training,
- ``train``: list of int32, the training samples it used, by their place from 0, sorted,
- ``outputs``: list of float64, one per test; higher is better for the test's target.

The schema's metadata are texts and JSON values: ``content`` "retraining bank", ``version`` 1, ``n_train``,
``output`` (what is measured) and, where known, ``train_ids``, ``test_ids``, ``targets`` (one class per test),
``training_labels`` (a digest) and ``source``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from whence.attribution.score_files import StoredScores, read_scores, sample_ids
from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.core.checks import (
    check_is,
    check_path,
    check_places,
    check_shape,
    check_text,
    check_that,
    to_array,
)
from whence.core.display import displayed
from whence.core.files import existing_path, read_parquet, to_parquet
from whence.errors import InvalidInputError
from whence.metrics.arrays import classes, mask, numbers

CONTENT, VERSION = "retraining bank", 1


@displayed("n_models", "n_train", "n_tests", "output", "source")
@dataclass(frozen=True, eq=False)
class RetrainingBank:
    """Outputs of networks that were retrained on subsets of one training set.

    Attributes
    ----------
    subsets : (m, N) booleans, True for the training samples that a network was trained on
    outputs : (m, T) of each network for each test; higher is better for the test's target
    seeds : (m,) of each training; networks with the same subset differ by them
    output : what the outputs are, in words, such as "-cross-entropy of the true label"
    train_ids, test_ids : names of the samples, texts or whole numbers; by default their places
    targets : (T,) the class that each output is about, or None
    training_labels : digest of the labels (``whence.attribution.score_files.labels_digest``), or None
    source : where the bank comes from, in words

    Examples
    --------
    >>> subsets = np.array([[True, True, False], [True, False, True], [False, True, True]])
    >>> outputs = np.array([[5.0, 1.0], [4.0, 2.0], [3.5, 3.0]])
    >>> RetrainingBank(subsets, outputs, np.arange(3), "logit of the true class").n_tests
    2
    """

    subsets: Mask
    outputs: Doubles
    seeds: Ints
    output: str
    train_ids: Sequence[Any] = ()
    test_ids: Sequence[Any] = ()
    targets: Ints | None = None
    training_labels: str | None = None
    source: str = ""

    def __post_init__(self) -> None:
        subsets = mask("subsets", self.subsets, (None, None))
        m, n = subsets.shape
        texts = ("output", "source", *(["training_labels"] if self.training_labels is not None else []))
        for name in texts:
            check_text(name, getattr(self, name))
        outputs = numbers("outputs", self.outputs, (m, None)).astype(np.float64)
        fixed = {
            "subsets": subsets,
            "outputs": outputs,
            "seeds": classes("seeds", self.seeds, m),
            "train_ids": _ids("train_ids", self.train_ids, n),
            "test_ids": _ids("test_ids", self.test_ids, outputs.shape[1]),
            "targets": None if self.targets is None else classes("targets", self.targets, outputs.shape[1]),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)

    @property
    def n_models(self) -> int:
        """The number m of retrained networks."""
        return len(self.subsets)

    @property
    def n_train(self) -> int:
        """The number N of training samples that subsets are drawn from."""
        return int(self.subsets.shape[1])

    @property
    def n_tests(self) -> int:
        """The number T of tests."""
        return int(self.outputs.shape[1])

    def by_subset(self) -> tuple[Mask, Doubles]:
        """Return different subsets (s, N) and outputs (seeds, s, T), as ``compare_lds`` takes them.

        Where subsets have different numbers of networks, the outputs are their means (1, s, T).
        """
        packed = np.packbits(self.subsets, axis=1)
        _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)  # subsets in the order of the bank
        rows = [np.flatnonzero(group.ravel() == g) for g in order]
        subsets = self.subsets[first[order]]
        if len({len(several) for several in rows}) == 1:
            return subsets, self.outputs[np.array(rows).T]
        return subsets, np.array([self.outputs[several].mean(axis=0) for several in rows])[None]


def write_bank(path: str | PathLike[str], bank: RetrainingBank) -> str:
    """Write a bank to a Parquet file and return its path; requires pyarrow."""
    where = check_path("path", path)
    check_is("bank", bank, RetrainingBank, "a RetrainingBank")
    check_that(where.suffix == ".parquet", "path", "end in .parquet", where.name)
    about = {
        "content": CONTENT,
        "version": VERSION,
        "n_train": bank.n_train,
        "output": bank.output,
        "train_ids": _unless_places(bank.train_ids),
        "test_ids": _unless_places(bank.test_ids),
        "targets": None if bank.targets is None else bank.targets.tolist(),
        "training_labels": bank.training_labels,
        "source": bank.source,
    }
    table = {
        "seed": bank.seeds.tolist(),
        "train": [np.flatnonzero(used).astype(np.int32) for used in bank.subsets],
        "outputs": list(bank.outputs),
    }
    to_parquet(table, where, {name: value for name, value in about.items() if value is not None})
    return str(where)


def read_bank(path: str | PathLike[str]) -> RetrainingBank:
    """Read a bank, or raise where a file is not one; requires pyarrow.

    Other programs' banks are read by ``read_kronfluence`` and ``read_dattri``.
    """
    where = existing_path(path)
    table, about = read_parquet(where)
    if about.get("content") != CONTENT or not {"seed", "train", "outputs"} <= set(table.column_names):
        raise InvalidInputError(
            f"'{where}' must be a retraining bank, with the columns seed, train and outputs and the metadata "
            f'content = "{CONTENT}". Got the columns {", ".join(table.column_names)}.'
        )
    values = {name: _value(where, name, text) for name, text in about.items() if name in _JSON}
    check_that(values.get("version") == VERSION, "version", f"be {VERSION}", values.get("version"))
    return RetrainingBank(
        subsets=_subsets(table["train"].to_pylist(), values.get("n_train")),
        outputs=_rectangular(table["outputs"].to_pylist()),
        seeds=table["seed"].to_numpy(),
        output=about.get("output", ""),
        train_ids=values.get("train_ids", ()),
        test_ids=values.get("test_ids", ()),
        targets=values.get("targets"),
        training_labels=about.get("training_labels"),
        source=about.get("source", ""),
    )


def scores_for(bank: RetrainingBank, path: str | PathLike[str]) -> StoredScores:
    """Read a file of scores for a bank, or raise where it is about other samples, labels or targets."""
    found = read_scores(path, bank.test_ids, bank.train_ids)
    labels = found.about.get("training_labels")
    if None not in (labels, bank.training_labels):
        rule = "be the labels of the bank's training set"
        fix = "The scores are of another training set, or of another order of it."
        check_that(labels == bank.training_labels, "training_labels", rule, labels, fix)
    if found.targets is not None and bank.targets is not None:
        t = np.flatnonzero(found.targets != bank.targets)
        if len(t):
            raise InvalidInputError(
                f"'{path}' must have scores for the bank's targets. Got class {found.targets[t[0]]} for test "
                f"{bank.test_ids[t[0]]!r}, whose outputs are of class {bank.targets[t[0]]}. Score those."
            )
    return found


_JSON = ("version", "n_train", "train_ids", "test_ids", "targets")


def _ids(name: str, ids: Any, n: int) -> list[Any]:
    return sample_ids(name, None if isinstance(ids, tuple) and not ids else ids, n)


def _unless_places(ids: Sequence[Any]) -> Sequence[Any] | None:
    return None if list(ids) == list(range(len(ids))) else ids


def _value(where: Path, name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise InvalidInputError(
            f"The metadata {name!r} of '{where}' must be JSON. Got {text[:40]!r}."
        ) from None


def _subsets(rows: list[list[int]], n: Any) -> Mask:
    check_that(isinstance(n, int) and n > 0, "n_train", "be a whole number above 0", n)
    subsets = np.zeros((len(rows), n), np.bool_)
    for used, row in zip(subsets, rows, strict=True):
        used[check_places("train", row, n)] = True
    return subsets


def _rectangular(rows: list[list[float]]) -> Array:
    lengths = sorted({len(row) for row in rows})
    check_that(len(lengths) == 1, "outputs", "have as many values in every row", lengths)
    outputs = to_array("outputs", rows)
    check_shape("outputs", outputs, (None, None))
    return outputs
