"""What ``whence audit`` does: a view of the training set, printed or written to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from whence.app.opening import Saved, as_class
from whence.app.outputs import check_file, write_out
from whence.app.telling import say
from whence.audit import class_view, coreset, shared_evidence, strange, wrong_labels
from whence.audit.access import refuse_documents
from whence.core import store
from whence.core.columns import require_parquet
from whence.core.display import counted, plain_line
from whence.errors import InvalidInputError
from whence.features import as_float32, taken

VIEWS = {
    "labels": (".csv", ".parquet", ".json"),
    "classes": (".json",),
    "coreset": (".csv", ".parquet", ".json"),
    "shortcut": (".json",),
    "strange": (".json",),
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
    """Make a view and print it, and write it where a file is named.

    Parameters
    ----------
    saved
        The explainer with its data.
    view
        "labels" that may be wrong, "classes" at a glance, a "coreset" of the training set by the tests,
        the samples that carry a class as a "shortcut" would, or "strange" tests that nothing there is like.
    ranking, n
        Of labels: what they are ranked by, and how many are listed.
    share
        Of a coreset: the part of the training set to keep.
    target
        Of a shortcut: the class.
    out
        A file to write to: .csv, .parquet or .json.
    as_json
        Print JSON instead of a table.
    """
    # What is wrong with a view or its file is said before any work is done for it.
    if view not in VIEWS:
        raise InvalidInputError(f"'view' must be one of {', '.join(VIEWS)}. Got {view!r}.")
    if out is not None:
        check_file(out, VIEWS[view])
        if out.suffix == ".parquet":
            require_parquet()
    project = saved.open()
    explainer = project.explainer
    refuse_documents(explainer)  # before features are read
    if view == "labels":
        found: Any = wrong_labels(explainer, ranking=ranking, features=project.train_bank, n=n)
    elif view == "classes":
        found = class_view(explainer)
    elif view == "coreset":
        tests = project.test_bank
        rows = taken(as_float32(tests.features), tests.valid)
        found = coreset(explainer, share=share, features=np.asarray(rows))
    elif view == "strange":
        rows = as_float32(project.test_bank.features)
        found = strange(explainer, features=np.asarray(rows), training=project.train_bank)
    else:
        chosen = as_class(target, explainer.task_)
        if chosen is None:
            raise InvalidInputError("'target' must name the class whose shared evidence is looked for.")
        found = shared_evidence(explainer, target=chosen, features=project.train_bank, k=n)
    plain = found.to_dict()
    if out is not None:
        write_out(out, lambda path: _write(found, plain, path))
        say(f"Wrote {out}")
    say(json.dumps(plain, indent=1) if as_json else _table(view, found))


def _table(view: str, found: Any) -> str:
    if view == "coreset":
        held = len(found.indices)
        first = ", ".join(map(str, found.indices[:20].tolist())) + " …" * (held > 20)
        return f"{counted(held, 'sample')} to keep, the first: {first}"
    if view == "shortcut":
        lines = [
            f"Training samples that carry what '{plain_line(found.class_name)}' shares, at C = {found.C:.3g}:"
        ]
        pairs = zip(found.samples.tolist(), found.scores.tolist(), strict=True)
        return "\n".join([*lines, *(f"  {score:+.3g}  training sample {i}" for i, score in pairs)])
    return str(found)


def _write(found: Any, plain: dict[str, Any], out: Path) -> None:
    """Write a view to a file by its ending."""
    if out.suffix == ".json":
        store.write_text(out, json.dumps(plain, indent=1))
    elif out.suffix == ".csv":
        found.to_csv(out)
    else:
        found.to_parquet(out)
