"""The search for the dual's maximum: which samples to move, by which method, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Floats, Ints
from whence.svm.newton import Phase
from whence.svm.pairs import Kept, Pairs, pointers
from whence.svm.passes import (
    Certificate,
    Notes,
    Parallel,
    PassResult,
    Probe,
    Rows,
    add_to,
    certify,
    look_at_all,
    most_listed,
    moves,
    relative,
    score,
)
from whence.svm.problem import Problem

_LOOSE = 1e-2  # gap at which the search continues at a larger C
_FACTOR = 10.0  # ratio of neighbouring C on the way up
_DOUBLE_BELOW = 1e-4  # relative gap below which float32 products are too coarse for the search
_NEWTON_STEPS = 15  # typical number of steps of a Newton phase
_REACH = 1e15  # C·Σ‖f_i‖² up to which float64 resolves scores when every sample is at its bound
_RUN = 64  # contiguous rows in the first sweep
_ADDED = 1 << 16  # samples whose λ is expanded at a time to sum W
_SWEEPS = 6  # maximum number of sweeps before all samples are listed
_NARROW = 0.03  # gap, as estimated by a sweep, below which lists are stored
_SWEPT, _PER_SWEPT = 8, 64  # outputs that a sweep lists per sample: at most, and one per so many
_NEAREST = 6  # outputs per sample in a Newton phase besides those with α, if all are listed
_PATIENCE = 40  # rounds without a better gap after which the search gives up at this C


class OutOfTimeError(Exception):
    """The time limit was reached."""


class Ascent:
    """Working-set ascent of the dual: full passes choose the samples, inner solvers move them.

    A full pass scores every sample with W(λ) and lists the samples and outputs that may move. They are moved
    by coordinate descent, or by Newton steps where these are predicted to be cheaper. A large C is approached
    from a smaller one, where the problem is easy.

    Two gaps are followed, both relative: ``gap`` between P(W(λ)) and D(λ), on which the search ends, and
    ``bound`` between the best primal value seen, often that of a multiple of W, and D(λ). The second shows
    how far the dual still has to rise and decides when to move on to a larger C.
    """

    def __init__(self, problem: Problem, seed: int, parallel: Parallel, deadline: float) -> None:
        N, K = len(problem.features), problem.n_outputs
        self.problem = problem
        self.parallel = parallel
        self.deadline = deadline
        self.rng = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        self.kept = problem.begin(csr_array((N, K)))[0]
        norms = problem.squared_norms
        small = problem.features.dtype == np.float32 and norms.mean() > 1e-12 and norms.max() < 1e12
        self.W: Floats = np.zeros(problem.shape, np.float32 if small else np.float64)
        self.notes, self.probe = Notes.of(problem), Probe(problem)
        self.most = most_listed(problem)
        self.result: PassResult | None = None  # result of the last pass
        self.slack = np.inf  # until the first pass
        self.widest = 0.0  # largest mean change of the scores in a round at this C
        self.gap = self.bound = 1.0
        self.n_iter = 0
        self.stages = _geometric(min(problem.C, 1.0 / float(norms.mean() or 1.0)), problem.C)
        self.best_primal = np.inf
        self.scale = 1.0  # the scale of W with the least primal value
        self.by_newton = False
        self.sigma = 0.0  # σ of the last Newton phase at this C
        self.copies = problem.copies()
        self.best: tuple[float, csr_array] | None = None  # the smallest gap at this C and its λ

    # State of the search

    def set_C(self, C: float, scale: float) -> None:
        """Continue at another C from ``scale`` times the current λ."""
        self.problem = replace(self.problem, C=C)
        self.kept.alpha *= scale
        self.W *= scale
        self.problem.complete(self.kept)
        self.best_primal = np.inf
        self.sigma = 0.0
        self.best = None

    def start_from(self, lam: csr_array) -> None:
        """Start from λ of a similar problem, made feasible for this one."""
        C = self.problem.C
        self.kept, most = self.problem.begin(lam)
        if most == 0.0:
            return
        self.stages = _geometric(min(C, 4.0 * most), C)
        first = self.stages[0]
        self.set_C(first, min(1.0, C / most))
        self.W = self.exact_weight()
        self.set_C(first, self._best_scale(max(first / most, 1.0)))
        self._measure(share=1.0)

    def beyond(self, C: float) -> bool:
        """Whether rounding can destroy W = Σ λ_i f_iᵀ at this C, so that a smaller one comes first."""
        return C * float(self.problem.squared_norms.sum()) > _REACH

    def least_C(self) -> float:
        """The smallest C at which λ is feasible."""
        return self.problem.linear(self.kept)[1]

    def _best_scale(self, most: float) -> float:
        """The t in [1, most] that maximises the dual of t·λ."""
        square = self.problem.inner(self.W, self.W)
        return min(most, max(1.0, self.problem.linear(self.kept)[0] / square)) if square > 0 else most

    # Full passes

    def _measure(self, least: float = 0.0, share: float = 0.5) -> PassResult:
        """Do a full pass with W(λ): update both gaps, the best primal point, the slack and the lists.

        The slack is a share of the scores' mean change since the previous pass, or the given minimum.
        """
        C = self.problem.C
        square = self.problem.inner(self.W, self.W)
        change = self.probe.change(self.problem, self.W)
        self.widest = max(self.widest, change)
        self.slack = max(share * change, least)
        result = self._look(self.W)
        loss, slope, margin = result.losses
        linear, least_C = self.problem.linear(self.kept)
        dual = linear - 0.5 * square
        primal = 0.5 * square + C * loss
        self.gap = relative(primal, dual)
        scale = 1.0
        # P(aW) is at least as curved as a²‖W‖²/2, which bounds the gain of another a.
        if (square + C * slope) ** 2 > 0.6 * square * (primal - dual):
            scale, primal = self._rescale(square, C * loss, C * slope)
        a = _without_loss(margin)
        if 0.5 * a * a * square < primal:
            scale, primal = a, 0.5 * a * a * square
        if margin > 0.0 and a * least_C <= C:  # then a·λ is feasible, and its W has no loss
            self.gap = min(self.gap, 2.0 - 2.0 * linear / (a * square))
        self.scale = scale
        self.best_primal = min(self.best_primal, primal)
        self.bound = max(relative(self.best_primal, dual), 0.0)
        return result

    def _look(self, W: Floats) -> PassResult:
        """Score all samples with a W, and list those that may move."""
        slack = self.slack if np.isfinite(self.slack) else 0.0
        self.result, self.kept = (
            None,
            self.kept.trimmed(),
        )  # so that two long lists are never in memory together
        self.kept, self.result = look_at_all(
            self.problem, W, self.kept, slack, self.most, self.notes, self.parallel
        )
        return self.result

    def _rescale(self, square: float, loss: float, slope: float) -> tuple[float, float]:
        """Minimise the primal over multiples a·W by secant steps on its slope; return a and the value."""
        best = (1.0, 0.5 * square + loss)
        low, at_low, high, at_high = 0.0, -np.inf, np.inf, np.inf
        a, at = 1.0, square + slope
        for _ in range(4):
            if abs(at) <= 1e-3 * square:
                break
            if at > 0:
                high, at_high = a, at
            else:
                low, at_low = a, at
            if np.isinf(high):
                a *= 1.5
            elif np.isinf(at_low):
                a /= 1.5
            else:
                a = low - at_low * (high - low) / (at_high - at_low)
            scaled = partial(self.problem.scaled_losses, self.notes.traces, scale=a)
            parts = self.parallel(scaled, self.problem.blocks())
            total, slope = self.problem.C * np.array(parts).sum(axis=0)
            at = a * square + slope
            best = min(best, (a, 0.5 * a * a * square + float(total)), key=lambda pair: pair[1])
        return best

    def exact_weight(self) -> Doubles:
        """Compute W = Σ λ_i f_iᵀ of the current α, in float64."""
        kept = self.kept
        W = np.zeros(self.problem.shape)
        for start in range(0, len(kept), _ADDED):
            stop = min(start + _ADDED, len(kept))
            part = kept.part(start, stop)
            pairs = Pairs(np.arange(start, stop), part.ptr, part.outputs)
            add_to(W, self.problem, pairs, self.problem.coefficients(part), self.parallel)
        return W

    # Moves

    def _sweeps(self) -> int:
        """Sweep until lists are worth storing; return the number of products.

        With many outputs a list has few of them and is soon outdated; a sweep lists on the fly.
        """
        problem = self.problem
        most = max(self.most, min(problem.n_outputs // _PER_SWEPT, _SWEPT))
        visits, loss = self.sweep(most)
        for _ in range(_SWEEPS - 1 if most > self.most else 0):
            square = problem.inner(self.W, self.W)
            primal, dual = 0.5 * square + problem.C * loss, problem.linear(self.kept)[0] - 0.5 * square
            if relative(primal, dual) < _NARROW or self._late():
                break
            more, loss = self.sweep(most)
            visits += more
        return visits

    def sweep(self, most: int) -> tuple[int, float]:
        """Visit every sample once; return the number of products, and the losses before each visit.

        Samples come in blocks, made of runs of rows from anywhere: of many outputs those ``most`` are listed
        that have the largest scores by then.
        """
        problem, N = self.problem, len(self.kept)
        size = max(problem.blocks()[0].stop, _RUN)
        starts = np.random.default_rng(int(self.rng[0])).permutation(np.arange(0, N, _RUN))
        pieces, visits, loss = [], 0, 0.0
        for group in np.array_split(starts, max(1, len(starts) * _RUN // size)):
            rows = (group[:, None] + np.arange(_RUN)).ravel()
            rows = rows[rows < N]
            pairs, moving, lost = self._listed(rows, np.inf, most)
            loss += lost
            part = Kept(pairs.ptr, pairs.outputs, self.kept.at(pairs))
            local = moves(part.ptr, moving)
            local = local._replace(rows=rows[local.rows].astype(local.rows.dtype))
            visits += problem.descend(local, part, self.W, 1, np.inf, self.rng)
            part = part.trimmed()
            pieces.append((Pairs(rows, part.ptr, part.outputs), part.alpha))
        self.kept = self.kept.replaced(pieces)
        return visits, loss

    def _listed(self, rows: Ints, slack: float, most: int) -> tuple[Pairs, npt.NDArray[np.int32], float]:
        """Return what to store of some rows, how many outputs of each may move, and the rows' losses."""
        problem, notes = self.problem, self.notes
        size, K = problem.blocks()[0].stop, problem.n_outputs
        parts = []
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            every = most + 1 >= K and np.isinf(slack)  # then scores make no difference
            scores = np.zeros((len(block), K), np.float32) if every else score(problem, self.W, block)
            parts.append(problem.look(scores, block, self.kept, slack, most, notes.traces, notes.near))
        ptr = pointers(np.concatenate([part.counts for part in parts]))
        pairs = Pairs(rows, ptr, np.concatenate([part.outputs for part in parts]))
        loss = sum(part.losses.loss for part in parts)
        return pairs, np.concatenate([part.moving for part in parts]), loss

    def descend(self, tol: float) -> tuple[float, float]:
        """Do one round of coordinate descent; return its cost and that of a Newton phase, in operations."""
        problem = self.problem
        N, (K, D) = len(self.kept), problem.shape
        if self.result is None:
            visits = self._sweeps()
        else:
            moving = self.result.moving
            epochs = min(max(2 * N * K // max(moving.used, 1), 5), 1000)
            visits = problem.descend(moving, self.kept, self.W, epochs, self.slack, self.rng)
            del moving
            self.result = None  # its lists are outdated
        if self.bound < _DOUBLE_BELOW and self.W.dtype == np.float32:
            self.W = self.exact_weight()
        result = self._measure()
        single = 1.0 if self.W.dtype == np.float32 else 2.0
        # A Newton phase gains about one digit; each of its steps also scores its rows and sums over them.
        step = problem.step_cost(result.free, result.pairs) + 16.0 * result.free * min(K, self.most + 1) * D
        digits = max(np.log10(max(self.gap, tol) / tol), 1.0)
        return 8.0 * single * visits * D, _NEWTON_STEPS * digits * step

    def newton(self, tol: float, spread: float) -> None:
        """Do Newton steps over the samples nearest to a change."""
        problem = self.problem
        if self.W.dtype == np.float32:
            self.W = self.exact_weight()
        near = self.notes.near
        wanted = max(
            1000, int(spread * np.isneginf(near).sum()), int((near < self.slack).sum()),
            int(1.3 * (near < 0).sum()),
        )  # fmt: skip
        rows = np.arange(len(near))
        if wanted < len(rows):
            rows = np.sort(np.argpartition(near, wanted)[:wanted])
        every = self.most + 1 >= problem.n_outputs
        most = min(self.most, _NEAREST) if every else self.most
        pairs, *_ = self._listed(rows, spread * self.slack, most)
        moving = Rows(problem, pairs, self.parallel)
        used = moving.used
        dual_W = self.W[used].astype(np.float64, copy=False)
        before = self.kept.at(pairs)
        target = max(0.1 * self.bound, 0.3 * tol) * self.best_primal
        phase = Phase(moving, before, dual_W, self.scale * dual_W, 0.1 * self.sigma)
        after = phase.run(target, self._late)
        self.sigma = phase.sigma
        del phase
        dW = moving.combine(before - after)
        square = moving.inner(dW, dW)
        rise = problem.rise(before, after, pairs) - moving.inner(dual_W, dW)
        t = min(max(rise / square, 0.0), 1.0) if square > 0 else 0.0
        if t < 1.0:
            after = before + t * (after - before)
        self.kept = self.kept.replaced([(pairs, after)])
        self.W[used] += t * dW
        self._measure()

    # The plan

    def _late(self) -> bool:
        return time.perf_counter() > self.deadline

    def rounds(self, tol: float, last: bool = True) -> Iterator[None]:
        """Move until the gap (or, at a smaller C, the bound) is at most tol or stops falling.

        Yields after every round.
        """
        spread, tried = 4.0, 0
        before = np.inf
        best, since = np.inf, 0
        left = self._left(last)
        while (left > tol or tried == 0) and since < _PATIENCE:
            # The dual only rises, but the gap of W(λ) can rise with it.
            if last and tried > 0 and left == best:
                self.best = None  # before the next one is made
                self.best = left, self.problem.sparse(self.kept)
            earlier, before = before, left
            if self.by_newton:
                self.newton(tol, spread)
                left = self._left(last)
                if left > 0.7 * before:
                    spread *= 2.0
                    if spread > 20.0:
                        self.by_newton, spread, tried = False, 4.0, 0
                        self.W = self.exact_weight()
                        self._measure()
            else:
                cost, newton_cost = self.descend(tol)
                left = self._left(last)
                if tried >= 2 and left > tol:
                    # The gap may rise in one round between two in which it falls.
                    rate = np.log(before / left) if left < before else 0.5 * np.log(earlier / left)
                    more = np.log(left / tol) / rate if rate > 0.0 else np.inf
                    self.by_newton = newton_cost < cost * more
            since = 0 if left < 0.9 * best else since + 1
            best = min(best, left)
            tried += 1
            self.n_iter += 1
            yield
            if self._late():
                raise OutOfTimeError

    def _left(self, last: bool) -> float:
        return self.gap if last else self.bound

    def run(self, tol: float) -> Iterator[None]:
        """Run the whole search; yields after every round."""
        if self.result is None:
            self.set_C(self.stages[0], 0.0)
        stages = [C for C in self.stages if not self.beyond(C)] or self.stages[:1]
        for k, C in enumerate(stages):
            if k > 0:
                self.set_C(C, self._best_scale(C / self.problem.C))
                self._measure(self.widest)
                self.widest = 0.0
            last = stages[-1] == C
            yield from self.rounds(tol if last else _LOOSE, last)
            # If no sample is at its bound, a larger C has the same solution.
            if not last and self.least_C() < 0.5 * C:
                yield from self.rounds(tol)
                if self.least_C() < 0.9 * C:
                    return

    def _settle(self, C: float) -> None:
        """Return to the best λ, or finish a search that ended at a smaller C."""
        if self.best is not None and self.best[0] < self.gap:
            self.gap, lam = self.best
            self.kept, _ = self.problem.begin(lam)
            del lam
            self.set_C(self.problem.C, 1.0)
            self.W = self.exact_weight()
        self.best = None
        if self.problem.C != C:
            stay = self.beyond(C) or self.least_C() < 0.9 * self.problem.C
            self.set_C(C, 1.0 if stay else self._best_scale(C / self.problem.C))

    def certificate(self, C: float, tol: float) -> Certificate:
        """Return an exactly feasible λ for C, equal for copies, with P(W(λ)) and D(λ) recomputed in float64.

        Where the gap is above ``tol`` and the multiple of λ whose W has no loss is feasible and better, the
        search goes over to that one.
        """
        self._settle(C)
        self.kept = self.kept.averaged(self.copies)  # W and the dual value do not change
        certificate = self._certify()
        a = _without_loss(certificate.margin)
        if certificate.gap <= tol or np.isinf(a) or a * self.least_C() > self.problem.C:
            return certificate
        before = replace(self.kept, alpha=self.kept.alpha.copy()), self.result, self.W
        self.set_C(self.problem.C, a)
        other = self._certify()
        if other.gap < certificate.gap:
            return other
        self.kept, self.result, self.W = before
        return certificate

    def _certify(self) -> Certificate:
        lam = self.problem.sparse(self.kept)
        return certify(self.problem, lam, self.parallel, lambda W: self._look(W).losses)


def _geometric(first: float, last: float) -> list[float]:
    """Return the values of C on the way, each about ten times the previous one."""
    steps = max(int(np.ceil(np.log(last / first) / np.log(_FACTOR) - 0.5)), 0)
    return [last * _FACTOR ** (k - steps) for k in range(steps)] + [last]


def _without_loss(margin: float) -> float:
    """Return the multiple of W, given its least margin, that has no loss; infinite if there is none."""
    return (1.0 + 1e-12) / margin if margin > 0.0 else np.inf
