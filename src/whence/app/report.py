"""What ``whence report`` does: write the explorer of some tests as one page."""

from __future__ import annotations

from pathlib import Path

from whence.app.opening import Saved, places
from whence.app.outputs import check_file, write_out
from whence.app.telling import say
from whence.core import store
from whence.errors import InvalidInputError
from whence.ui.explorer import Explorer
from whence.ui.pages import report_page


def run(saved: Saved, tests: str, out: Path, *, k: int, effects: bool) -> None:
    """Write a page that opens from disk; print its path."""
    check_file(out)
    project = saved.open()
    if project.attributor.task_.of_documents:
        raise InvalidInputError(
            f"'{saved.explainer}' must hold an explainer of tests with classes or numbers to be reported. It "
            "is of a language model: whence explain --prompt TEXT --out FOLDER writes whence an answer comes "
            "as one page, and whence serve shows it."
        )
    page = report_page(Explorer(project), places(tests, project), k, effects=effects)
    write_out(out, lambda path: store.write_text(path, page))
    say(out.resolve())
