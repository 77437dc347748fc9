"""A public call with its arguments, and the arguments that many calls share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.fuzz import kinds, things, world
from tests.fuzz.kinds import Kind
from tests.fuzz.world import B, N
from whence.model.inputs import n_rows


class Arg(NamedTuple):
    """An argument: what can be wrong with it, how a right one is made, and whether it must be there."""

    kind: Kind
    make: Callable[[], Any]
    needed: bool = False


class Call(NamedTuple):
    """A public call.

    Attributes
    ----------
    name : dotted, as in ``public``
    function : gives what to call
    args : by name
    check : whether a result is as documented, from it and the arguments
    nan : whether the documentation speaks of NaN in the result
    refuses : whether it is there to say no
    """

    name: str
    function: Callable[[], Callable[..., Any]]
    args: dict[str, Arg]
    check: Callable[[Any, dict[str, Any]], bool] = lambda result, args: True
    nan: bool = False
    refuses: bool = False


def need(kind: Kind, make: Callable[[], Any]) -> Arg:
    """An argument that must be there."""
    return Arg(kind, make, True)


def scored(result: Any, args: dict[str, Any]) -> bool:
    """Whether scores are (test, train)."""
    return tuple(result.shape) == (n_rows(args["x"]), N)


def ranked(result: Any, args: dict[str, Any]) -> bool:
    """Whether rankings are (test, k)."""
    shape = (n_rows(args["x"]), args.get("k", 5))
    return all(tuple(part.shape) == shape for side in result[:2] for part in side)


SHOWN = Arg(kinds.FLAG, lambda: False, True)
TARGET = Arg(things.target(), lambda: None)
TESTS = need(things.INPUTS, lambda: world.X(B))
FEATURES = need(kinds.matrix(), world.features)
TEST_FEATURES = need(kinds.matrix(rows=False), lambda: world.features(B))
PAIR = need(things.DATA, lambda: (world.X(), world.y()))
HEAD = (
    kinds.JUNK
    + kinds.wrong(
        weight_alone=lambda v: v[0],
        three=lambda v: (*v, v[1]),
        swapped=lambda v: (v[1], v[0]),
        narrow=lambda v: (v[0][:, :-1], v[1]),
        other_classes=lambda v: (v[0], v[1][:-1]),
        nan=lambda v: (v[0] * np.nan, v[1]),
        complex=lambda v: (v[0] + 0j, v[1]),
        texts=lambda v: (v[0].astype(str), v[1]),
        empty=lambda v: (),
    )
    + kinds.odd(no_bias=lambda v: (v[0], None), tensors=lambda v: tuple(map(torch.as_tensor, v)))
)
SEED = Arg(kinds.SEED, lambda: 0)
K_ARG = Arg(kinds.count(), lambda: 2)
FUNCTIONS = {
    "preprocess": Arg(things.FUNCTION, lambda: None),
    "collate_fn": Arg(things.FUNCTION, lambda: None),
}
