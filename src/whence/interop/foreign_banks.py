"""Banks of retrained networks as other projects publish them. No code in their files is run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whence.core.arrays import Array
from whence.core.checks import check_count, check_places, check_shape, check_that, to_array
from whence.core.files import existing_path
from whence.errors import InvalidInputError, UnsupportedError
from whence.interop.banks import RetrainingBank, read_bank

_KRONFLUENCE = ("masks.pt", "margins.pt")
_DATTRI = ("indices_lds.pt", "target_values_lds.pt")
Folder = str | PathLike[str]


def open_bank(path: Folder) -> RetrainingBank:
    """Read a bank: a Parquet file, or a folder with the files of kronfluence or of dattri."""
    where = existing_path(path)
    if where.is_file():
        return read_bank(where)
    for names, reader in _READERS.items():
        if all((where / name).is_file() for name in names):
            return reader(where)
    known = " or ".join(" and ".join(names) for names in _READERS)
    raise InvalidInputError(
        f"'{where}' must be a Parquet file, or a folder with {known}. Got a folder without."
    )


def read_kronfluence(folder: Folder) -> RetrainingBank:
    """Read masks (m, N) and margins (m, T) as kronfluence commits them, in ``examples/glue/files``.

    100 masks of 2,432 training samples of RTE, and margins of BERT for 277 tests, each the mean of five
    trainings; the first N of the training set in its order. ``examples/swag/files`` has the same form.
    """
    folder = existing_path(folder, "folder")
    masks, margins = (read_array(folder / name) for name in _KRONFLUENCE)
    check_shape("masks", masks, (None, None))
    check_shape("margins", margins, (len(masks), None))
    check_that(np.isin(masks, (0, 1)).all(), "masks", "hold 0 and 1", masks)
    return RetrainingBank(
        subsets=masks.astype(np.bool_),
        outputs=margins,
        seeds=np.arange(len(masks)),
        output="margin of the true class, mean over trainings",
        source=f"kronfluence, {folder.name}",
    )


def read_dattri(folder: Folder, n_train: int = 5_000) -> RetrainingBank:
    """Read the ground truth of one of dattri's benchmarks: its folder ``lds``.

    ``indices_lds.pt`` has the training samples of each network (m, size) and ``target_values_lds.pt`` each
    test's loss (m, T), whose negative is the bank's output.

    Parameters
    ----------
    folder
        Such as ``~/.dattri/benchmark/mnist_lr/lds``.
    n_train
        Training samples that halves are drawn from; 5,000 in all benchmarks of dattri that have images.
        At most 10,000,000.
    """
    folder = existing_path(folder, "folder")
    indices, losses = (read_array(folder / name) for name in _DATTRI)
    check_shape("indices", indices, (None, None))
    check_shape("target_values", losses, (len(indices), None))
    subsets = np.zeros((len(indices), check_count("n_train", n_train, most=10_000_000)), np.bool_)
    for used, rows in zip(subsets, indices, strict=True):
        used[check_places("indices", rows, n_train)] = True
    return RetrainingBank(
        subsets=subsets,
        outputs=-losses.astype(np.float64),
        seeds=np.arange(len(subsets)),
        output="-loss of the true label",
        source=f"dattri, {folder.parent.name}",
    )


_READERS: dict[tuple[str, ...], Callable[[Folder], RetrainingBank]] = {
    _KRONFLUENCE: read_kronfluence,
    _DATTRI: read_dattri,
}


def read_array(path: Path) -> Array:
    """Return a tensor or a numpy array that ``torch.save`` wrote, as an array, without running code."""
    serialization: Any = torch.serialization
    if not hasattr(serialization, "safe_globals"):
        raise UnsupportedError(
            f"'torch' must be 2.6 or later to read '{path.name}'. Got {torch.__version__}. Update it."
        )
    remake: Any = np.zeros(1).__reduce__()[0]  # how numpy rebuilds arrays
    kinds = [type(np.dtype(name)) for name in ("f2", "f4", "f8", "i1", "i4", "i8", "u1", "?")]
    names = [(remake, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    try:
        with serialization.safe_globals([*names, np.ndarray, np.dtype, *kinds]):
            values = torch.load(existing_path(path), map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        why = str(error).splitlines()[0]
        raise InvalidInputError(f"'{path}' must be an array that torch.save wrote. Got {why}") from error
    return to_array(path.stem, values)
