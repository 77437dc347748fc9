"""Commands about what was saved: ``info`` describes an explainer, ``cache`` lists and clears a cache."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whence.app.terminal import say
from whence.attribution.base import METHODS, Capabilities
from whence.core import contents, store
from whence.core.cache import Cache
from whence.core.display import counted, in_words, plain_line
from whence.errors import InvalidInputError, StoreError
from whence.explanation.wording import OUTPUTS
from whence.methods import load
from whence.project import SUFFIX
from whence.surrogate.bounds import typical_bound
from whence.tasks import Classes

_NAMES = 1_000  # that are listed


def run(path: Path, *, as_json: bool) -> None:
    """Print the facts of a saved explainer, one per line or as JSON."""
    facts = describe(path)
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = plain_line(", ".join(f"{key}={part}" for key, part in value.items()))
        if isinstance(value, list):
            value = plain_line("; ".join(value))
        say(f"{name:16} {value}")


def describe(path: Path) -> dict[str, Any]:
    """Return what a saved explainer is, without its model and data."""
    if not path.is_file():
        raise StoreError(f"There is no explainer at '{path}'. 'whence fit' writes one.")
    arrays, manifest = store.read(path)
    with contents.restoring():
        method = manifest.get("method")
        labels, names = arrays.get("labels", arrays.get("labels_")), manifest.get("class_names")
        blocks = (manifest.get("layers") or {}).get("blocks", [])
        facts: dict[str, Any] = {
            "file": str(path),
            "size": in_words(path.stat().st_size),
            "method": method,
            "parameters": manifest.get("parameters"),
            "task": (manifest.get("task") or {}).get("name", Classes.name),
            "samples": None if labels is None else len(labels),
            "class names": None if names is None else _listed(names),
            "layer": (manifest.get("fingerprint") or {}).get("layer"),
            "layers": ", ".join(plain_line(block["name"]) for block in blocks) or None,
        }
        if manifest.get("bank") is not None:  # to open it would read all of it
            facts |= {"features": f"in {manifest['bank']['name']} of the cache", "C": manifest["C"]}
            facts |= {
                "duality gap": manifest["gap"],
                "training agreement": manifest["agreement"],
            }
    can = METHODS.get(method).capabilities if method in METHODS else Capabilities()
    if can.members:
        facts |= _of_members(load(path))
    elif manifest.get("bank") is None and (can.dual or can.effects):
        facts |= _of_surrogate(load(path))
    configuration = path.with_name(path.name + SUFFIX)
    facts["configuration"] = str(configuration) if configuration.exists() else None
    return facts


def _of_members(ensemble: Any) -> dict[str, Any]:
    members = [f"{type(member).__name__}, {in_words(member.cache_bytes_)}" for member in ensemble.members_]
    return {"samples": ensemble.n_train_, "classes": ensemble.n_classes_, "members": members}


def _of_surrogate(explainer: Any) -> dict[str, Any]:
    effect = explainer.effect_
    facts = {
        explainer.task_.outputs: explainer.n_classes_,
        "support vectors": len(explainer.support_),
        "features": explainer.surrogate_.stored.shape[1],
        "C": explainer.C_,
        "duality gap": explainer.gap_,
        "bound on logits": typical_bound(explainer.surrogate_) if explainer.capabilities.dual else None,
        "training agreement": explainer.agreement_,
    }
    if explainer.capabilities.dual and explainer.history_:
        facts["changes"] = [str(change) for change in explainer.history_]
    return facts if effect is None else {**facts, "effects on": OUTPUTS[effect.output]}


def _listed(names: Sequence[str]) -> str:
    """Write names on one line, of a vocabulary the first ones."""
    left = len(names) - _NAMES
    return ", ".join(map(plain_line, names[:_NAMES])) + (f" … {left:,} more" if left > 0 else "")


def list_cache(folder: Path) -> None:
    """Print the entries of a cache, newest first."""
    entries = Cache(folder).entries()
    for entry in entries:
        state = "" if entry.complete else ", unfinished"
        age = _age(time.time() - entry.made)
        say(f"{entry.name:25}  {in_words(entry.bytes):>8}  {age:>8}  {entry.title}{state}")
    total = in_words(sum(entry.bytes for entry in entries))
    say(f"{counted(len(entries), 'entry', 'entries')}, {total} in {folder}")


def clear_cache(folder: Path, names: list[str], *, everything: bool) -> None:
    """Remove entries by how their names begin, or all of them."""
    if everything == bool(names):
        raise InvalidInputError("Name the entries to remove, or pass --all. whence cache ls lists them.")
    cache = Cache(folder)
    removed = cache.remove([entry.name for entry in cache.entries()] if everything else names)
    cache.sweep()
    size = in_words(sum(entry.bytes for entry in removed))
    say(f"Removed {counted(len(removed), 'entry', 'entries')}, {size}")


def _age(seconds: float) -> str:
    """Write an age by its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
