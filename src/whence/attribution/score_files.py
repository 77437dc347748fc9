"""Scores as files: written as Parquet or safetensors, with their meaning as metadata, and read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open
from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.core.arrays import Array, Ints
from whence.core.checks import check_finite, check_path, check_shape, check_that, shown
from whence.core.display import Columns
from whence.core.files import existing_path, read_parquet, replacing, require_parquet, to_parquet
from whence.errors import InvalidInputError

_PARQUET, _SAFETENSORS, _NUMPY = ".parquet", ".safetensors", ".npy"


def check_score_path(path: Any) -> str:
    """Return the path of a file of scores, or raise where its suffix says no known form."""
    path = check_path("path", path)
    if path.suffix not in (_PARQUET, _SAFETENSORS):
        raise InvalidInputError(f"'path' must end in {_PARQUET} or {_SAFETENSORS}. Got {path.name!r}.")
    if path.suffix == _PARQUET:
        require_parquet()  # before scores are computed
    return str(path)


def write_scores(
    fitted: Fitted, path: str, scores: Tensor, targets: Tensor, test_ids: Any, train_ids: Any
) -> None:
    """Write scores (test, train) for targets (test,); ``Attributor.save_scores`` says what the file holds."""
    shape = tuple(scores.shape)
    tests, samples = sample_ids("test_ids", test_ids, shape[0]), sample_ids("train_ids", train_ids, shape[1])
    about = {
        "content": "attribution scores",
        "axes": ["test", "train"],
        "shape": list(shape),
        "sign": _sign(fitted),
        "method": fitted.method,
        "outputs": list(fitted.task.output_names),
        "model": _digest(fitted),
        "training_labels": labels_digest(fitted.labels),
    }
    values, target = scores.detach().cpu().numpy(), targets.cpu().numpy().astype(np.int64)
    if path.endswith(_PARQUET):
        rows, columns = np.nonzero(values)
        table: Columns = {
            "test": [tests[i] for i in rows.tolist()],
            "target": target[rows].tolist(),
            "train": [samples[j] for j in columns.tolist()],
            "score": values[rows, columns].tolist(),
        }
        to_parquet(table, path, {**about, "zeros": "left out"})
        return
    about |= {"test_ids": tests, "train_ids": samples}
    text = {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
    data = safetensors.numpy.save({"scores": np.ascontiguousarray(values), "target": target}, text)
    with replacing(path) as file:
        file.write(data)


@dataclass(frozen=True, eq=False)
class StoredScores:
    """Scores (test, train) of a file.

    Attributes
    ----------
    scores : (T, N), rows and columns in the order that was asked for
    targets : (T,) the classes they are for, or None
    about : what else the file says about them, as texts
    """

    scores: Array
    targets: Ints | None
    about: dict[str, str]


def read_scores(path: Any, test_ids: Sequence[Any], train_ids: Sequence[Any]) -> StoredScores:
    """Read scores (test, train) of given samples, or raise where they are of other ones.

    Parameters
    ----------
    path
        A file of ``Attributor.save_scores``; another Parquet file with columns test, train and score, or
        another safetensors file with a single matrix or one named "scores"; or a .npy file. A matrix without
        ids has the order of ``test_ids`` and ``train_ids``.
    test_ids, train_ids
        Texts or whole numbers, one per row and column of the result.
    """
    where = existing_path(path)
    rule = f"end in {_PARQUET}, {_SAFETENSORS} or {_NUMPY}"
    check_that(where.suffix in (_PARQUET, _SAFETENSORS, _NUMPY), "path", rule, where.name)
    wanted = len(test_ids), len(train_ids)
    if where.suffix == _PARQUET:
        found = _of_table(where, test_ids, train_ids)
    else:
        matrix = _of_numpy(where) if where.suffix == _NUMPY else _of_tensors(where)
        check_shape(
            "scores", matrix.scores, wanted, "have one row per test and one column per training sample, "
        )
        rows, columns = (
            _order(name, matrix.about.get(name), ids)
            for name, ids in (("test_ids", test_ids), ("train_ids", train_ids))
        )
        targets = None if matrix.targets is None else matrix.targets[rows]
        found = StoredScores(matrix.scores[np.ix_(rows, columns)], targets, matrix.about)
    check_finite("scores", found.scores)
    return found


def _of_table(where: Path, test_ids: Sequence[Any], train_ids: Sequence[Any]) -> StoredScores:
    """Read one row per score; what has no row is 0."""
    table, about = read_parquet(where)
    columns = {"test", "train", "score"}
    rule = f"be a table with the columns {', '.join(sorted(columns))}"
    check_that(columns <= set(table.column_names), str(where), rule, table.column_names)
    shape = json.loads(about["shape"]) if "shape" in about else None
    wanted = [len(test_ids), len(train_ids)]
    check_that(shape in (None, wanted), "scores", f"have shape (test, train) {tuple(wanted)}", shape)
    rows = _places("test", table["test"], test_ids)
    scores = np.zeros(wanted, np.float64)
    scores[rows, _places("train", table["train"], train_ids)] = table["score"].to_numpy()
    if "target" not in table.column_names or len(set(rows.tolist())) < len(test_ids):
        return StoredScores(scores, None, about)
    targets = np.zeros(len(test_ids), np.int64)
    targets[rows] = table["target"].to_numpy()
    return StoredScores(scores, targets, about)


def _of_tensors(where: Path) -> StoredScores:
    try:
        with safe_open(where, framework="np") as file:
            names, about = list(file.keys()), dict(file.metadata() or {})
            name = "scores" if "scores" in names else names[0]
            rule = 'have a matrix named "scores", or one tensor alone'
            check_that(name == "scores" or len(names) == 1, str(where), rule, names)
            targets = file.get_tensor("target") if "target" in names else None
            return StoredScores(file.get_tensor(name), targets, about)
    except SafetensorError as error:
        raise InvalidInputError(
            f"'{where}' must be a safetensors file. It cannot be read: {error}."
        ) from error


def _of_numpy(where: Path) -> StoredScores:
    try:
        return StoredScores(np.load(where, allow_pickle=False), None, {})
    except ValueError as error:
        raise InvalidInputError(
            f"'{where}' must be an array of numbers. It cannot be read: {error}."
        ) from error


def _order(name: str, text: str | None, wanted: Sequence[Any]) -> Ints:
    """Return where each wanted id stands in a file's list of ids."""
    if text is None:
        return np.arange(len(wanted))
    given = json.loads(text)
    place = {one: i for i, one in enumerate(given)}
    missing = next((one for one in wanted if one not in place), None)
    check_that(
        missing is None, name, "name the same samples as the bank", given[:3], f"{missing!r} has no score."
    )
    return np.array([place[one] for one in wanted])


