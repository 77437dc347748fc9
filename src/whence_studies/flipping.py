"""Pair flipping: how fast a pair's score falls when its most relevant features are removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from whence.core.arrays import Doubles, Ints, Mask
from whence.core.checks import check_choice, check_count, check_flag, check_is, check_seed, shown, to_array
from whence.core.display import Columns, displayed
from whence.core.progress import bar
from whence.errors import InvalidInputError
from whence.explanation import Contribution
from whence.methods import DualDA
from whence.metrics.lds import table
from whence.model.inputs import check_batch, take, to_model
from whence.relevance.xda import Method
from whence_studies.comparison import standard_error, ties
from whence_studies.removal import Baseline, Removable, removal_order

Map = npt.NDArray[np.float32]
Side = Literal["test", "train"]

RANDOM = "random"
"""Name of the baseline that removes units in random order."""


@displayed("side", "areas", rows="columns")
@dataclass(frozen=True, eq=False)
class FlippingResult:
    """How fast the scores of pairs fall when their most relevant features are removed first.

    Attributes
    ----------
    methods : names of the methods
    side : the sample from which features were removed
    shares : (steps + 1,) shares of the features removed, from 0 to 1
    curves : (method, steps + 1) mean of τ(removed)/τ(0) over the pairs
    areas : (method, pair) area under each pair's curve; **lower is better**
    scores : (pair,) τ(0); positive for proponents, negative for opponents
    tests, trains : (pair,) indices of the test and the training samples
    ties : (method, method) whether two mean areas may be equal: the 95 % interval of their difference
        over test samples drawn with replacement holds 0
    """

    methods: tuple[str, ...]
    side: Side
    shares: Doubles
    curves: Doubles
    areas: Doubles
    scores: Doubles
    tests: Ints
    trains: Ints
    ties: Mask

    @property
    def mean(self) -> Doubles:
        """Mean area of each method, (method,)."""
        mean: Doubles = self.areas.mean(axis=1)
        return mean

    @property
    def standard_error(self) -> Doubles:
        """Standard error of each mean, (method,); NaN for a single test sample."""
        return standard_error(self.areas, self.tests)

    def columns(self) -> Columns:
        """Return the comparison as columns of plain values, the best method first."""
        order = np.argsort(self.mean, kind="stable")
        numbers = {"area": self.mean, "standard_error": self.standard_error}
        names = [self.methods[i] for i in order]
        return {"method": names, **{name: values[order].tolist() for name, values in numbers.items()}}

    def __str__(self) -> str:
        """Write a table in Markdown, the best method first."""
        both = zip(self.mean, self.standard_error, strict=True)
        cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in both]
        return table("area", self.methods, cells, np.argsort(self.mean, kind="stable"), self.ties)

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain JSON types."""
        arrays = ("shares", "curves", "areas", "scores", "tests", "trains", "ties", "mean", "standard_error")
        plain: dict[str, Any] = {"methods": list(self.methods), "side": self.side}
        plain |= {name: getattr(self, name).tolist() for name in arrays}
        # JSON has no NaN, the error for a single test.
        plain["standard_error"] = [None if np.isnan(error) else error for error in plain["standard_error"]]
        return plain


@dataclass(frozen=True, eq=False)
class ExplainedPair:
    """A test sample and a training sample, with the maps of their score by each method.

    Attributes
    ----------
    test, train : indices of the samples
    lam : λ, the factor of the score
    inputs : the model's inputs by side, a batch of one each
    features : (d,) float64 by side
    explained : by each method except the random one, with maps on both sides
    """

    test: int
    train: int
    lam: float
    inputs: Mapping[Side, Any]
    features: Mapping[Side, Tensor]
    explained: Mapping[str, Contribution]

    def map(self, method: str, side: Side) -> Map:
        """Return a method's relevance map on one of the samples."""
        maps = self.explained[method]
        return maps.test_map if side == "test" else maps.train_map


