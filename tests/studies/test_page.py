"""The page of an evaluation: ties, the sweep, charts whose labels can be read, and nothing unescaped."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from whence.errors import InvalidInputError
from whence.metrics.coreset import weighted_mean
from whence_studies import Case, Curves, Metric, Numbers, comparison
from whence_studies.report import page
from whence_studies.report.labels import Box, place_labels
from whence_studies.report.summary import ResultSummary
from whence_studies.report.sweep import SweptResults
from whence_studies.suite import costs, protocol, results
from whence_studies.suite.results import Results, Row, loss_of

FRACTIONS, FEWER = (0.1, 0.2, 0.5, 0.9), (0.1, 0.5)
RNG = np.random.default_rng(5)
SWEPT = (1e-9, 1e-5, 1e-3, 1e-1, 10.0)
COMPARED = (1e-5, 1e-3, 1e-1)
NAMES = ("random", "ekfac", "tracin", *(f"dualda(C={value})" for value in SWEPT))
# Losses by method, training seed and fraction.
LOSSES = {name: 0.3 + 0.2 * RNG.random((2, 4)) for name in NAMES}


def method(name: str, label: str, options: dict[str, float], sweep: bool = False) -> dict[str, Any]:
    return {"name": name, "label": label, "options": options, "tune": {}, "sweep": sweep}


METHODS = [
    method("random", "Random", {}),
    *(method("dualda", f"DualDA {value}", {"C": value}) for value in COMPARED),
    method("ekfac", "EK <b>FAC</b>", {}),
    method("tracin", "TracIn", {}),
    *(method("dualda", f"C = {value}", {"C": value}, True) for value in SWEPT if value not in COMPARED),
]


def retrained(name: str, metric: str, fewer: bool) -> list[Row]:
    """Rows as the evaluation writes them, of a swept method at fewer fractions and one seed."""
    chosen = [i for i, p in enumerate(FRACTIONS) if p in FEWER or not fewer]
    losses, shares = LOSSES[name][: 1 if fewer else 2, chosen], [FRACTIONS[i] for i in chosen]
    each = [weighted_mean(row, shares) for row in losses]
    rows = [Row(metric, name, "score", None, float(np.mean(each)))]
    rows += [Row(metric, name, "each", seed, value) for seed, value in enumerate(each)]
    for share, column in zip(shares, losses.T, strict=True):
        rows.append(Row(metric, name, "loss", share, float(column.mean())))
        rows.append(Row(metric, name, "accuracy", share, float(1 - column.mean())))
        rows += [Row(metric, name, loss_of(seed), share, float(v)) for seed, v in enumerate(column)]
    return rows


def made(metrics: Mapping[str, Any] | None = None, data: str = "sample") -> Results:
    rows: list[Row] = []
    for place, name in enumerate(NAMES):
        placements = np.clip(0.1 * place + 0.3 * np.random.default_rng(place).random(40), 0, 1)
        rows.append(Row("mislabeling", name, "score", None, float(placements.mean())))
        rows += [Row("mislabeling", name, "each", i, float(v)) for i, v in enumerate(placements)]
        rows += [Row("mislabeling", name, "curve", x, x) for x in (0.0, 0.5, 1.0)]
        fewer = name.startswith("dualda") and not any(name.endswith(f"={value})") for value in COMPARED)
        rows += retrained(name, "coreset", fewer)
        rows += retrained(name, "pruning", fewer)
        rows += [Row("resources", name, "cpu_seconds", None, 0.1 + 0.001 * place)]
        rows += [Row("surrogate", name, "support_vectors", None, 3.0)] if "dualda" in name else []
    config = {
        "name": "made",
        "title": "Made <i>up</i>",
        "seed": 0,
        "data": {"name": data},
        "model": {"device": "cpu"},
        "methods": METHODS,
        "metrics": metrics or {"mislabeling": {}, "coreset": {"seeds": 2}, "pruning": {"seeds": 2}},
        "sweep": {"option": "C"},
    }
    return Results(tuple(rows), config, {"whence": "0"})


def test_ties_of_losses_are_those_of_training_seeds() -> None:
    shown = ResultSummary(made())
    for column in (c for c in shown.columns if c.metric == "coreset"):
        losses = np.array([LOSSES[m.key] for m in shown.methods])
        seeds = (
            losses[:, :, 0]
            if column.first
            else losses @ (1 / np.array(FRACTIONS)) / np.sum(1 / np.array(FRACTIONS))
        )
        means = seeds.mean(axis=1)
        rest = seeds - means[:, None] - seeds.mean(axis=0) + seeds.mean()
        # Six methods and two seeds: five degrees of freedom, for which t is 2.570582.
        reach = 2.570582 * np.sqrt((rest**2).sum() / 5)
        cells = [cells[shown.columns.index(column)] for _, cells in shown.table()]
        assert [cell.best for cell in cells] == list(means == means.min())
        assert [cell.tied or cell.best for cell in cells] == list(means - means.min() <= reach)


def test_wrong_labels_have_ties_and_intervals() -> None:
    shown = ResultSummary(made())
    column = shown.columns[0]
    values = np.array(
        [[r.value for r in shown.results.select("mislabeling", m.key, "each")] for m in shown.methods]
    )
    best = int(values.mean(axis=1).argmax())
    expected = comparison.ties(values, np.arange(40))[best]
    assert [c[0].tied or c[0].best for _, c in shown.table()] == list(expected)
    low, high = shown.interval(column, "random") or (0.0, 0.0)
    error = values[0].std(ddof=1) / np.sqrt(40)
    assert (low, high) == (
        pytest.approx(values[0].mean() - 1.96 * error),
        pytest.approx(values[0].mean() + 1.96 * error),
    )


def test_results_without_single_values_have_no_ties() -> None:
    full = made()
    rows = tuple(r for r in full.rows if r.quantity not in ("each", loss_of(0), loss_of(1)))
    shown = ResultSummary(Results(rows, full.protocol, {}))
    assert not any(cell.tied for _, cells in shown.table() for cell in cells)
    assert [how for how, _ in shown.judged()] == [
        "the results have no single values: differences cannot be tested"
    ]
    assert page.render_page(Results(rows, full.protocol, {}))


def test_the_sweep_compares_losses_at_what_all_methods_share() -> None:
    sweep = SweptResults(ResultSummary(made()))
    assert sweep.shared() == [(["coreset", "pruning"], (0.1, 0.5), 1)]
    by_title = {swept.column.title: swept for swept in sweep.columns()}
    mean = {name: (10 * rows[0, 0] + 2 * rows[0, 2]) / 12 for name, rows in LOSSES.items()}
    swept = by_title["Coreset, mean"]
    np.testing.assert_allclose(swept.points, [(x, mean[f"dualda(C={x})"]) for x in SWEPT], rtol=1e-12)
    assert swept.chance == pytest.approx(mean["random"])
    assert swept.other is not None
    assert swept.other[1] == pytest.approx(min(mean["ekfac"], mean["tracin"]))
    best = min(SWEPT, key=lambda x: mean[f"dualda(C={x})"])
    assert [x for x, _ in swept.best] == [best]
    np.testing.assert_allclose(swept.recommended, [mean["dualda(C=1e-05)"], mean["dualda(C=0.001)"]])
    smallest = by_title["Pruning, smallest"]
    np.testing.assert_allclose(smallest.points, [(x, LOSSES[f"dualda(C={x})"][0, 0]) for x in SWEPT])
    assert smallest.best[0][1] == max(value for _, value in smallest.points)


def test_nothing_is_unescaped_and_every_figure_is_well_formed() -> None:
    html = page.render_page(made(data="mnist"))
    assert "<b>" not in html
    assert "<i>" not in html
    assert "<script" not in html
    assert "EK &lt;b&gt;FAC&lt;/b&gt;" in html
    assert not re.search(r"(src|href)=|url\(|@import", html)
    figures = re.findall(r"<svg.*?</svg>", html)
    assert len(figures) > 20
    for figure in figures:
        ElementTree.fromstring(figure)
        if "<polyline" in figure:  # every axis has a name
            assert len(re.findall(r'class="(?:end )?title"[^>]*>[^<]+<', figure)) == 2


def test_results_of_before_can_still_be_shown() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results"
    html = page.render_page(results.read(folder / "cpu-mnist.parquet"))
    for title in ("Coreset selection", "Faithfulness of surrogates", "DualDA over C", "Sparsity"):
        assert f">{title}</h2>" in html


class Own(Metric):
    """A metric of the user's, with what the page is to show of it."""

    name = "own"
    sections = (
        Curves("Own curves", "How it <rises>.", "x", "y", {"one": "Seen", "two": "Unfolded"}),
        Numbers("Own numbers", "Two of them.", {"half": "Half", "third": "Third"}),
    )

    def measure(self, case: Case) -> list[Row]:
        return []


