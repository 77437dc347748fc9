"""The solver: a Crammer–Singer SVM to a certified duality gap."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_callable, check_count, check_positive, check_seed, check_share
from whence.core.display import displayed
from whence.core.machine import thread_pools
from whence.errors import ConvergenceWarning, InvalidInputError, warn
from whence.svm.ascent import Ascent, OutOfTimeError
from whence.svm.crammer_singer.problem import CrammerSinger
from whence.svm.passes import (
    Certificate,
    Notes,
    Parallel,
    certify,
    in_threads,
    look_at_all,
    most_listed,
)
from whence.svm.problem import Losses, Makes, Problem

_THREADS = 1024  # upper limit, more than machines have
Status = Literal["converged", "time limit", "interrupted", "stalled"]


@displayed("C", "gap", "status", "n_support", "lam", "weight", "seconds")
@dataclass(frozen=True)
class Solution:
    """A feasible λ with a certificate of its quality.

    Attributes
    ----------
    lam : (N, K) csr_array, float64
        Dual coefficients: rows sum to zero exactly, λ_ic ≤ C·δ_{c,y_i}. A row without entries is no support
        vector; positive entries are evidence for their class. Of another problem, as its dual has them, times
        the units of its outputs.
    weight : (K, d) or, with a bias, (K, d + 1) float64
        W = Σ_i λ_i f_iᵀ. The last column is the bias as it is added to the logits, Σ_i λ_i b² with the
        constant b; in ½‖W‖² it counts as a weight on b, divided by b.
    primal, dual : float
        P(W) of ``weight`` and D(λ) of ``lam`` in float64; the optimum lies between them.
    gap : float
        (primal − dual)/primal, which bounds how far ``weight`` and ``lam`` are from optimal.
    status : "converged", "time limit", "interrupted" or "stalled"
    bias : float
        The constant b appended to the features, 0 without one.
    n_iter : int
        Number of rounds, each with one pass over all samples.
    seconds : float
    history : list of (seconds, gap)
        The estimated gap after every round; 1.0 while the search is at a smaller C.
    """

    lam: csr_array
    weight: Doubles
    primal: float
    dual: float
    gap: float
    status: Status
    n_iter: int
    seconds: float
    C: float
    bias: float
    history: list[tuple[float, float]] = field(repr=False)

    @property
    def n_support(self) -> int:
        """The number of samples with λ_i ≠ 0."""
        return int((np.diff(self.lam.indptr) > 0).sum())


def solve(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    problem: Makes = CrammerSinger,
    n_classes: int | None = None,
    C: float,
    bias: bool | float = True,
    tol: float = 1e-5,
    max_seconds: float | None = None,
    warm_start: Solution | csr_array | None = None,
    seed: int = 0,
    n_threads: int | None = None,
    callback: Callable[[float, float], object] | None = None,
) -> Solution:
    """Solve min_W ½‖W‖² + C Σ_i max_c (1 − δ_{c,y_i} − w_{y_i}·f_i + w_c·f_i) through its dual.

    Parameters
    ----------
    features : (N, d) array or memory map of float32, float64 or float16
        Rows of float32 and float64 are read in place; float16 is widened to float32 once.
    labels : (N,) integers in [0, n_classes), or the targets of another problem
    problem : type of Problem, or what makes one
        The problem to solve, a factory from features and labels; by default Crammer–Singer.
    n_classes : int, optional
        K, the outputs; read off the labels when absent.
    C : float
        Weight of the losses. Its meaning depends on C·‖f‖²: see :func:`whence.svm.choose_C`.
    bias : bool or float
        Append a constant to the features: 1, or this number.
    tol : float
        Relative duality gap to reach.
    max_seconds : float, optional
        Time limit, after which the best solution so far is returned, with a warning; Ctrl-C does the same.
    warm_start : Solution or λ, optional
        Solution of a similar problem with as many samples and classes.
    seed : int
        Same seed, same thread count, same machine: same bits.
    n_threads : int, optional
        Number of threads; all cores by default.
    callback : callable, optional
        Function called with (seconds, gap) after every round.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 200)
    >>> X = np.eye(3)[y] + 0.3 * rng.normal(size=(200, 3))
    >>> solution = solve(X, y, C=0.1)
    >>> bool(solution.gap <= 1e-5)
    True
    """
    started = time.perf_counter()
    asked = problem.make(features, labels, n_classes, C, bias)
    check_options(tol, max_seconds, n_threads, seed)
    if callback is not None:
        check_callable("callback", callback, "None or a function of seconds and gap")
    deadline = np.inf if max_seconds is None else started + max_seconds
    lam = check_warm_start(warm_start, asked)
    merged, place = asked.merged()
    history: list[tuple[float, float]] = []
    threads = n_threads or os.cpu_count() or 1
    # Products of blocks run in parallel; threads inside each would only slow them down.
    with thread_pools().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        ascent = Ascent(merged, seed, in_threads(pool, threads, merged), deadline)
        status: Status = "converged"
        goal = tol
        certificate: Certificate | None = None
        rounds: Iterable[None] = ()
        try:
            if lam is not None:
                ascent.start_from(merge_columns(in_units(lam, asked, -1), place))
            rounds = ascent.run(goal)
            while True:
                for _ in rounds:
                    gap = min(ascent.gap, 1.0) if ascent.problem.C == asked.C else 1.0
                    history.append((time.perf_counter() - started, gap))
                    if callback is not None:
                        callback(*history[-1])
                certificate = ascent.certificate(asked.C, tol)
                if certificate.gap <= tol:
                    break
                if ascent.gap > goal or goal < 1e-2 * tol or ascent.beyond(asked.C):
                    status = "stalled"
                    break
                goal *= 0.5
                rounds = ascent.rounds(goal)
        except (OutOfTimeError, KeyboardInterrupt) as stop:
            status = "time limit" if isinstance(stop, OutOfTimeError) else "interrupted"
            earlier, certificate = certificate, ascent.certificate(asked.C, tol)
            if earlier is not None and earlier.gap < certificate.gap:
                certificate = earlier
    seconds, n_iter = time.perf_counter() - started, ascent.n_iter
    del ascent, rounds  # free memory before W is expanded for classes without samples
    gap = certificate.gap
    history.append((seconds, gap))
    warn_of_gap(status, gap, tol)
    weight = certificate.weight
    if len(weight) != len(place):
        weight = weight[place]
    weight[:, asked.features.shape[1] :] *= asked.bias
    if asked.units is not None:
        weight *= asked.units[:, None]
    lam = in_units(expand_columns(certificate.lam, place), asked)
    return Solution(
        lam, weight, certificate.primal, certificate.dual, gap,
        "converged" if gap <= tol else status, n_iter, seconds, asked.C, asked.bias, history,
    )  # fmt: skip


def gap_of(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    lam: csr_array,
    *,
    C: float,
    n_classes: int | None = None,
    bias: bool | float = True,
    problem: Makes = CrammerSinger,
) -> float:
    """Return the relative duality gap of a given λ (N, K), unchanged; infinite where it is not feasible.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(3), np.arange(3)
    >>> solution = solve(X, y, C=1.0, tol=1e-6)
    >>> abs(gap_of(X, y, solution.lam, C=1.0) - solution.gap) < 1e-9, gap_of(X, y, 3 * solution.lam, C=1.0)
    (True, inf)
    """
    asked = problem.make(features, labels, n_classes, C, bias)
    merged, place = asked.merged()
    given = merge_columns(in_units(lam, asked, -1), place)
    kept, least = merged.begin(given)
    merged.complete(kept)
    if least > C * (1 + 1e-9) or abs(merged.sparse(kept) - given).max() > 1e-9 * C:
        return float("inf")

    def losses(weight: Doubles) -> Losses:
        notes = Notes.of(merged)
        return look_at_all(merged, weight, kept, 0.0, most_listed(merged), notes, Parallel())[1].losses

    return certify(merged, given, Parallel(), losses).gap


def warn_of_gap(status: Status, gap: float, tol: float) -> None:
    """Warn if the gap is above the tolerance."""
    if gap > tol:
        warn(
            f"The solver stopped ({status}) at a relative duality gap of {gap:.1e}, above tol = {tol:.1e}. "
            "Attributions of this solution are feasible but not final. Allow more time, raise tol, or use a "
            "smaller C.",
            ConvergenceWarning,
        )


def check_options(tol: float, max_seconds: float | None, n_threads: int | None, seed: int) -> None:
    """Raise if an option of the solver is wrong, before any work is done."""
    check_share("tol", tol)
    check_seed(seed)
    if max_seconds is not None:
        check_positive("max_seconds", max_seconds, ", or None for no limit")
    if n_threads is not None:
        check_count("n_threads", n_threads, 1, _THREADS, ", or None for all cores")


def check_warm_start(warm_start: Solution | csr_array | None, problem: Problem) -> csr_array | None:
    """Return the λ of a warm start, None without one, or raise unless it fits the problem."""
    if warm_start is None:
        return None
    lam = warm_start.lam if isinstance(warm_start, Solution) else warm_start
    shape = (len(problem.features), problem.n_outputs)
    if not issparse(lam) or lam.shape != shape:
        got = getattr(lam, "shape", type(lam).__name__)
        raise InvalidInputError(
            f"'warm_start' must be a Solution or a sparse λ of shape {shape}. Got {got}. "
            "Pass one with the same samples and classes, or None."
        )
    if lam.dtype.kind not in "biuf" or not np.isfinite(lam.data).all():
        raise InvalidInputError("'warm_start' must have finite real numbers. Got others in its λ.")
    return csr_array(lam)


def merge_columns(lam: csr_array, place: Ints) -> csr_array:
    """Merge λ of all outputs: equal outputs get the mean of their columns."""
    times = np.bincount(place)
    members = csr_array((np.ones(len(place)), (np.arange(len(place)), place)))  # (outputs, merged outputs)
    return lam if len(times) == len(place) else csr_array((lam @ members) / times)


def in_units(lam: csr_array, problem: Problem, power: int = 1) -> csr_array:
    """Scale λ (N, K) of the search to the units of the outputs, or back with power −1."""
    if problem.units is None:
        return lam
    factor = problem.units**power
    return csr_array((lam.data * factor[lam.indices], lam.indices, lam.indptr), shape=lam.shape)


def expand_columns(lam: csr_array, place: Ints) -> csr_array:
    """Expand λ of the merged problem to all outputs, with equal values."""
    if lam.shape[1] == len(place):
        return lam
    expanded = lam[:, place]
    expanded.sort_indices()
    return expanded
