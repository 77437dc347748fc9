"""Two explainers side by side: which tests differ, and what both name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.explored import (
    NAMES,
    M,
    N,
    connect,
    get,
    network,
    picture_project,
    pictures,
    post,
    project,
)
from whence import DualDA
from whence.errors import InvalidInputError
from whence.project import Configuration, Project
from whence.ui.explorer import Explorer
from whence.ui.requests import WantedComparison

X, Y = pictures(M, 1)


def another(**options: Any) -> Project:
    """Another network on the same pictures."""
    return project(network(seed=4), pictures(N, 0), (X, Y), path="other.whence", **options)


@pytest.fixture(scope="module")
def pair() -> Explorer:
    return Explorer(picture_project(), compare=Explorer(another()))


@pytest.fixture(scope="module")
def client(pair: Explorer) -> Any:
    return connect(pair)


@pytest.fixture(scope="module")
def chances(pair: Explorer) -> list[np.ndarray]:
    """Probabilities of both networks, by themselves."""
    explorers = [pair, pair.other]
    models = [each.project.explainer.fitted_.require_model().extractor.model for each in explorers if each]
    with torch.no_grad():
        return [model(X).double().softmax(1).numpy() for model in models]


def test_tests_are_sorted_by_what_differs(client: Any, chances: list[np.ndarray]) -> None:
    one, other = chances
    rows, shown = np.arange(M), one.argmax(1)
    differs, change = one.argmax(1) != other.argmax(1), abs(other - one)[rows, shown]
    expected = sorted(rows.tolist(), key=lambda i: (not differs[i], -change[i], i))
    found = get(client, f"/api/compare?limit={M}")
    assert [row["index"] for row in found["rows"]] == expected
    first = found["rows"][0]
    assert first["predicted"] == [NAMES[each[expected[0]].argmax()] for each in chances]
    np.testing.assert_allclose(first["values"], [each[expected[0], shown[expected[0]]] for each in chances])
    info = get(client, "/api/info")["compare"]
    assert (info["n_differing"], info["n_tests"], info["names"]) == (differs.sum(), M, ["small", "other"])
    numbers = get(client, "/api/compare?by=number&offset=3&limit=2")["rows"]
    assert [row["index"] for row in numbers] == [3, 4]


def test_outputs_of_both_for_one_test(client: Any, chances: list[np.ndarray]) -> None:
    found = get(client, "/api/compare/5")
    order = [NAMES.index(name) for name in found["names"]]
    assert order == np.argsort(-np.maximum(chances[0][5], chances[1][5])).tolist()
    np.testing.assert_allclose(found["values"], [each[5][order] for each in chances], rtol=1e-5)
    assert client.get(f"/api/compare/{M}").status_code == 422


def test_shared_training_samples(client: Any, pair: Explorer) -> None:
    assert post(client, "/api/compare/overlap")["result"]["mean"] >= 0
    rows = get(client, f"/api/compare?by=samples&limit={M}")["rows"]
    shares = [row["overlap"] for row in rows]
    assert shares == sorted(shares)
    lists = []
    for explorer in (pair, pair.other):
        assert explorer is not None
        scores = explorer.project.explainer.attribute(X)[rows[0]["index"]].numpy()
        order = np.argsort(scores)
        lists.append({i for i in [*order[:10], *order[-10:]] if scores[i] != 0})
    assert shares[0] == pytest.approx(len(lists[0] & lists[1]) / max(map(len, lists)))


def test_the_other_explainer_answers_below_its_own_address(client: Any, pair: Explorer) -> None:
    assert pair.other is not None
    why = get(client, "/other/api/tests/2/explanation?k=3")
    expected = pair.other.explain(2, 3)
    assert [one["score"] for one in why["pairs"]] == [one["score"] for one in expected["pairs"]]
    assert client.get("/other/api/tests/2/explanation", headers={"x-whence": ""}).status_code == 403
    assert pair.other.model_lock is pair.model_lock


def test_of_one_model_the_surrogates_are_compared() -> None:
    first = picture_project()
    changed = first.explainer.update(remove=range(0, 60, 2))
    tests = first.tests
    other = Project(Path("small.whence"), Configuration(model="", data=""), changed, tests)
    both = Explorer(picture_project(), compare=Explorer(other)).compared
    assert both is not None
    info = both.info()
    assert (info["of"], info["kind"]) == ("surrogate", "logit of the surrogate")
    assert info["names"] == ["small 1", "small 2"]
    assert both.corresponds
    np.testing.assert_allclose(both.values[1], changed.decision_function(X), rtol=1e-4)


def test_other_tests_or_labels_are_refused_at_the_start() -> None:
    mine = Explorer(picture_project())
    fewer = project(network(4), pictures(N, 0), pictures(M - 1, 1))
    with pytest.raises(InvalidInputError, match=f"must have the same tests. Got {M - 1} tests and here {M}"):
        Explorer(mine.project, compare=Explorer(fewer))
    labels = Y.clone()
    labels[3] = (labels[3] + 1) % 3
    relabelled = project(network(4), pictures(N, 0), (X, labels))
    words = f"other labels for 1 of {M} tests, the first of them test 3: {NAMES[labels[3]]!r}"
    with pytest.raises(InvalidInputError, match=words):
        Explorer(mine.project, compare=Explorer(relabelled))
    with pytest.raises(InvalidInputError, match="'compare' must be a fitted explainer"):
        mine.project.explainer.serve((X, Y), compare="other.whence")
    short = DualDA(C=0.05, show_progress=False).fit(network(4), pictures(N - 30, 0), class_names=NAMES)
    less = Project.of(short, (X, Y))
    shown = Explorer(mine.project, compare=Explorer(less)).compared
    assert shown is not None
    assert not shown.corresponds


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_both_explanations_side_by_side(visit: Any, pair: Explorer) -> None:
    assert pair.compared is not None
    assert pair.other is not None
    first, second, *_ = ordered(pair)
    lists = [[one["index"] for one in each.explain(second, 4)["pairs"]] for each in (pair, pair.other)]
    with served(pair) as home:
        page = visit(f"{home}#tab=compare&test={second}", ready=".side-cards")
        expect(page.locator(".side-both .A [data-sample]")).to_have_count(len(lists[0]))
        both = set(lists[0]) & set(lists[1])
        expect(page.locator(".side-both .A .twin")).to_have_count(len(both))
        words = (
            f"{len(both)} of {max(map(len, lists))} training samples" if both else "No training sample is in"
        )
        expect(page.locator("#side-claim")).to_contain_text(words)
        expect(page.locator(".side-list [aria-current=true]")).to_have_attribute("data-test", str(second))
        page.keyboard.press("k")
        expect(page.locator(".steps h3")).to_have_text(f"Test sample {first}")
        assert f"tab=compare&test={first}" in page.url
        page.select_option("#side-order", "number")
        expect(page.locator(".steps h3")).to_have_text("Test sample 0")
        page.go_back()
        expect(page.locator(".steps h3")).to_have_text(f"Test sample {first}")
        page.set_viewport_size({"width": 390, "height": 800})
        no_sideways_scrolling(page)


def ordered(pair: Explorer) -> list[int]:
    """The tests in the order of the list."""
    assert pair.compared is not None
    return [row["index"] for row in pair.compared.rows(WantedComparison(limit=M))["rows"]]
