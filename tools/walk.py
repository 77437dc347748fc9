"""Draw the walk of one prediction, from pixels to page, on the embedded data: docs/images/walk.svg.

Run: python -m tools.walk [PATH]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from whence import DualDA, sample
from whence.pages.style import BLUE, GREY, INK, ORANGE

SHOWN = 60  # rows and columns of the matrices that are drawn
SIGNED = LinearSegmentedColormap.from_list("signed", [ORANGE, "#F7F7F7", BLUE])  # against, for


def draw() -> Figure:
    """Explain one test image of the embedded set, and draw every step with the modules that make it."""
    data = sample.load()
    model = sample.train(0, show_progress=False)
    explainer = DualDA(show_progress=False).fit(
        model, (data.train_images, data.train_labels), class_names=data.class_names
    )
    x = data.test_images[:1]
    (why,) = explainer.explain(x, k=4)
    f = explainer.fitted_.require_model().read(x, 1).features[0].float().cpu().numpy()
    figure = Figure(figsize=(13, 4.6), facecolor="white")
    canvas = figure.add_axes((0, 0, 1, 1), frameon=False, xticks=[], yticks=[])
    canvas.set(xlim=(0, 13), ylim=(0, 4.6))
    edges = [0.25, 2.1, 4.35, 6.65, 8.95, 11.15]
    heads = ("pixels", "features", "dual coefficients", "scores", "relevance maps", "page")
    packages = (
        ("data", "training_set, forms", "items, reading"),
        ("model · features", "extractor, bound", "extraction, bank"),
        ("tasks · svm · surrogate", "solve, path, solving", r"$W = \Sigma_i \lambda_i f_i^\top$"),
        ("surrogate · attribution", "scores, pairs", r"$\tau = \lambda_{ic}\, f_i \cdot f(x)$"),
        ("relevance", "lrp, xda, rules", r"$R_j = \lambda_{ic}\, f(x)_j\, f_{ij}$"),
        ("explanation · pages", "record, figures/", "page, render"),
    )
    for left, head, (package, first, second) in zip(edges, heads, packages, strict=True):
        canvas.text(left, 4.25, head, weight="bold", size=11, color=INK, va="center")
        canvas.text(left, 0.72, package, weight="bold", size=8.5, color=BLUE, va="center")
        canvas.text(left, 0.47, first, size=8, color=GREY, va="center")
        canvas.text(left, 0.24, second, size=8, color=GREY, va="center")
    for left in edges[1:]:
        canvas.add_patch(
            FancyArrowPatch(
                (left - 0.32, 2.5), (left - 0.06, 2.5), arrowstyle="-|>", mutation_scale=12, color=INK
            )
        )

    def place(left: float, bottom: float, width: float, height: float) -> Axes:
        axes = figure.add_axes((left / 13, bottom / 4.6, width / 13, height / 4.6), xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(color=GREY, linewidth=0.5)
        return axes

    canvas.text(edges[3], 3.98, "blue: evidence for, orange: against", size=7, color=GREY, va="center")
    _pixels(place, edges[0], data, x)
    _features(place, edges[1], explainer, f)
    _coefficients(place, edges[2], explainer)
    _scores(place, edges[3], why)
    _maps(place, edges[4], why)
    _page(place, edges[5], why)
    return figure


def _picture(axes: Axes, image: np.ndarray, title: str = "") -> None:
    axes.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, size=7, color=GREY, pad=2)


def _pixels(place, left, data, x) -> None:
    _picture(place(left, 2.55, 1.4, 1.4), x[0].numpy(), r"test sample $x$")
    for j in range(9):
        axes = place(left + 0.48 * (j % 3), 1.95 - 0.48 * (j // 3), 0.44, 0.44)
        axes.imshow(data.train_images[j].numpy().squeeze(), cmap="gray")


def _features(place, left, explainer, f) -> None:
    axes = place(left, 3.5, 1.75, 0.35)
    axes.imshow(f[None, :SHOWN], aspect="auto", cmap="Greys")
    axes.set_title(r"$f(x)$, $d$ numbers", size=7, color=GREY, pad=2)
    axes = place(left, 1.0, 1.75, 2.2)
    axes.imshow(explainer.vectors_[:SHOWN, :SHOWN].cpu().numpy(), aspect="auto", cmap="Greys")
    axes.set_title(r"$f_i$ of the support vectors", size=7, color=GREY, pad=2)


def _coefficients(place, left, explainer) -> None:
    lam = explainer.lam_[:SHOWN].toarray()
    top = np.abs(lam).max()
    axes = place(left, 1.0, 1.0, 2.85)
    axes.imshow(lam, aspect="auto", cmap=SIGNED, vmin=-top, vmax=top)
    axes.set_title(r"$\lambda$ (train, class)", size=7, color=GREY, pad=2)
    W = explainer.coef_[:, :SHOWN].T
    axes = place(left + 1.15, 1.0, 0.6, 2.85)
    axes.imshow(W, aspect="auto", cmap=SIGNED, vmin=-np.abs(W).max(), vmax=np.abs(W).max())
    axes.set_title(r"$W$", size=7, color=GREY, pad=2)


def _pairs(why):
    return [*why.proponents[:2], *reversed(why.opponents[:2])]


def _scores(place, left, why) -> None:
    top = max(abs(pair.score) for pair in _pairs(why))
    for j, pair in enumerate(_pairs(why)):
        bottom = 3.2 - 0.73 * j
        _picture(place(left, bottom, 0.62, 0.62), pair.sample.image)
        axes = place(left + 0.7, bottom + 0.1, 0.95, 0.42)
        axes.barh(0, pair.score, color=BLUE if pair.score > 0 else ORANGE)
        axes.set(xlim=(-top * 1.1, top * 1.1), ylim=(-0.6, 1.5))
        axes.plot([0, 0], [-0.6, 0.6], color=GREY, linewidth=0.6)
        axes.text(
            0, 1.05, f"τ = {pair.score:+.2f}".replace("-", "−"), size=7, color=INK, ha="center", va="center"
        )
        axes.set_frame_on(False)


def _maps(place, left, why) -> None:
    for j, pair in enumerate(_pairs(why)):
        bottom = 3.2 - 0.73 * j
        for k, relevance in enumerate((pair.train_map, pair.test_map)):
            axes = place(left + 0.72 * k, bottom, 0.62, 0.62)
            top = np.quantile(np.abs(relevance), 0.995)
            axes.imshow(relevance.squeeze(), cmap=SIGNED, vmin=-top, vmax=top)
            if j == 0:
                axes.set_title((r"on $x_i$", r"on $x$")[k], size=7, color=GREY, pad=2)


def _page(place, left, why) -> None:
    axes = place(left, 1.0, 1.6, 2.85)
    axes.set(xlim=(0, 1.6), ylim=(0, 2.85), facecolor="#FAFAFA")
    axes.text(0.08, 2.68, "whence", size=7.5, weight="bold", color=INK, va="center")
    axes.text(0.08, 2.45, f"predicted: {why.class_names[why.predicted]}", size=6.5, color=INK, va="center")
    inner = place(left + 0.42, 2.4, 0.75, 0.75)
    _picture(inner, why.sample.image)
    for side, pairs in enumerate((why.opponents[:3], why.proponents[:3])):
        for j, pair in enumerate(pairs):
            small = place(left + 0.1 + side * 0.95, 1.85 - 0.38 * j, 0.34, 0.34)
            _picture(small, pair.sample.image)
            colour = BLUE if side else ORANGE
            for spine in small.spines.values():
                spine.set(color=colour, linewidth=1.2)
    axes.text(0.27, 1.27, "against", size=6, color=ORANGE, ha="center", va="center")
    axes.text(1.22, 1.27, "for", size=6, color=BLUE, ha="center", va="center")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/walk.svg")
    torch.manual_seed(0)
    mpl.rcParams.update({"svg.hashsalt": "whence", "svg.fonttype": "path"})
    draw().savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None, dpi=110)
