"""What networks see of texts: each text is read once by a language model."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from whence.core import contents, store
from whence.core.fingerprint import source
from whence.errors import StoreError
from whence.evaluate.scenes.blocks import LastBlock, packed, states
from whence.evaluate.scenes.texts import LENGTH, Backbone, TextHead

_MODELS = ("minilm", "smollm2")
_KINDS = ("head", "block")  # what is trained: a linear head, or the last block too
_BATCH = 32
_MODULES = ("blocks", "encoder", "texts")  # whose code the states of texts depend on


class Encoder:
    """What networks see of texts, kept in a file, so that a text is read once whatever set it is in.

    That is the language model's features for a linear head, and for a network with the last block the states
    that enter this block.

    Parameters
    ----------
    network
        One of ``names()``.
    folder
        Has a subfolder a language model.
    cache
        File that keeps what was read.
    show_progress
        Show a progress bar.
    """

    def __init__(self, network: str, folder: Path, cache: Path, show_progress: bool) -> None:
        self.model, _, self.kind = network.partition("-")
        self.folder, self.cache, self.show_progress = folder / self.model, cache, show_progress
        self._known: dict[bytes, npt.NDArray[np.float32]] = {}  # (tokens, d) each, one row for a head
        if cache.exists():
            try:
                self._known = _read(cache, self._made_by)
            except StoreError:
                return  # a damaged cache is made anew

    @cached_property
    def backbone(self) -> Backbone:
        """The language model, read when it is first needed."""
        return Backbone(self.model, self.folder)

    @cached_property
    def _made_by(self) -> str:
        """Identify the language model by its files, and the code that reads texts with it."""
        digest = hashlib.sha256(source(*(f"whence.evaluate.scenes.{module}" for module in _MODULES)).encode())
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            with open(path, "rb") as file:
                contents = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{path.relative_to(self.folder)} {contents}\n".encode())
        return digest.hexdigest()

    def network(self, inputs: Tensor, n_classes: int) -> nn.Module:
        """Make an untrained network for what was read of a training set."""
        return LastBlock(self.backbone, n_classes) if self.kind == "block" else TextHead(inputs, n_classes)

    def __call__(self, texts: list[str]) -> Tensor:
        """Read texts: features (N, d), or states (N, T, d + 1) with 1 for a token in the last channel."""
        keys = [hashlib.sha256(f"{self.model} {LENGTH} {text}".encode()).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if missing:
            self._read(missing)
        found = [self._known[key] for key in keys]
        return packed(found) if self.kind == "block" else torch.from_numpy(np.concatenate(found))

    def _read(self, texts: dict[bytes, str]) -> None:
        left, backbone = list(texts.items()), self.backbone
        with tqdm(total=len(left), desc="reading texts", unit="text", disable=not self.show_progress) as bar:
            for start in range(0, len(left), _BATCH):
                keys, part = zip(*left[start : start + _BATCH], strict=True)
                if self.kind == "block":
                    rows = states(backbone, list(part))
                else:
                    # Only here: weights that are read in this mode could not be used for relevance later.
                    with torch.inference_mode():
                        rows = list(backbone(**backbone.tokens(list(part))).numpy()[:, None])
                self._known |= zip(keys, rows, strict=True)
                bar.update(len(part))
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        kept = list(self._known.values())
        arrays = {
            "keys": np.array([np.frombuffer(key, np.uint8) for key in self._known]),
            "rows": np.concatenate(kept),
            "lengths": np.array([len(rows) for rows in kept]),
        }
        store.write(self.cache, arrays, {"made by": self._made_by})


def _read(path: Path, made_by: str) -> dict[bytes, npt.NDArray[np.float32]]:
    """Read what the same code kept, nothing where it was another, or raise StoreError."""
    arrays, manifest = store.read(path)
    if manifest.get("made by") != made_by:
        return {}
    contents.check_names(arrays, {"keys", "rows", "lengths"})
    rows, sizes = arrays["rows"], dict[str, int]()
    contents.check_floats(arrays, {"rows": ("tokens", "d")}, sizes, {"rows": ("float32",)})
    contents.check_integers("lengths", arrays["lengths"], ("texts",), sizes, 1, len(rows))
    contents.check_shape("keys", arrays["keys"], ("texts", "digest"), sizes)
    if arrays["keys"].dtype != np.uint8 or int(arrays["lengths"].sum()) != len(rows):
        raise contents.refused("'keys' and 'lengths' must fit 'rows', and do not")
    parts = np.split(rows, np.cumsum(arrays["lengths"])[:-1])
    return dict(zip(map(bytes, arrays["keys"]), parts, strict=True))


def names() -> list[str]:
    """Names of the networks whose inputs are made of texts, sorted."""
    return sorted(f"{model}-{kind}" for model in _MODELS for kind in _KINDS)