@displayed("methods", "pairs")
@dataclass(frozen=True, eq=False)
class ExplainedPairs:
    """Pairs with their maps by several methods, ready for flipping.

    Attributes
    ----------
    explainer : the explainer of the pairs
    methods : names of the methods
    pairs : proponents, then opponents, of each test sample in turn
    relative : whether scores are relative to the mean training sample
    """

    explainer: DualDA
    methods: tuple[str, ...]
    pairs: tuple[ExplainedPair, ...]
    relative: bool = False

    def flip(
        self,
        side: Side = "test",
        *,
        steps: int = 20,
        patch: int = 1,
        baseline: Baseline = "mean",
        keep: Sequence[int] = (),
        n_random: int = 5,
        seed: int = 0,
    ) -> FlippingResult:
        """Remove features and recompute the scores; arguments as for ``pair_flipping``."""
        check_choice("side", side, ("test", "train"))
        steps, patch = check_count("steps", steps, most=10_000), check_count("patch", patch)
        n_random = check_count("n_random", n_random, most=1_000)
        seed, tokens = check_seed(seed), to_array("keep", keep)
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            raise InvalidInputError(f"'keep' must be a list of token ids. Got {shown(keep)}.")
        self.explainer.fitted_.require_model().check_unchanged()
        shares = np.arange(steps + 1) / steps
        scores, curves, areas = [], [], []
        for p, pair in enumerate(
            bar(
                "Flipping pairs",
                len(self.pairs),
                "pairs",
                parts=self.pairs,
                show=self.explainer.show_progress,
            )
        ):
            sample = Removable.of(pair.inputs[side], baseline, patch, keep)
            counts = np.rint(shares * sample.n_units).astype(np.int64)
            tau = self._scores(pair, side, pair.features[side][None])[0]
            # Seeded per pair, so that orders depend on no other pair and not on the batch size.
            owners, orders = self._orders(pair, side, sample, np.sign(tau), n_random, [seed, p])
            left = self._without(pair, side, sample, orders, counts[1:]) / tau  # (orders, steps)
            mean = np.array([left[owners == m].mean(axis=0) for m in range(len(self.methods))])
            curve = np.hstack([np.ones((len(mean), 1)), mean])
            scores.append(tau)
            curves.append(curve)
            areas.append(np.trapezoid(curve, counts / sample.n_units, axis=1))
        tests = np.array([pair.test for pair in self.pairs])
        return FlippingResult(
            methods=self.methods,
            side=side,
            shares=shares,
            curves=np.mean(curves, axis=0),
            areas=np.array(areas).T,
            scores=np.array(scores),
            tests=tests,
            trains=np.array([pair.train for pair in self.pairs]),
            ties=ties(np.array(areas).T, tests, seed=seed),
        )

    def _orders(
        self, pair: ExplainedPair, side: Side, sample: Removable, sign: float, n_random: int, seed: list[int]
    ) -> tuple[Ints, Ints]:
        """Return orders (R, units) of removal, and the method (R,) that each belongs to."""
        rng = np.random.default_rng(seed)
        lots = [rng.permutation(sample.n_units) for _ in range(n_random)]
        orders = [
            [removal_order(sign * sample.relevance(pair.map(name, side)), lots[0])]
            if name in pair.explained
            else lots
            for name in self.methods
        ]
        return np.repeat(np.arange(len(orders)), [len(rows) for rows in orders]), np.concatenate(orders)

    def _without(
        self, pair: ExplainedPair, side: Side, sample: Removable, orders: Ints, counts: Ints
    ) -> Doubles:
        """Return a pair's scores (R, steps) without the first ``counts`` (steps,) units of each order."""
        ranks = np.argsort(orders, axis=1)
        extractor, width = self.explainer.fitted_.require_model().extractor, self.explainer.batch_size
        n = len(orders) * len(counts)
        scores = np.empty(n)
        for begin in range(0, n, width):
            rows = np.arange(begin, min(begin + width, n))
            order, step = np.divmod(rows, len(counts))
            features = extractor(sample.without(ranks[order] < counts[step, None]))
            scores[rows] = self._scores(pair, side, features)
        return scores.reshape(len(orders), len(counts))

    def _scores(self, pair: ExplainedPair, side: Side, features: Tensor) -> Doubles:
        """Return a pair's scores (n,) with other features (n, d) on one side."""
        surrogate = self.explainer.surrogate_
        z = {name: surrogate.metric(each[None]) for name, each in pair.features.items()}
        z[side] = surrogate.metric(features.detach().double().cpu())
        constant = surrogate.constant**2
        if self.relative:
            z["test"], constant = z["test"] - torch.from_numpy(surrogate.solution.means[0]), 0.0
        scores: Doubles = pair.lam * ((z["test"] * z["train"]).sum(dim=1) + constant).numpy()
        return scores


