"""What can be wrong with an argument of each kind, and what is odd about it but may be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from tests.fuzz import world

Change = Callable[[Any], Any]


class Mutation(NamedTuple):
    """Makes another argument of a right one; ``wrong`` says that nobody could mean it."""

    name: str
    change: Change
    wrong: bool


Kind = tuple[Mutation, ...]


def wrong(**changes: Change) -> Kind:
    """Changes that nobody could mean."""
    return tuple(Mutation(name, change, True) for name, change in changes.items())


def odd(**changes: Change) -> Kind:
    """Changes that may be meant."""
    return tuple(Mutation(name, change, False) for name, change in changes.items())


def without(kind: Kind, *names: str) -> Kind:
    """Leave some mutations out, of which a call makes sense."""
    assert all(any(each.name == name for each in kind) for name in names), names
    return tuple(each for each in kind if each.name not in names)


def may(kind: Kind, *names: str) -> Kind:
    """Call some mutations odd that are wrong elsewhere."""
    return tuple(each._replace(wrong=each.wrong and each.name not in names) for each in kind)


def nothing(*_: Any, **__: Any) -> None:
    """Take anything and give nothing; written in Python, as users' functions are."""


NONE = wrong(none=lambda v: None)
JUNK = wrong(
    text=lambda v: "bee",
    object=lambda v: object(),
    function=lambda v: nothing,
    mapping=lambda v: {"a": 1},
    kind=lambda v: int,
    octets=lambda v: b"bee",
    closed_file=lambda v: closed_file(),
)
ONE = JUNK + wrong(
    generator=lambda v: (each for each in (1, 2)),
    no_array=lambda v: np.empty(0),
    object_array=lambda v: np.array([None, {}], object),
)
"""Wrong wherever one number, word or flag is wanted."""


def closed_file() -> Any:
    with open(world.a_file(), encoding="utf-8") as file:
        pass
    return file


def array(v: Any) -> np.ndarray:
    return np.asarray(v.detach() if isinstance(v, torch.Tensor) else v)


