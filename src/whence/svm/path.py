"""Solutions along C, and the choice of C that makes the surrogate agree best with the model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from whence.core.arrays import Floats, Ints
from whence.core.checks import check_count, check_flag, shown, to_array
from whence.core.display import Columns, displayed
from whence.core.progress import bar
from whence.errors import ChoiceWarning, ConvergenceWarning, InvalidInputError, warn
from whence.svm.crammer_singer.problem import CrammerSinger
from whence.svm.inputs import check_C, check_features, check_head, check_lengths, spread
from whence.svm.problem import Makes, Problem
from whence.svm.solver import Solution, check_options, solve

# κ below 1 leaves every margin unreached: all samples are support vectors at their bound and W only gets
# longer with C. By 1e6 separable features have reached their hard margin, and others hardly get sparser.
# Half a decade is as fine as the agreement can tell apart on a few thousand rows.
_KAPPAS = tuple(10.0 ** (e / 2) for e in range(13))
# Every C is solved to the next of these gaps until agreement and cosine no longer move: most are done at the
# second, and features that hardly differ need the last. There is no limit of time, so that no clock
# has a say in the choice.
_TOLS = (1e-5, 1e-6, 1e-7, 1e-8)
_MANY, _ROUGH = 1_000, (1e-3, 1e-4)  # with more outputs, where gaps cost most, rougher ones come first
# Rows to solve on, and with many outputs, where each costs most. The best κ rises with the rows: on 3,000 of
# 60,000 it is one whose surrogate of all of them is neither the most faithful nor the sparsest.
_ROWS, _FEW_ROWS = 20_000, 3_000
_STILL = 1e-3
_COSINE_TIE = 0.01


def solve_path(
    features: npt.ArrayLike, labels: npt.ArrayLike, Cs: Sequence[float], **options: Any
) -> list[Solution]:
    """Solve for several C, from small to large, each starting from the solution before.

    ``features``, ``labels`` and ``options`` are those of ``solve``. ``Cs`` come in any order, solutions in
    the same.

    Examples
    --------
    >>> import numpy as np
    >>> f, y = np.eye(3), np.array([0, 1, 2])
    >>> [s.C for s in solve_path(f, y, [0.1, 0.01])]
    [0.1, 0.01]
    """
    if to_array("Cs", Cs).ndim != 1:
        raise InvalidInputError(f"'Cs' must be a list of values of C. Got {shown(Cs)}.")
    values = [check_C(C) for C in Cs]
    solutions: dict[int, Solution] = {}
    previous: Solution | None = None
    for i in sorted(range(len(values)), key=values.__getitem__):
        previous = solutions[i] = solve(features, labels, C=values[i], warm_start=previous, **options)
    return [solutions[i] for i in range(len(values))]


@displayed()
@dataclass(frozen=True)
class PathPoint:
    """One C of the path, with its results on the subsample.

    Attributes
    ----------
    C : in the units of the whole training set
    kappa : C·N·mean‖f − f̄‖², the same setting without units
    agreement : share of scored rows where surrogate and model name the same class; of numbers R²
    logit_cosine : mean cosine of their logits, centred over classes, or with two classes the correlation of
        their margins; of many labels the correlation of logits, of numbers that of ranks; None without the
        model's head
    support : share of the subsample that are support vectors
    gap : relative duality gap reached
    epsilon : half the width of the tube of a regression, None of other problems
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of a file that has another field

    C: float
    kappa: float
    agreement: float
    logit_cosine: float | None
    support: float
    gap: float
    epsilon: float | None = None


@displayed("C", "n_fitted", "n_scored", "held_out", "reason", rows="columns")
@dataclass(frozen=True)
class CChoice:
    """The chosen C, the path it was chosen from, and why; ``print`` shows all of it.

    Attributes
    ----------
    C : the chosen value, in the units of the whole training set
    path : every C that was tried, ascending
    n_fitted, n_scored : rows each C was solved on and judged on
    held_out : whether the judged rows are outside the solved ones
    reason : the rule that decided, in words
    epsilon : the chosen half width of the tube of a regression, None of other problems
    measures : what agreement and likeness are, for the table
    """

    __pydantic_config__: ClassVar = PathPoint.__pydantic_config__

    C: float
    path: tuple[PathPoint, ...]
    n_fitted: int
    n_scored: int
    held_out: bool
    reason: str
    epsilon: float | None = None
    measures: tuple[str, str] = Problem.measures

    def columns(self) -> Columns:
        """Return the path as columns of plain values, one row per C."""
        names = [each.name for each in fields(PathPoint)]
        if self.epsilon is None:
            names.remove("epsilon")
        return {name: [getattr(point, name) for point in self.path] for name in names}

    def __str__(self) -> str:
        rows = "held-out rows" if self.held_out else "the same rows"
        first, second = self.measures
        wide, tube = len(second), self.epsilon is not None
        chosen = f"C = {self.C:.3g}" + (f", ε = {self.epsilon:g}" if tube else "")
        lines = [
            f"{chosen}: {self.reason}.",
            f"Solved on {self.n_fitted} rows, judged on {self.n_scored} {rows}.",
            f"{'   epsilon' if tube else ''}         C     kappa {first:>10}  {second}  support      gap",
        ]
        for p in self.path:
            cosine = "–" if p.logit_cosine is None else f"{p.logit_cosine:.4f}"
            mark = "  ← chosen" if (p.C, p.epsilon) == (self.C, self.epsilon) else ""
            lines.append(
                f"{f'{p.epsilon:10.3g}' if tube else ''}{p.C:10.3g} {p.kappa:9.3g} {p.agreement:10.4f} "
                f"{cosine:>{wide + 1}} {p.support:8.1%} {p.gap:8.1e}{mark}"
            )
        return "\n".join(lines)


