"""Where the explorer listens: who is let in, who is not waited for, and how it ends."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from tests.helpers.commands import place_of
from tests.helpers.explored import POST, M, N, network, picture_project, pictures
from whence import DualDA, engine
from whence.app import cli
from whence.core.naming import import_named
from whence.engine import Local
from whence.errors import InvalidInputError, NotFittedError, StoreError
from whence.ui import server
from whence.ui.server import address, check_token, listen


@pytest.mark.parametrize("token", ["", " ", "short", "x" * 15, "x" * 15 + "\n", "ü" * 16])
def test_tokens_that_protect_nothing_are_refused(token: str) -> None:
    for host in ("0.0.0.0", "127.0.0.1"):
        with pytest.raises(InvalidInputError, match="'token' must have at least 16 characters") as raised:
            listen(host, 0, token)
    check_token(str(raised.value).split("such as ")[1].rstrip("."))  # what is proposed is taken


def test_every_other_address_than_this_machines_needs_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(InvalidInputError, match=r"'host' must be 127\.0\.0\.1.*pass --token"):
            listen(host, 0, None)


def test_a_taken_port_is_said_before_the_explainer_is_read() -> None:
    with listen("127.0.0.1", 0, None) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(cli.app, ["serve", "nowhere.whence", "--port", str(port)])
    assert isinstance(done.exception, InvalidInputError)
    assert f"must be an address of this machine that is free. Got '127.0.0.1' and {port}" in str(
        done.exception
    )
    assert "--port" in str(done.exception)
    assert "Serving" not in done.output


def test_the_address_carries_the_token() -> None:
    with listen("127.0.0.1", 0, "word & more words") as listener:
        port = listener.getsockname()[1]
        assert address(listener, "word & more words") == f"http://127.0.0.1:{port}/?token=word+%26+more+words"


def asked(url: str) -> urllib.request.Request:
    return urllib.request.Request(url, headers=POST)


def app() -> FastAPI:
    made = FastAPI()

    @made.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    @made.get("/slow")
    def slow() -> StreamingResponse:
        def parts() -> Iterator[str]:
            for _ in range(5):
                time.sleep(0.25)
                yield "."

        return StreamingResponse(parts())

    return made


@contextlib.contextmanager
def served() -> Iterator[tuple[str, int]]:
    listener = listen("127.0.0.1", 0, None)
    place = listener.getsockname()
    running = uvicorn.Server(uvicorn.Config(app(), http=server.Prompt, ws="none", log_level="warning"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield place
    running.should_exit = True
    thread.join()


HALVES = {
    "nothing": b"",
    "half of the first line": b"GET /slo",
    "half of the headers": b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-le",
    "half of the body": b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n" + b"x" * 50,
    "half of a second request": b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\nGET /noth",
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES.keys())
def test_half_a_request_is_not_waited_for(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    with served() as place, socket.create_connection(place, timeout=20) as client:
        if sent:
            client.sendall(sent)
        started = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            while client.recv(4096):
                pass
        assert time.monotonic() - started < 10


def test_one_letter_at_a_time_gains_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    with served() as place, socket.create_connection(place, timeout=20) as client:
        ended = False
        for letter in b"POST /body HTTP/1.1\r\nhost: " + b"x" * 200:
            try:
                client.sendall(bytes([letter]))
                client.settimeout(0.05)
                ended = client.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended


def test_a_long_answer_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    with served() as place, socket.create_connection(place, timeout=20) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = b""
        while part := client.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"1\r\n.\r\n") == 5


BUSY = """
from types import SimpleNamespace
import torch
from pathlib import Path
from whence import DualDA, engine
from whence.app import cli
from whence.engine import Local
from whence.ui.server import listen, serve

class Project:
    path, attributor = Path("x.whence"), DualDA()
    @property
    def train_bank(self):  # what a thread reads next to the server, in torch's own code
        x = torch.ones(300, 300)
        while True:
            x = (x @ x).clamp(max=1)

@cli.app.command()
def busy():
    explorer = SimpleNamespace(project=Project(), writes=False, scores_only=False, other=None)
    serve(explorer, listen("127.0.0.1", 0, None), None, lambda line: print(line, flush=True))

cli.main()
"""


EARLY = """
import os
import signal
from uvicorn import Config

Config.get_loop_factory = lambda self: os.kill(os.getpid(), signal.SIGINT)
"""


def test_an_interrupt_before_the_server_runs_ends_it() -> None:
    arguments = [sys.executable, "-c", EARLY + BUSY, "busy"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


FAILING = """
import asyncio
import whence.ui.server

def fail(*arguments):
    raise {error}