def put(v: Any, value: Any, dtype: Any = None) -> np.ndarray:
    found = np.array(array(v), dtype=dtype)
    if found.size:
        found.flat[found.size // 2] = value
    return found


def masked(v: Any) -> Any:
    mask = np.zeros(array(v).shape, bool)
    mask.flat[0] = True
    return np.ma.masked_array(array(v), mask)


NO_ARRAY = (
    NONE
    + JUNK
    + wrong(
        complex=lambda v: array(v).astype(complex),
        objects=lambda v: put(v, None, object),
        texts=lambda v: array(v).astype(str),
        dates=lambda v: array(v).astype("datetime64[s]"),
        single=lambda v: 0.5,
        empty=lambda v: array(v)[:0],
        one_more_axis=lambda v: array(v)[None],
        masked=masked,
        on_meta=lambda v: torch.as_tensor(array(v)).to("meta"),
        sparse_tensor=lambda v: torch.as_tensor(array(v)).to_sparse(),
        ragged=lambda v: [[1.0, 2.0], [3.0]],
        generator=lambda v: (row for row in array(v)),
    )
)
"""Wrong wherever an array is wanted."""

ODD_ARRAY = odd(
    fortran=lambda v: np.asfortranarray(array(v)),
    backwards=lambda v: np.ascontiguousarray(array(v)[::-1])[::-1],
    read_only=lambda v: read_only(array(v)),
    other_end=lambda v: array(v).astype(array(v).dtype.newbyteorder()),
    list=lambda v: array(v).tolist(),
    tensor=lambda v: torch.as_tensor(array(v)),
    unmasked=lambda v: np.ma.masked_array(array(v)),
)


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def numbers(*, rows: bool = True, columns: bool = True) -> Kind:
    """Finite real numbers of one shape, an array with 1 or more axes; whose lengths are given or not."""
    bad = wrong(nan=lambda v: put(v, np.nan, float), infinite=lambda v: put(v, -np.inf, float))
    if rows:
        bad += wrong(fewer_rows=lambda v: array(v)[:-1], more_rows=lambda v: array(v).repeat(2, 0))
    if columns:
        bad += wrong(fewer_columns=lambda v: array(v)[..., :-1], no_columns=lambda v: array(v)[..., :0])
    strange = odd(
        half=lambda v: array(v).astype(np.float16),
        double=lambda v: array(v).astype(np.float64),
        long=lambda v: array(v).astype(np.longdouble),
        whole=lambda v: array(v).astype(np.int32),
        unsigned=lambda v: np.abs(array(v)).astype(np.uint64),
        truths=lambda v: array(v) > 0,
        huge=lambda v: array(v).astype(np.float64) * 1e30,
        beyond=lambda v: array(v).astype(np.float64) * 1e200,
        tiny=lambda v: array(v).astype(np.float64) * 1e-200,
        zeros=lambda v: np.zeros_like(array(v)),
        constant=lambda v: np.ones_like(array(v)),
        bfloat=lambda v: torch.as_tensor(array(v)).bfloat16(),
        differentiable=lambda v: torch.as_tensor(array(v)).double().requires_grad_(),
    )
    return NO_ARRAY + bad + ODD_ARRAY + strange


def matrix(*, rows: bool = True, columns: bool = True) -> Kind:
    """Finite real numbers (n, d)."""
    return numbers(rows=rows, columns=columns) + wrong(
        one_row=lambda v: array(v)[0], sparse=lambda v: csr_array(array(v).astype(np.float32))
    )


def labels(n_classes: int | None = world.K, *, rows: bool = True, negative: bool = True) -> Kind:
    """Integers (n,), below ``n_classes`` where that is known."""
    kind = (
        NO_ARRAY
        + ODD_ARRAY
        + wrong(
            fractions=lambda v: array(v) + 0.5,
            floats=lambda v: array(v).astype(float),
            minus_zero=lambda v: -0.0 * array(v),
            nan=lambda v: put(v, np.nan, float),
            unsigned_beyond=lambda v: put(v, 2**63 + 5, np.uint64),
        )
        + odd(truths=lambda v: array(v) > 0)
    )
    if negative:
        kind += wrong(negative=lambda v: put(v, -1), very_negative=lambda v: put(v, -(2**62)))
    if rows:
        kind += wrong(fewer_rows=lambda v: array(v)[:-1], more_rows=lambda v: array(v).repeat(2, 0))
    if n_classes is not None:
        kind += wrong(
            beyond=lambda v: put(v, n_classes), million=lambda v: put(v, 10**6), huge=lambda v: put(v, 2**62)
        )
    return kind + odd(
        unsigned=lambda v: array(v).astype(np.uint64),
        short=lambda v: array(v).astype(np.int8),
        same=lambda v: np.zeros_like(array(v)),
    )


def mask(*, rows: bool = True, split: bool = True) -> Kind:
    """Truth values."""
    kind = (
        without(NO_ARRAY, "single")
        + ODD_ARRAY
        + wrong(numbers=lambda v: array(v).astype(int), places=lambda v: np.flatnonzero(array(v)))
    )
    if rows:
        kind += wrong(fewer_rows=lambda v: array(v)[..., :-1])
    if split:
        kind += wrong(none_true=lambda v: np.zeros_like(array(v)), all_true=lambda v: np.ones_like(array(v)))
    return kind


def number(
    low: float = 0.0, high: float = np.inf, *, least: bool = False, most: bool = False, none: bool = False
) -> Kind:
    """A finite number between two; the ends belong to it or not."""
    kind = ONE + wrong(
        nan=lambda v: float("nan"),
        infinite=lambda v: float("inf"),
        minus_infinite=lambda v: -np.inf,
        truth=lambda v: True,
        digits=lambda v: "1",
        several=lambda v: [0.5, 0.5],
        array=lambda v: np.array([0.5]),
        complex=lambda v: 0.5 + 0j,
        overflow=lambda v: 10**400,
    )
    kind += () if none else NONE
    if low >= 0:
        kind += wrong(negative=lambda v: -0.5)
    if not least:
        kind += wrong(low=lambda v: low)
    if high < np.inf:
        kind += wrong(above=lambda v: high + 0.5)
        kind += () if most else wrong(high=lambda v: high)
    return kind + odd(
        single=lambda v: np.float32(0.5 if v is None else v),
        fraction=lambda v: Fraction(1, 2),
        tiny=lambda v: 1e-300,
        large=lambda v: 1e300,
        scalar=lambda v: np.float64(0.5 if v is None else v),
    )


def count(least: int = 1, *, none: bool = False, most: int | None = None) -> Kind:
    """An integer of at least ``least``."""
    kind = ONE + wrong(
        below=lambda v: least - 1,
        negative=lambda v: -7,
        half=lambda v: 1.5,
        float=lambda v: 2.0,
        truth=lambda v: True,
        digits=lambda v: "3",
        nan=lambda v: float("nan"),
        infinite=lambda v: np.inf,
        several=lambda v: [3],
        array=lambda v: np.array([1, 2]),
    )
    kind += () if none else NONE
    if most is not None:
        kind += wrong(above=lambda v: most + 1)
    return kind + odd(
        numpy=lambda v: np.int64(2 if v is None else v),
        short=lambda v: np.uint8(2 if v is None else min(v, 200)),
        large=lambda v: 1000,
        billion=lambda v: 10**9,
        huge=lambda v: 10**30,
        one=lambda v: 1,
    )


SEED = (
    ONE
    + NONE
    + wrong(
        negative=lambda v: -1,
        half=lambda v: 1.5,
        nan=lambda v: float("nan"),
        several=lambda v: [1, 2],
        truth=lambda v: True,
    )
    + odd(large=lambda v: 2**62, beyond=lambda v: 2**70, numpy=lambda v: np.uint32(5))
)

FLAG = (
    ONE
    + NONE
    + wrong(
        no=lambda v: "no",
        two=lambda v: 2,
        nan=lambda v: float("nan"),
        several=lambda v: [True, False],
        array=lambda v: np.array([True, False]),
    )
    + odd(numpy=lambda v: np.bool_(v), other=lambda v: not v)
)


def choice(words: Sequence[Any]) -> Kind:
    """One of some words."""
    kind = ONE + wrong(blank=lambda v: "", number=lambda v: 3, several=lambda v: list(words))
    kind += () if None in words else NONE
    return kind + tuple(Mutation(f"is_{word}", lambda v, w=word: w, False) for word in words)
