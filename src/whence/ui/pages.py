"""The explorer's page in two forms: live, which requests its data; and as one self-contained file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from whence import __version__
from whence.core.progress import bar
from whence.errors import InvalidInputError
from whence.pages.render import Look, read, render
from whence.ui.classes import classes
from whence.ui.explorer import Explorer
from whence.ui.solved import compares, withheld
from whence.ui.viewed import Viewed

SCRIPTS = (
    "dom", "address", "changelist", "selection", "maps", "source", "charts", "panels", "marking",
    "prediction", "audit", "mapcolours", "mapcanvas", "landscape", "duplicates", "classes", "gallery",
    "start", "list", "slices", "changes", "side", "keys", "upload", "main",
)  # fmt: skip
"""The page's modules; each imports only from those before it."""

STYLES = ("explorer", "side", "upload", "map")
"""The page's style sheets, joined in this order."""


def live_page(explorer: Explorer | Viewed) -> str:
    """Render the page that requests its data from the server."""
    return _render(live_look(), report=False, info=explorer.info())


@cache
def live_look() -> Look:
    """Return the style and the script of the live page."""
    style = "".join(read(__package__, f"templates/{name}.css") for name in STYLES)
    return Look(style, bundle(), live=True)


class Note(NamedTuple):
    """Why a test sample is in a report."""

    heading: str
    text: str


def report_page(
    explorer: Explorer,
    tests: Sequence[int],
    k: int = 5,
    n_audit: int = 100,
    notes: Mapping[int, Note] | None = None,
    *,
    effects: bool = False,
) -> str:
    """Render the page with some test samples inside; it needs no server and no network.

    Parameters
    ----------
    explorer : the explorer to show
    tests : indices of the test samples
    k : proponents and opponents per test
    n_audit : training samples in the audit queue
    notes : notes on some of the tests, by index
    effects : fit effects, and show what would change next to what logits are made of
    """
    if effects and len(explorer.questions) < 2:
        raise InvalidInputError(
            f"'effects' must be False for this explainer. It answers one question only, "
            f"{explorer.questions[0]!r}."
        )
    if effects:
        explorer.solved.effects.result()
    chosen = explorer.project.read_tests(list(tests))
    typicality = {i: explorer.typicality(i) for i in chosen} if compares(explorer.project) else {}
    rows = explorer.tests.summaries(explorer.project.check_tests(list(tests)))
    shown = bar(
        "Writing explanations",
        len(tests),
        "tests",
        parts=tests,
        show=explorer.project.attributor.show_progress and len(tests) >= 4,
    )
    explanations, changes = {}, {}
    for index in shown:
        explanations[index] = explorer.explain(index, k)
        if effects:
            changes[index] = explorer.explain(index, k, question="would change")
    single = not withheld(explorer.project)
    strongest = {i: why["pairs"][0]["index"] for i, why in explanations.items() if why["pairs"] and single}
    whole = explorer.task.has_classes and single  # only then can labels be audited
    data = {
        "info": explorer.info(),
        "rows": rows,
        "explanations": explanations,
        "changes": changes,
        "typicality": typicality,
        "stability": {index: explorer.stability(index, k) for index in explanations if whole},
        "concepts": {index: explorer.concepts(index, pair) for index, pair in strongest.items()},
        "audit": explorer.training.suspects(0, n_audit) if whole else None,
        "classes": classes(explorer) if whole else None,
        "notes": {index: note._asdict() for index, note in (notes or {}).items()},
    }
    return _render(replace(live_look(), live=False), report=True, **data, data=embed(data))


def embed(data: Any) -> str:
    """Write data as JSON that is safe inside a page: nothing in it ends the element or begins another.

    Each picture is written once, in ``pictures``; each ``src`` is an index into it.
    """
    pictures: dict[str, int] = {}
    written = {**_shared(to_jsonable_python(data), pictures), "pictures": list(pictures)}
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shared(value: Any, pictures: dict[str, int]) -> Any:
    """Replace pictures by their indices, and collect those that are new."""
    if isinstance(value, list):
        return [_shared(part, pictures) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: pictures.setdefault(part, len(pictures)) if key == "src" else _shared(part, pictures)
        for key, part in value.items()
    }


def bundle() -> str:
    """Join the modules into one script: a page opened from disk may not import."""
    joined = "\n".join(read(__package__, f"static/{name}.js") for name in SCRIPTS)
    without = re.sub(r"^import .*?;\n", "", joined, flags=re.MULTILINE)
    return re.sub(r"^export ", "", without, flags=re.MULTILINE)


def _render(look: Look, **context: Any) -> str:
    return render("explorer.html", [__package__], look, version=__version__, **context)