def _places(name: str, column: Any, wanted: Sequence[Any]) -> Ints:
    """Return where each id of a column stands among the wanted ones."""
    place = {one: i for i, one in enumerate(wanted)}
    coded = column.combine_chunks().dictionary_encode()
    ids = coded.dictionary.to_pylist()
    other = next((one for one in ids if one not in place), None)
    check_that(other is None, name, f"name samples such as {wanted[0]!r}", other, "These are other samples.")
    places = np.array([place[one] for one in ids], np.int64)
    rows: Ints = places[coded.indices.to_numpy()]
    return rows


def sample_ids(name: str, ids: Sequence[Any] | None, n: int) -> list[Any]:
    """Return the user's names of samples as plain values, or their places where there are none."""
    if ids is None:
        return list(range(n))
    listed = isinstance(ids, Sequence | np.ndarray) and not isinstance(ids, str | bytes)
    names = [one.item() if isinstance(one, np.generic) else one for one in ids] if listed else []
    if len(names) != n or not (
        all(isinstance(one, str) for one in names) or all(type(one) is int for one in names)
    ):
        raise InvalidInputError(
            f"'{name}' must be {n} texts or {n} whole numbers, one per sample. Got "
            f"{f'{len(names)} values' if listed else shown(ids)}."
        )
    return names


def labels_digest(labels: Any) -> str:
    """Return the SHA-256 of training labels in their order, so that two files can say whether they agree.

    Examples
    --------
    >>> labels_digest([1, 0]) == labels_digest(np.array([1, 0], np.int32))
    True
    """
    values = np.asarray(labels)
    plain = values.astype("<i8") if values.dtype.kind in "iu" else values.astype("<f8")
    return f"sha256:{hashlib.sha256(np.ascontiguousarray(plain).tobytes()).hexdigest()}"


def _sign(fitted: Fitted) -> str:
    """Say in words what a positive score means."""
    numeric = fitted.task.label_kind == "number"
    if fitted.effect is not None:
        return "positive: being in the training set raises the output of the target"
    return "positive raises the prediction" if numeric else "positive supports the target class"


def _digest(fitted: Fitted) -> str | None:
    """Return the SHA-256 of the model's fingerprint: its layer, and every weight; None without a model."""
    if fitted.model is None:
        return None
    lines = "\n".join(f"{name} {value}" for name, value in sorted(fitted.model.fingerprint.items()))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
