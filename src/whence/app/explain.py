"""What ``whence explain`` does: write what predictions, or an answer, come from, as a page and data."""

from __future__ import annotations

import json
from pathlib import Path

from whence.app.opening import Saved, as_class, places
from whence.app.outputs import check_folder, write_out
from whence.app.telling import say
from whence.core import store
from whence.core.files import replacing


def trace(
    saved: Saved, prompt: str, continuation: str | None, out: Path, *, k: int, max_new_tokens: int
) -> None:
    """Write whence an answer comes into a folder, as a page and data; print the page's path."""
    check_folder(out)
    found = saved.open().trace(prompt, continuation, k, max_new_tokens)

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        store.write_text(folder / "trace.json", json.dumps(found.to_dict(), indent=1))
        found.to_html(folder / "index.html")

    write_out(out, write)
    say((out / "index.html").resolve())


def run(
    saved: Saved, tests: str, out: Path, *, k: int, target: str | None, rules: str | None, effects: bool
) -> None:
    """Write a page, a figure per test and the data of explanations into a folder; print the page's path."""
    check_folder(out)  # before the explainer is read: a mistake costs no time
    project = saved.open(effects=effects)
    chosen = places(tests, project)
    found = project.explain(chosen, k, as_class(target, project.attributor.task_), rules)

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for place, why in zip(chosen, found, strict=True):
            for number, each in enumerate(why.inputs.values()):
                part = f"-{number}" if number else ""  # names of inputs need not be names of files
                with replacing(folder / f"test-{place}{part}.png") as file:
                    each.plot().savefig(file, format="png")
        data = [{"test": place} | why.to_dict() for place, why in zip(chosen, found, strict=True)]
        store.write_text(folder / "explanations.json", json.dumps(data, indent=1))
        found.to_html(folder / "index.html")

    write_out(out, write)
    say((out / "index.html").resolve())
