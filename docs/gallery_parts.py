"""What sphinx-gallery asks of the manual by name: the order of the tutorials, and their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

TUTORIALS = ["images", "text", "wrong_labels", "shortcut", "effects", "regression", "methods", "cluster"]


class Order:
    """Sort tutorials in reading order."""

    def __init__(self, folder: str) -> None:
        pass

    def __call__(self, file: str) -> int:
        """Return the place of a tutorial."""
        return TUTORIALS.index(Path(file).stem)


def figures(block: Any, variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """Save the figure that a block has made and called ``figure``; those of ``plot`` are none of pyplot's."""
    figure = variables["example_globals"].pop("figure", None)
    if not isinstance(figure, Figure):
        return ""
    path = next(variables["image_path_iterator"])
    figure.savefig(path, dpi=figure.dpi, bbox_inches="tight")
    return figure_rst([path], settings["src_dir"])
