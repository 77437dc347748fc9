"""What networks see of texts: each text is read once by a language model."""

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
from whence.core.fingerprint import Digest, source
from whence.core.progress import bar
from whence.errors import StoreError
from whence_studies.scenes.networks.base import TextInputs
from whence_studies.scenes.texts import LENGTH, Backbone, States, features, packed, states

_BATCH = 32
_MODULES = ("encoder", "texts")  # whose code the states of texts depend on
_KIND = "texts"  # of entries of the cache


class Encoder:
    """What networks see of texts, kept in a cache, so that a text is read once whatever set it is in.

    That is the language model's features for a linear head, and for a network with the last block the states
    that enter this block.

    Parameters
    ----------
    inputs
        What is made of texts.
    folder
        Has a subfolder per language model.
    cache
        Keeps what was read.
    show_progress
        Show a progress bar.
    """

    def __init__(self, inputs: TextInputs, folder: Path, cache: Cache, show_progress: bool) -> None:
        self.inputs, self.cache, self.show_progress = inputs, cache, show_progress
        self.folder = folder / inputs.model
        # (tokens, d) each, one row for a head; of every entry that the same code made of the same model
        self._known: dict[str, States] = {}
        for entry in cache.entries():
            if entry.kind == _KIND and self._parts.items() <= entry.parts.items() and entry.complete:
                try:
                    self._known |= _read(cache.folder / entry.name / "states.safetensors")
                except StoreError:
                    continue  # a damaged one is made again

    @cached_property
    def backbone(self) -> Backbone:
        """The language model, read when it is first needed."""
        return Backbone(self.folder, self.inputs.last)

    @cached_property
    def _parts(self) -> dict[str, str]:
        """Identify the language model by its files, and the code that reads texts with it."""
        held = {}
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            with open(path, "rb") as file:
                held[str(path.relative_to(self.folder))] = hashlib.file_digest(file, "sha256").hexdigest()
        return {
            "code of reading": source(*(f"whence_studies.scenes.{module}" for module in _MODULES)),
            "language model": Digest().of(held),
            "what is read": f"{self.inputs} {LENGTH}",
        }

    def __call__(self, texts: list[str]) -> Tensor:
        """Read texts: features (N, d), or states (N, T, d + 1) with 1 for a token in the last channel."""
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
        slot = self.cache.slot(_KIND, {**self._parts, "texts": Digest().of(keys)})
        with slot.locked(), slot.filling(f"{len(new):,} texts as {self.inputs.model} reads them") as folder:
            store.write(folder / "states.safetensors", arrays, {"lengths": lengths})


def _read(path: Path) -> dict[str, States]:
    """Read what was kept, or raise StoreError."""
    arrays, manifest = store.read(path)
    contents.check_names(arrays, {"rows"})
    contents.check_floats(arrays, {"rows": ("tokens", "d")}, {}, {"rows": ("float32",)})
    lengths = contents.manifest(dict[str, int], manifest.get("lengths"))
    if min(lengths.values(), default=0) < 1 or sum(lengths.values()) != len(arrays["rows"]):
        raise contents.refused("'lengths' must fit 'rows', and do not")
    parts = np.split(arrays["rows"], np.cumsum(list(lengths.values()))[:-1])
    return dict(zip(lengths, parts, strict=True))