def choose_C(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    head: tuple[Floats, Floats | None] | None = None,
    lengths: npt.ArrayLike | None = None,
    problem: Makes | Sequence[Makes] = CrammerSinger,
    n_classes: int | None = None,
    bias: bool | float = True,
    seed: int = 0,
    max_samples: int | None = None,
    n_threads: int | None = None,
    show_progress: bool = False,
) -> CChoice:
    """Choose C so that the surrogate agrees best with the model's own head.

    What a value of C means depends on the data: scaling features by s is the same as scaling C by s², and
    the loss is a sum over N samples. So the path runs over κ = C·N·mean‖f − f̄‖², which a common offset of
    the features does not change either, one value every half decade from 1 to 10⁶, on a subsample of n rows,
    where C becomes C·N/n; it is stratified by class unless there are more than n/2 classes. Each C is judged
    on rows outside the subsample (a fifth of the data at least is kept for that, from 50 rows on).
    ``held_back`` rows have no part in it at all, so that what came out can be measured on them:

    1. agreement of the surrogate's class with the head's, up to one standard error, or 0.001, below the best;
    2. among those, mean cosine of the logits, up to 0.01 below the best. Logits are centred over classes
       first: the head's class is blind to a shift of all logits, and the surrogate's sum to zero. With two
       classes that cosine is ±1 and says no more than the agreement: the correlation of the two margins over
       the rows takes its place;
    3. among those, the fewest support vectors; up to a tenth more is a tie, which the smaller C wins.

    A choice at an edge of the path comes with a ``ChoiceWarning``.

    Parameters
    ----------
    features : (N, d)
    labels : (N,) integers, or the targets of another problem
    head
        The model's last layer, weight (K, d) and bias (K,) or None. Without it the labels stand in for the
        model's classes, and step 2 falls away.
    lengths : (N,)
        What features were divided by before, where the head reads them as they were.
    problem
        What is solved, as for ``solve``; of several, which differ in a parameter, one is chosen with C.
    n_classes
        K, read off the head or the labels when None.
    bias
        Whether a constant 1, or which one, joins the features.
    seed
        Draws the subsample and seeds the solver.
    max_samples
        Rows each C is solved on, and at most three times as many it is judged on; None for 20,000, or 3,000
        with more than 1,000 classes.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 3
    >>> f = np.eye(3)[y] + 0.1 * rng.normal(size=(300, 3))
    >>> choose_C(f, y).path[0].kappa
    1.0
    """
    X = check_features(features)
    if head is not None:
        head = check_head(head, X.shape[1], n_classes)
        n_classes = len(head[0])
    if lengths is not None:
        lengths = check_lengths(lengths, len(X))
    problems = tuple(problem) if isinstance(problem, Sequence) else (problem,)
    p = problems[0].make(X, labels, n_classes, 1.0, bias)
    check_options(_TOLS[-1], None, n_threads, seed)
    if max_samples is None:
        max_samples = _ROWS if p.n_outputs <= _MANY else _FEW_ROWS
    max_samples = check_count("max_samples", max_samples)
    show_progress = check_flag("show_progress", show_progress)
    rng = np.random.default_rng(seed)
    strata = p.strata
    taken = np.setdiff1d(np.arange(len(X)), held_back(strata, seed))
    fitted, scored, held_out = _split(strata[taken], max_samples, rng)
    fitted, scored = taken[fitted], taken[scored]
    scale = len(X) * spread(X) ** 2
    share = len(X) / len(fitted)
    X, y = X[fitted], to_array("labels", labels)[fitted]
    judge, tols = p.judge(scored, head, lengths), _TOLS if p.n_outputs <= _MANY else (*_ROUGH, *_TOLS)
    path: list[PathPoint] = []
    previous: Solution | None = None
    every = [(each, kappa) for each in problems for kappa in _KAPPAS]
    # Each C starts from the solution of the one before, so these solves are no work for an engine.
    for each, kappa in bar("Choosing C", len(every), "values of C", parts=every, show=show_progress):
        previous = None if kappa == _KAPPAS[0] else previous
        C = kappa / scale * share
        seen: tuple[float, float | None] | None = None
        for tol in tols:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is in the table
                previous = solve(
                    X, y, problem=each, n_classes=p.n_outputs, C=C, bias=bias, tol=tol,
                    warm_start=previous, seed=seed, n_threads=n_threads,
                )  # fmt: skip
            before, seen = seen, judge(previous.weight)
            if before is not None and _still(before, seen):
                break
        assert previous is not None
        assert seen is not None
        agreement, cosine = seen
        support = float(np.count_nonzero(np.diff(previous.lam.indptr))) / len(fitted)
        tube = each.make(X[:1], y[:1], p.n_outputs, 1.0, bias).tube
        path.append(PathPoint(kappa / scale, kappa, agreement, cosine, support, previous.gap, tube))
    best, reason = _best(path, len(scored), head is not None, type(p))
    if best.kappa in (_KAPPAS[0], _KAPPAS[-1]):
        edge = "smallest" if best.kappa == _KAPPAS[0] else "largest"
        warn(
            f"The chosen C = {best.C:.3g} is the {edge} of the path (kappa = {best.kappa:.3g}): a value "
            "beyond it may agree better still with the model. Print the path, which an explainer keeps as "
            "C_path_, and pass C as a number if another one suits.",
            ChoiceWarning,
        )
    counts = len(fitted), len(scored), held_out
    return CChoice(best.C, tuple(path), *counts, reason, best.epsilon, p.measures)


