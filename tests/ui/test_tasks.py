"""The explorer of numbers and of many labels: what it says, what it leaves out, and the page in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from torch import nn

from tests.helpers.browsing import CHROMIUM, expect
from tests.helpers.explored import HOSTILE, pictures, project
from whence import DualDA
from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence.project import Configuration, Project
from whence.ui.changes import what_changes
from whence.ui.classes import compare, gallery
from whence.ui.explorer import Explorer
from whence.ui.pages import report_page
from whence.ui.requests import Changes, Wanted

NAMES = ("bright", HOSTILE[0], "low")


def explorer_of(K: int, *, numbers: bool) -> tuple[Explorer, nn.Module, Any]:
    """Pictures whose targets are numbers, or signs, of an untrained network."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 12), nn.ReLU(), nn.Linear(12, K)).eval()
    (x, _), (t, _) = pictures(90, 0), pictures(30, 1)
    with torch.no_grad():
        model[3].bias -= model(x).mean(0)
        sets = [(part, 50 * model(part) + 7 if numbers else (model(part) > 0).float()) for part in (x, t)]
        if numbers:
            model[3].weight *= 50
            model[3].bias.copy_(50 * model[3].bias + 7)
    return Explorer(project(model, *sets, names=NAMES[:K])), model, sets


@pytest.mark.parametrize("K", [1, 2])
def test_numbers_are_listed_explained_and_written(K: int) -> None:
    shown, model, (_, (t, y)) = explorer_of(K, numbers=True)
    info = shown.info()
    with torch.no_grad():
        outputs = model(t)
    assert info["label_kind"] == "number"
    assert info["accuracy"] == pytest.approx(r2_score(y, outputs), abs=1e-4)
    rows = shown.tests.rows(Wanted(limit=30))["rows"]
    assert [row["verdict"]["predicted"] for row in rows] == [
        f"{z:.4g}".replace("-", "−") for z in outputs[:, 0].tolist()
    ]
    assert all(row["truths"] == [] and row["truth"] is None for row in rows)
    assert shown.tests.rows(Wanted(wrong=True))["total"] == 0
    apart = [not row["verdict"]["agrees"] for row in rows]
    assert shown.tests.rows(Wanted(disagree=True))["total"] == sum(apart)
    assert shown.tests.rows(Wanted(search=rows[4]["verdict"]["predicted"]))["rows"][0]["index"] == 4
    why = shown.explain(3, k=2)
    assert why["base"] + why["total"] == pytest.approx(why["logit"], rel=1e-5)
    assert why["words"]["sign"][0] == "pulls the prediction up"
    change = shown.explain(3, k=2, question="would change")
    effects = shown.solved.effects.result().attribute(t[3:4], 0)[0]
    assert [pair["score"] for pair in change["pairs"]] == pytest.approx(
        [float(effects[pair["index"]]) for pair in change["pairs"]], rel=1e-4
    )
    assert change["pairs"][0]["score"] == pytest.approx(float(effects.max()), rel=1e-4)
    page = report_page(shown, range(4), k=2)
    assert 'id="tab-audit"' not in page
    assert "pulls the prediction up" in page


def test_labels_are_listed_by_those_that_are_on() -> None:
    shown, model, (_, (t, y)) = explorer_of(3, numbers=False)
    with torch.no_grad():
        on = model(t) > 0
    info, rows = shown.info(), shown.tests.rows(Wanted(limit=30))["rows"]
    assert info["label_kind"] == "label"
    assert info["accuracy"] == pytest.approx(float((on == y.bool()).float().mean()))
    assert [row["predictions"] for row in rows] == [np.flatnonzero(one).tolist() for one in on.numpy()]
    assert shown.tests.rows(Wanted(label=2))["total"] == int(y[:, 2].sum())
    assert shown.tests.rows(Wanted(predicted=1, label=0))["total"] == int((on[:, 1] & (y[:, 0] > 0)).sum())
    assert shown.tests.rows(Wanted(search="BRIGHT"))["total"] == int((on[:, 0] | (y[:, 0] > 0)).sum())
    why = shown.explain(0, k=2, target=1)
    assert why["target"] == 1
    assert why["probability"] == pytest.approx(torch.sigmoid(model(t[:1])[0, 1]).item(), abs=1e-6)
    assert HOSTILE[0] not in report_page(shown, range(3), k=2)


@pytest.mark.parametrize("numbers", [True, False])
def test_what_needs_classes_is_refused_by_name(numbers: bool) -> None:
    shown, _, _ = explorer_of(2, numbers=numbers)
    with pytest.raises(InvalidInputError, match="'What if' needs a classifier"):
        what_changes(shown, Changes(remove=[1]))
    with pytest.raises(InvalidInputError, match="Comparing classes needs a classifier"):
        compare(shown, 0)
    with pytest.raises(InvalidInputError, match="gallery of concepts needs a classifier"):
        gallery(shown, 0, 5)


def test_the_least_certain_of_labels_and_of_numbers_come_first() -> None:
    shown, model, (_, (t, _)) = explorer_of(3, numbers=False)
    with torch.no_grad():
        sure = (torch.sigmoid(model(t)) - 0.5).abs().amin(1)
    rows = shown.tests.rows(Wanted(limit=30, order="least certain"))["rows"]
    assert [row["index"] for row in rows] == sure.argsort(stable=True).tolist()
    numbers, _, _ = explorer_of(1, numbers=True)
    listed = numbers.tests.rows(Wanted(limit=30, order="least certain"))["rows"]
    assert [row["index"] for row in listed] == list(range(30))  # of which none is surer than another


def test_probabilities_are_those_of_a_model_that_gives_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 12), nn.ReLU(), nn.Linear(12, 3), nn.Softmax(1)).eval()
    x, t = pictures(90, 0), pictures(30, 1)
    fitted = DualDA(C=0.05, show_progress=False).fit(model, x, layer="3", class_names=NAMES)
    tests = as_training_set(t, 64, task=fitted.task_, names=NAMES)
    shown = Explorer(Project(Path("x.whence"), Configuration("", ""), fitted, tests))
    rows = shown.tests.rows(Wanted())["rows"]
    with torch.no_grad():
        assert [row["probability"] for row in rows] == pytest.approx(
            model(t[0]).amax(1)[:24].tolist(), abs=1e-6
        )


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize(("K", "numbers", "words"), [(1, True, "pulls up"), (3, False, "evidence for")])
def test_the_report_works_in_a_browser(visit: Any, K: int, numbers: bool, words: str, tmp_path: Path) -> None:
    shown, _, _ = explorer_of(K, numbers=numbers)
    path = tmp_path / "report.html"
    path.write_text(report_page(shown, range(5), k=2, effects=numbers), encoding="utf-8")
    page = visit(path.as_uri())
    page.locator("#tests button").nth(2).click()
    expect(page.locator("#status")).to_contain_text("sample 2")
    assert words in page.inner_text("#explanation")
    assert page.locator("nav button").count() == 1
    assert page.locator("#would-change").count() == numbers
    assert page.locator("#explanation .certificate dt").count() == 4
