from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

from whence import DualDA
from whence.errors import InvalidInputError
from whence.relevance.captum import Captum
from whence_studies import explain_pairs, pair_flipping
from whence_studies.comparison import standard_error, ties
from whence_studies.flipping import removal_order
from whence_studies.removal import Removable


class InputTimesGradient:
    """A method of captum's form, its sign free: −1 removes what matters most last."""

    def __init__(self, module, sign=1.0):
        self.module, self.sign = module, sign

    def attribute(self, values, additional_forward_args):
        values.requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.module(values, *additional_forward_args).sum(), values)
        return self.sign * values * gradient


REVERSED = Captum(lambda module: InputTimesGradient(module, -1.0))
METHODS = {"xda": None, "gradient": InputTimesGradient, "reversed": REVERSED, "random": "random"}


@pytest.fixture(scope="module")
def linear():
    """A model whose features are linear in its input: what a removal does is known exactly."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 3)).double()
    x = torch.randn(40, 6, dtype=torch.float64)
    y = model(x).argmax(1)
    return (
        DualDA(metric="raw", C=0.5, show_progress=False).fit(model, (x, y)),
        model[0].weight.detach().numpy(),
        x.numpy(),
    )


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(4 * 6 * 5, 8), nn.ReLU(), nn.Linear(8, 3),
    ).double()  # fmt: skip
    x = torch.rand(30, 2, 6, 5, dtype=torch.float64)
    return DualDA(metric="raw", C=0.5, show_progress=False).fit(model, (x, torch.arange(30) % 3)), x


class Bag(nn.Module):
    """The mean embedding of the words that are not padding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[..., None].to(self.embedding.weight.dtype)
        return self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))


def by_hand(tau, drops, order):
    """Area under τ(removed)/τ(0) where each removal takes its own drop, one per step."""
    heights = [tau]
    for unit in order:
        heights.append(heights[-1] - drops[unit])
    area = sum((a + b) / 2 for a, b in itertools.pairwise(heights)) / len(drops)
    return area / tau


@pytest.mark.parametrize("side", ["test", "train"])
def test_the_best_order_of_a_linear_model_is_found(linear, side):
    explainer, A, x = linear
    result = pair_flipping(
        explainer, x[:5], k=2, side=side, methods=METHODS, steps=6, baseline=0.0, n_random=300
    )
    lam = explainer.lam_.toarray()
    target = explainer.top_k(x[:5]).target.numpy()
    assert (result.scores > 0).any()
    assert (result.scores < 0).any()
    areas = dict(zip(result.methods, result.areas, strict=True))
    for p, (test, train) in enumerate(zip(result.tests, result.trains, strict=True)):
        own, other = (x[test], x[train]) if side == "test" else (x[train], x[test])
        coefficient = lam[train, target[test]]
        tau = coefficient * ((A @ own) @ (A @ other) + explainer.constant_**2)
        drops = coefficient * own * (A.T @ (A @ other))
        assert result.scores[p] == pytest.approx(tau, rel=1e-9)
        every = [by_hand(tau, drops, order) for order in itertools.permutations(range(6))]
        # The relevance comes as float32, the scores are float64: orders agree, so areas do to rounding.
        assert areas["xda"][p] == pytest.approx(min(every), rel=1e-9)
        assert areas["gradient"][p] == pytest.approx(min(every), rel=1e-9)
        assert areas["reversed"][p] == pytest.approx(max(every), rel=1e-9)
        # Over all orders the score falls evenly, from 1 to what the bias leaves.
        assert np.mean(every) == pytest.approx((1 + coefficient * explainer.constant_**2 / tau) / 2)
        assert areas["random"][p] == pytest.approx(np.mean(every), abs=5 * np.std(every) / np.sqrt(300))
    assert result.curves[:, 0] == pytest.approx(1)
    assert result.shares == pytest.approx(np.linspace(0, 1, 7))


