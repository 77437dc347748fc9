"""What becomes of a digit's scores and maps with the same five training samples when parts of it are erased.

``python -m examples.ablation`` needs the weights of ``examples.mnist_cnn``; it draws the figure of
``docs/research/ablation.md`` and prints its tables.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor, nn

import whence
from examples import mnist_cnn
from whence.model.extractor import Extractor
from whence.relevance.xda import only, pair_maps, start

DIGIT, K = 2, 5
CUT = 0.5  # where a digit is cut, as a share of its height from the top
BLUE, ORANGE, INK, GREY = "#0072B2", "#D55E00", "#1A1A1A", "#5F5F5F"  # as in whence's own figures
DIVERGING = LinearSegmentedColormap.from_list("relevance", [ORANGE, "#FFFFFF", BLUE])


@dataclass(frozen=True)
class Pairs:
    """A test image with its training samples.

    Attributes
    ----------
    image : (28, 28)
    train : (k, 28, 28) the training samples
    scores : (k,) τ, positive for the target class
    test_maps, train_maps : (k, 28, 28) relevance of each score on either image, positive for the class
    """

    image: np.ndarray
    train: np.ndarray
    scores: np.ndarray
    test_maps: np.ndarray
    train_maps: np.ndarray


def cut_row(image: Tensor) -> int:
    """Find the row that parts the arc of a digit (1, 28, 28) from its base."""
    rows = (image[0] > 0.2).any(1).nonzero()[:, 0]
    top, bottom = int(rows[0]), int(rows[-1]) + 1
    return top + round(CUT * (bottom - top))


def variants(image: Tensor) -> dict[str, Tensor]:
    """Return the image (1, 28, 28) unchanged, without its base, and without its arc."""
    row = cut_row(image)
    without_base, without_arc = image.clone(), image.clone()
    without_base[:, row:] = 0
    without_arc[:, :row] = 0
    return {"unchanged": image, "without its base": without_base, "without its arc": without_arc}


def proponents(explainer: whence.DualDA, image: Tensor, k: int = K) -> list[int]:
    """Find the strongest proponents of the digit's class."""
    indices: list[int] = explainer.top_k(image[None], k, DIGIT, relative=False).proponents.indices[0].tolist()
    return indices


def explain(
    explainer: whence.DualDA, extractor: Extractor, image: Tensor, train: Tensor, indices: list[int]
) -> Pairs:
    """Score and map the pairs of an image (1, 28, 28) with the training samples ``indices``."""
    scores = explainer.attribute(image[None], DIGIT)[0, indices]
    lam = torch.from_numpy(explainer.lam_[indices][:, [DIGIT]].toarray()[:, 0])
    weight = torch.from_numpy(explainer.coef_[DIGIT, :-1])
    images = image[None], train[indices]
    test, samples = (start(extractor, batch, "epsilon_plus_flat") for batch in images)
    each = lam[:, None].float()
    maps = only(pair_maps(test, samples, each * samples.features, each * test.features, weight))
    parts = (*images, maps.test, maps.train)
    shown, digits, test_maps, train_maps = (part[:, 0].numpy() for part in parts)
    return Pairs(shown[0], digits, scores.numpy(), test_maps, train_maps)


def erased_share(pairs: Pairs, kept: np.ndarray) -> np.ndarray:
    """Share (k,) of each test map's relevance that lies where the image is no longer what it was."""
    gone = pairs.image != kept
    return pairs.test_maps[:, gone].sum(1) / pairs.test_maps.sum((1, 2))


