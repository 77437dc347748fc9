"""Solutions along C, and the choice of C: a surrogate that agrees with the model and answers per input."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from whence.core.arrays import Array, Floats, Ints
from whence.core.checks import check_count, check_flag, shown, to_array
from whence.core.display import Columns, displayed
from whence.core.progress import bar
from whence.errors import ChoiceWarning, ConvergenceWarning, InvalidInputError, warn
from whence.svm.crammer_singer.problem import CrammerSinger
from whence.svm.inputs import check_C, check_features, check_head, spread
from whence.svm.likeness import HeadLayer
from whence.svm.problem import Makes, Problem
from whence.svm.solver import Solution, check_options, solve

# κ below 1 leaves every margin unreached: all samples are support vectors at their bound and W only gets
# longer with C. By 1e6 separable features have reached their hard margin, and others hardly get sparser.
# A few thousand rows do not resolve agreement on a finer path than half a decade.
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
_MARGIN = 0.01  # of the best agreement, given up for answers that depend on the input
_ENOUGH, _FEW = 0.95, 50  # agreement that needs no warning at an edge; rows too few to choose by
_ASKED = 500  # rows whose strongest samples are looked at


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
    agreement : share of scored rows where surrogate and model predict the same class; for regression R²
    logit_cosine : mean cosine of their logits, centred over classes, or with two classes the correlation of
        their margins; for multi-label tasks the correlation of logits, for regression of ranks; None without
        the model's head
    specificity : number of different strongest samples of up to 500 scored rows, as a share of the rows: 1
        if every row has its own, near 0 if all rows of a class share one
    support : share of support vectors in the subsample
    gap : relative duality gap reached
    epsilon : half the width of the tube of a regression, None for other problems
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of a file that has another field

    C: float
    kappa: float
    agreement: float
    logit_cosine: float | None
    specificity: float
    support: float
    gap: float
    epsilon: float | None = None

    @property
    def balance(self) -> float:
        """The harmonic mean of specificity and sparsity, 1 − ``support``: high only where both are."""
        sparsity = 1.0 - self.support
        total = self.specificity + sparsity
        return 2.0 * self.specificity * sparsity / total if total else 0.0


@displayed("C", "n_fitted", "n_scored", "held_out", "reason", rows="columns")
@dataclass(frozen=True)
class CChoice:
    """The chosen C, the path of candidates, and the reason; ``print`` shows all of it.

    Attributes
    ----------
    C : the chosen value, in the units of the whole training set
    path : every C of the search, ascending
    n_fitted, n_scored : rows on which each C was solved and scored
    held_out : whether the scored rows are outside the solved ones
    reason : the reason of the choice, in words
    epsilon : the chosen half width of the tube of a regression, None for other problems
    measures : the names of agreement and similarity in the table
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
            f"Solved on {self.n_fitted} rows, scored on {self.n_scored} {rows}.",
            f"{'   epsilon' if tube else ''}         C     kappa {first:>10}  {second}  specificity  support"
            "  balance      gap",
        ]
        for p in self.path:
            cosine = "–" if p.logit_cosine is None else f"{p.logit_cosine:.4f}"
            mark = "  ← chosen" if (p.C, p.epsilon) == (self.C, self.epsilon) else ""
            lines.append(
                f"{f'{p.epsilon:10.3g}' if tube else ''}{p.C:10.3g} {p.kappa:9.3g} {p.agreement:10.4f} "
                f"{cosine:>{wide + 1}} {p.specificity:12.2f} {p.support:8.1%} {p.balance:8.2f} "
                f"{p.gap:8.1e}{mark}"
            )
        return "\n".join(lines)


