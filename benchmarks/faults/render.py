"""The table of planted faults in docs/research/explorer.md, from saved results alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.tables import markdown

Cell = dict[str, Any]


def table(known: dict[str, Any]) -> str:
    """Return the table in Markdown: one row per fault, a value per seed where they differ."""
    rows = [
        (words, _found(cells), _each(cells, _clicks), _each(cells, _seconds), besides(cells))
        for words, cells, besides in _faults(known)
    ]
    if "path" in known:
        path = known["path"]
        rows.append(
            (
                "the path, to the export", "yes", str(path["exported"]["clicks"]),
                str(path["exported"]["seconds"]), _gain(path),
            )
        )  # fmt: skip
    return markdown(("planted", "found", "clicks", "seconds", "besides"), rows)


def _faults(known: dict[str, Any]) -> Iterable[tuple[str, list[Cell], Callable[[list[Cell]], str]]]:
    words: dict[str, tuple[str, Callable[[list[Cell]], str]]] = {
        "100 wrong labels": ("100 wrong labels, 2 % of all", _labels),
        "10 wrong labels": ("10 wrong labels, 2 % of a class", _labels),
        "shortcut": ("a square in a corner, 30 % of a class", _square),
        "leaks": ("10 tests in the training set", _leaks),
    }
    for fault, (name, besides) in words.items():
        yield name, list(known["cells"][fault].values()), besides


def _found(cells: list[Cell]) -> str:
    return f"{sum(cell['found'] is not None for cell in cells)} of {len(cells)}"


def _clicks(cell: Cell) -> str:
    return "–" if cell["found"] is None else str(cell["found"]["clicks"])


def _seconds(cell: Cell) -> str:
    return "–" if cell["found"] is None else f"{cell['found']['seconds']:.1f}"


def _each(cells: list[Cell], value: Callable[[Cell], Any]) -> str:
    values = [str(value(cell)) for cell in cells]
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def _labels(cells: list[Cell]) -> str:
    return (
        f"{_each(cells, lambda cell: cell['planted_in_first_row'])} planted in the first {cells[0]['row']} "
        f"cards; after {_each(cells, lambda cell: cell['marked']['clicks'])} clicks "
        f"{_each(cells, lambda cell: cell['marked']['all'])} are marked, "
        f"{_each(cells, lambda cell: cell['marked']['planted'])} of them planted"
    )


def _square(cells: list[Cell]) -> str:
    shown = [cell["relevance_in_corner"] for cell in cells if cell["relevance_in_corner"] is not None]
    corner = "; ".join(
        f"{_each(shown, lambda one, of=of: f'{one[of]:.0%}'.replace('%', ' %'))} of the {name}"
        for of, name in (("test", "test's relevance"), ("training", "supporting samples'"))
    )
    seen = _each(cells, lambda cell: cell["tests_seen"])
    return f"{seen} wrong predictions seen; in the corner (2 % of the pixels) are {corner}"


def _leaks(cells: list[Cell]) -> str:
    return (
        f"recall {_each(cells, lambda cell: cell['recall'])}, "
        f"precision {_each(cells, lambda cell: cell['precision'])}; "
        f"all are seen after {_each(cells, lambda cell: cell['all_seen']['clicks'])}"
    )


def _gain(path: Cell) -> str:
    retrain = path["retrain"]
    before, after, gain = (
        f"{100 * statistics.mean(retrain[name]):.2f} ± {100 * statistics.stdev(retrain[name]):.2f} %"
        for name in ("before", "after", "gain")
    )
    return (
        f"{path['changed']} samples changed; accuracy by `retrain.py` {before} before, {after} after, "
        f"gain {gain} (standard deviation over {len(retrain['seeds'])} seeds)"
    )
