"""Validation of the contents of saved files, which can be wrong even with a correct checksum.

Every function raises ``StoreError``, which names the array or the field, the rule and the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from whence.core.arrays import Array
from whence.errors import InvalidInputError, StoreError

Kind = TypeVar("Kind")
Arrays = Mapping[str, Array]
Shape = tuple[int | str, ...]
"""Layouts name sizes by letters; a letter is the same size everywhere."""
Sizes = dict[str, int]
"""The sizes of the letters, as far as known; every check adds the sizes it finds."""
Layout = Mapping[str, Shape]

FLOATS = ("float32", "float64")

_REMEDY = "It was altered, or not written by whence. Save it again."


def refused(what: str) -> StoreError:
    """Return the error for invalid contents."""
    return StoreError(f"The file does not hold what was saved: {what}. {_REMEDY}")


def check_names(arrays: Mapping[str, Any], names: set[str], optional: set[str] | None = None) -> None:
    """Raise unless the arrays have exactly these names, apart from optional ones."""
    missing, extra = sorted(names - arrays.keys()), sorted(arrays.keys() - names - (optional or set()))
    if missing:
        raise refused(f"the array {missing[0]!r} is missing")
    if extra:
        raise refused(f"it has an array {extra[0]!r}, which does not belong there")


def check_floats(
    arrays: Arrays, layout: Layout, sizes: Sizes, dtypes: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Raise unless arrays are finite, have an allowed dtype (or float64), and the shapes of a layout."""
    for name, shape in layout.items():
        array = arrays[name]
        allowed = (dtypes or {}).get(name, ("float64",))
        if array.dtype.name not in allowed:
            raise refused(f"{name!r} must be of dtype {' or '.join(allowed)}, and is of {array.dtype}")
        check_shape(name, array, shape, sizes)
        if not np.isfinite(array).all():
            raise refused(f"{name!r} must be finite, and is not")


def check_shape(name: str, array: Array, shape: Shape, sizes: Sizes) -> None:
    """Raise unless an array has a shape; scalars are stored as (1,)."""
    shape = shape or (1,)
    fits = array.ndim == len(shape)
    if fits:
        for size, wanted in zip(array.shape, shape, strict=True):
            fits &= size == (sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted)
    if not fits:
        words = ", ".join(f"{sizes.get(s, 'any')}" if isinstance(s, str) else str(s) for s in shape)
        raise refused(f"{name!r} must have shape ({words}), and has {array.shape}")


def check_integers(name: str, array: Array, shape: Shape, sizes: Sizes, least: int, most: int) -> None:
    """Raise unless an array is integers of a shape, from ``least`` to ``most``."""
    if array.dtype.kind != "i":
        raise refused(f"{name!r} must be integers, and has dtype {array.dtype}")
    check_shape(name, array, shape, sizes)
    outside = (array < least) | (array > most)
    if outside.any():
        place = int(outside.argmax())
        raise refused(f"{name!r} must lie in [{least}, {most}], and has {array.flat[place]} at {place}")


def check_rows(arrays: Arrays, prefix: str, n: int, width: int) -> None:
    """Raise unless ``data``, ``indices`` and ``indptr`` are a sparse matrix (n, width) by rows."""
    names = [f"{prefix}{part}" for part in ("data", "indices", "indptr")]
    data, indices, indptr = (arrays[name] for name in names)
    sizes: Sizes = {}
    check_floats(arrays, {names[0]: ("entries",)}, sizes)
    check_integers(names[1], indices, ("entries",), sizes, 0, width - 1)
    check_integers(names[2], indptr, (n + 1,), sizes, 0, len(data))
    if indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise refused(f"{names[2]!r} must ascend from 0 to {len(data)}, and does not")
    cells = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr)) * width + indices
    if len(np.unique(cells)) != len(cells):
        raise refused(f"{names[1]!r} must name each class once per row, and does not")


def manifest(kind: type[Kind], values: Any) -> Kind:
    """Validate a manifest, or a dataclass in it, or name the wrong field."""
    from pydantic import TypeAdapter, ValidationError

    try:
        # As JSON, where a list can stand for a tuple, with strict types otherwise.
        return TypeAdapter(kind).validate_json(json.dumps(values, allow_nan=False), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the manifest"
        raise refused(f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    except ValueError as error:
        raise refused("a number in the manifest is not finite") from error


@contextmanager
def restoring() -> Iterator[None]:
    """Convert errors about the values of a file to errors about the file."""
    try:
        yield
    except (InvalidInputError, TypeError, KeyError, AttributeError) as error:
        raise refused(f"its parameters cannot be taken ({error})") from error
