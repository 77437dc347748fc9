"""Draw the figures of docs/research/metric.md: the trade along C, and the lists of 50 tests before and after.

Run ``python -m tools.metric_figures trade`` or ``lists``. The first needs MNIST, Fashion-MNIST and CIFAR-10.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from whence import DualDA, sample
from whence.features import extract
from whence.pages.style import BLUE, GREY, INK, ORANGE

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PURPLE = "#8A4FBF"
TESTS, SHOWN, COLUMNS = 50, 5, 2


def trade(seed: int = 0) -> None:
    """Draw agreement, specificity and support vectors along κ, for the default metric and raw features."""
    from benchmarks.feature_metrics import Images

    names = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10"}
    figure = Figure(figsize=(12, 3.9), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True)
    lines = {"agreement": (INK, "agreement with the model"), "specificity": (BLUE, "specificity")}
    lines["support"] = (ORANGE, "support vectors")
    for axis, (name, title) in zip(axes, names.items(), strict=True):
        case = Images(name, seed)
        bank = extract(case.model, (case.x, case.y), show_progress=False)
        for metric, style, label in ((DualDA().metric, "-", "default"), ("raw", ":", "raw (paper)")):
            choice = DualDA(metric=metric, show_progress=False).fit(features=bank).C_path_
            kappas = [p.kappa for p in choice.path]
            for key, (colour, what) in lines.items():
                values = [getattr(p, key) for p in choice.path]
                axis.plot(kappas, values, style, color=colour, lw=2, label=f"{what}, {label}")
            chosen = next(p for p in choice.path if choice.C == p.C)
            axis.axvline(chosen.kappa, color=GREY, ls=style, lw=1.2)
            axis.plot([chosen.kappa] * 3, [getattr(chosen, key) for key in lines], "o", color=GREY, ms=5)
        axis.set(xscale="log", title=title, xlabel="κ = C·N·mean‖z − z̄‖²", ylim=(0, 1.02))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share (grey: chosen κ)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(IMAGES / "metric_trade.png", dpi=130)


def lists(seed: int = 0) -> None:
    """Draw random tests of the embedded sample with the five strongest samples of either default."""
    data, model = sample.load(), sample.train()
    train = data.train_images, data.train_labels
    bank = extract(model, train, show_progress=False)
    rows = np.sort(np.random.default_rng(seed).permutation(len(data.test_images))[:TESTS])
    x = data.test_images[torch.from_numpy(rows)]
    before = DualDA(C=1e-3, metric="raw", show_progress=False).fit(features=bank)
    after = DualDA(show_progress=False).fit(features=bank)
    shown = [before.top_k(x, k=SHOWN, relative=False), after.top_k(x, k=SHOWN)]
    height = TESTS // COLUMNS
    width = 2 * SHOWN + 2
    figure = Figure(figsize=(COLUMNS * width * 0.62, height * 0.62 + 0.6), layout="none")
    grid: Any = figure.subplots(height, COLUMNS * (width + 1) - 1)
    figure.subplots_adjust(0.005, 0.005, 0.995, 1 - 0.55 / (height * 0.62 + 0.6), 0.04, 0.04)
    for axis in grid.flat:
        axis.axis("off")
    for number in range(TESTS):
        block, row = divmod(number, height)
        cells = grid[row, block * (width + 1) : block * (width + 1) + width]
        _picture(cells[0], x[number], INK)
        for side, top in enumerate(shown):
            target = int(top.target[number])
            for place, index in enumerate(top.proponents.indices[number].tolist()):
                if index >= 0:
                    same = int(data.train_labels[index]) == target
                    colour = (ORANGE, BLUE)[side] if same else PURPLE
                    _picture(cells[1 + side * (SHOWN + 1) + place], data.train_images[index], colour)
    for block in range(COLUMNS):
        for column, title in (
            (0, "test"),
            (3, "before: raw features, C = 0.001"),
            (3 + SHOWN + 1, "after: the default"),
        ):
            grid[0, block * (width + 1) + column].set_title(title, fontsize=11, pad=8)
    figure.savefig(IMAGES / "metric_lists.png", dpi=64)
    for name, top in zip(("before", "after"), shown, strict=True):
        first = top.proponents.indices[:, 0]
        print(f"{name}: {len(first.unique())} different top samples among {TESTS} tests")


def _picture(axis: Any, image: torch.Tensor, colour: str) -> None:
    axis.axis("on")
    axis.imshow(1 - image[0], cmap="gray", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(color=colour, lw=1.5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"trade": trade, "lists": lists}[sys.argv[1]]()
