"""Draw the embedded sample from the original Fashion-MNIST files: ``python -m tools.sample FOLDER``.

FOLDER holds the four ``.gz`` files as their authors publish them. The draw takes the same number of images of
every class, by a fixed seed, and keeps the original order.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whence import sample
from whence.sample.dataset import parse_idx

SIZES = {"train": 5000, "t10k": 1000}
SEED = 0


def stratified(labels: NDArray[np.uint8], size: int, seed: int) -> NDArray[np.intp]:
    """Sorted indices of ``size`` samples, the same number of every class."""
    classes = np.unique(labels)
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(np.flatnonzero(labels == c), size // len(classes), replace=False) for c in classes]
    return np.sort(np.concatenate(drawn))


def to_idx(array: NDArray[np.uint8]) -> bytes:
    """Write an array of bytes in the IDX format, gzipped; equal arrays give equal bytes."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return gzip.compress(header + array.tobytes(), compresslevel=9, mtime=0)


def make(source: Path, destination: Path) -> None:
    """Write the four files of the sample into ``destination``, drawn from the originals in ``source``."""
    for split, size in SIZES.items():
        names = {kind: f"{split}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")}
        arrays = {
            name: parse_idx(gzip.decompress((source / name).read_bytes()), name) for name in names.values()
        }
        kept = stratified(arrays[names["labels-idx1"]], size, SEED)
        for name, array in arrays.items():
            (destination / name).write_bytes(to_idx(array[kept]))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python -m tools.sample FOLDER   (the folder with the original .gz files)")
    make(Path(sys.argv[1]), Path(sample.__file__).parent)
