"""What the protocols ``metric-*`` leave out of the choice of a feature metric: maps, resampling, others.

Run ``python -m benchmarks.feature_metrics maps --seed 1``, or ``resampling``, or ``others``;
docs/research/metric.md has the results.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence import DualDA, metrics
from whence.errors import AgreementWarning, ChoiceWarning
from whence.features import FeatureBank, FeatureMap, Metric, extract
from whence.svm import choose_C
from whence_studies import FlippingResult, explain_pairs
from whence_studies.scenes import sources as _read  # noqa: F401  (registers them)
from whence_studies.scenes.datasets import SOURCES, draw
from whence_studies.scenes.training import Recipe, Trainer

CANDIDATES: dict[str, Any] = {
    "raw": Metric(),
    "unit": Metric(unit=True),
    "centred": Metric(centre=True),
    "centred, unit": Metric(centre=True, unit=True),
    "whitened 10": Metric(centre=True, shrinkage=10.0, unit=True),
    "whitened 1": Metric(centre=True, shrinkage=1.0, unit=True),
    "whitened 0.1": Metric(centre=True, shrinkage=0.1, unit=True),
}
IMAGES = ("mnist", "fashion-mnist", "cifar-10")
DATA = Path.home() / ".cache" / "whence" / "data"
N, TESTS, STEPS, FLIPPED, SHOWN = 5_000, 1_000, 600, 24, 16
MARKED_SHARE, MARK = 0.3, 3  # of class 0, and pixels of its frame


class Images:
    """Images of a source drawn with a seed, and a network that is trained on them."""

    def __init__(self, name: str, seed: int, marked: bool = False) -> None:
        read = SOURCES.get(name).read(folder=DATA)
        self.x, self.y = self._drawn(read["train"], N, seed)
        self.tests, self.truth = self._drawn(read["test"], TESTS, seed)
        self.marks = np.zeros(N, dtype=bool)
        if marked:
            of_class = np.flatnonzero(self.y.numpy() == 0)
            self.marks[
                np.random.default_rng(seed).permutation(of_class)[: round(MARKED_SHARE * len(of_class))]
            ] = True
            self.x[self.marks] = framed(self.x[self.marks])
        recipe = Recipe(name="cnn-100", steps=STEPS, learning_rate=0.003)
        self.model = Trainer(recipe, self.x, 10).train(self.x, self.y, seed).model.eval()

    @staticmethod
    def _drawn(part: Any, n: int, seed: int) -> tuple[Tensor, Tensor]:
        labels = np.asarray(part[1] if isinstance(part, tuple) else part.labels)
        places = draw(labels, n, seed, "train")
        inputs = torch.stack([part[0][i] if isinstance(part, tuple) else part[int(i)][0] for i in places])
        return inputs.clone(), torch.from_numpy(labels[places])


def framed(images: Tensor) -> Tensor:
    """Draw a bright frame around images."""
    out = images.clone()
    mask = frame_mask(images.shape[-1])
    out[..., mask] = out.max()
    return out


def frame_mask(side: int) -> Tensor:
    """Return which pixels (side, side) the frame has."""
    mask = torch.ones(side, side, dtype=torch.bool)
    mask[MARK:-MARK, MARK:-MARK] = False
    return mask


@contextmanager
def mean_as_reference(on: bool) -> Iterator[None]:
    """Let relevance start from e·(f − μ) instead of e·f, for features that are not 0."""
    pull = FeatureMap.pull

    def relative(self: FeatureMap, vectors: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        e, offset = pull(self, vectors, features)
        if self.mean is None:
            return e, offset
        mean, f = torch.as_tensor(self.mean).to(e), features.to(e)
        # Of a feature that is 0 no relevance can go on: its share of the mean stays with the bias.
        inside = torch.where(f != 0, e * (f - mean) / torch.where(f != 0, f, torch.ones_like(f)), 0.0)
        return inside, offset + ((e - inside) * f).sum(dim=1)

    if on:
        FeatureMap.pull = relative  # type: ignore[method-assign]
    try:
        yield
    finally:
        FeatureMap.pull = pull  # type: ignore[method-assign]


def maps(seed: int) -> None:
    """Print pair flipping by metric and treatment of the mean, and what relevance lies on a mark."""
    print("| set | metric | mean | test, blur | test, mean image | train, blur | on the mark, test | train |")
    print("|---|---|---|---|---|---|---|---|")
    for name in IMAGES:
        case, marked = Images(name, seed), Images(name, seed, marked=True)
        bank = extract(case.model, (case.x, case.y), show_progress=False)
        of_marked = extract(marked.model, (marked.x, marked.y), show_progress=False)
        others = marked.tests[marked.truth != 0]
        with torch.inference_mode():
            before, after = (marked.model(x).argmax(1) for x in (others, framed(others)))
        fooled = framed(others)[(before != 0) & (after == 0)]
        for label, metric in CANDIDATES.items():
            explainer = DualDA(metric=metric, show_progress=False).fit(
                case.model, (case.x, case.y), features=None
            )
            low = DualDA(metric=metric, C=5 / N / energy(metric, of_marked), show_progress=False)
            low.fit(marked.model, (marked.x, marked.y))
            for reference in (False, True) if metric.centre else (False,):
                with mean_as_reference(reference):
                    pairs = explain_pairs(
                        explainer, case.tests[:FLIPPED], methods={"XDA": None}, relative=True
                    )
                    areas = [
                        fallen(pairs.flip(side, patch=4, baseline=base, steps=14))
                        for side, base in (("test", "blur"), ("test", case.x.mean(0)), ("train", "blur"))
                    ]
                    on_mark = localised(low, fooled[:SHOWN], marked.marks)
                treatment = ("reference" if reference else "bias") if metric.centre else "–"
                cells = " | ".join(f"{value:.3f}" for value in (*areas, *on_mark))
                print(f"| {name} | {label} | {treatment} | {cells} |", flush=True)
        print(
            f"<!-- {name}: {len(fooled) / len(others):.0%} fooled; {len(bank.labels)} images -->", flush=True
        )


def energy(metric: Metric, bank: FeatureBank) -> float:
    """Return the mean of ‖z‖²."""
    z = np.asarray(metric.fit(bank.features).rows(bank.features), np.float64)
    return float((z**2).sum(axis=1).mean())


def fallen(result: FlippingResult) -> float:
    """Return the area under the curve from 1 to 0, since scores of metrics end at different values."""
    end = float(result.curves[0, -1])
    return (float(result.mean[0]) - end) / (1.0 - end)


def localised(explainer: DualDA, x: Tensor, marks: np.ndarray) -> tuple[float, float]:
    """Return the mean share of positive relevance on the mark, on tests and their strongest marked sample."""
    mask, shares = frame_mask(x.shape[-1]).numpy(), []
    for why in explainer.explain(x, k=1, target=0, index=np.flatnonzero(marks & scoring(explainer)).tolist()):
        if why.proponents:
            both = why.proponents[0].test_map, why.proponents[0].train_map
            positive = [np.clip(each.sum(0), 0, None) for each in both]
            shares.append([float(each[mask].sum() / max(each.sum(), 1e-12)) for each in positive])
    return tuple(np.mean(shares, axis=0)) if shares else (np.nan, np.nan)


def scoring(explainer: DualDA) -> np.ndarray:
    """Return which training samples have a score."""
    out = np.zeros(explainer.n_train_, dtype=bool)
    out[explainer.support_] = True
    return out


def resampling(seed: int, draws: int = 8) -> None:
    """Print which κ is chosen on random halves of the training set."""
    print("| set | metric | κ on halves | agreement | specificity |\n|---|---|---|---|---|")
    for name in IMAGES:
        case = Images(name, seed)
        bank = extract(case.model, (case.x, case.y), show_progress=False)
        X, y, head = np.asarray(bank.features), bank.labels, bank.head
        for label, metric in CANDIDATES.items():
            points = []
            for half in range(draws):
                rows = np.sort(np.random.default_rng(half).permutation(N)[: N // 2])
                Z = metric.fit(X[rows]).rows(X[rows])
                choice = choose_C(
                    Z, y[rows], head=(head.weight, head.bias), head_features=X[rows], n_threads=1
                )
                points.append(next(p for p in choice.path if choice.C == p.C))
            kappas = " ".join(f"{p.kappa:.3g}" for p in sorted(points, key=lambda p: p.kappa))
            spread = [np.array([getattr(p, key) for p in points]) for key in ("agreement", "specificity")]
            cells = " | ".join(f"{values.mean():.3f} ± {values.std():.3f}" for values in spread)
            print(f"| {name} | {label} | {kappas} | {cells} |", flush=True)


def regression(seed: int) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """Train a network that predicts how much ink a digit has; return it with its training set and tests."""
    read = SOURCES.get("mnist").read(folder=DATA)
    x, _ = Images._drawn(read["train"], N, seed)
    tests, _ = Images._drawn(read["test"], TESTS, seed)
    y = 10 * x.mean((1, 2, 3))
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(24 * 49, 64), nn.ReLU(), nn.Linear(64, 1)),
    )  # fmt: skip
    learn(model, x, y, lambda out, target: nn.functional.mse_loss(out[:, 0], target), STEPS, 2e-3)
    return model, x, y, tests


def transformer(seed: int) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """Train a small vision transformer on Fashion-MNIST; return it with its training set and tests."""
    from transformers import ViTConfig, ViTForImageClassification

    read = SOURCES.get("fashion-mnist").read(folder=DATA)
    x, y = Images._drawn(read["train"], N, seed)
    tests, _ = Images._drawn(read["test"], TESTS, seed)
    torch.manual_seed(seed)
    model = ViTForImageClassification(
        ViTConfig(
            hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, image_size=28,
            patch_size=7, num_channels=1, num_labels=10,
        )
    )  # fmt: skip
    learn(model, x, y, lambda out, target: nn.functional.cross_entropy(out.logits, target), 2 * STEPS, 1e-3)
    return model, x, y, tests


def learn(model: nn.Module, x: Tensor, y: Tensor, loss: Any, steps: int, rate: float) -> None:
    """Train in batches of 64 with one cycle of the learning rate."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        rows = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        optimizer.step()
        schedule.step()
    model.eval()


