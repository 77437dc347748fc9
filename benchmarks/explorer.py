"""The explorer under use: latency of explanations, many clients at once, and what-if questions."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.data import synthetic_features
from whence import DualDA
from whence.app import demo
from whence.features import FeatureBank

CLIENTS, SECONDS = 16, 60.0
LARGE = 50_000, 512, 10


class Client:
    """A connection to the explorer that is kept open."""

    def __init__(self, port: int, timeout: float = 60) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def get(self, path: str) -> dict:
        """Return the answer to a request."""
        return json.loads(self.read("GET", path))

    def what_if(self, **question: object) -> dict:
        """Return the answer to a question, which is the last line of its stream."""
        return self.stream("/api/whatif", question)

    def stream(self, path: str, body: object = None) -> dict:
        """Return the last line of an answer by lines of JSON."""
        line = json.loads(self.read("POST", path, body).splitlines()[-1])
        if "error" in line:
            raise RuntimeError(f"{path}: {line['error']}")
        return line["result"]

    def read(self, method: str, path: str, body: object = None) -> bytes:
        """Return the content of an answer."""
        headers = {"X-Whence": "1", "Content-Type": "application/json"}
        self.connection.request(method, path, None if method == "GET" else json.dumps(body or {}), headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:200]!r}")
        return content


def run(cache: Path) -> None:
    saved = cache / "demo" / "demo.whence"
    if not saved.exists():
        demo.run(saved.parent, show_progress=False, say=lambda line: None)
    with served(saved) as (port, pid, seconds):
        print(f"\nExplorer of the demo: {load()} at the start.")
        print(f"- first page {seconds:.1f} s after the command", flush=True)
        _latency(port)
        _questions(port)
        _crowd(port, pid)
    _large()
    print(f"- {load()} at the end")


@contextlib.contextmanager
def served(saved: Path, *options: str) -> Iterator[tuple[int, int, float]]:
    """Run ``whence serve``: its port, its process and the seconds until the first page."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [sys.executable, "-m", "whence", "serve", str(saved), "--port", str(port), *options]
    started = time.perf_counter()
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(port, server)
            yield port, server.pid, time.perf_counter() - started
        finally:
            server.terminate()


def _latency(port: int, rounds: int = 200) -> None:
    client = Client(port)
    for test in range(20):
        client.get(f"/api/tests/{test}/explanation?k=5")
    seconds = []
    for test in range(rounds):
        start = time.perf_counter()
        found = client.get(f"/api/tests/{test}/explanation?k=5")
        seconds.append(time.perf_counter() - start)
        assert len(found["pairs"]) <= 10
    p50, p95, most = 1e3 * np.quantile(seconds, [0.5, 0.95, 1])
    print(
        "- explanation with 10 pairs, warm, one client: "
        f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, max {most:.0f} ms"
    )


def _questions(port: int, rounds: int = 20) -> None:
    client = Client(port)
    seconds = []
    for test in range(rounds):
        pairs = client.get(f"/api/tests/{test}/explanation?k=5")["pairs"]
        start = time.perf_counter()
        client.what_if(test=test, remove=[pair["index"] for pair in pairs[:3]])
        seconds.append(time.perf_counter() - start)
    median, most = np.quantile(seconds[1:], [0.5, 1])
    print(
        f"- what if three proponents were gone: first {seconds[0]:.2f} s, with the features of the training "
        f"set; then median {median:.2f} s, max {most:.2f} s",
        flush=True,
    )


def _crowd(port: int, pid: int) -> None:
    """Many clients at once; memory is compared with that after a tenth of the time."""
    paths = [f"/api/tests/{test}/explanation?k=5" for test in range(0, 1000, 7)]
    paths += [f"/api/tests?offset={24 * page}" for page in range(20)]
    paths += [f"/api/tests/{test}/concepts" for test in range(20)]
    paths += ["/", "/api/info", "/api/classes", "/api/audit?limit=24"]
    end = time.perf_counter() + SECONDS
    errors: list[str] = []
    seconds: list[float] = []

    def visit(seed: int) -> None:
        chosen, client = random.Random(seed), Client(port)
        while (start := time.perf_counter()) < end:
            path = chosen.choice(paths)
            try:
                if path == "/":
                    client.connection.request("GET", "/")
                    client.connection.getresponse().read()
                else:
                    client.get(path)
            except Exception as error:
                errors.append(str(error))
                client = Client(port)
            seconds.append(time.perf_counter() - start)

    visitors = [threading.Thread(target=visit, args=(seed,)) for seed in range(CLIENTS)]
    for visitor in visitors:
        visitor.start()
    memory = []
    while any(visitor.is_alive() for visitor in visitors):
        memory.append(resident(pid))
        time.sleep(SECONDS / 60)
    settled, last = memory[len(memory) // 6], memory[-1]
    print(
        f"- {CLIENTS} clients for {SECONDS:.0f} s: {len(seconds):,} requests, {len(errors)} errors, "
        f"{len(seconds) / SECONDS:.0f} a second, p95 {np.quantile(seconds, 0.95):.2f} s; memory "
        f"{settled:.0f} MiB after {SECONDS / 6:.0f} s, {last:.0f} MiB at the end",
        flush=True,
    )
    for error in errors[:3]:
        print(f"  - {error}")


def _large() -> None:
    X, y = synthetic_features(*LARGE)
    # The strength of the losses in the benchmark of the solver's growth: C·N·mean‖f‖² is what matters.
    C = 1e4 / (len(X) * float((X[:5000] ** 2).sum(axis=1).mean()))
    start = time.perf_counter()
    explainer = DualDA(C=C, show_progress=False).fit(features=FeatureBank.of(X, y))
    fitted = time.perf_counter() - start
    strongest = explainer.self_influence().argsort(descending=True).tolist()
    seconds = []
    for question in (
        {"remove": strongest[:10]},
        {"relabel": {i: int(y[i] + 1) % 10 for i in strongest[:10]}},
    ):
        start = time.perf_counter()
        other = explainer.what_if(X, **question)
        seconds.append(time.perf_counter() - start)
        assert other.gap_ <= explainer.tol
    print(
        f"- {' × '.join(f'{n:,}' for n in LARGE)}, tol {explainer.tol:g}, "
        f"{len(explainer.support_):,} support vectors: fit {fitted:.1f} s; "
        f"what if 10 were gone {seconds[0]:.1f} s, relabelled {seconds[1]:.1f} s"
    )


def _wait(port: int, server: subprocess.Popen) -> None:
    while True:
        if server.poll() is not None:
            raise RuntimeError("whence serve ended.")
        try:
            client = Client(port)
            client.connection.request("GET", "/")
            client.connection.getresponse().read()
            return
        except ConnectionError:
            time.sleep(0.05)


def resident(pid: int) -> float:
    """Resident memory in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else float("nan")


def load() -> str:
    """Write how busy the machine is."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
