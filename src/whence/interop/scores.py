"""Scores that other tools wrote, opened where they lie: rows are read when they are asked for.

No code in a file is run. Files whose axes are known keep them: kronfluence writes (test, train), bergson
(train, test). For other matrices the sizes of tests and training set decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from safetensors import SafetensorError, safe_open

from whence.attribution.score_files import read_scores
from whence.core.arrays import Array, Doubles, Ints
from whence.core.checks import check_choice, check_count, check_places, check_that
from whence.core.display import displayed
from whence.core.files import existing_path
from whence.core.progress import bar
from whence.errors import InvalidInputError, UnsupportedError
from whence.interop.foreign_banks import read_array

Orientation = Literal["test-train", "train-test"]
"""What the rows of a matrix are, and what its columns are."""

Take = Callable[[slice, slice], Array]
"""Reads some rows and columns of a matrix."""

_PART = 1 << 22  # scores that are checked at once
_FOLDERS = {"kronfluence": "pairwise_scores.safetensors", "bergson": "info.json"}
_ALL = "all_modules"  # kronfluence's name for the sum over modules


@dataclass(frozen=True)
class _Matrix:
    """A matrix in a file: which tool wrote it, its shape, its axes where the tool fixes them."""

    tool: str
    shape: tuple[int, int]
    take: Take
    orientation: Orientation | None = None
    about: str = ""
    targets: Ints | None = None


@displayed("tool", "n_tests", "n_train", "orientation")
@dataclass(frozen=True, eq=False)
class ForeignScores:
    """Scores (test, train) of a file, read row by row.

    Attributes
    ----------
    path : of the file or folder
    tool : what wrote it
    n_tests, n_train : sizes
    orientation : what rows and columns are in the file
    about : the method or the sign of the scores, where the file says so
    targets : (T,) the class that each row is about, or None
    """

    path: Path
    tool: str
    n_tests: int
    n_train: int
    orientation: Orientation
    about: str
    targets: Ints | None
    take: Take

    def row(self, test: int) -> Doubles:
        """Return the scores (N,) of the training samples for one test."""
        place = int(check_places("test", [test], self.n_tests)[0])
        one, every = slice(place, place + 1), slice(0, self.n_train)
        found = self.take(one, every) if self.orientation == "test-train" else self.take(every, one)
        return np.asarray(found, np.float64).ravel()


def open_scores(
    path: str | PathLike[str],
    n_tests: int,
    n_train: int,
    *,
    orientation: Orientation | None = None,
    show_progress: bool = True,
) -> ForeignScores:
    """Open scores of tests and training samples that any tool wrote, and check that all are finite.

    Parameters
    ----------
    path
        - a file of ``Attributor.save_scores``, or another matrix in ``.npy``, ``.safetensors`` or, with
          columns test, train and score, ``.parquet``;
        - kronfluence: ``pairwise_scores.safetensors`` or its folder. Scores per module are summed;
        - bergson: a folder with ``info.json`` and ``scores.bin``;
        - dattri, captum and others: a tensor that ``torch.save`` wrote, ``.pt`` or ``.pth``.
    n_tests, n_train
        How many tests and training samples there are.
    orientation
        "test-train" where rows are tests, "train-test" where they are training samples. None takes what the
        tool fixes, else what fits the sizes.
    show_progress
        Show a bar while scores are checked.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "scores.npy", np.arange(6.0).reshape(3, 2))   # (train, test)
    >>> open_scores(folder / "scores.npy", n_tests=2, n_train=3).row(1)
    array([1., 3., 5.])
    """
    n_tests, n_train = check_count("n_tests", n_tests), check_count("n_train", n_train)
    where = existing_path(path)
    return _oriented(where, _open(where, n_tests, n_train), n_tests, n_train, orientation, show_progress)


def of_array(
    name: Path, values: Array, n_tests: int, n_train: int, orientation: Orientation | None = None
) -> ForeignScores:
    """Return a matrix in memory as scores, under a name."""
    return _oriented(name, _of_array("Python", values), n_tests, n_train, orientation, show=False)


def _oriented(
    where: Path, matrix: _Matrix, n_tests: int, n_train: int, orientation: Orientation | None, show: bool
) -> ForeignScores:
    """Return a matrix with its axes, after a check of its size and of every score."""
    orientation = check_choice("orientation", orientation, (None, *get_args(Orientation)))
    axes = _axes(matrix, n_tests, n_train, orientation)
    _check_finite(matrix, axes, show)
    return ForeignScores(
        where, matrix.tool, n_tests, n_train, axes, matrix.about, matrix.targets, matrix.take
    )


def _open(where: Path, n_tests: int, n_train: int) -> _Matrix:
    """Open a matrix by what the file or the folder looks like."""
    if where.is_dir():
        if (where / _FOLDERS["kronfluence"]).is_file():
            return _of_tensors(where / _FOLDERS["kronfluence"], n_tests, n_train)
        if (where / _FOLDERS["bergson"]).is_file():
            return _of_bergson(where)
        known = " or ".join(f"{name} ({tool})" for tool, name in _FOLDERS.items())
        raise InvalidInputError(f"'{where}' must be a file, or a folder with {known}. Got a folder without.")
    if where.suffix in (".pt", ".pth"):
        return _of_array("torch", read_array(where))
    if where.suffix == ".npy":
        try:
            return _of_array("numpy", np.load(where, mmap_mode="r", allow_pickle=False))
        except ValueError as error:
            raise InvalidInputError(
                f"'{where}' must be an array of numbers. It cannot be read: {error}."
            ) from error
    if where.suffix == ".safetensors":
        return _of_tensors(where, n_tests, n_train)
    if where.suffix == ".parquet":
        return _of_whence(where, n_tests, n_train)
    raise InvalidInputError(
        f"'path' must end in .parquet, .safetensors, .npy, .pt or .pth, or be a folder of kronfluence or "
        f"bergson. Got {where.name!r}."
    )


def _axes(matrix: _Matrix, n_tests: int, n_train: int, wanted: Orientation | None) -> Orientation:
    """Return what the rows of a matrix are, or raise where the sizes do not fit or do not decide."""
    shapes: dict[Orientation, tuple[int, int]] = {
        "test-train": (n_tests, n_train), "train-test": (n_train, n_tests),
    }  # fmt: skip
    fixed = matrix.orientation
    check_that(
        wanted is None or fixed in (None, wanted), "orientation", f"be {fixed!r} for {matrix.tool}", wanted
    )
    allowed = [axes for axes in shapes if axes in (wanted or fixed or axes,)]
    fitting = [axes for axes in allowed if shapes[axes] == matrix.shape]
    if not fitting:
        rule = " or ".join(f"({', '.join(axes.split('-'))}) = {shapes[axes]}" for axes in allowed)
        raise InvalidInputError(
            f"'scores' must have shape {rule}, as tests and training set have. Got {matrix.shape} of "
            f"{matrix.tool}."
        )
    if len(fitting) > 1:
        raise InvalidInputError(
            f"'orientation' must be 'test-train' or 'train-test' where there are as many tests as training "
            f"samples, {n_tests:,}. Got None. dattri writes (train, test), captum (test, train)."
        )
    return fitting[0]


def _check_finite(matrix: _Matrix, axes: Orientation, show: bool) -> None:
    """Raise at the first score that is no finite number. The file is read once, in its own order."""
    (rows, columns), step = matrix.shape, max(1, _PART // max(1, matrix.shape[1]))
    starts = bar("Checking scores", rows, "rows", parts=None, show=show, delay=1)
    with starts:
        for start in range(0, rows, step):
            part = np.asarray(matrix.take(slice(start, min(start + step, rows)), slice(0, columns)))
            wrong = np.argwhere(~np.isfinite(part))
            if len(wrong):
                row, column = start + int(wrong[0][0]), int(wrong[0][1])
                test, sample = (row, column) if axes == "test-train" else (column, row)
                value = part[row - start, column]
                raise InvalidInputError(
                    f"'scores' must be finite. Got {value} for test {test} and training sample {sample}. "
                    "Leave such samples out of tests and data, or compute the scores in float32."
                )
            starts.update(len(part))


def _of_array(tool: str, values: Array) -> _Matrix:
    """Return an array, which may be a memory map, as a matrix."""
    numeric = values.dtype.kind in "fiu"
    check_that(values.ndim == 2 and numeric, "scores", "be a matrix of numbers", _described(values))
    return _Matrix(tool, (values.shape[0], values.shape[1]), lambda rows, columns: values[rows, columns])


def _described(values: Array) -> str:
    return f"{values.dtype} of shape {values.shape}"


def _of_whence(where: Path, n_tests: int, n_train: int) -> _Matrix:
    """Read a table, or a file of ``save_scores``, whose ids are put in the order of the samples."""
    stored = read_scores(where, range(n_tests), range(n_train))
    own = stored.about.get("content") == "attribution scores"
    about = ", ".join(stored.about[key] for key in ("method", "sign") if own and key in stored.about)
    matrix = _of_array("whence" if own else "parquet", stored.scores)
    return _Matrix(matrix.tool, matrix.shape, matrix.take, "test-train", about, stored.targets)


def _of_tensors(where: Path, n_tests: int, n_train: int) -> _Matrix:
    """Map a file of tensors: whence's own, kronfluence's, whose modules are summed, or one matrix."""
    try:
        file: Any = safe_open(where, framework="pt")  # numpy knows no bfloat16
        names, metadata = list(file.keys()), file.metadata() or {}
        if metadata.get("content") == "attribution scores":
            return _of_whence(where, n_tests, n_train)
        summed = [name for name in (_ALL, "scores") if name in names][:1] or names
        parts = [file.get_slice(name) for name in summed]
        shapes = {tuple(part.get_shape()) for part in parts}
    except SafetensorError as error:
        raise InvalidInputError(
            f"'{where}' must be a safetensors file. It cannot be read: {error}."
        ) from error
    shape = next(iter(shapes), ())
    if len(shapes) == 1 and len(shape) == 1:
        raise UnsupportedError(
            f"'{where.name}' must hold one score per test and training sample. Got one per sample, "
            f"{shape[0]:,}, such as kronfluence's self scores. Compute pairwise scores."
        )
    if len(shapes) == 1 and len(shape) == 3:
        raise UnsupportedError(
            f"'{where.name}' must hold one score per test and training sample. Got one per token, of shape "
            f"{shape}. Compute the scores without compute_per_token_scores."
        )
    check_that(len(shapes) == 1 and len(shape) == 2, str(where), "hold matrices of one shape", sorted(shapes))

    def take(rows: slice, columns: slice) -> Array:
        total: Array = sum(part[rows, columns].float() for part in parts).numpy()
        return total

    kronfluence = _ALL in names or len(names) > 1
    fixed: Orientation | None = "test-train" if kronfluence else None
    about = f"sum over {len(parts)} modules" if len(parts) > 1 else ""
    return _Matrix("kronfluence" if kronfluence else "safetensors", (shape[0], shape[1]), take, fixed, about)


def _of_bergson(folder: Path) -> _Matrix:
    """Map the scores of bergson: one item per training sample, with one score per query.

    Its versions differ: ``scores.bin`` is a flat matrix with ``written.bin`` next to it, or one record per
    item with a flag after each score. bfloat16 is read as the upper half of float32.
    """
    try:
        info = json.loads((folder / "info.json").read_text(encoding="utf-8"))
        tokens, form = info.get("attribute_tokens", False), info.get("dtype")
        n_items, n_queries = (check_count(name, info.get(name)) for name in ("num_items", "num_scores"))
    except (ValueError, AttributeError, OSError) as error:
        raise InvalidInputError(f"'{folder / 'info.json'}' must be JSON of bergson. Got {error}") from error
    if tokens:
        raise UnsupportedError(
            f"'{folder}' must hold one score per training sample and query. Got scores of tokens. Compute "
            "them with bergson without attribute_tokens."
        )
    flat = isinstance(form, str)
    dtype, halved = _plain_dtype(form) if flat else _record_dtype(form, n_queries)
    file, size = existing_path(folder / "scores.bin"), n_items * dtype.itemsize * (n_queries if flat else 1)
    check_that(file.stat().st_size == size, "scores.bin", f"have {size:,} bytes", file.stat().st_size)
    shape = (n_items, n_queries) if flat else (n_items,)
    stored: Any = np.memmap(file, dtype, "r", shape=shape)
    written = folder / "written.bin"
    if flat and written.is_file():
        _check_written(np.fromfile(written, np.bool_)[:n_items])

    def take(rows: slice, columns: slice) -> Array:
        if flat:
            return _widened(stored[rows, columns], halved)
        queries = range(columns.start, columns.stop)
        for query in queries:
            _check_written(stored[f"written_{query}"][rows], rows.start, query)
        return _widened(np.stack([stored[f"score_{query}"][rows] for query in queries], 1), halved)

    return _Matrix("bergson", (n_items, n_queries), take, "train-test")


def _plain_dtype(name: str) -> tuple[np.dtype[Any], bool]:
    """Return how scores are stored, and whether they are bfloat16, which numpy does not know."""
    halves = name == "bfloat16"
    allowed = ("float16", "float32", "float64", "bfloat16")
    return np.dtype("uint16" if halves else check_choice("dtype", name, allowed)), halves


def _record_dtype(form: Any, n_queries: int) -> tuple[np.dtype[Any], bool]:
    """Return the type of bergson's records, of scores and flags."""
    rule = "be the name of a type, or names, formats, offsets and itemsize"
    keys = ("names", "formats", "offsets", "itemsize")
    check_that(isinstance(form, dict) and set(keys) <= set(form), "dtype", rule, form)
    fields = {f"{name}_{query}" for name in ("score", "written") for query in range(n_queries)}
    check_that(
        fields <= set(form["names"]),
        "dtype",
        f"have fields score and written of {n_queries} queries",
        form["names"],
    )
    halves = "bfloat16" in form["formats"]
    formats = [np.dtype("bool") if name == "bool" else _plain_dtype(str(name))[0] for name in form["formats"]]
    layout: Any = {**{key: form[key] for key in keys}, "formats": formats}
    try:
        return np.dtype(layout), halves
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"'dtype' must describe records. Got {error}.") from error


def _check_written(flags: Array, first: int = 0, query: int | None = None) -> None:
    """Raise where a run that was stopped left scores out."""
    missing = np.flatnonzero(~flags)
    if len(missing):
        of = "" if query is None else f" for query {query}"
        raise InvalidInputError(
            f"'scores.bin' must hold every score. Got none of item {first + int(missing[0])}{of}: the run "
            "was not finished. Resume it with bergson."
        )


def _widened(values: Array, halved: bool) -> Array:
    """Return bfloat16, which is stored as whole numbers, as float32; others unchanged."""
    if not halved:
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)