whence.ui.server.run = fail
"""


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("RuntimeError('no')", 1, "Error: RuntimeError: no (whence --debug … shows where)\n"),
        ("SystemExit(3)", 3, ""),
        ("asyncio.CancelledError", 1, "Error: CancelledError:  (whence --debug … shows where)\n"),
    ],
)
def test_an_error_ends_the_server_while_it_still_reads(error: str, code: int, message: str) -> None:
    arguments = [sys.executable, "-c", FAILING.format(error=error) + BUSY, "busy"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, message)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_an_interrupt_ends_the_server_while_it_still_reads(seconds: float) -> None:
    arguments = [sys.executable, "-c", BUSY, "busy"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("Serving x.whence at http://127.0.0.1:")
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            assert (process.wait(timeout=60), process.stderr.read()) == (130, "Interrupted.\n")
        finally:
            process.kill()  # else leaving the block would wait for it


def test_the_training_set_is_read_on_the_engine_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    used: Queue[Any] = Queue()

    class Project:
        path, attributor = Path("x.whence"), DualDA()

        @property
        def train_bank(self) -> None:
            used.put(engine.base.find(None))

    monkeypatch.setattr(server, "run", lambda app, listener: None)
    chosen = Local()
    with engine.using(chosen), listen("127.0.0.1", 0, None) as listener:
        explorer: Any = SimpleNamespace(project=Project(), writes=False, scores_only=False, other=None)
        server.serve(explorer, listener, None, print)
        assert used.get(timeout=60) is chosen


def test_python_serves_what_it_fitted_and_what_it_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    explainer, (x, y) = picture_project().explainer, pictures(M, 1)
    right = float((network()(x).argmax(1) == y).double().mean())
    known = {"n_tests": M, "accuracy": pytest.approx(right)}
    unknown = {"n_tests": 4, "accuracy": None, "n_wrong": 0}
    cases = (
        (lambda: explainer.serve((x, y), block=False), known),
        (lambda: explainer.serve(TensorDataset(x, y), block=False), known),
        (lambda: explainer.serve(x[:4], block=False), unknown),
        (lambda: explainer.explain(x[:6])[:4].serve(block=False), unknown),
        (lambda: explainer.explain(x[:6], truth=y[:6]).serve(block=False), {"n_tests": 6}),
        (lambda: explainer.explain(x[:6])[5].serve(block=False), {"n_tests": 1}),
        (lambda: explainer.serve(block=False, open_browser=False), {"n_tests": N}),  # training samples
    )
    for number, (serve, expected) in enumerate(cases):
        live = serve()
        info = json.load(urllib.request.urlopen(asked(f"{live.url}api/info")))
        assert {name: info[name] for name in expected} == expected
        assert len(opened) == min(number + 1, len(cases) - 1)
        assert live.url.startswith("http://127.0.0.1:")
        if number == 2:  # what needs labels has none to show
            rows = json.load(urllib.request.urlopen(asked(f"{live.url}api/tests")))["rows"]
            assert {row["verdict"]["truth"] for row in rows} == {row["truth"] for row in rows} == {None}
        live.close()
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(live.url)
    with pytest.raises(NotFittedError):
        DualDA().serve()


def test_python_writes_a_report(tmp_path: Path, visit: Any) -> None:
    explainer, (x, _) = picture_project().explainer, pictures(M, 1)
    path = explainer.report(tmp_path / "report.html", x[:3], k=2)
    assert path == str(tmp_path / "report.html")
    page = visit(f"file://{path}")
    assert "3 test samples, the surrogate agrees" in page.inner_text("header")
    assert page.locator("[data-test]").count() == 3


def test_a_file_that_python_saved_is_served_by_the_names_of_model_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_of(tmp_path, monkeypatch)
    model, train = (import_named("x", f"my_module:{name}") for name in ("build", "train"))
    DualDA(C=0.1, show_progress=False).fit(model(), train).save("x.whence")
    served: list[Any] = []
    monkeypatch.setattr("whence.app.explain.serve_pages", lambda explorer, *_: served.append(explorer))
    done = CliRunner().invoke(cli.app, ["serve", "x.whence"])
    assert isinstance(done.exception, StoreError)
    assert re.search("pass --model MODULE:NAME and --data MODULE:NAME", str(done.exception))
    assert "\n" not in str(done.exception)
    names = ["--model", "my_module:build", "--data", "my_module:train"]
    done = CliRunner().invoke(cli.app, ["serve", "x.whence", "--port", "18731", *names])
    assert done.exit_code == 0, done.exception
    assert served[0].info()["n_tests"] == len(train[0])
