"""Where the explorer listens: who is let in, who is not waited for, and how it ends."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from typer.testing import CliRunner

from whence import DualDA, engine
from whence.app import cli
from whence.engine import Local
from whence.errors import InvalidInputError
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
    def train_bank(self):  # what a thread reads beside the server, in torch's own code
        x = torch.ones(300, 300)
        while True:
            x = (x @ x).clamp(max=1)

@cli.app.command()
def busy():
    explorer = SimpleNamespace(project=Project(), writes=False)
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
        assert (process.wait(timeout=60), process.stderr.read()) == (130, "Interrupted.\n")


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
        explorer: Any = SimpleNamespace(project=Project(), writes=False)
        server.serve(explorer, listener, None, print)
        assert used.get(timeout=60) is chosen
