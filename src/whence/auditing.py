"""What ``whence audit`` does: a view of the training set, printed or written to a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from whence.audit import class_view, coreset, shared_evidence, wrong_labels
from whence.commands import as_class
from whence.errors import InvalidInputError
from whence.features import as_float32, taken
from whence.session import Session
from whence.terminal import plain_line

VIEWS = ("labels", "classes", "coreset", "shortcut")


def run(
    session: Session,
    view: str,
    *,
    ranking: str | None,
    n: int,
    share: float,
    target: str | None,
    out: Path | None,
    as_json: bool,
) -> str:
    """Make a view; give what to print.

    Parameters
    ----------
    session
        The explainer with its data.
    view
        "labels" that may be wrong, "classes" at a glance, a "coreset" of the training set by the tests,
        or the samples that carry a class as a "shortcut" would.
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
    if view not in VIEWS:
        raise InvalidInputError(f"'view' must be one of {', '.join(VIEWS)}. Got {view!r}.")
    explainer = session.explainer
    if view == "labels":
        found: Any = wrong_labels(explainer, ranking=ranking, features=session.train_bank, n=n)
    elif view == "classes":
        found = class_view(explainer)
    elif view == "coreset":
        tests = session.test_bank
        rows = taken(as_float32(tests.features), tests.valid)
        found = coreset(explainer, share=share, features=np.asarray(rows))
    else:
        chosen = as_class(target, explainer)
        if chosen is None:
            raise InvalidInputError("'target' must name the class whose shared evidence is looked for.")
        found = shared_evidence(explainer, target=chosen, features=session.train_bank, k=n)
    plain = found.to_dict()
    said = json.dumps(plain, indent=1) if as_json else _table(view, found)
    return said if out is None else f"{_written(found, plain, out)}\n{said}"


def _table(view: str, found: Any) -> str:
    if view == "coreset":
        held = len(found.indices)
        return f"{held:,} samples to keep, the first: {', '.join(map(str, found.indices[:20].tolist()))} …"
    if view == "shortcut":
        lines = [
            f"Training samples that carry what '{plain_line(found.class_name)}' shares, at C = {found.C:.3g}:"
        ]
        pairs = zip(found.samples.tolist(), found.scores.tolist(), strict=True)
        return "\n".join([*lines, *(f"  {score:+.3g}  training sample {i}" for i, score in pairs)])
    return str(found)


def _written(found: Any, plain: dict[str, Any], out: Path) -> str:
    """Write a view to a file by its ending."""
    ways: dict[str, Callable[[Path], object]] = {
        ".json": lambda path: path.write_text(json.dumps(plain, indent=1), encoding="utf-8")
    }
    for ending, name in ((".csv", "to_csv"), (".parquet", "to_parquet")):
        if hasattr(found, name):
            ways[ending] = getattr(found, name)
    if out.suffix not in ways:
        raise InvalidInputError(f"'out' must end in {', '.join(ways)} for this view. Got '{out}'.")
    if not out.resolve().parent.is_dir():
        raise InvalidInputError(f"'out' must be in a folder that exists. Got '{out}'.")
    ways[out.suffix](out)
    return f"Wrote {out}"
