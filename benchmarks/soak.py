"""Many visitors of the explorer for a long time: latency by kind of request, errors and memory.

Each visitor does what a person does with the page: one action, which sends the requests that the page would,
then 2 to 4 seconds of thinking. What is computed once is asked for before, and its time kept apart.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import wide
from benchmarks.explorer import Client, resident, served
from benchmarks.machine import describe
from benchmarks.tables import markdown, publish
from whence.core import store

THINKING = 2.0, 4.0
COMPUTED_ONCE = (
    *(("POST", f"/api/{name}") for name in ("ranking", "novelty", "map", "duplicates", "gallery")),
    *(("GET", f"/api/tests/0/{name}") for name in ("explanation", "stability", "typicality")),
    ("POST", "/api/comparison?one=0&other=1"),
)
COLOURS = "label", "predicted", "label doubt", "self-influence"

Ask = Callable[..., bytes]


class Visitor:
    """A visitor: one of the actions of the page at a time.

    Parameters
    ----------
    ask : sends a request and notes its time: ``ask(kind, method, path, body)``
    number : of the visitor, the seed of the choices
    effects : set when effects are fitted
    """

    def __init__(self, ask: Ask, number: int, effects: threading.Event) -> None:
        self.ask, self.number, self.effects = ask, number, effects
        self.chosen, self.marked = random.Random(number), 0
        self.n_train, _, self.n_classes = wide.SHAPE

    def act(self) -> None:
        """Do one action; the list and the tests are looked at most."""
        actions = {
            self.open_test: 30, self.change_question: 8, self.filter_tests: 14, self.page_of_labels: 8,
            self.mark: 10, self.colour_map: 6, self.select_on_map: 4, self.duplicates: 4, self.classes: 3,
            self.gallery: 3, self.training: 4, self.start: 3, self.slices: 2, self.what_if: 1,
        }  # fmt: skip
        self.chosen.choices(list(actions), list(actions.values()))[0]()

    def get(self, kind: str, path: str) -> bytes:
        return self.ask(kind, "GET", path)

    def test(self) -> int:
        return self.chosen.randrange(wide.TESTS)

    def samples(self, n: int) -> list[int]:
        return self.chosen.sample(range(self.n_train), n)

    def class_(self) -> int:
        return self.chosen.randrange(self.n_classes)

    def open_test(self) -> None:
        test = self.test()
        found = json.loads(self.get("explanation: made of", f"/api/tests/{test}/explanation?k=5"))
        self.get("stability", f"/api/tests/{test}/stability?k=5&target={found['target']}")
        self.get("typicality", f"/api/tests/{test}/typicality")
        if self.chosen.random() < 0.2:
            pair = found["pairs"][0]["index"]
            self.get("concepts of a pair", f"/api/tests/{test}/concepts?pair={pair}&target={found['target']}")

    def change_question(self) -> None:
        path = f"/api/tests/{self.test()}/explanation?k=5"
        if self.effects.is_set():
            self.get("explanation: would change", f"{path}&question=would%20change")
        else:
            self.get("explanation: another class", f"{path}&target={self.class_()}&against=runner-up")

    def filter_tests(self) -> None:
        query = self.chosen.choice(
            (
                "wrong=true", f"label={self.class_()}", f"predicted={self.class_()}&wrong=true",
                "order=least%20certain", f"search={self.test()}", "novel=true", "disagree=true",
                f"offset={24 * self.chosen.randrange(40)}",
            )
        )  # fmt: skip
        self.get("list of tests", f"/api/tests?limit=24&{query}")

    def page_of_labels(self) -> None:
        self.ask("ranking, done", "POST", "/api/ranking")
        self.get("labels to check", f"/api/audit?limit=24&offset={24 * self.chosen.randrange(20)}")

    def mark(self) -> None:
        action = self.chosen.choice(("remove", "keep", "flag", "relabel"))
        label = self.class_() if action == "relabel" else None
        body = {"action": action, "label": label, "samples": self.samples(self.chosen.choice((1, 1, 10)))}
        self.ask("mark", "POST", "/api/changes", body)
        self.marked += 1
        if self.chosen.random() < 0.5:
            self.ask("what changes, first order", "POST", "/api/whatif/first", {"saved": True})
        if self.chosen.random() < 0.9 or self.marked > 5:  # the list of all visitors stays short
            self.ask("undo", "POST", "/api/changes/undo")
            self.marked -= 1

    def colour_map(self) -> None:
        self.ask("map, done", "POST", "/api/map?method=pca")
        self.get("points of the map", "/api/map/points?method=pca")
        by = self.chosen.choice((*COLOURS, f"score&test={self.test()}"))
        self.get("colours of the map", f"/api/map/colours?by={by.replace(' ', '%20')}")

    def select_on_map(self) -> None:
        chosen = ",".join(map(str, self.samples(24)))
        self.get("samples of the map", f"/api/map/samples?training={chosen}&tests={self.test()}")
        self.get("tests that a sample supports", f"/api/map/supported/{self.samples(1)[0]}")

    def duplicates(self) -> None:
        self.ask("duplicates, done", "POST", "/api/duplicates")
        self.get("duplicates", "/api/duplicates?limit=24")

    def classes(self) -> None:
        self.get("classes", "/api/classes")
        one, other = self.chosen.sample(range(self.n_classes), 2)
        self.ask("classes compared", "POST", f"/api/comparison?one={one}&other={other}")

    def gallery(self) -> None:
        self.ask("gallery of concepts", "POST", f"/api/gallery?limit=6&offset={6 * self.chosen.randrange(4)}")

    def training(self) -> None:
        self.get("list of training samples", f"/api/training?limit=24&label={self.class_()}")

    def start(self) -> None:
        for kind, path in (("page", "/"), ("info", "/api/info"), ("confusion matrix", "/api/confusion")):
            self.get(kind, path)
        self.get("change list", "/api/changes")
        self.get("list of tests", "/api/tests?limit=6&wrong=true")

    def slices(self) -> None:
        name = f"visitor {self.number}"
        samples = sorted(self.samples(50))
        body = {"name": name, "of": "training", "samples": samples}
        self.ask("save a slice", "POST", "/api/slices", body)
        self.get("slices", "/api/slices")
        self.get("slices compared", f"/api/slices/compare?names={name.replace(' ', '%20')}")

    def what_if(self) -> None:
        body = {"test": self.test(), "remove": self.samples(10)}
        self.ask("what if of 10 samples", "POST", "/api/whatif", body)


class Record:
    """Times, errors and memory, written every minute."""

    def __init__(self, results: Path, pid: int, clients: int, once: dict[str, float]) -> None:
        self.results, self.pid, self.lock = results, pid, threading.Lock()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []
        self.minutes: list[dict[str, float]] = []
        self.head = {
            "machine": describe(), "niceness": os.nice(0), "clients": clients, "thinking": THINKING,
            "samples": wide.SHAPE, "tests": wide.TESTS, "computed_once_seconds": once,
        }  # fmt: skip

    def note(self, kind: str, seconds: float, error: str | None) -> None:
        with self.lock:
            self.seconds[kind].append(seconds)
            if error is not None:
                self.errors.append(f"{kind}: {error}"[:300])

    def write(self, effects: bool) -> None:
        with self.lock:
            seconds = {kind: list(all_) for kind, all_ in self.seconds.items()}
            errors = list(self.errors)
        requests = sum(map(len, seconds.values()))
        self.minutes.append(
            {
                "requests": requests, "errors": len(errors), "effects": effects,
                "resident_MiB": round(resident(self.pid), 1), "load": round(os.getloadavg()[0], 1),
            }
        )  # fmt: skip
        kinds = {
            kind: {"n": len(all_), **dict(zip(("p50", "p95", "p99"), quantiles(all_), strict=True))}
            for kind, all_ in sorted(seconds.items())
        }
        data = {**self.head, "requests": requests, "errors": len(errors), "first_errors": errors[:5]}
        store.write_text(
            self.results, json.dumps({**data, "seconds": kinds, "minutes": self.minutes}, indent=1) + "\n"
        )


def quantiles(seconds: list[float]) -> list[float]:
    """Return the 50th, 95th and 99th percentile, to a millisecond."""
    return [round(float(one), 3) for one in np.quantile(seconds, (0.5, 0.95, 0.99))]


def run(cache: Path, minutes: float, clients: int, results: Path) -> None:
    """Serve the large project to visitors; ``results`` is a JSON file that is written every minute."""
    saved = wide.make(cache / "wide")
    with served(saved, "--trust") as (port, pid, _):
        once, first = {}, Client(port, timeout=900)
        for method, path in COMPUTED_ONCE:
            start = time.perf_counter()
            first.read(method, path)
            once[path] = round(time.perf_counter() - start, 2)
            print(f"- {path}: {once[path]:.1f} s", flush=True)
        record, effects = Record(results, pid, clients, once), threading.Event()
        end = time.perf_counter() + 60 * minutes
        threads = [
            threading.Thread(target=_visit, args=(port, number, effects, record, end))
            for number in range(clients)
        ]
        threading.Thread(target=_fit_effects, args=(port, effects, record), daemon=True).start()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(60, max(1, end - time.perf_counter())))
            record.write(effects.is_set())
    publish("soak", table(json.loads(results.read_text())))


def table(known: dict[str, Any]) -> str:
    """Return the table in Markdown: one row per kind of request, in seconds."""
    rows = [
        (kind, f"{one['n']:,}", *(f"{one[p]:.2f}" for p in ("p50", "p95", "p99")))
        for kind, one in known["seconds"].items()
    ]
    return markdown(("request", "n", "p50, s", "p95, s", "p99, s"), rows)


def _fit_effects(port: int, effects: threading.Event, record: Record) -> None:
    start = time.perf_counter()
    Client(port, timeout=3600).stream("/api/effects")
    record.head["effects_fitted_seconds"] = round(time.perf_counter() - start, 1)
    effects.set()


def _visit(port: int, number: int, effects: threading.Event, record: Record, end: float) -> None:
    client = Client(port, timeout=300)

    def ask(kind: str, method: str, path: str, body: object = None) -> bytes:
        nonlocal client
        start, error = time.perf_counter(), None
        try:
            content = client.read(method, path, body)
            if b'"error"' in content[-400:]:
                raise RuntimeError(content[-400:])
            return content
        except Exception as wrong:
            error, client = f"{type(wrong).__name__}: {wrong}", Client(port, timeout=300)
            raise
        finally:
            record.note(kind, time.perf_counter() - start, error)

    visitor = Visitor(ask, number, effects)
    time.sleep(visitor.chosen.uniform(0, THINKING[1]))
    while time.perf_counter() < end:
        try:
            visitor.act()
        except Exception as error:
            print(f"- visitor {number}: {error}", flush=True)
        time.sleep(visitor.chosen.uniform(*THINKING))
