"""The command ``export``: the corrected training set, and a script that measures what the changes bring."""

from __future__ import annotations

from pathlib import Path

from whence.app.options import Saved
from whence.app.terminal import check_folder, say
from whence.core.display import counted
from whence.project import export_changes


def run(saved: Saved, out: Path, train: str | None) -> None:
    """Write the files and print their names."""
    check_folder(out)
    project = saved.open()
    counts = {action: len(project.work.marks().of(action)) for action in ("remove", "relabel")}
    for path in export_changes(project, out, train=train):
        say(f"Wrote {path}")
    say(
        f"{counted(counts['remove'], 'sample')} removed, {counts['relabel']:,} relabelled. "
        f"Measure the gain: python {out / 'retrain.py'}"
    )