def others(seed: int) -> None:
    """Print agreement and specificity of a regression and a vision transformer, on unseen tests."""
    print("| problem | metric | κ | agreement | distinct | most frequent | near | cancel | support vectors |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, make in (("ink", regression), ("ViT", transformer)):
        model, x, y, tests = make(seed)
        for label, metric in CANDIDATES.items():
            explainer = DualDA(metric=metric, show_progress=False).fit(model, (x, y))
            scores = explainer.attribute(tests, relative=True).numpy()
            classes = explainer.task_.has_classes
            target = explainer.top_k(tests, k=1).target.numpy() if classes else np.zeros(len(tests), np.int64)
            labels = y.numpy() if classes else np.zeros(len(y), np.int64)
            lists = metrics.specificity(
                scores, target=target, k=5, train_labels=labels, test_vectors=tests.flatten(1).numpy(),
                train_vectors=x.flatten(1).numpy(),
            )  # fmt: skip
            values = (
                explainer.kappa_ or np.nan, explainer.faithfulness(tests).agreement,
                lists.distinct, lists.most_frequent, lists.near,
                metrics.cancellation(scores).cancel, len(explainer.support_) / len(x),
            )  # fmt: skip
            print(
                f"| {name} | {label} | " + " | ".join(f"{value:.3g}" for value in values) + " |", flush=True
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("maps", "resampling", "others"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ChoiceWarning)
    warnings.simplefilter("ignore", AgreementWarning)
    {"maps": maps, "resampling": resampling, "others": others}[given.what](given.seed)
