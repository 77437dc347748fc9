"""What ``whence info`` does: tell what a saved explainer is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whence.app.telling import say
from whence.attribution.surrogate_attributor import SurrogateAttributor
from whence.core import contents, store
from whence.core.display import in_words, plain_line
from whence.errors import StoreError
from whence.explanation.wording import OUTPUTS
from whence.methods import DualDA, Effects, Ensemble, load
from whence.project import SUFFIX
from whence.tasks import Classes

_NAMES = 1_000  # that are listed


def run(path: Path, *, as_json: bool) -> None:
    """Print the facts of a saved explainer, one per line or as JSON."""
    found = facts(path)
    if as_json:
        say(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            if isinstance(value, dict):
                value = plain_line(", ".join(f"{key}={each}" for key, each in value.items()))
            if isinstance(value, list):
                value = plain_line("; ".join(value))
            say(f"{name:16} {value}")


def _listed(names: Sequence[str]) -> str:
    """Write names on one line, of a vocabulary the first ones."""
    left = len(names) - _NAMES
    return ", ".join(map(plain_line, names[:_NAMES])) + (f" … {left:,} more" if left > 0 else "")


def facts(path: Path) -> dict[str, Any]:
    """Return what a saved explainer is, without its model and data."""
    if not path.is_file():
        raise StoreError(f"There is no explainer at '{path}'. 'whence fit' writes one.")
    arrays, manifest = store.read(path)
    with contents.restoring():
        labels, names = arrays.get("labels", arrays.get("labels_")), manifest.get("class_names")
        several = manifest.get("layers") or {}
        found: dict[str, Any] = {
            "file": str(path),
            "size": in_words(path.stat().st_size),
            "method": manifest.get("method"),
            "parameters": manifest.get("parameters"),
            "task": (manifest.get("task") or {}).get("name", Classes.name),
            "samples": None if labels is None else len(labels),
            "class names": None if names is None else _listed(names),
            "layer": (manifest.get("fingerprint") or {}).get("layer"),
            "layers": ", ".join(plain_line(each["name"]) for each in several.get("blocks", [])) or None,
        }
    if manifest.get("method") == Ensemble.name:
        ensemble = load(path)
        assert isinstance(ensemble, Ensemble)
        members = [
            f"{type(member).__name__}, {in_words(member.cache_bytes_)}" for member in ensemble.members_
        ]
        found |= {"samples": ensemble.n_train_, "classes": ensemble.n_classes_, "members": members}
    if manifest.get("bank") is not None:  # to open it would read all of it
        with contents.restoring():
            found |= {"features": f"in {manifest['bank']['name']} of the cache", "C": manifest["C"]}
            found |= {"duality gap": manifest["gap"], "agreement": manifest["agreement"]}
    elif manifest.get("method") in (DualDA.name, Effects.name):
        explainer = load(path)
        assert isinstance(explainer, SurrogateAttributor)
        found |= {
            explainer.task_.outputs: explainer.n_classes_,
            "support vectors": len(explainer.support_),
            "features": explainer.surrogate_.stored.shape[1],
            "C": explainer.C_,
            "duality gap": explainer.gap_,
            "agreement": explainer.agreement_,
        }
        if isinstance(explainer, DualDA) and explainer.history_:
            found["changes"] = [str(change) for change in explainer.history_]
        foretold = explainer.foretold_
        if foretold is not None:
            found |= {
                "effects on": OUTPUTS[foretold.output],
            }
    beside = path.with_name(path.name + SUFFIX)
    found["configuration"] = str(beside) if beside.exists() else None
    return found
