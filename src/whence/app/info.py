"""What ``whence info`` does: tell what a saved explainer is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whence.app.telling import say
from whence.attributors import DualDA, load
from whence.core import store
from whence.core.resources import in_words
from whence.core.words import plain_line
from whence.errors import StoreError
from whence.project import SUFFIX


def run(path: Path, *, as_json: bool) -> None:
    """Print the facts of a saved explainer, one per line or as JSON."""
    found = facts(path)
    if as_json:
        say(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            say(f"{name:16} {value}")


def facts(path: Path) -> dict[str, Any]:
    """Tell what a saved explainer is, without its model and data."""
    if not path.is_file():
        raise StoreError(f"There is no explainer at '{path}'. 'whence fit' writes one.")
    manifest = store.read(path)[1]
    found: dict[str, Any] = {"file": str(path), "size": in_words(path.stat().st_size)}
    found["method"] = manifest.get("method")
    if manifest.get("method") == DualDA.name:
        explainer = load(path)
        assert isinstance(explainer, DualDA)
        names = explainer.class_names_
        found |= {
            "samples": explainer.n_train_,
            "classes": explainer.n_classes_,
            "class names": None if names is None else ", ".join(map(plain_line, names)),
            "support vectors": len(explainer.support_),
            "features": int(explainer.vectors_.shape[1]),
            "C": explainer.C_,
            "duality gap": explainer.gap_,
            "agreement": explainer.agreement_,
            "layer": (manifest["fingerprint"] or {}).get("layer"),
        }
    beside = path.with_name(path.name + SUFFIX)
    found["configuration"] = str(beside) if beside.exists() else None
    return found
