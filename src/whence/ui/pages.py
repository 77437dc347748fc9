"""The explorer's page, in two forms: live, asking for its data; and as one file with everything inside."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from tqdm.auto import tqdm

from whence import __version__
from whence.explanation.page import named
from whence.pages.policy import of_file
from whence.pages.style import percent, signed
from whence.ui.explorer import Explorer

CITATION = (
    "Galip Ümit Yolcu, Moritz Weckbecker, Thomas Wiegand, Wojciech Samek, Sebastian Lapuschkin: "
    "Sparse, Efficient and Explainable Data Attribution with DualXDA. "
    "Transactions on Machine Learning Research, 2025, arXiv:2402.12118"
)
SCRIPTS = (
    "dom.js",
    "maps.js",
    "source.js",
    "charts.js",
    "panels.js",
    "audit.js",
    "list.js",
    "whatif.js",
    "main.js",
)
"""The page's modules, each importing only from those before it."""


def live_page(explorer: Explorer) -> str:
    """Render the page that asks the server."""
    return _render(report=False, info=explorer.info())


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
) -> str:
    """Render the page with some test samples inside, which needs no server and no network.

    Parameters
    ----------
    explorer
        What is shown.
    tests
        Places of the test samples.
    k
        Proponents and opponents of each.
    n_audit
        Training samples in the audit queue.
    notes
        Of some of the tests, by their places.
    """
    info = explorer.info()
    shown = tqdm(tests, "writing", disable=not explorer.project.explainer.show_progress or len(tests) < 4)
    rows = explorer.summaries(explorer.project.check_tests(list(tests)))
    explanations = {index: explorer.explain(index, k) for index in shown}
    strongest = {index: why["pairs"][0]["index"] for index, why in explanations.items() if why["pairs"]}
    concepts = {index: explorer.concepts(index, pair) for index, pair in strongest.items()}
    data = {
        "info": info,
        "rows": rows,
        "explanations": explanations,
        "concepts": concepts,
        "audit": explorer.suspects(0, n_audit),
        "classes": explorer.classes(),
        "notes": {index: note._asdict() for index, note in (notes or {}).items()},
    }
    script, style = bundle(), _read("explorer.css")
    return _render(
        report=True,
        info=info,
        rows=rows,
        explanations=explanations,
        data=embedded(data),
        script=script,
        style=style,
        policy=of_file(style, script),
    )


def embedded(data: Any) -> str:
    """Write data as JSON that can stand inside a page: nothing in it ends the element or begins another."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def bundle() -> str:
    """Join the modules into one script, for a page that is opened from disk, where imports are forbidden."""
    joined = "\n".join(_read(name) for name in SCRIPTS)
    without = re.sub(r"^import .*?;\n", "", joined, flags=re.MULTILINE)
    return re.sub(r"^export ", "", without, flags=re.MULTILINE)


def _render(**context: Any) -> str:
    environment = Environment(
        loader=PackageLoader("whence.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"named": named, "percent": percent, "signed": signed}
    page = environment.get_template("explorer.html")
    return page.render(citation=CITATION, version=__version__, **context)


def _read(name: str) -> str:
    return resources.files("whence.ui").joinpath("static", name).read_text(encoding="utf-8")
