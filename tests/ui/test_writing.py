"""The page to type a prompt at: what it shows, what it may do, and what it refuses."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.helpers.writers import TEXTS, llama, taught, tokenizer
from whence import DualDA
from whence.data import Corpus, as_training_set
from whence.project import Configuration, Project
from whence.tasks import Tokens
from whence.ui.explorer import Explorer
from whence.ui.server import create_app

pytest.importorskip("transformers")
testclient = pytest.importorskip("fastapi.testclient")

WILD = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def explainer() -> DualDA:
    corpus = Corpus([*TEXTS, f"{WILD} the sea"], tokenizer())
    return DualDA(C=0.05, show_progress=False).fit(taught(llama(), 40), corpus)


def connect(explainer: DualDA, tests: Any = None, **options: Any) -> Any:
    project = Project(Path("words.whence"), Configuration("my:model", "my:data"), explainer, tests)
    app = create_app(Explorer(project), hosts=("testserver",), **options)
    return testclient.TestClient(app, headers={"x-whence": "1"}, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(explainer: DualDA) -> Any:
    return connect(explainer)


def test_it_is_where_one_starts_and_may_only_ask_this_machine(client: Any) -> None:
    first = client.get("/")
    assert first.url.path == "/write"
    assert first.status_code == 200
    policy = first.headers["content-security-policy"]
    assert "script-src 'none'" in policy
    assert "form-action 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'none'" in client.get("/api/nothing").headers["content-security-policy"]
    assert "the cat sat" in first.text  # to try
    assert WILD not in first.text
    assert client.get("/", headers={"host": "elsewhere"}).status_code == 421


def test_an_answer_with_its_words_and_what_if(client: Any, explainer: DualDA) -> None:
    page = client.get("/write", params={"prompt": "mira lives in"}).text
    trace = explainer.trace("mira lives in", max_new_tokens=40)
    for i, token in enumerate(trace.tokens):
        assert f'href="#t{i}"' in page
        assert f"Why “{token.text.strip()}”?" in page
    links = [html.unescape(link) for link in re.findall(r'class="without" href="([^"]+)"', page)]
    asked = [parse_qs(urlsplit(link).query, keep_blank_values=True) for link in links]
    assert {"2", "3"} <= {one["without"][0] for one in asked}
    assert all(one["prompt"] == ["mira lives in"] for one in asked)
    changed = client.get("/write", params={"prompt": "mira lives in", "without": 2}).text
    found = trace.without([2])
    assert f"Without “{TEXTS[2]}”" in changed
    assert f"{found.tokens[0].after:+.2f}" in changed
    assert "With it again" in changed


def test_a_given_answer(client: Any) -> None:
    page = client.get("/write", params={"prompt": "the cat", "continuation": "sat on the sea", "k": 2}).text
    assert "The underlined words were given" in page
    assert "Why “sea”?" in page
    assert 'value="2"' in page


def test_what_is_typed_is_escaped(client: Any) -> None:
    page = client.get("/write", params={"prompt": f"the sea {WILD}", "continuation": f" is {WILD}"}).text
    assert WILD not in page
    assert "&lt;img src=x" in page


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"prompt": "the " * 60}, "at most 48"),
        ({"prompt": "mira lives in tolm ."}, "end of the text"),
        ({"prompt": "the", "without": 99}, "documents"),
    ],
)
def test_what_is_wrong_is_said_on_the_page(client: Any, asked: dict[str, Any], words: str) -> None:
    answer = client.get("/write", params=asked)
    assert answer.status_code == 422
    assert words in re.search(r'role="alert">(.*?)</p>', answer.text)[1]  # type: ignore[index]
    assert "</textarea>" in answer.text


@pytest.mark.parametrize("asked", [{"k": 0}, {"k": 51}, {"prompt": "a" * 8001}, {"without": -1}])
def test_what_is_out_of_bounds_is_refused(client: Any, asked: dict[str, Any]) -> None:
    assert client.get("/write", params=asked).status_code == 422


def test_how_far_to_trust_it_is_shown_once_it_is_known(explainer: DualDA) -> None:
    client = connect(explainer)
    asked = {"prompt": "mira lives in"}
    client.get("/write", params=asked)
    for _ in range(200):
        page = client.get("/write", params=asked).text
        if "In places like" in page:
            break
    assert "that it was fitted on" in page


def test_tests_are_shown_next_to_it(explainer: DualDA) -> None:
    corpus = Corpus(["the cat is cold .", "jon is far"], tokenizer())
    client = connect(explainer, as_training_set(corpus, task=Tokens(), preprocess=corpus.prompts))
    assert 'href="explorer"' in client.get("/write").text
    assert 'href="write"' in client.get("/explorer").text
    assert 'href="explorer"' not in connect(explainer).get("/write").text


@pytest.mark.parametrize(
    ("headers", "traced"),
    [
        ({"sec-fetch-site": "same-origin"}, True),  # the form of the page
        ({"sec-fetch-site": "none"}, True),  # a bookmark, or an address that was typed
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),  # another port of this machine
        ({}, False),  # a browser that does not say
    ],
)
def test_a_page_elsewhere_starts_no_trace(
    explainer: DualDA, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], traced: bool
) -> None:
    calls, trace = [], explainer.trace
    monkeypatch.setattr(
        explainer, "trace", lambda *given, **named: calls.append(given) or trace(*given, **named)
    )
    client = connect(explainer)
    del client.headers["x-whence"]
    answer = client.get("/write", params={"prompt": "mira lives in", "continuation": "a"}, headers=headers)
    assert len(calls) == traced
    assert answer.status_code == (200 if traced else 403)
    assert ("Nothing was computed" in answer.text) is not traced
    assert re.search("<textarea[^>]*>mira lives in<", answer.text)  # one click computes it
    assert client.get("/write", headers=headers).status_code == 200  # the form alone computes nothing


def test_with_a_token(explainer: DualDA) -> None:
    client = connect(explainer, token="sixteen letters!")
    assert client.get("/write").status_code == 401
    assert client.get("/", params={"token": "sixteen letters!"}).url.path == "/write"
    del client.headers["x-whence"]
    # Pages elsewhere have no cookie; browsers do not say where requests to machines without https come from.
    asked = {"prompt": "mira lives in", "continuation": "a"}
    assert client.get("/write", params=asked).status_code == 200
    assert client.get("/write", params=asked, headers={"sec-fetch-site": "cross-site"}).status_code == 403
