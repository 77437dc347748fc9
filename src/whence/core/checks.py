"""Checks of arguments for all packages: integers, numbers, words, flags, and arrays of any origin.

Each returns the value in its plain form or raises ``InvalidInputError``, which names the argument, the rule
and the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from whence.errors import InvalidInputError

_LONGEST = 200  # maximum length of a quoted value


def check_that(holds: Any, name: str, rule: str, got: Any, fix: str = "") -> None:
    """Raise unless a condition of an argument holds; ``rule`` starts with a verb.

    Examples
    --------
    >>> check_that(2 >= 3, "outputs", "have at least 3 models", 2, "Train more.")
    Traceback (most recent call last):
    whence.errors.InvalidInputError: 'outputs' must have at least 3 models. Got 2. Train more.
    """
    if not holds:
        raise InvalidInputError(f"'{name}' must {rule}. Got {shown(got)}.{fix and f' {fix}'}")


def check_count(name: str, value: Any, least: int = 1, most: int | None = None, why: str = "") -> int:
    """Return an integer of at least ``least`` and, if given, at most ``most``."""
    if is_integer(value) and value >= least and (most is None or value <= most):
        return int(value)
    limit = f"at least {least}" + ("" if most is None else f" and at most {most:,}")
    raise InvalidInputError(f"'{name}' must be an integer of {limit}{why}. Got {shown(value)}.")


def check_seed(value: Any, name: str = "seed") -> int:
    """Return a valid random seed."""
    return check_count(name, value, 0, 2**63 - 1)


def check_positive(name: str, value: Any, why: str = "") -> float:
    """Return a finite number above 0."""
    return _number(name, value, lambda x: 0 < x < math.inf, f"a finite number above 0{why}")


def check_share(name: str, value: Any, *, whole: bool = False) -> float:
    """Return a number above 0 and below 1; with ``whole``, 1 is allowed."""
    rule = f"a number in (0, 1{']' if whole else ')'}"
    return _number(name, value, lambda x: 0 < x < 1 or (whole and x == 1), rule)


def check_number(name: str, value: Any, least: float = -math.inf) -> float:
    """Return a finite number of at least ``least``."""
    rule = "a finite number" + ("" if least == -math.inf else f" of at least {least:g}")
    return _number(name, value, lambda x: math.isfinite(x) and x >= least, rule)


def check_choice(name: str, value: Any, choices: Sequence[str | None]) -> Any:
    """Return a parameter that is one of some words."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        words = ", ".join("None" if choice is None else f'"{choice}"' for choice in choices)
        raise InvalidInputError(f"'{name}' must be one of {words}. Got {shown(value)}.")
    return value


def check_word(name: str, value: Any) -> str:
    """Return a text with at least one letter."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"'{name}' must be a text that is not blank. Got {shown(value)}.")
    return str(value)


def check_text(name: str, value: Any, most: int = 10_000) -> str:
    """Return a text of at most so many characters, or raise."""
    if not isinstance(value, str) or len(value) > most:
        got = f"{len(value):,} characters" if isinstance(value, str) else shown(value)
        raise InvalidInputError(f"'{name}' must be a text of at most {most:,} characters. Got {got}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"'{name}' must be valid Unicode. Got half of a surrogate pair.") from None
    return str(value)


def check_flag(name: str, value: Any) -> bool:
    """Return a flag as a Python bool, also from numpy's."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"'{name}' must be True or False. Got {shown(value)}.")
    return bool(value)


def check_is(name: str, value: Any, kind: type, what: str) -> None:
    """Raise unless a parameter is of a type; ``what`` describes it, as in "a mapping of names to rules"."""
    if not isinstance(value, kind):
        raise InvalidInputError(f"'{name}' must be {what}. Got {shown(value)}.")


def check_several(name: str, values: Any, what: str) -> None:
    """Raise unless values can be gone through and are no text or closed file; ``what`` as in "a list"."""
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    if not several or getattr(values, "closed", False):
        raise InvalidInputError(f"'{name}' must be {what}. Got {shown(values)}.")


def check_callable(name: str, value: Any, what: str) -> Any:
    """Return a callable parameter; ``what`` describes it, as in "a function of a batch"."""
    if not callable(value):
        raise InvalidInputError(f"'{name}' must be {what}. Got {shown(value)}.")
    return value


def check_names(name: str, values: Any, n: int | None = None) -> tuple[str, ...]:
    """Return unique names of classes; if ``n`` is given, exactly n."""
    plain = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str | bytes)
    names = tuple(values) if plain else ()
    if not names or not all(isinstance(text, str) for text in names):
        raise InvalidInputError(
            f'\'{name}\' must be names, one per class, such as ["cat", "dog"]. Got {shown(values)}.'
        )
    twice = next((text for i, text in enumerate(names) if text in names[:i]), None)
    if twice is not None:
        raise InvalidInputError(f"'{name}' must be different names. Got {str(twice)!r} twice.")
    if n is not None and len(names) != n:
        raise InvalidInputError(f"'{name}' must be {n} names, one per class of the model. Got {len(names)}.")
    return tuple(map(str, names))


