"""Scores of another tool in the explorer: what its interface answers, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import whence
from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.explored import NAMES, M, N, connect, get, network, pictures
from whence.app import cli
from whence.errors import InvalidInputError
from whence.ui.requests import Wanted
from whence.ui.server import listen
from whence.ui.view import load_viewed
from whence.ui.viewed import Predictions, Viewed

SCORES = np.random.default_rng(3).standard_normal((M, N))
X, Y = pictures(M, 1)
LABELS = pictures(N, 0)[1].numpy()
MODEL = network()


def viewed(**options: Any) -> Viewed:
    return load_viewed(SCORES, pictures(N, 0), (X, Y), class_names=NAMES, show_progress=False, **options)


def outputs() -> np.ndarray:
    with torch.no_grad():
        return np.asarray(MODEL(X))


@pytest.fixture(scope="module")
def client() -> Any:
    return connect(viewed(model=MODEL))


def test_the_strongest_samples_of_a_test(client: Any) -> None:
    why = get(client, "/api/tests/4/explanation?k=3")
    order = np.argsort(SCORES[4])
    chosen = [*order[::-1][:3].tolist(), *order[:3].tolist()]
    assert [pair["index"] for pair in why["pairs"]] == chosen
    np.testing.assert_allclose([pair["score"] for pair in why["pairs"]], SCORES[4][chosen])
    positive = SCORES[4][SCORES[4] > 0].sum()
    assert why["evidence_for"] == pytest.approx(positive)
    assert why["pairs"][0]["share"] == pytest.approx(SCORES[4].max() / positive)
    assert why["share_for"] == pytest.approx(np.sort(SCORES[4])[-3:].sum() / positive)
    assert [pair["differs"] for pair in why["pairs"]] == [LABELS[i] != int(Y[4]) for i in chosen]
    sizes = np.sort(abs(SCORES[4]))[::-1]
    assert dict(map(tuple, why["sparsity"]))[N] == pytest.approx(1)
    assert dict(map(tuple, why["sparsity"]))[1] == pytest.approx(sizes[0] / sizes.sum())


def test_predictions_of_the_model_and_filters(client: Any) -> None:
    expected, true = outputs(), Y.numpy()
    info = get(client, "/api/info")
    assert info["accuracy"] == pytest.approx((expected.argmax(1) == true).mean())
    assert info["n_wrong"] == (expected.argmax(1) != true).sum()
    wrong = get(client, "/api/tests?wrong=true&limit=200")["rows"]
    assert [row["index"] for row in wrong] == np.flatnonzero(expected.argmax(1) != true).tolist()
    chances = torch.from_numpy(expected).softmax(1).amax(1).numpy()
    listed = get(client, "/api/tests?order=least certain&limit=3")["rows"]
    assert [row["index"] for row in listed] == np.argsort(chances, kind="stable")[:3].tolist()
    assert listed[0]["probability"] == pytest.approx(chances.min(), rel=1e-5)
    found = get(client, "/api/tests?search=dot&label=1&limit=200")
    assert found["total"] == (true == 1).sum()
    assert [row["index"] for row in get(client, "/api/tests?search=7")["rows"]] == [7]
    assert get(client, "/api/tests?predicted=2")["total"] == (expected.argmax(1) == 2).sum()


def test_without_predictions_only_true_labels_are_shown() -> None:
    plain = viewed()
    row, why = plain.rows(Wanted(search="3"))["rows"][0], plain.explain(3)
    assert (row["verdict"]["predicted"], row["verdict"]["right"]) == (NAMES[int(Y[3])], None)
    assert row["predictions"] == []
    assert why["words"]["predicted"] == "labelled"
    assert plain.info()["accuracy"] is None


def test_other_views_say_why_they_are_empty(client: Any) -> None:
    withheld = get(client, "/api/info")["withheld"]
    assert set(withheld) == {"audit", "classes", "concepts", "whatif"}
    assert "needs a surrogate of the model" in withheld["whatif"]
    for path in ("/api/audit", "/api/classes", "/api/tests/0/typicality"):
        assert client.get(path).status_code == 404
    assert client.get(f"/api/tests/{M}/explanation").status_code == 422


def test_classes_alone_or_outputs_as_predictions() -> None:
    classes = Predictions.of(np.zeros(M, int), M)
    assert classes.outputs is None
    np.testing.assert_array_equal(Predictions.of(outputs(), M).classes, outputs().argmax(1))
    for values, words in [
        (np.zeros(M - 1, int), "one class per test"),
        (np.full(M, 0.5), "be classes 0 … K−1"),
        (np.full((M, 3), np.nan), "be finite"),
        (np.zeros((M + 1, 3)), "one row of outputs per test"),
    ]:
        with pytest.raises(InvalidInputError, match=f"'predictions' must.*{words}"):
            Predictions.of(values, M)
    with pytest.raises(InvalidInputError, match="below 3, the number of classes"):
        viewed(predictions=np.full(M, 3))
    with pytest.raises(InvalidInputError, match="'predictions' must be None where 'model' is given"):
        viewed(model=MODEL, predictions=np.zeros(M, int))


def test_a_page_from_python_and_a_mistake_on_the_command_line(tmp_path: Path) -> None:
    page = whence.view(SCORES.T, pictures(N, 0), (X, Y), open_browser=False, block=False, show_progress=False)
    assert page.url.startswith("http://127.0.0.1:")
    page.close()
    np.save(tmp_path / "scores.npy", SCORES[:, 1:])
    names = ["--data", "tests.ui.test_view:train", "--tests", "tests.ui.test_view:others"]
    with listen("127.0.0.1", 0, None) as taken:
        port = taken.getsockname()[1]
    ran = ["view", str(tmp_path / "scores.npy"), *names, "--port", str(port)]
    done = CliRunner().invoke(cli.app, ran)
    assert isinstance(done.exception, InvalidInputError)
    assert f"Got ({M}, {N - 1}) of numpy" in str(done.exception)


def train() -> Any:
    """Named on a command line."""
    return pictures(N, 0)


def others() -> Any:
    """Named on a command line."""
    return X, Y


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_the_page_of_scores(visit: Any) -> None:
    with served(viewed(model=MODEL)) as home:
        page = visit(f"{home}#test=4")
        expect(page.locator(".card")).to_have_count(10)
        expect(page.locator(".side h3").first).to_have_text(f"▲ positive scores for {NAMES[int(Y[4])]}")
        expect(page.locator(".certificate")).to_contain_text("From scores, written by Python")
        expect(page.locator("#target, #C, #marking, #typicality, canvas, .chart:nth-child(2)")).to_have_count(
            0
        )
        page.keyboard.press("j")
        expect(page.locator("#explanation h2")).to_have_text("Test sample 5")
        page.click("#tab-whatif")
        expect(page.locator("#whatif .withheld")).to_contain_text("needs a surrogate of the model")
        page.set_viewport_size({"width": 390, "height": 800})
        page.click("#tab-start")
        expect(page.locator(".task h2").first).to_contain_text("Wrong predictions")
        no_sideways_scrolling(page)