def draw(cases: dict[str, Pairs], names: list[str]) -> Figure:
    """Draw the training samples, and below them each variant with its scores and maps on both images."""
    figure = Figure(figsize=(6.9, 8.9), dpi=200, facecolor="white")
    first = next(iter(cases.values()))
    # One scale for all maps: what is pale has lost its relevance.
    scale = float(np.quantile(np.abs(np.concatenate([first.test_maps, first.train_maps])), 0.998))
    tile, left, x0 = 0.86, 1.38, 0.1
    width, height = figure.get_size_inches()

    def axes(x: float, y: float, size: float) -> Any:
        ax = figure.add_axes((x / width, 1 - (y + size) / height, size / width, size / height))
        ax.set(xticks=[], yticks=[])
        for spine in ax.spines.values():
            spine.set(color="#BDBDBD", linewidth=0.6)
        return ax

    def text(x: float, y: float, words: str, **style: Any) -> None:
        figure.text(x / width, 1 - y / height, words, **({"size": 7, "color": INK, "va": "center"} | style))

    def show_map(x: float, y: float, values: np.ndarray, image: np.ndarray) -> None:
        ax = axes(x, y, tile)
        ax.imshow(values, cmap=DIVERGING, vmin=-scale, vmax=scale, interpolation="nearest")
        if image.any():
            ax.contour(image, levels=[0.5], colors=GREY, linewidths=0.45)

    columns = [left + 0.42 + j * (tile + 0.16) for j in range(len(names))]
    text(x0, 0.16, f"the five strongest proponents of “{DIGIT}”", size=8, weight="bold")
    for x, image, name in zip(columns, first.train, names, strict=True):
        axes(x, 0.3, tile).imshow(image, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        text(x + tile / 2, 0.3 + tile + 0.09, name, ha="center", size=6, color=GREY)
    for i, (title, pairs) in enumerate(cases.items()):
        y = 1.76 + i * 2.28
        text(x0, y - 0.19, f"test image {title}", size=8, weight="bold")
        axes(x0, y + 0.12, 1.18).imshow(pairs.image, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        text(columns[0] - 0.1, y + 0.12 + tile / 2, "on the\ntest\nimage", ha="right", size=6, color=GREY)
        text(columns[0] - 0.1, y + 1.02 + tile / 2, "on the\ntraining\nimage", ha="right", size=6, color=GREY)
        for j, x in enumerate(columns):
            change = "" if i == 0 else f" ({pairs.scores[j] / first.scores[j] - 1:+.0%})".replace("-", "−")
            score = f"τ = {pairs.scores[j]:+.2f}".replace("-", "−")
            colour = BLUE if pairs.scores[j] > 0 else ORANGE
            text(x + tile / 2, y, score + change, ha="center", weight="bold", size=6.5, color=colour)
            show_map(x, y + 0.12, pairs.test_maps[j], pairs.image)
            show_map(x, y + 1.02, pairs.train_maps[j], pairs.train[j])
    bar = figure.add_axes((columns[0] / width, 0.035, (columns[-1] + tile - columns[0]) / width, 0.011))
    bar.imshow(np.linspace(-1, 1, 256)[None], cmap=DIVERGING, aspect="auto", extent=(-scale, scale, 0, 1))
    bar.set(yticks=[], xticks=[-scale, 0, scale])
    bar.set_xticklabels([f"−{scale:.3f}", "0", f"+{scale:.3f}"], size=6)
    bar.tick_params(length=2, width=0.5)
    for label, side in zip(bar.get_xticklabels(), ("left", "center", "right"), strict=True):
        label.set_horizontalalignment(side)
    for spine in bar.spines.values():
        spine.set(color="#BDBDBD", linewidth=0.6)
    words = f"relevance of a pixel: orange, against “{DIGIT}”; blue, for it. One scale for all maps."
    text((columns[0] + columns[-1] + tile) / 2, height - 0.5, words, ha="center", size=6.5)
    return figure


def setting() -> tuple[whence.DualDA, nn.Module, Tensor, Tensor, Tensor]:
    """Return the fitted explainer, its model, the training images, and the test images with their labels."""
    training, test = mnist_cnn.train(), mnist_cnn.test()
    model = mnist_cnn.build()
    explainer = whence.DualDA(metric="raw", show_progress=False).fit(model, training)
    return explainer, model, training.tensors[0], *test.tensors


def table(cases: dict[str, Pairs], indices: list[int]) -> str:
    """Write the scores, their falls, and the share of relevance that was erased."""
    first, *others = cases.values()
    names = [f"{name}: τ | change | relevance erased" for name in list(cases)[1:]]
    lines = [f"| training sample | τ | {' | '.join(names)} |"]
    lines.append("|---" * (2 + 3 * len(others)) + "|")
    shares = [erased_share(first, other.image) for other in others]
    for j, index in enumerate(indices):
        cells = [
            f"{other.scores[j]:.2f} | {other.scores[j] / first.scores[j] - 1:+.0%} | {share[j]:.0%}"
            for other, share in zip(others, shares, strict=True)
        ]
        lines.append(f"| {index} | {first.scores[j]:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines).replace("-", "−").replace("−−−", "---")


def correlation(
    explainer: whence.DualDA, extractor: Extractor, train: Tensor, images: Tensor
) -> tuple[float, float, int]:
    """Correlate, over pairs of many digits, the relevance that is erased with the fall of the score.

    Returns
    -------
    Over all falls; over those of the five samples of a digit and a part about their mean, so that neither a
    digit nor a part counts that matters more to all five; and how many falls they are.
    """
    shares, falls = [], []
    for image in images:
        indices = proponents(explainer, image)
        cases = [explain(explainer, extractor, each, train, indices) for each in variants(image).values()]
        for other in cases[1:]:
            shares.append(erased_share(cases[0], other.image))
            falls.append(1 - other.scores / cases[0].scores)

    def r(parts: list[np.ndarray], others: list[np.ndarray]) -> float:
        return float(np.corrcoef(np.concatenate(parts), np.concatenate(others))[0, 1])

    centred = ([part - part.mean() for part in parts] for parts in (shares, falls))
    return r(shares, falls), r(*centred), sum(map(len, falls))


def main() -> None:
    """Draw the figure and print what it shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/ablation_mnist.png"))
    parser.add_argument("--digits", type=int, default=30, help="digits for the correlation")
    options = parser.parse_args()
    explainer, model, train, x, y = setting()
    extractor = Extractor(model, "head")
    chosen = torch.nonzero(y == DIGIT)[:, 0]
    image = x[chosen[0]]  # the first of its class: no choice by what comes out
    indices = proponents(explainer, image)
    cases = {
        name: explain(explainer, extractor, each, train, indices) for name, each in variants(image).items()
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(cases, [f"training #{i}" for i in indices]).savefig(options.out)
    print(f"Test image {int(chosen[0])}, cut at row {cut_row(image)}; saved {options.out}\n")
    print(table(cases, indices), "\n")
    r, within, n = correlation(explainer, extractor, train, x[chosen[: options.digits]])
    print(f"Relevance erased and fall of the score, {n} falls of {options.digits} digits: r = {r:.2f},")
    print(f"within a digit and part: r = {within:.2f}")


if __name__ == "__main__":
    main()
