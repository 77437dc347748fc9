"""What can be wrong with inputs, data, models, places and functions, and what is odd about them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.fuzz import world
from tests.fuzz.kinds import (
    JUNK,
    NONE,
    Kind,
    Mutation,
    array,
    labels,
    masked,
    odd,
    put,
    read_only,
    without,
    wrong,
)


def target(n: int = world.B, *, whole: bool = False) -> Kind:
    """None, a class, or one per test."""
    kind = JUNK + wrong(
        beyond=lambda v: world.K,
        negative=lambda v: -1,
        half=lambda v: 1.5,
        float=lambda v: 1.0,
        nan=lambda v: float("nan"),
        truth=lambda v: True,
        words=lambda v: ["cat"] * n,
        unsigned_beyond=lambda v: np.full(n, 2**63, np.uint64),
        too_many=lambda v: [0] * (n + 1),
        matrix=lambda v: np.zeros((n, 1), int),
        empty=lambda v: [],
        ragged=lambda v: [[0], [1, 2]],
        on_meta=lambda v: torch.zeros(n, dtype=torch.int64, device="meta"),
    )
    several = odd(each=lambda v: [0, 1, 2, 0][:n], tensor=lambda v: torch.zeros(n, dtype=torch.uint8))
    return (
        kind
        + (() if whole else several)
        + odd(numpy=lambda v: np.int64(1), zero=lambda v: torch.tensor(0), unsigned=lambda v: np.uint64(2))
    )


INPUTS = (
    NONE
    + JUNK
    + wrong(
        complex=lambda v: v.to(torch.complex64),
        objects=lambda v: put(v, None, object),
        texts=lambda v: array(v).astype(str),
        nan=lambda v: put(v, np.nan),
        infinite=lambda v: put(v, np.inf),
        number=lambda v: 3,
        single=lambda v: torch.tensor(0.5),
        no_batch=lambda v: v[0],
        empty=lambda v: v[:0],
        empty_list=lambda v: [],
        empty_mapping=lambda v: {},
        empty_tuple=lambda v: (),
        narrow=lambda v: v[..., :-1],
        wide=lambda v: torch.cat([v, v], -1),
        with_labels=lambda v: (v, torch.zeros(len(v), dtype=torch.int64)),
        octet_values=lambda v: (v.abs() * 100).byte(),
        whole=lambda v: v.long(),
        list_of_texts=lambda v: ["a", "b"],
        ragged=lambda v: [[0.0, 1.0], [0.0]],
        on_meta=lambda v: v.to("meta"),
        sparse=lambda v: v.to_sparse(),
        masked=masked,
        two_names=lambda v: {"a": v, "b": v},
        generator=lambda v: iter(v),
    )
    + odd(
        double=lambda v: v.double(),
        half=lambda v: v.half(),
        backwards=lambda v: array(v)[::-1],
        read_only=lambda v: read_only(array(v)),
        list=lambda v: list(v),
        lists=lambda v: v.tolist(),
        named=lambda v: {"x": v},
        in_tuple=lambda v: (v,),
        one=lambda v: v[:1],
        differentiable=lambda v: v.clone().requires_grad_(),
        huge=lambda v: v * 1e30,
        tiny=lambda v: v * 1e-30,
        zeros=lambda v: v * 0,
        doubles=lambda v: array(v).astype(np.float64),
    )
)
"""A batch of tests."""


def failing(*args: Any, **options: Any) -> Any:
    raise world.UserError("the user's own")


class _Failing:
    """A data set of which one sample cannot be read."""

    def __len__(self) -> int:
        return world.N

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise OSError("no such file")
        return world.X()[index], 0


class _Lying(_Failing):
    """A data set that is shorter than it says."""

    def __getitem__(self, index: int) -> Any:
        if index >= 9:
            raise IndexError(index)
        return world.X()[index], index % world.K


_PAIRED = ("with_labels", "generator", "empty", "no_batch")
DATA = (
    NONE
    + JUNK
    + wrong(
        number=lambda v: 3,
        inputs_alone=lambda v: v[0],
        in_one=lambda v: (v[0],),
        three=lambda v: (*v, v[1]),
        swapped=lambda v: (v[1], v[0]),
        empty=lambda v: (v[0][:0], v[1][:0]),
        empty_list=lambda v: [],
        empty_tuple=lambda v: (),
        empty_mapping=lambda v: {},
        no_folder=lambda v: Path("/no/such/folder"),
        iterator=lambda v: zip(*v, strict=True),
        nones=lambda v: [None] * 5,
        singles=lambda v: [1, 2, 3],
        failing=lambda v: _Failing(),
        lying=lambda v: _Lying(),
        sampled=lambda v: torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(*v), sampler=torch.utils.data.SubsetRandomSampler([1, 2])
        ),
    )
    + tuple(
        Mutation(f"inputs_{each.name}", lambda v, change=each.change: (change(v[0]), v[1]), each.wrong)
        for each in INPUTS
        if each.name not in (*_PAIRED, "one")
    )
    + tuple(
        Mutation(f"labels_{each.name}", lambda v, change=each.change: (v[0], change(v[1])), each.wrong)
        for each in labels()
    )
    + odd(
        pairs=lambda v: list(zip(*v, strict=True)),
        dataset=lambda v: torch.utils.data.TensorDataset(*v),
        loader=lambda v: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*v), batch_size=5),
        one=lambda v: (v[0][:1], v[1][:1]),
        two=lambda v: (v[0][:2], v[1][:2]),
        same=lambda v: (v[0][:1].repeat(6, *[1] * (v[0].ndim - 1)), v[1][:6]),
        one_class=lambda v: (v[0], v[1] * 0),
    )
)
"""A training set, given as (X, y)."""

MODEL = tuple(
    Mutation(name, lambda v, m=make: m(), True) for name, make in world.wrong_models().items()
) + tuple(Mutation(name, lambda v, m=make: m(), False) for name, make in world.odd_models().items())
LAYER = (
    without(JUNK)
    + wrong(unknown=lambda v: "nowhere", labels=lambda v: world.y(), number=lambda v: 2, first=lambda v: "0")
    + odd(head=lambda v: "2", blank=lambda v: "")
)
DEVICE = (
    without(JUNK, "text")
    + wrong(unknown=lambda v: "bee", no_gpu=lambda v: "cuda:31", number=lambda v: 2.5, meta=lambda v: "meta")
    + odd(cpu=lambda v: "cpu", device=lambda v: torch.device("cpu"), name=lambda v: "CPU")
)
PATH = (
    without(JUNK, "text", "octets")
    + NONE
    + wrong(
        number=lambda v: 3.5,
        blank=lambda v: "",
        nul=lambda v: "a\0b",
        no_folder=lambda v: str(world.a_file() / "inside"),
        folder=lambda v: str(world.folder()),
        long=lambda v: str(world.folder() / ("x" * 3000)),
    )
    + odd(text=lambda v: os.fspath(v), letters=lambda v: world.folder() / "ü=+ @.whence")
)
FUNCTION = (
    without(JUNK, "function", "kind")
    + wrong(number=lambda v: 3)
    + odd(failing=lambda v: failing, nothing=lambda v: lambda *args: None, too_few=lambda v: lambda: 0)
)
NAMES = (
    without(JUNK)
    + wrong(
        too_few=lambda v: v[:-1],
        too_many=lambda v: [*v, "z"],
        text=lambda v: "abc",
        numbers=lambda v: [1, 2, 3],
        twice=lambda v: [v[0], v[0], v[1]],
        nones=lambda v: [None] * 3,
        empty=lambda v: [],
        number=lambda v: 3,
    )
    + odd(tuple=lambda v: tuple(v), array=lambda v: np.array(v), strange=lambda v: ["", "\n\0", "=x" * 50])
)
INDICES = (
    without(JUNK)
    + wrong(
        beyond=lambda v: [world.N],
        negative=lambda v: [-1],
        half=lambda v: [0.5],
        texts=lambda v: ["a"],
        number=lambda v: 3,
        nested=lambda v: [[0, 1]],
        nones=lambda v: [None],
        huge=lambda v: [2**70],
    )
    + odd(
        array=lambda v: np.asarray(v),
        tensor=lambda v: torch.as_tensor(v),
        twice=lambda v: [0, 0],
        empty=lambda v: [],
    )
)
RELABEL = (
    without(JUNK, "mapping")
    + wrong(
        half=lambda v: {0: 1.5},
        class_beyond=lambda v: {0: world.K},
        class_negative=lambda v: {0: -1},
        beyond=lambda v: {world.N: 0},
        negative=lambda v: {-1: 0},
        half_index=lambda v: {0.5: 0},
        texts=lambda v: {"a": 0},
        none=lambda v: {0: None},
        list=lambda v: [0, 1],
        named=lambda v: {0: "cat"},
    )
    + odd(numpy=lambda v: {np.int64(0): np.uint8(1)}, empty=lambda v: {})
)
