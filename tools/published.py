"""Publish results of the study: unite runs with what is there, make pages, and fill the tables of the docs.

``python -m tools.published FOLDER`` takes in ``FOLDER/PROTOCOL/results.parquet`` of every protocol of the
study; without a folder, pages and tables are made again of what is published.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from tools.versus import VERDICTS, Compared, compared

from whence.pages.style import GREY, ORANGE
from whence_studies.report import page
from whence_studies.report.counting import Count, Place, counts, paper_counts
from whence_studies.report.summary import Cell, ResultSummary
from whence_studies.suite import protocol, results
from whence_studies.suite.merging import join_protocols, merge_runs

DOCS = Path(__file__).resolve().parents[1] / "docs"
PUBLISHED = DOCS / "results"
STUDY = "study"
RULE = "DualDA C by rule", "DualDA unit length C by rule"
DATA = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar10": "CIFAR-10"}
JOINED = {f"study-{data}-all": title for data, title in DATA.items()}
SMALL = {f"cpu-{data}": title for data, title in {**DATA, "bbc": "BBC News"}.items()}
OWN = "DualDA"  # its place is shown even if it is not among the first


class Shown(NamedTuple):
    """A column of a table: its title, and the protocol and the metric that it is of.

    Attributes
    ----------
    title : in the table
    protocol, metric : whose scores it has
    quantity : of the rows, "score" for the metric's own
    at : the share of a curve; None off curves
    """

    title: str
    protocol: str
    metric: str
    quantity: str = "score"
    at: float | None = None


def _labels(data: str, title: str) -> list[Shown]:
    kinds = {
        "mislabeling_best": "10 %, best",
        "mislabeling_memorised": "10 %, memorised",
        "mislabeling_30_best": "30 %, best",
        "mislabeling_30_memorised": "30 %, memorised",
    }
    return [Shown(f"{title}, {kind}", f"study-{data}-labels", metric) for metric, kind in kinds.items()]


_WRONG = [
    *_labels("mnist", "MNIST"),
    *_labels("fashion", "Fashion"),
    Shown("CIFAR-10, 30 %", "study-cifar10-labels", "mislabeling"),
]
_SETS = {"mnist": "MNIST", "fashion": "Fashion", "cifar10": "CIFAR-10"}
_KEPT = {"coreset": "kept", "coreset_balanced": "balanced"}

TABLES: dict[str, list[Shown]] = {
    "kinds": [
        Shown("subclass, MNIST", "study-mnist", "identical_subclass"),
        Shown("subclass, Fashion", "study-fashion", "identical_subclass"),
        Shown("subclass, CIFAR-10", "study-cifar10-subclass", "identical_subclass"),
        Shown("frame, MNIST", "study-mnist", "shortcut"),
        Shown("frame, Fashion", "study-fashion", "shortcut"),
        Shown("marks, CIFAR-10", "study-cifar10-shortcut", "shortcut"),
        Shown("CPU-s, MNIST", "study-mnist", "resources", "cpu_seconds"),
    ],
    "authors": [
        Shown(f"{title}, {_SETS[data]}", f"study-{data}-authors", metric)
        for data in ("mnist", "fashion")
        for metric, title in {
            "identical_class": "class",
            "identical_subclass": "subclass",
            "mislabeling": "30 % wrong labels",
            "shortcut": "box and frame",
        }.items()
    ],
    "labels": _WRONG,
    "margins": [shown._replace(quantity="by_margin") for shown in _WRONG],
    "lds": [
        *(
            Shown(f"{title}, {output}", f"study-{data}-lds", metric)
            for data, title in _SETS.items()
            for metric, output in {"lds": "logit", "lds_log_prob": "log-probability"}.items()
        ),
        Shown("CPU-s, Fashion", "study-fashion-lds", "resources", "cpu_seconds"),
    ],
    "coresets": [
        Shown(f"{title}, {metric.replace('_', ' ')}", f"study-{data}-coresets", metric)
        for data, title in _SETS.items()
        for metric in ("coreset", "coreset_balanced", "pruning", "pruning_balanced")
    ],
    "kept": [
        Shown(f"{title}, {what}", f"study-{data}-coresets", metric, "accuracy", 0.1)
        for data, title in _SETS.items()
        for metric, what in _KEPT.items()
    ],
}


def main(folder: Path | None) -> None:
    """Publish what is in a folder, and make pages and tables of all that is published."""
    study = protocol.suite(STUDY)
    for name in study.protocols if folder is not None else ():
        _take_in(name, folder / name / "results.parquet")
    for name in filter(_published, [*study.protocols, *SMALL]):
        page.write(PUBLISHED / f"{name}.html", results.read(PUBLISHED / f"{name}.parquet"))
    for name, together in study.together.items():
        parts = [one for one in together.protocols if _published(one)]
        if len(parts) > 1:
            page.write(PUBLISHED / f"{name}.html", _joined(name))
    path = DOCS / "research" / "results.md"
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    draw_ranks(DOCS / "images" / "ranks.png")


def _take_in(name: str, new: Path) -> None:
    """Merge new results of a protocol with those that are published."""
    runs = [path for path in (PUBLISHED / f"{name}.parquet", new) if path.exists()]
    wanted = protocol.load(name)
    if any(metric.compares for metric in wanted.metrics.values()):
        runs = runs[-1:]  # scores that are compared are of one run: a new one takes the place of the old
    if runs:
        merged = merge_runs(wanted, [results.read(path) for path in runs])
        results.write(PUBLISHED / f"{name}.parquet", merged)


def _published(name: str) -> bool:
    return (PUBLISHED / f"{name}.parquet").exists()


def _joined(name: str) -> results.Results:
    """Join what is published of the protocols that belong together."""
    together = protocol.suite(STUDY).together[name]
    return join_protocols([_read(one) for one in together.protocols if _published(one)], name, together.title)


def filled(text: str) -> str:
    """Fill the tables of a page: what stands between ``<!-- table NAME -->`` and ``<!-- end -->``."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{table(match[2])}\n\n{match[3]}"

    return re.sub(r"(<!-- table (\w+) -->).*?(<!-- end -->)", fill, text, flags=re.S)


