"""The command ``audit``: a view of the training set, printed or written to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from whence.app.options import Saved, as_class
from whence.app.terminal import check_file, say, write_out
from whence.audit import class_view, coreset, novel_inputs, shortcuts, wrong_labels
from whence.audit.access import check_no_documents
from whence.core import store
from whence.core.display import counted, plain_line
from whence.core.files import require_parquet
from whence.errors import InvalidInputError
from whence.features import as_float32, taken
from whence.project import Project

_TABLES = (".csv", ".parquet", ".json")
VIEWS = {
    "labels": _TABLES,
    "duplicates": _TABLES,
    "classes": (".json",),
    "coreset": _TABLES,
    "shortcut": (".json",),
    "novelty": (".json",),
}
"""Views, and the endings of the files that they can be written to."""


def run(
    saved: Saved,
    view: str,
    *,
    ranking: str,
    n: int,
    share: float,
    target: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Make a view and print it, and write it where a file is named."""
    # What is wrong with a view or its file is reported before any work is done for it.
    if view not in VIEWS:
        raise InvalidInputError(f"'view' must be one of {', '.join(VIEWS)}. Got {view!r}.")
    if out is not None:
        check_file(out, VIEWS[view])
        if out.suffix == ".parquet":
            require_parquet()
    project = saved.open()
    check_no_documents(project.explainer)  # before features are read
    result = _view(project, view, ranking, n, share, target)
    text = json.dumps(result.to_dict(), indent=1)
    if out is not None:
        write = {".csv": lambda path: result.to_csv(path), ".parquet": lambda path: result.to_parquet(path)}
        write_out(out, write.get(out.suffix, lambda path: store.write_text(path, text)))
        say(f"Wrote {out}")
    say(text if as_json else _table(view, result))


def _view(project: Project, view: str, ranking: str, n: int, share: float, target: str | None) -> Any:
    explainer = project.explainer
    if view == "labels":
        return wrong_labels(explainer, ranking=ranking, features=project.train_bank, n=n)
    if view == "classes":
        return class_view(explainer)
    if view == "shortcut":
        number = as_class(target, explainer.task_)
        if number is None:
            raise InvalidInputError("'target' must name the class whose shortcut is looked for.")
        return shortcuts(explainer, target=number, features=project.train_bank, k=n)
    if view == "duplicates":
        return project.duplicates
    tests = project.test_bank
    if view == "coreset":
        rows = taken(as_float32(tests.features), tests.valid)
        return coreset(explainer, share=share, features=np.asarray(rows))
    rows = as_float32(tests.features)
    return novel_inputs(explainer, features=np.asarray(rows), training=project.train_bank)


def _table(view: str, result: Any) -> str:
    if view == "coreset":
        n = len(result.indices)
        first = ", ".join(map(str, result.indices[:20].tolist())) + " …" * (n > 20)
        return f"{counted(n, 'sample')} to keep, the first: {first}"
    if view == "shortcut":
        name = plain_line(result.class_name)
        pairs = zip(result.samples.tolist(), result.scores.tolist(), strict=True)
        lines = [f"Training samples that carry what '{name}' shares:"]
        return "\n".join([*lines, *(f"  {score:+.3g}  training sample {i}" for i, score in pairs)])
    return str(result)
