"""Encoding of texts by a language model, cached so that each text is encoded once."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.core import contents, store
from whence.core.cache import Cache
from whence.core.fingerprint import key_of, source
from whence.core.progress import bar
from whence.errors import StoreError
from whence_studies.scenes.networks.base import TextInputs
from whence_studies.scenes.texts import LENGTH, Backbone, States, features, packed, states

_BATCH = 32
_MODULES = ("encoder", "texts")  # modules whose code the encoded texts depend on
_KIND = "texts"  # kind of cache entries


class Encoder:
    """Converts texts to inputs of networks, with a cache: each text is encoded once.

    Inputs are the language model's features for a linear head, and the states that enter the last block for a
    network with this block.

    Parameters
    ----------
    inputs
        The kind of inputs.
    folder
        Folder with one subfolder per language model.
    cache
        Cache for encoded texts.
    show_progress
        Show a progress bar.
    """

    def __init__(self, inputs: TextInputs, folder: Path, cache: Cache, show_progress: bool) -> None:
        self.inputs, self.cache, self.show_progress = inputs, cache, show_progress
        self.folder = folder / inputs.model
        # (tokens, d) each, one row for a head; from every entry of the same code and model
        self._known: dict[str, States] = {}
        for entry in cache.entries():
            if entry.kind == _KIND and self._parts.items() <= entry.parts.items() and entry.complete:
                try:
                    self._known |= _read(cache.folder / entry.name / "states.safetensors")
                except StoreError:
                    continue  # damaged: encoded again

    @cached_property
    def backbone(self) -> Backbone:
        """The language model, loaded on first use."""
        return Backbone(self.folder, self.inputs.last)

    @cached_property
    def _parts(self) -> dict[str, str]:
        """What identifies the encoding: the files of the language model and the code."""
        held = {}
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            with open(path, "rb") as file:
                held[str(path.relative_to(self.folder))] = hashlib.file_digest(file, "sha256").hexdigest()
        return {
            "code of reading": source(*(f"whence_studies.scenes.{module}" for module in _MODULES)),
            "language model": key_of(held),
            "what is read": f"{self.inputs} {LENGTH}",
        }

    def __call__(self, texts: list[str]) -> Tensor:
        """Encode texts: features (N, d), or states (N, T, d + 1) with 1 for a token in the last channel."""
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if missing:
            self._read(missing)
        rows = [self._known[key] for key in keys]
        return packed(rows) if self.inputs.states else torch.from_numpy(np.concatenate(rows))

    def _read(self, texts: dict[str, str]) -> None:
        left, backbone, new = list(texts.items()), self.backbone, dict[str, Any]()
        read = states if self.inputs.states else features
        with bar("Reading texts", len(left), "texts", show=self.show_progress) as watched:
            for start in range(0, len(left), _BATCH):
                batch_keys, part = zip(*left[start : start + _BATCH], strict=True)
                new |= zip(batch_keys, read(backbone, list(part)), strict=True)
                watched.update(len(part))
        self._known |= new
        keys = sorted(new)  # as a manifest has them
        arrays, lengths = {"rows": np.concatenate([new[key] for key in keys])}, {k: len(new[k]) for k in keys}
        slot = self.cache.slot(_KIND, {**self._parts, "texts": key_of(keys)})
        with slot.locked(), slot.filling(f"{len(new):,} texts as {self.inputs.model} reads them") as folder:
            store.write(folder / "states.safetensors", arrays, {"lengths": lengths})


def _read(path: Path) -> dict[str, States]:
    """Read an entry of the cache, or raise StoreError."""
    arrays, manifest = store.read(path)
    contents.check_names(arrays, {"rows"})
    contents.check_floats(arrays, {"rows": ("tokens", "d")}, {}, {"rows": ("float32",)})
    lengths = contents.manifest(dict[str, int], manifest.get("lengths"))
    if min(lengths.values(), default=0) < 1 or sum(lengths.values()) != len(arrays["rows"]):
        raise contents.refused("'lengths' must fit 'rows', and do not")
    parts = np.split(arrays["rows"], np.cumsum(list(lengths.values()))[:-1])
    return dict(zip(lengths, parts, strict=True))