def test_a_curve_is_the_model_run_again(images):
    explainer, x = images
    pairs = explain_pairs(explainer, x[:1], methods={"gradient": InputTimesGradient})
    result = pairs.flip("test", steps=5, patch=2, baseline="blur")
    model = explainer.fitted_.require_model().extractor.model
    blurred = gaussian_filter(x[0].numpy(), (0, 6 / 8, 5 / 8), mode="nearest")
    curves = []
    for pair in pairs.pairs:
        other = model[:5](x[pair.train : pair.train + 1]).detach()
        changed = x[:1].clone().requires_grad_()
        tau = pair.lam * ((model[:5](changed) * other).sum() + explainer.constant_**2)
        (gradient,) = torch.autograd.grad(tau, changed)
        relevance = (changed * gradient).detach()[0].sum(0).numpy()
        corners = [(i, j) for i in (0, 2, 4) for j in (0, 2, 4)]  # the last column of squares is 1 wide
        mass = [relevance[i : i + 2, j : j + 2].sum() * np.sign(tau.item()) for i, j in corners]
        image, heights, done = x[0].clone().numpy(), [1.0], 0
        for step in range(1, 6):
            for i, j in [corners[u] for u in np.argsort(mass)[::-1]][done : round(9 * step / 5)]:
                image[:, i : i + 2, j : j + 2] = blurred[:, i : i + 2, j : j + 2]
            done = round(9 * step / 5)
            features = model[:5](torch.from_numpy(image)[None])
            heights.append((pair.lam * ((features * other).sum() + explainer.constant_**2) / tau).item())
        curves.append(heights)
    assert result.curves[0] == pytest.approx(np.mean(curves, axis=0), rel=1e-9)
    shares = np.array([0, 2, 4, 5, 7, 9]) / 9
    assert result.areas[0] == pytest.approx([np.trapezoid(curve, shares) for curve in curves], rel=1e-9)


def test_batches_and_other_methods_change_nothing(images):
    explainer, x = images
    pairs = explain_pairs(explainer, x[:3], methods=METHODS)
    one = pairs.flip("train", steps=4, patch=2)
    again = pairs.flip("train", steps=4, patch=2)
    assert np.array_equal(one.areas, again.areas)
    assert not np.array_equal(one.areas[3], pairs.flip("train", steps=4, patch=2, seed=1).areas[3])
    explainer.batch_size, before = 7, explainer.batch_size
    try:
        small = pairs.flip("train", steps=4, patch=2)
    finally:
        explainer.batch_size = before
    assert small.areas == pytest.approx(one.areas, rel=1e-12)
    alone = pair_flipping(explainer, x[:3], side="train", steps=4, patch=2)
    assert alone.methods == ("XDA", "random")
    assert alone.areas == pytest.approx(one.areas[[0, 3]], rel=1e-12)


@pytest.mark.filterwarnings("ignore:Tokens are shown as numbers")
def test_tokens_are_removed_by_the_mask_and_special_ones_stay():
    torch.manual_seed(0)
    model = Bag().double()
    ids = torch.randint(4, 20, (24, 6))
    ids[:, 0] = 1
    ids[::2, 4:] = 0
    mask = (ids > 0).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    data = [({name: part[i] for name, part in inputs.items()}, i % 2) for i in range(24)]
    explainer = DualDA(metric="raw", C=0.5, show_progress=False).fit(model, data)
    one = {name: part[:2] for name, part in inputs.items()}
    result = pair_flipping(
        explainer, one, side="test", methods=METHODS, steps=5, baseline=3, keep=[1], n_random=1
    )
    pooled = model.embedding.weight.detach().numpy()
    means = [pooled[row[row > 0]].mean(0) for row in ids.numpy()]
    for p, (test, train) in enumerate(zip(result.tests, result.trains, strict=True)):
        words = ids[test][ids[test] > 0].numpy()
        last = pooled[[1, *[3] * (len(words) - 1)]].mean(0)  # all but the first are masked
        square = explainer.constant_**2
        expected = (last @ means[train] + square) / (means[test] @ means[train] + square)
        lam = result.scores[p] / (means[test] @ means[train] + square)
        drops = lam * (pooled[words[1:]] - pooled[3]) @ means[train] / len(words)
        relevance = lam * pooled[words[1:]] @ means[train]
        order = np.argsort(-relevance * np.sign(result.scores[p]), kind="stable")
        if len(words) == 6:  # a step per token
            assert result.areas[0, p] == pytest.approx(by_hand(result.scores[p], drops, order), rel=1e-9)
        sample = Removable.of({name: part[test : test + 1] for name, part in inputs.items()}, 3, keep=[1])
        assert sample.n_units == len(words) - 1
        gone = sample.without(np.ones((2, sample.n_units), dtype=bool))
        assert gone["input_ids"].tolist() == [[1, *[3] * (len(words) - 1), *[0] * (6 - len(words))]] * 2
        assert gone["attention_mask"].shape == (2, 6)
        assert (1 - drops.sum() / result.scores[p]) == pytest.approx(expected)


