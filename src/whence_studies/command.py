"""The command ``whence evaluate``: plan and run protocols, and write results and pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from whence.app.terminal import check_folder
from whence.errors import WhenceError
from whence_studies.report import page
from whence_studies.report.summary import ResultSummary
from whence_studies.scenes import datasets
from whence_studies.suite import protocol, results
from whence_studies.suite.costs import plan
from whence_studies.suite.merging import join_protocols
from whence_studies.suite.run import run as run_protocol


def run(
    name: str,
    data: Path | None,
    out: Path,
    methods: list[str] | None = None,
    *,
    dry_run: bool = False,
    show_progress: bool = True,
    say: Callable[[str], Any] = print,
) -> list[Path]:
    """Run a protocol, or all protocols of a suite, and return the pages; a dry run has none.

    If a protocol of a suite fails, the error is reported and the others are run.

    Parameters
    ----------
    name
        Name of a packaged protocol or suite, or the path of a TOML file.
    data
        Folder with the data sets; None is ``WHENCE_DATA`` or ``~/.cache/whence/data``.
    out
        Folder for results, page, models and finished cells; a stopped run resumes from it. For a suite it has
        one folder per protocol, and a page per group of protocols.
    methods
        Names of the methods to keep; None keeps all.
    dry_run
        Only report the plan.
    show_progress
        Show progress bars.
    say
        Receives every line for the user.
    """
    if not dry_run:
        check_folder(out)
    wanted = protocol.suite(name)
    several = [protocol.load(one) for one in wanted.protocols]
    if methods:
        several = [one.only(methods) for one in several]
    for one in several:
        _say_plan(one, say)
    if dry_run:
        return []
    results.require()
    folder = datasets.default_folder() if data is None else data
    if len(several) == 1:
        return [_run_one(several[0], folder, out, show_progress, say)]
    pages, failed = [], []
    for one in several:
        try:
            pages.append(_run_one(one, folder, out / one.name, show_progress, say))
        except WhenceError as error:
            say(f"{one.name} could not be run: {error}")
            failed.append(one.name)
    pages += _write_together(wanted, out, say)
    if failed:
        raise WhenceError(f"These protocols failed, with the errors above: {', '.join(failed)}.")
    return pages


def _run_one(
    wanted: protocol.Protocol, folder: Path, out: Path, show_progress: bool, say: Callable[[str], Any]
) -> Path:
    found = run_protocol(wanted, folder, out, show_progress=show_progress, say=say)
    page.write(out / "index.html", found)
    _say_scores(ResultSummary(found), say)
    return out / "index.html"


def _write_together(wanted: protocol.Suite, out: Path, say: Callable[[str], Any]) -> list[Path]:
    """Write the joint pages of a suite's protocols, where all of them have results."""
    pages = []
    for name, together in wanted.together.items():
        parts = [out / Path(one).stem / "results.parquet" for one in together.protocols]
        if missing := [part.parent.name for part in parts if not part.exists()]:
            say(f"{name}: no joint page yet. Results are missing for {', '.join(missing)}.")
            continue
        found = join_protocols([results.read(part) for part in parts], name, together.title)
        results.write(out / f"{name}.parquet", found)
        page.write(out / f"{name}.html", found)
        pages.append(out / f"{name}.html")
    return pages


def _say_plan(wanted: protocol.Protocol, say: Callable[[str], Any]) -> None:
    """Print the plan and its estimated cost."""
    items = plan(wanted)
    say(f"{wanted.name}: {wanted.title}")
    for item in items:
        say(f"  {item.what:70} {item.times:5}  {item.seconds:9,.0f} s")
    total = sum(item.seconds for item in items)
    device = wanted.model.device
    on = f"a small part of it on {device}"
    if device == "cpu":
        on = f"{total / 60:,.0f} minutes on one free core"
    say(f"  Estimate: {total:,.0f} CPU-seconds, {on}; less where cells are finished already.")


def _say_scores(summary: ResultSummary, say: Callable[[str], Any]) -> None:
    """Print the table of scores."""
    titles = [*(column.title for column in summary.columns), "CPU-s" if summary.on_cpu else "seconds"]
    widths = [max(map(len, (m.label for m in summary.methods))), *(max(8, len(title)) for title in titles)]
    lines = [["", *titles]]
    for method, cells in summary.table():
        shown = ["failed" if c.failed else "–" if c.value is None else f"{c.value:.3f}" for c in cells]
        seconds = summary.seconds(method)
        lines.append([method.label, *shown, f"{seconds:.2f}" if seconds else "–"])
    for label, *texts in lines:
        parts = (f"{text:>{width}}" for text, width in zip(texts, widths[1:], strict=True))
        say("  ".join([f"{label:{widths[0]}}", *parts]))
