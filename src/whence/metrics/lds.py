"""The linear datamodelling score: how well scores predict models trained on subsets of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import rankdata

from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.core.checks import check_count, check_seed, check_share, check_that, to_array
from whence.core.display import Columns, displayed
from whence.metrics.arrays import MOST_DRAWS, mask, numbers

_LARGEST = 1 << 32  # entries of a mask in memory at a time


def random_subsets(n_train: int, m: int, fraction: float = 0.5, seed: int = 0) -> Mask:
    """Draw m subsets of the training set, each of ``fraction`` of it, as a mask (m, N).

    N is at most 100,000,000, and the mask has at most 2³² entries.

    Examples
    --------
    >>> random_subsets(10, 3).sum(axis=1)
    array([5, 5, 5])
    """
    n_train = check_count("n_train", n_train, most=100_000_000)
    m = check_count("m", m)
    fraction = check_share("fraction", fraction)
    check_that(n_train * m <= _LARGEST, "m", f"be at most {_LARGEST // n_train:,} for {n_train} samples", m)
    rng = np.random.default_rng(check_seed(seed))
    size = round(fraction * n_train)
    return np.array([rng.permutation(n_train) < size for _ in range(m)])


def lds(scores: Any, subsets_mask: Any, outputs: Any) -> Doubles:
    """Linear datamodelling score of each test, (T,): Spearman's ρ of predictions and outputs.

    ρ({Φ_j(x)_c}, {Σ_{i in S_j} τ_c(x, i)}) over the models Φ_j, each trained on a subset S_j. In [−1, 1];
    1 is best and chance is 0, with variance 1/(m − 1) per test. If either side is constant, ρ is 0.
    Outputs of several training seeds are averaged first.

    Parameters
    ----------
    scores : (T, N)
    subsets_mask : (m, N)
        True if a training sample was used for model j, as from ``random_subsets``.
    outputs : (m, T), or (seeds, m, T)
        Output of model j for the test's target class, the same class as for the scores.

    Examples
    --------
    >>> import numpy as np
    >>> subsets = np.array([[True, True, False], [True, False, True], [False, True, True]])
    >>> lds(np.array([[3.0, 2.0, 1.0]]), subsets, np.array([[5.0], [4.0], [3.5]]))
    array([1.])
    """
    rhos: Doubles = _rhos(numbers("scores", scores, (None, None)), subsets_mask, outputs)[0]
    return rhos


@displayed()
@dataclass(frozen=True)
class Reliability:
    """The variance of retrained models' outputs due to the subset, and due to the training seed.

    Attributes
    ----------
    one_seed : mean Spearman correlation over subsets between the outputs of two training seeds
    all_seeds : the same for the mean over all S seeds, predicted by Spearman and Brown: S r / (1 + (S − 1) r)
    ceiling : √all_seeds, the LDS of scores that predict the mean over seeds without error
    """

    one_seed: float
    all_seeds: float
    ceiling: float


def lds_reliability(outputs: Any) -> Reliability:
    """Return the maximum LDS that these outputs allow.

    Parameters
    ----------
    outputs : (seeds, m, T)
        Outputs of at least two training seeds.
    """
    array = numbers("outputs", outputs, (None, None, None))
    S, m, _ = array.shape
    rule = "have shape (seeds, m, T) with at least 2 seeds and 3 models"
    check_that(S >= 2 and m >= 3, "outputs", rule, array.shape, "Train on each subset with another seed.")
    every = np.ones((1, m))
    pairs = [_correlations(array[a].T, array[b], every).mean() for a, b in combinations(range(S), 2)]
    r = float(np.mean(pairs))
    total = S * r / (1 + (S - 1) * r) if r > 0 else 0.0
    return Reliability(r, total, float(np.sqrt(total)))


@displayed("level", "reliability", rows="columns")
@dataclass(frozen=True, eq=False)
class LDSComparison:
    """Mean LDS of several methods on the same subsets.

    Attributes
    ----------
    methods : names
    mean : (method,) over the tests, and over the explained models where there are several
    error : (method,) standard error, the standard deviation of the means over subsets, and explained models,
        drawn with replacement
    low, high : (method,) ends of the interval that holds ``level`` of those means
    ties : (method, method) whether that interval of the difference between two methods, on the same draws,
        holds 0
    reliability : of the outputs; None with a single training seed
    level : of the intervals
    """

    methods: tuple[str, ...]
    mean: Doubles
    error: Doubles
    low: Doubles
    high: Doubles
    ties: Mask
    reliability: Reliability | None
    level: float

    def columns(self) -> Columns:
        """Return columns of plain values, the best method first."""
        order = np.argsort(-self.mean, kind="stable")
        numbers = {"LDS": self.mean, "error": self.error, "low": self.low, "high": self.high}
        names = [self.methods[i] for i in order]
        return {"method": names, **{name: values[order].tolist() for name, values in numbers.items()}}

    def __str__(self) -> str:
        """Format a table in Markdown, the best method first."""
        numbers = zip(self.mean, self.error, self.low, self.high, strict=True)
        cells = [f"{mean:.3f} | {error:.3f} | {low:.3f} … {high:.3f}" for mean, error, low, high in numbers]
        order = np.argsort(-self.mean, kind="stable")
        return table(f"LDS | error | {self.level:.0%} interval", self.methods, cells, order, self.ties)


def compare_lds(
    scores: Mapping[str, Any],
    subsets_mask: Any,
    outputs: Any,
    *,
    level: float = 0.95,
    draws: int = 1_000,
    seed: int = 0,
) -> LDSComparison:
    """Compare methods by LDS, with intervals from a bootstrap over subsets and explained models.

    The retrained models are the observations: whole subsets are drawn with replacement, the same for all
    methods, and Spearman's ρ is computed again on each draw. Of several explained models as many are drawn
    with replacement, independently of the subsets, and the mean is over those. Two methods whose difference
    may as well be 0 are tied. No correction is made for many methods, and none for the choice of tests.

    Parameters
    ----------
    scores
        Scores (T, N) by method, or (models, T, N) for several explained models.
    subsets_mask
        As for ``lds``.
    outputs
        As for ``lds``; of several explained models (models, seeds, m, T), each with the classes that it
        predicts.
    level
        Share of draws in an interval.
    draws, seed
        Number of draws of the bootstrap, at most 100,000, and its seed.
    """
    rule = "be a mapping of at least one method's name to scores"
    check_that(isinstance(scores, Mapping) and scores, "scores", rule, scores)
    level = check_share("level", level)
    draws = check_count("draws", draws, most=MOST_DRAWS)
    m = len(mask("subsets_mask", subsets_mask, (None, None)))
    check_that(m * draws <= _LARGEST, "draws", f"be at most {_LARGEST // m:,} for {m} subsets", draws)
    rng = np.random.default_rng(check_seed(seed))
    counts = _drawn(rng, m, draws)
    given = to_array("outputs", outputs)
    by_explained = given if given.ndim == 4 else given[None]  # one per explained model
    shares = _drawn(rng, len(by_explained), draws) / len(by_explained)
    means = []
    for name, one in scores.items():
        several = _by_model(f"scores[{name!r}]", one, len(by_explained) if given.ndim == 4 else None)
        pairs = zip(several, by_explained, strict=True)
        by_model = [_rhos(values, subsets_mask, asked, counts).mean(axis=1) for values, asked in pairs]
        means.append((shares * np.stack(by_model, axis=1)).sum(axis=1))
    drawn = np.array(means)  # (method, 1 + draws)
    low, high = interval(drawn[:, 1:], level)
    # Several explained models are treated as more tests of the same retrained models.
    targets = np.concatenate(list(by_explained), axis=-1)
    return LDSComparison(
        methods=tuple(scores),
        mean=drawn[:, 0],
        error=drawn[:, 1:].std(axis=1),
        low=low,
        high=high,
        ties=tied(drawn[:, 1:], level),
        reliability=lds_reliability(targets) if targets.ndim == 3 and len(targets) > 1 else None,
        level=level,
    )


def _drawn(rng: np.random.Generator, n: int, draws: int) -> Doubles:
    """Return bootstrap counts (1 + draws, n) of n items; the first row is all ones."""
    return np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), size=draws)])


def _by_model(name: str, scores: Any, models: int | None) -> Array:
    """Return scores (models, T, N) of a method; for one explained model if ``models`` is None."""
    if models is None:
        return numbers(name, scores, (None, None))[None]
    return numbers(name, scores, (models, None, None))


def _rhos(scores: Array, subsets_mask: Any, outputs: Any, counts: Doubles | None = None) -> Doubles:
    """Compute LDS (draws, T) with model j drawn counts[:, j] times; with all models once if None."""
    T, N = scores.shape
    subsets = mask("subsets_mask", subsets_mask, (None, N))
    m = len(subsets)
    check_that(m >= 3, "subsets_mask", "have at least 3 subsets", m)
    array = to_array("outputs", outputs)
    several = array[None] if array.ndim == 2 else array
    targets = numbers("outputs", several, (None, m, T)).astype(np.float64).mean(axis=0)
    predicted = predicted_sums(scores, subsets).T
    return _correlations(predicted, targets, np.ones((1, m)) if counts is None else counts)


def predicted_sums(scores: Any, subsets_mask: Any) -> Doubles:
    """Return the sums (m, T) of scores (T, N) over each subset (m, N), in float64.

    What the scores predict of a network trained on the subset, up to a constant per test.
    """
    array = numbers("scores", scores, (None, None))
    subsets = mask("subsets_mask", subsets_mask, (None, array.shape[1])).T.astype(np.float64)
    width = max(1, (1 << 22) // array.shape[1])
    blocks = (array[start : start + width] for start in range(0, len(array), width))
    return np.concatenate([block.astype(np.float64) @ subsets for block in blocks]).T


def _correlations(predicted: Doubles, outputs: Doubles, counts: Doubles) -> Doubles:
    """Compute Spearman's ρ (draws, T) of predicted (T, m) and outputs (m, T), with bootstrap counts."""
    rhos = np.empty((len(counts), len(predicted)))
    for t, (a, b) in enumerate(zip(predicted, outputs.T, strict=True)):
        x, y = _centred_ranks(a, counts), _centred_ranks(b, counts)
        product = (counts * x * y).sum(axis=1)
        lengths = np.sqrt((counts * x * x).sum(axis=1) * (counts * y * y).sum(axis=1))
        rhos[:, t] = np.divide(product, lengths, out=np.zeros_like(product), where=lengths > 0)
    return rhos


