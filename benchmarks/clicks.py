"""The time from a click in a real browser to the drawn answer, and the CPU time of the server."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import wide
from benchmarks.explorer import load, served
from benchmarks.faults.users import visiting
from benchmarks.machine import describe
from benchmarks.tables import markdown, publish
from whence.app import demo
from whence.core import store

ROUNDS = 20
TABS = "start", "explore", "audit", "map", "duplicates", "classes", "concepts", "whatif"
# From the browser's time of the event to the frame after the one in which the answer is there.
_ARM = """before => {
  const there = () => DRAWN;
  window.answered = new Promise(done => addEventListener("pointerdown", event => {
    const frame = () => requestAnimationFrame(
      there() ? () => done(performance.now() - event.timeStamp) : frame);
    requestAnimationFrame(frame);
  }, {capture: true, once: true}));
}"""
_TITLE = "document.querySelector('#explanation h2')?.textContent"
_DRAWN = f"{_TITLE} !== before && !document.querySelector('#explanation').ariaBusy"
_MARK = "document.querySelector('#explanation .card.chosen .mark')?.textContent"
_RANGE = "document.querySelector('#range')?.textContent"


class Watch:
    """Clicks that are timed, by kind."""

    def __init__(self, page: Any, pid: int) -> None:
        self.page, self.pid = page, pid
        self.milliseconds: dict[str, list[float]] = defaultdict(list)
        self.cpu: dict[str, list[float]] = defaultdict(list)

    def click(self, kind: str, where: str, drawn: str, before: str | None = None) -> None:
        """Click, and wait until a JavaScript expression of ``before``, a text of the page, is true."""
        text = None if before is None else self.page.evaluate(f"() => {before}")
        self.page.evaluate(_ARM.replace("DRAWN", drawn), text)
        used = _cpu(self.pid)
        self.page.locator(where).first.click()
        self.milliseconds[kind].append(self.page.evaluate("() => window.answered"))
        time.sleep(0.3)  # what arrives after the answer ends before the next click
        self.cpu[kind].append(_cpu(self.pid) - used)

    def results(self) -> dict[str, dict[str, float]]:
        """Return quantiles in milliseconds, and the median of the server's CPU time."""
        return {
            kind: {
                "n": len(all_), "p50": round(float(np.quantile(all_, 0.5))),
                "p95": round(float(np.quantile(all_, 0.95))),
                "server_cpu_p50": round(1e3 * float(np.median(self.cpu[kind]))),
            }
            for kind, all_ in self.milliseconds.items()
        }  # fmt: skip


def run(cache: Path, results: Path) -> None:
    """Time the clicks on the demo and on the large project; what a results file has is not measured again."""
    small = cache / "demo" / "demo.whence"
    if not small.exists():
        demo.run(small.parent, show_progress=False, say=lambda line: None)
    projects: dict[str, Callable[[], Path]] = {
        "demo": lambda: small,
        " × ".join(f"{n:,}" for n in wide.SHAPE): lambda: wide.make(cache / "wide"),
    }
    known = json.loads(results.read_text()) if results.exists() else {}
    for name, saved in projects.items():
        if name in known:
            continue
        at_start = load()
        with served(saved(), "--trust") as (port, pid, _), visiting(port) as page:
            watch = Watch(page, pid)
            _visit(watch)
        known[name] = {"load": [at_start, load()], "milliseconds": watch.results()}
        known["machine"] = describe()
        store.write_text(results, json.dumps(known, indent=1) + "\n")
    publish("clicks", table(known))


def table(known: dict[str, Any]) -> str:
    """Return the table in Markdown: one row per kind of click, milliseconds of each project."""
    projects = [name for name in known if name != "machine"]
    cells = [known[name]["milliseconds"] for name in projects]
    rows = [
        (
            kind,
            *(
                f"{cell[kind]['p50']:.0f}, {cell[kind]['p95']:.0f}, {cell[kind]['server_cpu_p50']:.0f}"
                for cell in cells
            ),
        )
        for kind in cells[0]
    ]
    return markdown(("p50, p95, CPU of the server; ms", *projects), rows)


def _visit(watch: Watch) -> None:
    page = watch.page
    page.set_default_timeout(600_000)
    for tab in TABS:  # what is computed once
        page.click(f"#tab-{tab}")
        page.wait_for_function(_shown(tab), timeout=600_000)
    for _ in range(ROUNDS // 4):
        for tab in TABS:
            watch.click(f"open {tab} again", f"#tab-{tab}", f"({_shown(tab)})()")
    page.click("#tab-explore")
    page.wait_for_function(_shown("explore"))
    time.sleep(5)
    for i in range(ROUNDS):
        watch.click("open a test", f"#tests li:nth-child({i + 3}) button", _DRAWN, _TITLE)
    page.locator("#tests li:nth-child(1) button").click()
    time.sleep(3)
    for i in range(ROUNDS):
        watch.click("next test", "#next-test", _DRAWN, _TITLE)
        card = f"#explanation .side:first-child li.card:nth-child({i % 5 + 1})"
        watch.click("choose a pair", f"{card} button", f"document.querySelector('{card}.chosen')")
        watch.click("mark", "#remove", _MARK)
        watch.click("undo", "#undo", f"!{_MARK}")
    for _ in range(ROUNDS // 2):
        watch.click("filter", "#wrong", f"{_RANGE} !== before", _RANGE)
        page.wait_for_timeout(500)
        watch.click("filter", "#wrong", f"{_RANGE} !== before", _RANGE)


def _shown(tab: str) -> str:
    panel = f"document.querySelector('#{tab}:not([hidden])')"
    return f"() => {panel}?.childElementCount && !{panel}.querySelector('.busy, [aria-busy]')"


def _cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