def held_back(labels: Ints, seed: int) -> Ints:
    """Rows that ``choose_C`` never looks at, ascending: a tenth, at least 100 where that is not too many.

    What is measured on them had no part in the choice of C. None where there are fewer than 100 rows.
    """
    n = len(labels)
    if n < 100:
        return np.empty(0, dtype=np.int64)
    first = np.unique(labels, return_index=True)[1]  # every class stays among the rows that choose
    others = np.setdiff1d(np.arange(n), first)
    size = min(max(n // 10, min(n // 4, 100)), 3000)
    return np.sort(np.random.default_rng([seed, n]).permutation(others)[:size])


def _split(labels: Ints, max_samples: int, rng: np.random.Generator) -> tuple[Ints, Ints, bool]:
    """Rows to solve on, stratified by class unless these are very many, and rows to judge on; ascending."""
    n = len(labels)
    size = n if n < 50 else min(max_samples, n - n // 5)
    order = rng.permutation(n)
    counts = np.bincount(labels)
    taken = order
    # One row of each class, as of the tokens of a vocabulary, would leave none for how often they occur.
    if np.count_nonzero(counts) <= size // 2:
        # A sample's rank within its class, as a share of the class: taking the smallest shares takes from
        # every class in proportion, and from each class at least its first.
        by_class = order[np.argsort(labels[order], kind="stable")]
        rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        share = np.where(rank == 0, 0.0, (rank + 0.5) / np.repeat(counts, counts))
        taken = by_class[np.argsort(share, kind="stable")]
    rest = taken[size:]
    if len(rest) == 0:
        return np.sort(taken), np.sort(taken), False
    return np.sort(taken[:size]), np.sort(rng.permutation(rest)[: 3 * max_samples]), True


def _still(before: tuple[float, float | None], now: tuple[float, float | None]) -> bool:
    """Whether agreement and cosine are what they were."""
    return all(abs((a or 0.0) - (b or 0.0)) <= _STILL for a, b in zip(before, now, strict=True))


def _best(
    path: list[PathPoint], n: int, with_head: bool, problem: type[Problem] = CrammerSinger
) -> tuple[PathPoint, str]:
    """Find the point that the three steps of ``choose_C`` lead to, and the reason in words."""
    top = max(p.agreement for p in path)
    error = problem.error(top, n)
    left = [p for p in path if p.agreement >= top - error]
    (first, second), model = problem.measures, problem.judges[0 if with_head else 1]
    reason = f"{first} with {model} within {problem.margin} ({error:.2g}) of the best, {top:.4f}"
    if with_head:
        cosine = max(p.logit_cosine or 0.0 for p in left)
        left = [p for p in left if (p.logit_cosine or 0.0) >= cosine - _COSINE_TIE]
        reason += f"; {second} within {_COSINE_TIE} of the best of those, {cosine:.4f}"
    fewest = min(p.support for p in left)
    # The path ascends in C.
    chosen = min((p for p in left if p.support <= fewest * 1.1), key=lambda p: p.kappa)
    return chosen, f"{reason}; of those the fewest support vectors, {chosen.support:.1%}"
