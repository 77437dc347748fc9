"""``whence evaluate``: say what a protocol will cost, run it, and write its results and its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from whence.evaluate import datasets, page, protocol, results
from whence.evaluate.costs import plan
from whence.evaluate.run import run
from whence.evaluate.summary import Summary


def evaluate(
    name: str,
    data: Path | None,
    out: Path,
    methods: list[str] | None = None,
    *,
    dry_run: bool = False,
    show_progress: bool = True,
    say: Callable[[str], Any] = print,
) -> Path | None:
    """Run a protocol; give the page, or None for a dry run.

    Parameters
    ----------
    name
        Of a packaged protocol, or the path of a TOML file.
    data
        Folder with the data sets; None is ``WHENCE_DATA`` or ``~/.cache/whence/data``.
    out
        Folder for results, page, models and finished cells; a run that was stopped goes on there.
    methods
        Names of the methods to keep; None keeps all.
    dry_run
        Only say what would be done.
    show_progress
        Show progress bars.
    say
        Takes every line for the user.
    """
    wanted = protocol.load(name)
    if methods:
        wanted = wanted.only(methods)
    _say_plan(wanted, say)
    if dry_run:
        return None
    results.require()
    folder = datasets.default_folder() if data is None else data
    found = run(wanted, folder, out, show_progress=show_progress, say=say)
    page.write(out / "index.html", found)
    _say_scores(Summary(found), say)
    return out / "index.html"


def _say_plan(wanted: protocol.Protocol, say: Callable[[str], Any]) -> None:
    """Print what will be done, and what it costs."""
    items = plan(wanted)
    say(f"{wanted.name}: {wanted.title}")
    for item in items:
        say(f"  {item.what:70} {item.times:5}  {item.seconds:9,.0f} s")
    total = sum(item.seconds for item in items)
    minutes = f"{total / 60:,.0f} minutes on one free core"
    say(f"  Estimate: {total:,.0f} CPU-seconds, {minutes}; less where cells are finished already.")


def _say_scores(summary: Summary, say: Callable[[str], Any]) -> None:
    """Print the table of scores."""
    titles = [column.title for column in summary.columns]
    say("  ".join([f"{'':28}", *(f"{title:>18}" for title in titles)]))
    for method, cells in summary.table():
        shown = ["failed" if c.failed else "–" if c.value is None else f"{c.value:.3f}" for c in cells]
        say("  ".join([f"{method.label:28}", *(f"{text:>18}" for text in shown)]))