def _centred_ranks(values: Doubles, counts: Doubles) -> Doubles:
    """Return ranks (draws, m) with mean 0 and shared ties, in samples with value j counts[:, j] times."""
    places: Ints = rankdata(values, method="dense").astype(np.int64) - 1
    n = np.zeros((len(counts), places.max() + 1))
    np.add.at(n.T, places, counts.T)
    upto = np.cumsum(n, axis=1)
    # The ranks of m observations always have the mean (m + 1)/2, shared or not.
    ranks: Doubles = (upto - (n - 1) / 2)[:, places] - (counts.shape[1] + 1) / 2
    return ranks


def tied(drawn: Doubles, level: float) -> Mask:
    """Return which rows of drawn means (M, draws) are tied: the interval of the difference has 0, (M, M)."""
    low, high = interval(drawn[:, None] - drawn, level)
    held: Mask = (low <= 0) & (high >= 0)
    return held


def interval(drawn: Doubles, level: float) -> Doubles:
    """Return the ends (2, …) of the interval with ``level`` of the draws (…, draws)."""
    return np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=-1)


def table(heads: str, methods: tuple[str, ...], cells: list[str], order: Ints, ties: Mask) -> str:
    """Format a table in Markdown: ordered methods, each with its cells and its ties."""
    lines = [f"| method | {heads} | tied with |", "|---" * (heads.count("|") + 3) + "|"]
    for i in order:
        same = [name for j, name in enumerate(methods) if ties[i, j] and j != i]
        lines.append(f"| {methods[i]} | {cells[i]} | {', '.join(same) or '–'} |")
    return "\n".join(lines)
