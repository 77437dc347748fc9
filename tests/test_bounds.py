"""Counts that would hang or fill the memory have a bound, which the documentation names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import whence
from whence import engine, interop, metrics
from whence.errors import InvalidInputError
from whence.methods import DualDA, LiSSA

RNG = np.random.default_rng(0)
SUBSETS = metrics.random_subsets(20, 12)
SCORES = {"a": RNG.normal(size=(9, 20)), "b": RNG.normal(size=(9, 20))}


def dualda() -> DualDA:
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    return DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(4, 2), (x, y))


def dattri(n: int) -> None:
    """Read a folder of two small networks."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        torch.save(torch.zeros(2, 1, dtype=torch.int64), f"{folder}/indices_lds.pt")
        torch.save(torch.zeros(2, 3), f"{folder}/target_values_lds.pt")
        interop.read_dattri(folder, n)


BOUNDS: list[tuple[Callable[..., Any], str, int, Callable[[int], Any]]] = [
    (DualDA.explain, "k", 10_000, lambda n: dualda().explain(torch.randn(1, 4), k=n)),
    (DualDA.explain_concepts, "k", 10_000, lambda n: dualda().explain_concepts(torch.randn(1, 4), k=n)),
    (DualDA.trace, "k", 10_000, lambda n: dualda().trace("a", k=n)),
    (DualDA.trace, "max_new_tokens", 16_384, lambda n: dualda().trace("a", max_new_tokens=n)),
    (DualDA.stability, "halves", 1_000, lambda n: dualda().stability(torch.randn(1, 4), halves=n)),
    (whence.train_halves, "n", 1_000, lambda n: whence.train_halves(int, int, [1, 2], n)),
    (LiSSA, "depth", 100_000, lambda n: LiSSA(depth=n, show_progress=False).fit(torch.nn.Linear(4, 2), None)),
    (metrics.calibration, "bins", 10_000, lambda n: metrics.calibration([0.5], np.array([True]), n)),
    (metrics.compare_lds, "draws", 100_000, lambda n: metrics.compare_lds(SCORES, SUBSETS, 0, draws=n)),
    (
        metrics.query_loss_difference, "draws", 100_000,
        lambda n: metrics.query_loss_difference([0.5, 0.3], [[0.1, 0.1]], draws=n),
    ),
    (metrics.removal_test, "n_random", 1_000, lambda n: metrics.removal_test(SCORES["a"], sum, n_random=n)),
    (metrics.random_subsets, "n_train", 100_000_000, lambda n: metrics.random_subsets(n, 2)),
    (engine.Processes, "n", 1_024, engine.Processes),
    (engine.run, "threads", 1_024, lambda n: engine.run(abs, [1], threads=n)),
    (interop.read_dattri, "n_train", 10_000_000, dattri),
]  # fmt: skip


@pytest.mark.parametrize("n", [None, 10**9])
@pytest.mark.parametrize(
    ("function", "name", "bound", "call"), BOUNDS, ids=[f"{f.__qualname__} {name}" for f, name, *_ in BOUNDS]
)
def test_a_count_has_a_bound(
    function: Callable[..., Any], name: str, bound: int, call: Callable[[int], Any], n: int | None
) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}' must be an integer of .*at most {bound:,}"):
        call(bound + 1 if n is None else n)
    assert f"{bound:,}" in (inspect.getdoc(function) or "")


def test_a_table_of_random_scores_is_bounded_as_a_whole() -> None:
    for n_tests, n_train in ((5, 10**9), (10**9, 5)):
        with pytest.raises(InvalidInputError, match="at most"):
            metrics.random_scores(n_tests, n_train)
