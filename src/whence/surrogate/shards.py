"""A surrogate whose samples are divided among the machines of an engine: solved there, and ranked there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence import engine
from whence.core.arrays import Floats, Ints
from whence.core.ranking import Ranked, merged
from whence.engine import Engine, Group
from whence.errors import LostError
from whence.surrogate.scores import Expansion, Vectors
from whence.svm import Solution, solve, solve_shards
from whence.tasks import Task

if TYPE_CHECKING:
    from whence.surrogate.surrogate import Surrogate

_TRIES = 5  # to rank where machines are lost meanwhile


def solver(features: Floats, task: Task) -> Callable[..., Solution]:
    """Return what solves on features (N, d): here, or divided among the machines of the engine in use.

    Tasks without classes are solved here: their problems take the units of targets off the samples they see.
    """
    if not task.has_classes:
        return solve
    chosen = engine.current()
    n = chosen.shards(isinstance(features, np.memmap))
    return solve if n == 1 else partial(solve_shards, n_shards=n, hold=chosen.group)


def strongest(
    surrogate: Surrogate,
    tests: Tensor,
    target: Tensor,
    k: int,
    against: Tensor | None = None,
    relative: bool = False,
) -> tuple[Ranked, Ranked]:
    """Find the k strongest samples of either sign as ``Expansion.top_k``: of each shard, and of those."""
    chosen = engine.current()
    n = min(chosen.shards(False), len(surrogate.support))
    if n <= 1:
        return surrogate.expansion.top_k(tests, target, k, against, relative)
    group = _held(surrogate, chosen, n)
    read = surrogate.expansion.shifted(tests, target, against, relative).cpu().numpy()
    asked = read, target.numpy(), k, None if against is None else against.numpy(), relative
    for left in reversed(range(_TRIES)):
        try:
            answers = group.call("top_k", *asked)
        except LostError:
            if not left:
                raise
        else:
            break
    sides = []
    for side in (0, 1):  # for and against
        shards = [Ranked(*map(torch.from_numpy, shard[side])) for shard in answers]
        best = merged(shards, k, side)
        scores = best.scores.to(tests.device, surrogate.expansion.dtype)
        sides.append(Ranked(best.indices.to(tests.device), scores))
    return sides[0], sides[1]


@dataclass(frozen=True)
class _Part:
    """Some support vectors.

    Attributes
    ----------
    vectors : (s, d)
    support : (s,) their places in the training set, ascending
    lam : (s, K)
    constant : as for ``Expansion``
    """

    vectors: Floats
    support: Ints
    lam: csr_array
    constant: float


class _Shard:
    """Ranks some support vectors."""

    def __init__(self, part: _Part) -> None:
        places = np.arange(len(part.support))
        self._support = part.support
        vectors = Vectors(np.array(part.vectors))
        self._expansion = Expansion(vectors, places, part.lam, constant=part.constant)

    def top_k(
        self, tests: Floats, target: Ints, k: int, against: Ints | None, relative: bool
    ) -> list[tuple[Ints, Floats]]:
        """Return indices and scores of the k strongest of either sign, each (B, k).

        Tests (B, d) are read, and less what scores are relative to.
        """
        other = None if against is None else torch.from_numpy(np.array(against))
        given = torch.from_numpy(np.array(tests)), torch.from_numpy(np.array(target))
        sides = self._expansion.top_k(*given, k, other, relative)
        ranked = []
        for side in sides:
            places = side.indices.numpy()
            ranked.append((np.where(places >= 0, self._support[places], -1), side.scores.numpy()))
        return ranked


_groups: WeakKeyDictionary[Surrogate, tuple[Engine, Group]] = WeakKeyDictionary()


def _held(surrogate: Surrogate, chosen: Engine, n: int) -> Group:
    """Return the shards of a surrogate, which stay in place while it is used on this engine."""
    kept = _groups.get(surrogate)
    if kept is None or kept[0] is not chosen:
        vectors, support = surrogate.vectors.to("cpu", surrogate.expansion.dtype).numpy(), surrogate.support
        cuts = np.linspace(0, len(support), n + 1).astype(int).tolist()
        parts = []
        for first, end in pairwise(cuts):
            lam = csr_array(surrogate.lam[support[first:end]])
            parts.append(_Part(vectors[first:end], support[first:end], lam, surrogate.constant))
        kept = _groups[surrogate] = chosen, chosen.group(_Shard, parts, 1)
    return kept[1]