def choose_C(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    head: tuple[Floats, Floats | None] | None = None,
    head_features: npt.ArrayLike | None = None,
    problem: Makes | Sequence[Makes] = CrammerSinger,
    n_classes: int | None = None,
    bias: bool | float = True,
    seed: int = 0,
    max_samples: int | None = None,
    n_threads: int | None = None,
    show_progress: bool = False,
) -> CChoice:
    """Choose C so that the surrogate agrees with the model's head and its answers depend on the input.

    The effect of C depends on the data: scaling features by s is the same as scaling C by s², and the loss is
    a sum over N samples. Therefore the path runs over κ = C·N·mean‖f − f̄‖², which is also independent of a
    common offset of the features, with one value every half decade from 1 to 10⁶. Each C is solved on a
    subsample of n rows, as C·N/n, which is stratified by class unless there are more than n/2 classes, and
    scored on rows outside of it (at least a fifth of the data, from 50 rows on). ``held_back`` rows are never
    used, so that the result can be measured on them. The choice is by:

    1. agreement of the surrogate's class with the head's, at most one standard error, or 0.01, below the
       best;
    2. among these values, the best balance of specificity and sparsity, their harmonic mean. Specificity is
       the number of different samples that are the strongest evidence for up to 500 rows, as a share: at a
       large C few samples with large λ lead every list. Sparsity is the share of samples that are not support
       vectors: at a small C all are, with the same λ. The smaller C wins a tie.

    The path also has the mean cosine of the logits, centred over classes (with two classes, where it is ±1,
    the correlation of the margins). A choice at an edge of the path with an agreement below 0.95 comes with a
    ``ChoiceWarning``.

    Parameters
    ----------
    features : (N, d)
    labels : (N,) integers, or the targets of another problem
    head
        The model's last layer, weight (K, d) and bias (K,) or None. Without it, labels replace the
        model's classes.
    head_features : (N, d)
        The raw features of the head, if ``features`` are transformed, such as to unit length.
    problem
        The problem, as for ``solve``; of several, which differ in a parameter, one is chosen with C.
    n_classes
        K; None takes it from the head or the labels.
    bias
        Append a constant to the features: 1, or this number.
    seed
        Seed of the subsample and of the solver.
    max_samples
        Rows for solving; at most three times as many are scored. None is 20,000, or 3,000 with more than
        1,000 classes.

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
    raw = None if head_features is None else check_features(head_features)
    if raw is not None and raw.shape != X.shape:
        raise InvalidInputError(f"'head_features' must have shape {X.shape}. Got {raw.shape}.")
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
    y = to_array("labels", labels)
    asked = np.sort(rng.permutation(scored)[:_ASKED])
    targets = _targets(asked, y, p.n_outputs, head, X if raw is None else raw)
    tests, X, y = X[asked], X[fitted], y[fitted]
    tests = tests - X.mean(axis=0)
    judge, tols = p.judge(scored, head, raw), _TOLS if p.n_outputs <= _MANY else (*_ROUGH, *_TOLS)
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
        distinct = _specificity(previous.lam, X, tests, targets)
        tube = each.make(X[:1], y[:1], p.n_outputs, 1.0, bias).tube
        path.append(PathPoint(kappa / scale, kappa, agreement, cosine, distinct, support, previous.gap, tube))
    best, reason = _best(path, len(scored), head is not None, type(p))
    if best.kappa in (_KAPPAS[0], _KAPPAS[-1]) and best.agreement < _ENOUGH:
        _warn_of_edge(best, len(scored), p.measures[0], "the labels" if head is None else "the model")
    counts = len(fitted), len(scored), held_out
    return CChoice(best.C, tuple(path), *counts, reason, best.epsilon, p.measures)


def _warn_of_edge(best: PathPoint, n: int, measure: str, judge: str) -> None:
    """Warn that the best C is at an edge of the path and agrees poorly, and say what helps."""
    smallest = best.kappa == _KAPPAS[0]
    further = best.C / 10 if smallest else best.C * 10
    if n < _FEW:
        advice = f"It was judged on {n} samples only, too few for a choice: use more training samples."
    else:
        advice = (
            f"A {'smaller' if smallest else 'larger'} value may be better: compare faithfulness(x) at "
            f"C={further:.2g}. If it is no higher, the features do not separate the classes better, as of a "
            "model that has not learned its training set."
        )
    warn(
        f"The chosen C = {best.C:.3g} is the {'smallest' if smallest else 'largest'} of the path, with "
        f"{measure} {best.agreement:.3f} with {judge}. {advice}",
        ChoiceWarning,
    )


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
    """Find the point that the two steps of ``choose_C`` lead to, and the reason in words."""
    top = max(p.agreement for p in path)
    margin = max(problem.error(top, n), _MARGIN)
    left = [p for p in path if p.agreement >= top - margin]
    chosen = max(left, key=lambda p: (p.balance, p.specificity))  # the path ascends in C
    first, model = problem.measures[0], problem.judges[0 if with_head else 1]
    return chosen, (
        f"{first} with {model} within {margin:.2g} of the best, {top:.4f}; of those the best balance of "
        f"specificity, {chosen.specificity:.2f}, and sparsity, {1.0 - chosen.support:.2f}"
    )


def _targets(rows: Ints, labels: Array, n_outputs: int, head: HeadLayer | None, features: Floats) -> Ints:
    """Return which output (n,) is explained of rows: the head's largest, else the label's or the first."""
    if head is not None and 1 < n_outputs <= _MANY:
        logits = features[rows] @ head[0].T
        return np.asarray((logits if head[1] is None else logits + head[1]).argmax(axis=1), np.int64)
    if n_outputs > 1 and labels.ndim == 1:
        return labels[rows].astype(np.int64)
    return np.zeros(len(rows), np.int64)


def _specificity(lam: csr_array, X: Floats, tests: Floats, targets: Ints) -> float:
    """Return how many different samples are strongest for tests less the mean (n, d), over n."""
    columns, strongest = lam.tocsc(), []
    for c in np.unique(targets):
        entries = slice(columns.indptr[c], columns.indptr[c + 1])
        rows, weights = columns.indices[entries], columns.data[entries]
        if len(rows):
            scores = (tests[targets == c] @ X[rows].T) * weights
            strongest.append(rows[scores.argmax(axis=1)])
    return len(np.unique(np.concatenate(strongest))) / len(tests) if strongest else 0.0