def test_baselines_of_images(images):
    _, x = images
    everything = np.ones((1, 30), dtype=bool)
    image = x[0].numpy()
    mean = np.broadcast_to(image.mean((1, 2))[:, None, None], image.shape)
    for baseline, expected in (
        (0.25, np.full_like(image, 0.25)),
        ("mean", mean),
        (x.mean(0), x.mean(0).numpy()),
        (np.array([[[1.0]], [[2.0]]]), np.stack([np.full((6, 5), 1.0), np.full((6, 5), 2.0)])),
    ):
        assert Removable.of(x[:1], baseline).without(everything)[0].numpy() == pytest.approx(expected)
    sample = Removable.of(x[:1], 0.0, patch=4)
    assert sample.units.tolist() == [[0, 0, 0, 0, 1]] * 4 + [[2, 2, 2, 2, 3]] * 2
    assert sample.relevance(image).sum() == pytest.approx(image.sum())
    assert sample.relevance(image)[3] == pytest.approx(image[:, 4:, 4:].sum())
    left = sample.without(np.array([[False, True, False, False]]))[0].numpy()
    assert not left[:, :4, 4].any()
    assert left.sum() == pytest.approx(image.sum() - image[:, :4, 4].sum())


def test_equal_relevance_goes_by_lot():
    relevance = np.array([0.0, 3.0, 0.0, 0.0, -1.0])
    for seed in range(5):
        lots = np.random.default_rng(seed).permutation(5)
        order = removal_order(relevance, lots)
        assert order[0] == 1
        assert order[-1] == 4
        assert order[1:4].tolist() == [u for u in lots if u in (0, 2, 3)]


def test_standard_errors_and_ties():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 50))
    alone = np.arange(50)
    assert standard_error(values, alone) == pytest.approx(values.std(axis=1, ddof=1) / np.sqrt(50))
    # The same observation twice tells nothing new.
    twice = np.repeat(values, 2, axis=1)
    assert standard_error(twice, np.repeat(alone, 2)) == pytest.approx(standard_error(values, alone))
    assert np.isnan(standard_error(values, np.zeros(50, dtype=int))).all()
    # A constant difference is certain however much both vary; an unpaired comparison would call it a tie.
    noise = rng.normal(size=50)
    rows = np.stack([noise, noise + 0.1, noise + 0.1 * rng.normal(size=50)])
    assert ties(rows, alone).tolist() == [[True, False, True], [False, True, False], [True, False, True]]


def test_mistakes_are_named(linear, images):
    explainer, _, x = linear
    with pytest.raises(InvalidInputError, match=r"'side' must be one of .*Got 'left'"):
        pair_flipping(explainer, x[:1], side="left")
    with pytest.raises(InvalidInputError, match="'steps'"):
        pair_flipping(explainer, x[:1], steps=0)
    with pytest.raises(InvalidInputError, match="'patch' must be 1 for inputs that are not images"):
        pair_flipping(explainer, x[:1], patch=2, baseline=0.0)
    with pytest.raises(
        InvalidInputError, match=r"'baseline' must be .* Got 'mean' for inputs of shape \(6,\)"
    ):
        pair_flipping(explainer, x[:1])
    with pytest.raises(InvalidInputError, match="'methods' must name at least one"):
        pair_flipping(explainer, x[:1], methods={})
    with pytest.raises(InvalidInputError, match="one that is not random"):
        pair_flipping(explainer, x[:1], methods={"random": "random"})
    pictures, images = images
    with pytest.raises(InvalidInputError, match="Got 'grey'"):
        pair_flipping(pictures, images[:1], baseline="grey")
    with pytest.raises(InvalidInputError, match=r"'baseline' must have the sample's shape \(2, 6, 5\)"):
        pair_flipping(pictures, images[:1], baseline=np.zeros((3, 6, 5)))
    tokens = {"input_ids": torch.tensor([[1, 5]]), "attention_mask": torch.tensor([[1, 1]])}
    with pytest.raises(InvalidInputError, match="must be a token id for texts"):
        Removable.of(tokens, "mean")
    with pytest.raises(InvalidInputError, match="'keep' must leave tokens"):
        Removable.of(tokens, 3, keep=[1, 5])
