"""whence attribute, explain and report, as a user runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import whence
from tests.helpers.commands import fit, mistake, run
from whence.errors import InvalidInputError


def test_attribute_gives_the_scores_of_the_explainer(fitted: Path) -> None:
    import my_module  # type: ignore[import-not-found]

    found = json.loads(run("attribute", "x.whence", "--tests", "0,3-4", "-k", "2", "--json").stdout)
    assert [test["test"] for test in found] == [0, 3, 4]
    explainer = whence.load(fitted / "x.whence", my_module.build())
    top = explainer.top_k(my_module.test[0][[0, 3, 4]], 2)
    for b, test in enumerate(found):
        kept = [i for i in top.proponents.indices[b].tolist() if i >= 0]
        assert [sample["index"] for sample in test["proponents"]] == kept
        assert test["truth"] == str(my_module.test[1][test["test"]])
    words = run("attribute", "x.whence", "--tests", "0", "--target", "1").stdout
    assert "evidence for (+) and against (−) 1" in words


def test_attribute_gives_effects(fitted: Path) -> None:
    import my_module

    found = json.loads(run("attribute", "x.whence", "--tests", "1", "-k", "2", "--effects", "--json").stdout)
    explainer = whence.Effects(show_progress=False).fit(my_module.build(), my_module.train)
    x = my_module.test[0][[1]]
    effects = explainer.attribute(x)[0]
    assert found[0]["effect_on"] == "logit"
    for sample, best in zip(found[0]["proponents"], effects.sort(descending=True).values, strict=False):
        assert sample["score"] == pytest.approx(float(best), rel=1e-4)
    words = run("attribute", "x.whence", "--tests", "1", "--effects", "--target", "2").stdout
    assert "what raises (+) and lowers (−) the logit of 2 by being there" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tests", "x"], "'tests' must be a list such as 0,4-7"),
        (["--tests", "30"], r"'tests' must lie in [0, 30)"),
        (["--tests", "5-3"], "at least one sample"),
        (["--tests", "0", "--target", "7"], "'target' must be one of the classes: 0 … 2. Got '7'"),
    ],
)
def test_attribute_names_mistakes(fitted: Path, arguments: list[str], message: str) -> None:
    assert message in str(mistake("attribute", "x.whence", *arguments))


def test_an_ensemble_is_fitted_saved_and_shown_with_its_spread(place: Path) -> None:
    models = ("--model", "my_module:build+my_module:deep", "--test", "my_module:test")
    assert "Members      2 of DualDA" in fit("--method", "ensemble", *models).stdout
    (found,) = json.loads(run("attribute", "x.whence", "--tests", "1", "-k", "2", "--json").stdout)
    ensemble = whence.load(place / "x.whence")
    assert isinstance(ensemble, whence.Ensemble)
    assert all(sample["spread"] >= 0 for sample in found["proponents"])
    assert " ± " in run("attribute", "x.whence", "--tests", "1").stdout
    assert len(json.loads(run("info", "x.whence", "--json").stdout)["members"]) == 2
    run("explain", "x.whence", "--tests", "1", "--out", "why")
    assert "means over 2 models" in (place / "why" / "index.html").read_text(encoding="utf-8")
    assert (place / "why" / "test-1.png").is_file()


def test_how_typical_a_test_is_stands_below_its_samples(fitted: Path) -> None:
    (found,) = json.loads(run("attribute", "x.whence", "--tests", "1", "-k", "2", "--json").stdout)
    said = run("attribute", "x.whence", "--tests", "1").stdout
    assert found["typicality"]["heading"] in said
    assert len(found["typicality"]["neighbours"]) == 5
    assert f"Nearest to training samples {found['typicality']['neighbours'][0]['index']} (" in said


def test_explain_writes_a_page_figures_and_data(fitted: Path) -> None:
    said = run("explain", "x.whence", "--tests", "1,2", "-k", "2", "--out", "why").stdout.strip()
    assert said == str(fitted / "why" / "index.html")
    assert sorted(path.name for path in (fitted / "why").iterdir()) == [
        "explanations.json", "index.html", "test-1.png", "test-2.png",
    ]  # fmt: skip
    data = json.loads((fitted / "why" / "explanations.json").read_text())
    assert [one["test"] for one in data] == [1, 2]
    assert isinstance(mistake("explain", "x.whence", "--tests", "0", "--out", "x.whence"), InvalidInputError)
    wrong = mistake("explain", "x.whence", "--tests", "0", "--out", "why", "--rules", "magic")
    assert "epsilon_plus_flat" in str(wrong)


@pytest.mark.parametrize("effects", [False, True])
def test_a_report_holds_both_answers_where_effects_are_asked_for(fitted: Path, effects: bool) -> None:
    options = ["--effects"] if effects else []
    said = run("report", "x.whence", "--tests", "1,2", "-k", "2", "--out", "r.html", *options).stdout.strip()
    assert said == str(fitted / "r.html")
    found = re.search(r'id="data">(.*?)</script>', (fitted / "r.html").read_text(), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert set(data["explanations"]) == {"1", "2"}
    assert set(data["changes"]) == ({"1", "2"} if effects else set())
    for test, why in data["changes"].items():
        assert why["question"] == "would change"
        assert len(data["explanations"][test]["other_scores"]) == len(data["explanations"][test]["pairs"])
