"""Finished cells of an evaluation's tables, each kept in the cache as soon as it is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from whence.core import contents, store
from whence.core.arrays import Array
from whence.core.cache import Cache, Slot
from whence.errors import StoreError
from whence.evaluate.suite.results import ERROR, Row


class Cells:
    """Keeps the rows of a metric and a method under what they depend on.

    Parameters
    ----------
    cache
        For the cells.
    common
        What all of them depend on: data, seed, training, code, versions.
    """

    def __init__(self, cache: Cache, common: Mapping[str, Any]) -> None:
        self.cache, self.common = cache, common

    def slot(self, parts: Mapping[str, Any]) -> Slot:
        """Give the place of a cell; ``parts`` say which it is."""
        both = {**self.common, **parts}
        texts = {name: json.dumps(value, sort_keys=True, default=str) for name, value in both.items()}
        return self.cache.slot("cell", texts)

    def read(self, parts: Mapping[str, Any]) -> list[Row] | None:
        """Give a cell's rows; None where it is not finished, or its file is damaged."""
        slot = self.slot(parts)
        try:
            text = (slot.path / "rows.json").read_text(encoding="utf-8") if slot.complete else ""
            return contents.manifest(list[Row], json.loads(text))
        except (OSError, ValueError, RecursionError, StoreError):
            return None

    def scores(self, parts: Mapping[str, Any]) -> Array | None:
        """Give the scores that were kept with a cell, if any."""
        try:
            arrays, _ = store.read(self.slot(parts).path / "scores.safetensors")
        except FileNotFoundError:
            return None
        contents.check_names(arrays, {"scores"})
        return arrays["scores"]

    def write(self, rows: list[Row], parts: Mapping[str, Any], title: str, scores: Array | None) -> None:
        """Keep a cell's rows, and scores where they are asked for later; a failed one is tried again."""
        if any(row.quantity == ERROR for row in rows):
            return
        slot = self.slot(parts)
        with slot.locked(), slot.filling(title) as folder:
            store.write_text(folder / "rows.json", json.dumps(rows, allow_nan=False))
            if scores is not None:
                store.write(folder / "scores.safetensors", {"scores": np.asarray(scores)}, {})
