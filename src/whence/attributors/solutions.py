"""Solutions of the surrogate's problem, kept in the cache beside the bank they were solved on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scipy.sparse import csr_array

from whence import store
from whence.errors import StoreError
from whence.features import Cache, teller
from whence.features.cache import SOLUTION, Parts
from whence.svm import CChoice
from whence.svm.problem import Doubles


class Solved(NamedTuple):
    """What an explainer needs of a solution: λ (M, K), W (K, d[+1]), and how they were reached."""

    lam: csr_array
    weight: Doubles
    C: float
    gap: float
    choice: CChoice | None


def from_cache(
    cache: Cache,
    parts: Parts,
    title: str,
    tol: float,
    solve: Callable[[], Solved],
    show_progress: bool,
) -> tuple[Solved, str]:
    """Take the solution with this fingerprint from the cache, or solve and put it there.

    A solution that did not reach ``tol`` is not kept: a longer run would have done better.

    Returns
    -------
    The solution, and in words where it comes from.
    """
    say = teller(show_progress)
    path = cache.path("solution", parts)
    with cache.locked(path, say=say):
        note = "computed"
        if cache.holds(path, parts) and (path / SOLUTION).exists():
            try:
                solved = _read(path / SOLUTION)
            except StoreError as error:
                note = f"computed again, since the cached one is damaged: {error}"
            else:
                say(f"Solution: reused ({path}).")
                return solved, "reused"
        elif why := cache.why_new("solution", parts):
            note = f"computed, since {why}"
        if note != "computed":
            say(f"Solution: {note}.")
        solved = solve()
        if solved.gap <= tol:
            try:
                cache.begin(path, "solution", parts, title)
                _write(path / SOLUTION, solved)
            except OSError as error:  # a full disk must not cost the solution itself
                cache.drop(path)
                note += f"; not kept ({error.strerror})"
                say(f"Solution: {note}.")
    return solved, note


def _write(path: Path, solved: Solved) -> None:
    lam = solved.lam
    arrays = {"data": lam.data, "indices": lam.indices, "indptr": lam.indptr, "weight": solved.weight}
    choice = None if solved.choice is None else dataclasses.asdict(solved.choice)
    store.write(path, arrays, {"shape": lam.shape, "C": solved.C, "gap": solved.gap, "choice": choice})


def _read(path: Path) -> Solved:
    arrays, manifest = store.read(path)
    lam = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(manifest["shape"]))
    choice = None if manifest["choice"] is None else CChoice.from_dict(manifest["choice"])
    return Solved(lam, arrays["weight"], manifest["C"], manifest["gap"], choice)