def test_the_page_shows_what_a_metric_of_ones_own_says() -> None:
    rows = [Row("own", "tracin", quantity, x, x) for quantity in ("one", "two") for x in (0.0, 1.0)]
    rows += [Row("own", "tracin", "half", None, 0.5)]
    protocol = made().protocol | {"metrics": {f"{__name__}:Own": {}}}
    html = page.render_page(Results(tuple(rows), protocol, {}))
    curves = html.split("Own curves</h2>")[1].split("</section>")[0]
    assert "How it &lt;rises&gt;." in curves
    assert 'aria-label="Seen: TracIn"' in curves.split("<details>")[0]
    assert 'aria-label="Unfolded: TracIn"' in curves.split("<summary>Unfolded</summary>")[1]
    numbers = html.split("Own numbers</h2>")[1].split("</section>")[0]
    assert '<th scope="col">Half</th><th scope="col">Third</th>' in numbers
    assert '<th scope="row">TracIn</th><td>0.5</td><td>–</td>' in numbers


def test_labels_overlap_nothing_however_crowded() -> None:
    area = Box(0, 0, 720, 440)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        points = [(200 + 30 * a, 200 + 30 * b) for a, b in rng.standard_normal((20, 2))]
        points += [(400.0, 100.0)] * 3  # at one place
        widths = [6.4 * n for n in rng.integers(5, 28, size=len(points))]
        boxes = place_labels(points, widths, area)
        assert not any(a.meets(b) for a, b in itertools.combinations(boxes, 2))
        assert not any(box.holds(point) for box in boxes for point in points)
        assert all(area.left <= b.left and b.right <= area.right and area.top <= b.top for b in boxes)
        assert [box.right - box.left for box in boxes] == pytest.approx(widths)


