"""Nothing computes for a page elsewhere, by another name or without the header; nobody queues without end."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.helpers.explored import connect, picture_project
from whence.ui import routes
from whence.ui.explorer import Explorer
from whence.ui.server import LOOPBACK, create_app

FORMS = ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x")

FOREIGN: dict[str, str] = {
    "what would change": "/api/tests/0/explanation?question=would+change",
    "another C": "/api/tests/0/explanation?C=1",
    "explanation": "/api/tests/0/explanation",
    "stability": "/api/tests/0/stability",
    "typicality": "/api/tests/0/typicality",
    "concepts": "/api/tests/0/concepts",
    "audit": "/api/audit",
    "classes": "/api/classes",
    "doubled slash": "/api//audit",
    "escaped": "/%61pi/audit",
}

HOSTS: dict[str, str] = {
    "none": "",
    "other": "evil.example",
    "other with a port": "evil.example:8000",
    "name within": "127.0.0.1.evil.example",
    "name at the end": "evil.example.localhost",
    "brackets": "[127.0.0.1]",
    "doubled brackets": "[[::1]]:8000",
    "half a bracket": "[::1",
    "no brackets": "::1",
    "name in brackets": "[localhost]:80",
    "two ports": "localhost:80:80",
    "no port": "localhost:",
    "long port": "localhost:000080",
    "user": "localhost@evil.example",
    "dot": "localhost.",
}
OURS = ("127.0.0.1", "127.0.0.1:8000", "localhost", "localhost:9000", "[::1]", "[::1]:8000")


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return Explorer(picture_project())


@pytest.fixture(scope="module")
def client(explorer: Explorer) -> Any:
    return connect(explorer)


@pytest.fixture(scope="module")
def named(explorer: Explorer) -> Any:
    from fastapi.testclient import TestClient

    return TestClient(create_app(explorer, hosts=LOOPBACK), base_url="http://localhost")


@pytest.mark.parametrize("header", ["", "0", "1, 1", "true"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_page_elsewhere_starts_nothing(client: Any, name: str, header: str) -> None:
    answer = client.get(FOREIGN[name], headers={"x-whence": header})
    assert answer.status_code == 403
    assert "X-Whence" in answer.json()["detail"]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_elsewhere_starts_nothing(client: Any, form: str) -> None:
    headers = {"x-whence": "", "content-type": form}
    assert client.post("/api/novelty", content=b"", headers=headers).status_code == 403


def test_the_page_itself_needs_no_header(client: Any) -> None:
    assert client.get("/", headers={"x-whence": ""}).status_code == 200


@pytest.mark.parametrize("name", HOSTS)
def test_other_names_are_refused(named: Any, name: str) -> None:
    assert named.get("/", headers={"host": HOSTS[name]}).status_code == 421


@pytest.mark.parametrize("host", OURS)
def test_names_of_this_machine_are_taken(named: Any, host: str) -> None:
    assert named.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("path", "solver", "body"),
    [
        ("/api/whatif", "what_if", {"test": 0, "remove": [1]}),
        ("/api/whatif/tests", "what_changes", {"remove": [1]}),
        ("/api/path?C=1", "solved.at", {}),
        ("/api/gallery", "gallery", {}),
        ("/api/comparison?one=0", "compare", {}),
    ],
)
def test_computations_are_queued_with_a_limit(
    client: Any,
    explorer: Explorer,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    solver: str,
    body: dict[str, Any],
) -> None:
    ask, more, end = threading.Semaphore(0), 16, threading.Event()

    def solve(*asked: Any) -> dict[str, Any]:
        ask.release()
        end.wait(20)
        raise RuntimeError("failed")  # whose place is free again

    owner = explorer.solved if solver == "solved.at" else routes
    monkeypatch.setattr(owner, solver.removeprefix("solved."), solve)
    with ThreadPoolExecutor(24) as pool:
        answers = [pool.submit(client.post, path, json=body) for _ in range(routes.MOST_WAITING + more)]
        for _ in range(routes.MOST_WAITING):
            assert ask.acquire(timeout=10)
        until = time.monotonic() + 10
        while sum(answer.done() for answer in answers) < more and time.monotonic() < until:
            time.sleep(0.01)
        refused = [answer.result() for answer in answers if answer.done()]
        end.set()
    assert len(refused) == more
    assert {answer.status_code for answer in refused} == {503}
    assert "Ask again" in refused[0].json()["detail"]
    assert (
        sorted(answer.result().status_code for answer in answers)[: routes.MOST_WAITING]
        == [200] * routes.MOST_WAITING
    )
    assert "failed" in client.post(path, json=body).text