def explain_pairs(
    explainer: DualDA,
    x: Any,
    k: int = 1,
    *,
    target: Any = None,
    methods: Mapping[str, Method | None] | None = None,
    relative: bool = False,
) -> ExplainedPairs:
    """Explain the strongest pairs of test samples by several methods, for several kinds of flipping.

    Parameters are as for ``pair_flipping``.
    """
    check_is("explainer", explainer, DualDA, "a DualDA fitted with its training set")
    model = explainer.fitted_.require_model()
    methods = {"XDA": None, RANDOM: RANDOM} if methods is None else methods
    if not isinstance(methods, Mapping) or not methods:
        raise InvalidInputError(
            "'methods' must name at least one method, as a mapping of names to methods. "
            f"Got {shown(methods)}."
        )
    n, relative = check_batch(x), check_flag("relative", relative)
    targets = [None] * n if target is None else explainer.task_.check_target(target, n).tolist()
    pairs: list[ExplainedPair] = []
    tests = bar("Explaining", n, "tests", parts=range(n), show=explainer.show_progress)
    for test in tests:
        one = take(x, slice(test, test + 1))
        of_test = next(model.batches(one, 1))
        explained = {
            name: explainer.explain(one, k, targets[test], method=method, relative=relative)[0].pairs
            for name, method in methods.items()
            if method != RANDOM
        }
        for same in zip(*explained.values(), strict=True):  # methods share pairs and differ in maps
            index, lam = same[0].index, same[0].coefficient
            of_train = to_model(model.extractor.model, explainer.fitted_.require_data().take([index]))
            inputs: dict[Side, Any] = {"test": of_test, "train": of_train}
            features = {side: model.extractor(part)[0].double().cpu() for side, part in inputs.items()}
            pairs.append(
                ExplainedPair(test, index, lam, inputs, features, dict(zip(explained, same, strict=True)))
            )
    if not pairs:
        raise InvalidInputError(
            "'x' must have proponents or opponents, and 'methods' one that is not random. Got no pairs."
        )
    return ExplainedPairs(explainer, tuple(methods), tuple(pairs), relative)


def pair_flipping(
    explainer: DualDA,
    x: Any,
    k: int = 1,
    side: Side = "test",
    *,
    target: Any = None,
    methods: Mapping[str, Method | None] | None = None,
    steps: int = 20,
    patch: int = 1,
    baseline: Baseline = "mean",
    keep: Sequence[int] = (),
    n_random: int = 5,
    seed: int = 0,
    relative: bool = False,
) -> FlippingResult:
    """Measure how well relevance maps find the features that determine the scores of pairs.

    The most relevant features of one sample of a pair are removed first, and the pair's score
    τ = λ (f(x)·f(x_i) + bias) is computed again, with λ and the other sample unchanged. The **smaller** the
    area under τ(removed)/τ(0) over the share removed, the better the map. Opponents have negative scores:
    their most relevant features are those with the most negative relevance.

    Parameters
    ----------
    explainer
        A DualDA that was fitted with its training set.
    x
        A batch of test samples, as for ``DualDA.explain``.
    k
        Proponents, and opponents, per test sample.
    side
        The sample whose features are removed, by its own map: "test" or "train".
    target
        As for ``DualDA.explain``.
    methods
        Methods by name: what ``DualDA.explain`` takes as ``method``, None for its default, or "random" for
        random orders. By default, the default method and random orders.
    steps
        Number of equal steps from nothing to everything removed, at most 10,000.
    patch
        Side of the squares of pixels that are removed together, ordered by the sum of their relevance.
    baseline
        The value of removed features: for images "mean" (the image's own mean colour) or "blur" (the image
        under a Gaussian of an eighth of its size); a number or an array of a sample's shape, such as the mean
        of the training set; for texts a token id, such as ``mask_token_id``. A number does not remove pixels
        that have this value already.
    keep
        For texts, tokens that are never removed, such as ``all_special_ids``.
    n_random
        Number of random orders to average, at most 1,000.
    seed
        Seed of the random orders, of ties in relevance, and of the comparison.
    relative
        Flip scores relative to the mean training sample, λ z_i·(z(x) − z̄), instead of τ.

    Returns
    -------
    FlippingResult, which prints as a table.

    Examples
    --------
    >>> import torch, whence
    >>> from whence_studies import pair_flipping
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> X, y = torch.rand(30, 6), torch.arange(30) % 2
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (X, y))
    >>> pair_flipping(explainer, X[:4], baseline=0.0, steps=6).curves.shape
    (2, 7)
    """
    pairs = explain_pairs(explainer, x, k, target=target, methods=methods, relative=relative)
    return pairs.flip(
        side, steps=steps, patch=patch, baseline=baseline, keep=keep, n_random=n_random, seed=seed
    )