def names(text: str) -> list[str]:
    """Return the names of the tables of a page."""
    return re.findall(r"<!-- table (\w+) -->", text)


def table(name: str) -> str:
    """Make a table of the page, in Markdown."""
    return OTHERS[name]() if name in OTHERS else _table(name)


@cache
def _read(name: str) -> results.Results:
    return results.read(PUBLISHED / f"{name}.parquet")


@cache
def _summary(name: str) -> ResultSummary:
    return ResultSummary(_read(name))


@cache
def _scores(name: str) -> list[tuple[str, dict[str, Cell]]]:
    """Return the scores of a protocol by the label of the method, and by metric."""
    summary = _summary(name)
    places = {column.metric: i for i, column in enumerate(summary.columns) if not column.first}
    return [
        (method.label, {metric: cells[i] for metric, i in places.items()})
        for method, cells in summary.table()
    ]


def _table(name: str) -> str:
    """Make a table of scores: a row per method, a column for what there are results of."""
    found = {shown: dict(_column(shown)) for shown in TABLES[name] if _published(shown.protocol)}
    columns = [shown for shown, texts in found.items() if texts]
    values = [found[shown] for shown in columns]
    labels = dict.fromkeys(m.label for shown in columns for m in _summary(shown.protocol).methods)
    head = "★ best, ≈ tied with it" if any("★" in text for v in values for text in v.values()) else ""
    rows = [[head, *(shown.title for shown in columns)], ["---"] * (1 + len(columns))]
    for label in labels:
        if any(label in one for one in values):
            rows.append([label, *(one.get(label, "–") for one in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _column(shown: Shown) -> Iterator[tuple[str, str]]:
    """Return the texts of a column, by the labels of methods that have one."""
    if shown.quantity == "score":
        scores = ((label, cells.get(shown.metric)) for label, cells in _scores(shown.protocol))
        yield from ((label, _marked(cell)) for label, cell in scores if cell and cell.value is not None)
        return
    summary = _summary(shown.protocol)
    for method in summary.methods:
        found = summary.results.select(shown.metric, method.key, shown.quantity)
        value = next((row.value for row in found if row.x == shown.at), None)
        if value is not None:
            spread = summary.results.select(shown.metric, method.key, "accuracy_spread")
            yield method.label, _other(shown, value, next((r.value for r in spread if r.x == shown.at), None))


def _marked(cell: Cell) -> str:
    assert cell.value is not None
    mark = "★ " if cell.best else "≈ " if cell.tied else ""
    return mark + number(cell.value)


def _other(shown: Shown, value: float, spread: float | None) -> str:
    if shown.quantity == "accuracy":
        return f"{100 * value:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")
    return f"{value:.3g}" if shown.metric == "resources" else number(value)


def number(value: float) -> str:
    """Write a score with three digits behind the point, two from 1 on, and no zero before it."""
    text = f"{value:.2f}" if abs(value) >= 1 and value != 1 else f"{value:.3f}"
    return text.replace("0.", ".", 1).replace("-", "−") if abs(value) < 1 else text


@cache
def together(name: str) -> ResultSummary:
    """Return a summary of the protocols of a data set, for scores and ranks: without single tests."""
    parts = [one for one in protocol.suite(STUDY).together[name].protocols if _published(one)]
    read = [results.read(PUBLISHED / f"{one}.parquet", single=False) for one in parts]
    return ResultSummary(join_protocols(read, name, protocol.suite(STUDY).together[name].title))


def _nine() -> str:
    """Make the table of the paper's count: a row per way to count, a column per data set."""
    found = {name: {count.title: count for count in paper_counts(together(name))} for name in JOINED}
    return _ranks(found, JOINED)


def _small() -> str:
    """Make the table of the paper's count for the smaller runs."""
    found = {name: list(paper_counts(_summary(name))) for name in SMALL}
    return _ranks({name: {count.title: count for count in every} for name, every in found.items()}, SMALL)


def _counts() -> str:
    """Make the table of the other counts, over all columns."""
    found = {name: {count.title: count for count in counts(together(name))} for name in JOINED}
    for name in JOINED:
        for count in paper_counts(together(name)):
            del found[name][count.title]
    return _ranks(found, JOINED)


def _ranks(found: dict[str, dict[str, Count]], named: dict[str, str]) -> str:
    titles = list(dict.fromkeys(title for each in found.values() for title in each))
    rows = [["counted", *(named[name] for name in found)], ["---"] * (1 + len(found))]
    for title in titles:
        rows.append([title, *(_first(each[title]) if title in each else "–" for each in found.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _first(count: Count) -> str:
    """Describe the first places, the place of DualDA, and what is separable from it."""
    places = count.places
    own = next((place for place in places if place.label.startswith(OWN)), None)
    shown = places[:3] if own is None or own in places[:3] else [*places[:3], own]
    lines = [_line(place, places) for place in shown]
    apart = [place.label for place in count.apart(own)] if own else []
    lines.append(
        f"{max(place.columns for place in places)} columns, critical difference {count.difference:.2f}"
    )
    return "<br>".join([*lines, f"apart from DualDA: {', '.join(apart) or 'none'}"])


def _line(place: Place, among: list[Place]) -> str:
    text = f"{place.rank:.1f} {place.label}"
    return f"**{text}** ({place_of(place, among)} of {len(among)})" if place.label.startswith(OWN) else text


def place_of(place: Place, among: list[Place]) -> int:
    """Return the place of one: equal mean ranks share the better one."""
    return 1 + sum(other.rank < place.rank - 1e-9 for other in among)


def draw_ranks(path: Path) -> None:
    """Draw the paper's count with critical differences: best of three C, by loss and by accuracy."""
    figure = Figure(figsize=(12, 6.2), layout="constrained")
    for row, by in zip(figure.subplots(2, len(JOINED), sharex=True), ("loss", "accuracy"), strict=True):
        for axis, (name, title) in zip(row, JOINED.items(), strict=True):
            count = next(c for c in paper_counts(together(name)) if f"{by}: best" in c.title)
            for down, place in enumerate(count.places):
                own = place.label.startswith(OWN)
                style = {"color": ORANGE if own else GREY, "zorder": 3 if own else 2}
                half = count.difference / 2
                axis.plot([place.rank - half, place.rank + half], [down] * 2, lw=3 if own else 1.5, **style)
                axis.plot(place.rank, down, "o", ms=7, **style)
            own = next(place for place in count.places if place.label.startswith(OWN))
            axis.axvspan(
                own.rank - count.difference / 2, own.rank + count.difference / 2, color=ORANGE, alpha=0.1
            )
            axis.set_yticks(range(len(count.places)), [place.label for place in count.places])
            axis.invert_yaxis()
            axis.set_xticks(range(1, 10))
            axis.set_title(f"{title}, by {by}", loc="left", fontsize=11)
            axis.grid(axis="x", alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
            if by == "accuracy":
                axis.set_xlabel("mean rank (← better)")
    figure.savefig(path, dpi=130)


def _unit() -> str:
    """Make the table of the rule for unit length: the columns where it is better, worse and level."""
    names = [name for name in protocol.suite(STUDY).protocols if _published(name)]
    found = [each for name in names for each in compared(_read(name), *RULE)]
    rows = [["at unit length", "", "in"], ["---"] * 3]
    for verdict in VERDICTS:
        those = [each for each in found if each.verdict == verdict]
        rows.append([verdict, str(len(those)), "; ".join(map(_named, those))])
    for title, quantity in {"agreement": "test_agreement", "support vectors": "support_vectors"}.items():
        rows.append([title, "", "; ".join(filter(None, (_surrogate(name, quantity) for name in names)))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _named(each: Compared) -> str:
    short = each.protocol.removeprefix("study-")
    return f"{each.title} ({short}) {number(each.first)} → {number(each.second)}"


def _surrogate(name: str, quantity: str) -> str:
    """Return a number of the surrogate as they are and at unit length, where a protocol has it."""
    summary = _summary(name)
    keys = {method.label: method.key for method in summary.methods}
    values = [summary.results.value("surrogate", keys[label], quantity) for label in RULE if label in keys]
    if None in values or len(values) < 2:
        return ""
    texts = [
        f"{value:,.0f}" if value > 1 else f"{100 * value:.1f} %" for value in values if value is not None
    ]
    return f"{name.removeprefix('study-')} {' → '.join(texts)}"


OTHERS = {"nine": _nine, "counts": _counts, "small": _small, "unit": _unit}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