def check_path(name: str, value: Any) -> Path:
    """Return the path of a file or folder, which need not exist."""
    text = fspath(value) if isinstance(value, str | PathLike) else None
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise InvalidInputError(f"'{name}' must be the path of a file or folder. Got {shown(value)}.")
    return Path(text)


def check_places(name: str, values: Any, n: int) -> npt.NDArray[np.int64]:
    """Return indices of samples, a list of integers in [0, n)."""
    array = to_array(name, values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInputError(f"'{name}' must be a list of integers in [0, {n}). Got {shown(values)}.")
    places = as_int64(name, array)
    i = outside(places, 0, n)
    if i is not None:
        raise InvalidInputError(f"'{name}' must lie in [0, {n}). Got {places[i]}.")
    return places


def check_shape(name: str, array: Any, shape: tuple[int | None, ...], rule: str = "have ") -> None:
    """Raise unless an array or tensor has a shape, in which None is any length above 0.

    ``rule`` begins with a verb and says before the shape what the array is.
    """
    given = tuple(array.shape)
    pairs = zip(given, shape, strict=False)
    if len(given) != len(shape) or not all(m == n or (n is None and m > 0) for m, n in pairs):
        wanted = ", ".join("any" if n is None else str(n) for n in shape) + "," * (len(shape) == 1)
        raise InvalidInputError(f"'{name}' must {rule}shape ({wanted}). Got {given}.")


def check_finite(name: str, array: Any) -> None:
    """Raise unless all values of an array or tensor are finite; the message names the first other one."""
    finite = array.isfinite().cpu().numpy() if hasattr(array, "isfinite") else np.isfinite(array)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0].tolist())
        value = float(array[place])
        raise InvalidInputError(f"'{name}' must be finite. Got {value}" + (f" at {place}." if place else "."))


def outside(values: npt.NDArray[Any], least: int, end: int) -> int | None:
    """Return the position of the first value that is not in [least, end), or None."""
    wrong = (values < least) | (values >= end)
    return int(wrong.argmax()) if wrong.any() else None


def to_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return a tensor, array or list as a numpy array, sharing memory if possible."""
    if _is_tensor(values):
        values = _of_tensor(name, values)
    elif issparse(values):
        raise InvalidInputError(f"'{name}' must be a dense array. Got a sparse one; pass {name}.toarray().")
    elif isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidInputError(
            f"'{name}' must have all its entries. Got a masked array. Fill or leave out what is masked."
        )
    try:
        return np.asarray(values)
    except Exception as error:  # any error of an object's __array__
        raise InvalidInputError(
            f"'{name}' must be an array. Got {type(values).__name__}, of which numpy can make none: {error}."
        ) from error


def real_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return an array of real numbers, in its own precision."""
    array = to_array(name, values)
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"'{name}' must hold real numbers. Got dtype {array.dtype}.")
    return array


def as_int64(name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return an array of integers as int64, or raise if one does not fit."""
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        i = int(array.argmax())
        raise InvalidInputError(f"'{name}' must be below 2⁶³. Got {array.flat[i]} at index {i}.")
    return array.astype(np.int64, copy=False)


def shown(value: Any) -> str:
    """Format a value for a message: short ones in full, arrays by type and shape, others by type."""
    shape = getattr(value, "shape", None)
    if isinstance(value, np.generic):
        value = value.item()
    elif shape is not None and np.ndim(shape) == 1 and len(shape):
        return f"{type(value).__name__} of shape {tuple(shape)}"
    try:
        text = repr(value)
    except Exception:  # an object that cannot be printed
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def check_dense(name: str, tensor: Any) -> None:
    """Raise unless a torch tensor is dense and in memory."""
    faults = {
        "sparse": str(tensor.layout) != "torch.strided",
        "quantised": tensor.is_quantized,
        "without values, on the meta device": tensor.device.type == "meta",
    }
    for fault, is_so in faults.items():
        if is_so:
            raise InvalidInputError(f"'{name}' must be a dense tensor. Got one that is {fault}.")


def _is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch, which this module does not import; files can be detached too."""
    return hasattr(value, "detach") and hasattr(value, "layout")


def _of_tensor(name: str, tensor: Any) -> Any:
    check_dense(name, tensor)
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    # Some dtypes have no counterpart in numpy.
    return tensor.float() if re.search("float8|float4|bfloat16", str(tensor.dtype)) else tensor


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer of Python or numpy, and not a bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _number(name: str, value: Any, fits: Callable[[float], bool], rule: str) -> float:
    """Return a real number that fits as a float; numeric texts and bools are refused."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        number = float(value) if real else math.nan
    except OverflowError:
        number = math.inf
    if not fits(number):
        raise InvalidInputError(f"'{name}' must be {rule}. Got {shown(value)}.")
    return number


def check_parts(name: str, inputs: Any) -> None:
    """Raise if a part of a batch is sparse, quantised, without values, or masked."""
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    if isinstance(inputs, tuple | list):
        for part in inputs:
            check_parts(name, part)
    elif _is_tensor(inputs):
        check_dense(name, inputs)
    elif isinstance(inputs, np.ma.MaskedArray) or issparse(inputs):
        to_array(name, inputs)
