"""The explorer of ensembles and of effects: what it shows, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.explored import M, N, method_project, network, pictures
from whence import DualDA, Effects, Ensemble
from whence.errors import InvalidInputError
from whence.methods import GradDot
from whence.ui.explorer import Explorer
from whence.ui.pages import report_page
from whence.ui.requests import Wanted
from whence.ui.server import create_app

testclient = pytest.importorskip("fastapi.testclient")
browsing = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
VIEWS = ("audit", "map", "duplicates", "classes", "concepts", "whatif")


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [network(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def ensemble(models: list[Any]) -> Explorer:
    member = DualDA(metric="raw", C=0.05, tol=1e-9, batch_size=64, show_progress=False)
    return Explorer(method_project(Ensemble(member, show_progress=False), models, "three.whence"))


@pytest.fixture(scope="module")
def effects(models: list[Any]) -> Explorer:
    return Explorer(method_project(Effects(show_progress=False), models[0], "effects.whence"))


def test_the_tests_of_an_ensemble_have_the_predictions_of_its_models_together(
    ensemble: Explorer, models: list[Any]
) -> None:
    t, y = pictures(M, 1)
    with torch.no_grad():
        chances = torch.stack([model(t).double().softmax(1) for model in models]).mean(0)
    info, rows = ensemble.info(), ensemble.tests.rows(Wanted(limit=M))["rows"]
    assert [row["predicted"] for row in rows] == chances.argmax(1).tolist()
    assert [row["probability"] for row in rows] == pytest.approx(chances.amax(1).tolist(), abs=1e-6)
    assert info["accuracy"] == pytest.approx(float((chances.argmax(1) == y).double().mean()))
    assert (info["members"], info["C"], info["Cs"], info["questions"]) == (3, None, [], ["made of"])
    assert info["n_parameters"] == sum(each.numel() for model in models for each in model.parameters())
    assert set(info["withheld"]) == set(VIEWS)


def test_scores_of_an_ensemble_are_means_in_units_of_each_with_their_spread(
    ensemble: Explorer, models: list[Any]
) -> None:
    x, (t, _) = pictures(N, 0), pictures(M, 1)
    why = ensemble.explain(4, k=3)
    each = []
    for model in models:
        scores = (
            DualDA(metric="raw", C=0.05, tol=1e-9, show_progress=False)
            .fit(model, x)
            .attribute(t[4:5], why["target"])[0]
        )
        each.append((scores / scores.std(correction=0)).numpy())
    mean, spread = np.mean(each, axis=0), np.std(each, axis=0, ddof=1)
    assert [pair["index"] for pair in why["pairs"][:3]] == np.argsort(-mean)[:3].tolist()
    assert [pair["score"] for pair in why["pairs"]] == pytest.approx(
        [mean[pair["index"]] for pair in why["pairs"]], rel=1e-4
    )
    assert [pair["spread"] for pair in why["pairs"]] == pytest.approx(
        [spread[pair["index"]] for pair in why["pairs"]], rel=1e-3
    )
    assert (why["n_members"], why["C"], why["other_scores"]) == (3, None, None)
    own = ensemble.explain_own(t[4:5], k=3)
    assert [pair["index"] for pair in own["pairs"]] == [pair["index"] for pair in why["pairs"]]


def test_effects_answer_their_question_alone(effects: Explorer) -> None:
    t, _ = pictures(M, 1)
    info, why = effects.info(), effects.explain(2, k=2)
    scores = effects.project.attributor.attribute(t[2:3])[0]
    assert info["questions"] == ["would change"]
    assert info["compares"]
    assert why["question"] == "would change"
    assert [pair["score"] for pair in why["pairs"][:2]] == pytest.approx(
        scores.sort(descending=True).values[:2].tolist(), rel=1e-4
    )
    assert why["other_scores"] is None
    assert len(effects.typicality(2)["neighbours"]) == 5
    with pytest.raises(InvalidInputError, match="'question' must be 'would change' for this explainer"):
        effects.explain(2, question="made of")
    with pytest.raises(InvalidInputError, match="'C' must be None"):
        effects.explain(2, C=1.0)


@pytest.mark.parametrize("kind", ["ensemble", "effects"])
def test_what_is_withheld_is_refused_with_a_sentence(kind: str, request: pytest.FixtureRequest) -> None:
    app = create_app(request.getfixturevalue(kind), hosts=("testserver",))
    client = testclient.TestClient(app, raise_server_exceptions=False)
    client.headers["x-whence"] = "1"
    for path in ("api/audit", "api/classes", "api/training", "api/tests/0/concepts", "api/tests/0/stability"):
        answer = client.get(path)
        assert answer.status_code == 422
        assert "must hold a DualDA" in answer.json()["detail"]
    for path in ("api/ranking", "api/gallery", "api/comparison?one=0", "api/path?C=1"):
        assert "must hold a DualDA" in client.post(path, content="").text
    answer = client.post("api/whatif", json={"test": 0, "remove": [1]}).text
    assert "must hold a DualDA" in answer
    assert client.get("/").status_code == 200


def test_typicality_is_known_by_effects_and_refused_by_an_ensemble(
    ensemble: Explorer, effects: Explorer
) -> None:
    t, _ = pictures(M, 1)
    own, known = effects.typicality_own(t[2:3]), effects.typicality(2)
    assert [near["index"] for near in own["neighbours"]] == [near["index"] for near in known["neighbours"]]
    assert own["share"] == pytest.approx(known["share"])
    with pytest.raises(InvalidInputError, match="members of an ensemble have features of their own"):
        ensemble.typicality(2)


def test_an_ensemble_of_methods_without_maps_is_refused(models: list[Any]) -> None:
    project = method_project(Ensemble(GradDot(show_progress=False)), models[:2])
    with pytest.raises(InvalidInputError, match="It holds an Ensemble of GradDot: 'whence attribute'"):
        Explorer(project)


@pytest.mark.parametrize("kind", ["ensemble", "effects"])
def test_a_report_has_what_there_is(kind: str, request: pytest.FixtureRequest) -> None:
    explorer = request.getfixturevalue(kind)
    page = report_page(explorer, range(3), k=2)
    assert 'id="tab-audit"' not in page
    assert explorer.info()["note"] in page
    with pytest.raises(InvalidInputError, match="'effects' must be False"):
        report_page(explorer, range(3), k=2, effects=True)


@pytest.fixture(scope="module")
def home(ensemble: Explorer) -> Iterator[str]:
    with served(ensemble) as address:
        yield address


@browsing
@pytest.mark.parametrize("width", [380, 1280])
def test_an_ensemble_in_a_browser(visit: Any, home: str, width: int, ensemble: Explorer) -> None:
    page = visit(f"{home}#test=4", width)
    expect(page.locator(".card .score").first).to_contain_text(" ± ")
    expect(page.locator("#explanation .reach")).to_contain_text("An ensemble of 3 models")
    page.locator(".card button").first.click()
    expect(page.locator("#pair")).to_contain_text(" ± ")
    expect(page.locator("#explanation")).to_contain_text("they sum to no logit")
    assert page.locator("#C, #marking, #would-change, #pair-concepts").count() == 0
    for view in VIEWS:
        page.click(f"#tab-{view}")
        expect(page.locator(f"#{view} .withheld")).to_contain_text("is an ensemble of 3 models")
        no_sideways_scrolling(page)
    page.click("#tab-start")
    expect(page.locator(".loaded")).to_contain_text("an ensemble of 3")
    expect(page.locator("#start")).not_to_contain_text("unlike the training data")
    page.get_by_role("link", name="least certain").click()
    page.wait_for_selector(".card")


@browsing
def test_effects_in_a_browser(visit: Any, effects: Explorer, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_page(effects, range(3), k=2), encoding="utf-8")
    with served(effects) as address:
        for where in (f"{address}#test=1", f"{path.as_uri()}#test=1"):
            page = visit(where)
            expect(page.locator("#explanation .reach")).to_contain_text("Effects only")
            expect(page.locator("#explanation h3").first).to_contain_text("raises the logit of")
            assert page.locator("#made-of, #marking").count() == 0
            page.locator("#tests button").nth(2).click()
            expect(page.locator("#explanation h2")).to_have_text("Test sample 2")
        page.close()