def test_a_lonely_label_stands_beside_its_point() -> None:
    (box,) = place_labels([(50.0, 60.0)], [40.0], Box(0, 0, 200, 200))
    assert box.left - 50 == pytest.approx(9)
    assert box.top < 60 < box.bottom
    (box,) = place_labels([(190.0, 60.0)], [40.0], Box(0, 0, 200, 200))
    assert box.right < 190
    (box,) = place_labels([(150.0, 199.0)], [1e3], Box(0, 0, 200, 200))
    assert (box.left, box.right) == (0, 200)


def test_swept_methods_are_retrained_at_fewer_fractions_and_counted() -> None:
    tables = protocol.read("quick")
    whole = protocol.parse(
        {**tables, "sweep": {k: v for k, v in tables["sweep"].items() if k != "fractions"}}
    )
    fewer = protocol.load("quick")
    swept = next(m for m in fewer.methods if m.sweep)
    compared = next(m for m in fewer.methods if m.name == "dualda")
    assert fewer.metric("coreset", swept).model_dump()["fractions"] == [0.1, 0.5]
    assert fewer.metric("coreset", compared).model_dump()["fractions"] == [0.1, 0.2, 0.5]
    assert fewer.metric("lds", swept) == fewer.metrics["lds"]
    assert fewer.takes_part("pruning", swept)
    assert costs.cell_seconds(fewer, "coreset", swept) < costs.cell_seconds(whole, "coreset", swept)
    assert sum(i.seconds for i in costs.plan(fewer)) < sum(i.seconds for i in costs.plan(whole))
    for given, said in (
        ({"fractions": [0.15]}, "sweep.fractions"),
        ({"seeds": 2}, "sweep.seeds"),
        ({"seeds": 0}, "at least 1"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            protocol.parse({**tables, "sweep": {**tables["sweep"], **given}})
