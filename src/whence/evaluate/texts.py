"""Frozen language models that turn texts into features, each text once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from whence import store
from whence.errors import InvalidInputError, StoreError

LENGTH = 128  # tokens that are read of a text
_BATCH = 32
_FOLDERS = {"minilm-head": "minilm", "smollm2-head": "smollm2"}


class Backbone(nn.Module):
    """A language model without its head: the mean over tokens for BERT's kind, the last token for Llama's.

    Parameters
    ----------
    name
        "minilm" or "smollm2".
    folder
        With the model in it, as Hugging Face publishes it: a model folder, or a GGUF file.
    """

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__()
        where, options = _place(folder)
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise InvalidInputError(
                f"'model.name' is a head on {name}, which needs transformers. "
                "Run: pip install 'whence[transformers]'"
            ) from error
        self.tokeniser = AutoTokenizer.from_pretrained(where, **options)
        self.tokeniser.pad_token = self.tokeniser.pad_token or self.tokeniser.eos_token
        self.tokeniser.padding_side = "right"
        self.inner = AutoModel.from_pretrained(where, dtype=torch.float32, **options)
        self.last = name == "smollm2"
        self.requires_grad_(False).eval()

    def tokens(self, texts: list[str]) -> dict[str, Tensor]:
        """Make the model's inputs of texts: token numbers and attention mask, (B, T) each."""
        found: Any = self.tokeniser(
            list(texts), truncation=True, max_length=LENGTH, padding=True, return_tensors="pt"
        )
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map tokens (B, T) to features (B, d)."""
        states: Tensor = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.last:
            return states[torch.arange(len(states)), attention_mask.sum(1) - 1]
        weights = attention_mask / attention_mask.sum(1, keepdim=True)  # (B, T)
        return (states * weights[:, :, None].to(states)).sum(1)


class Encoder:
    """Features of texts, kept in a file, so that a text is read once whatever set it is in.

    Parameters
    ----------
    network
        A network of the evaluation whose inputs are texts' features.
    folder
        Has a subfolder a language model.
    cache
        File that keeps the features.
    show_progress
        Show a progress bar.
    """

    def __init__(self, network: str, folder: Path, cache: Path, show_progress: bool) -> None:
        self.name = _FOLDERS[network]
        self.folder, self.cache, self.show_progress = folder / self.name, cache, show_progress
        self._known: dict[bytes, Any] = {}
        self._backbone: Backbone | None = None
        if cache.exists():
            try:
                arrays, _ = store.read(cache)
            except StoreError:
                return  # a damaged cache is made anew
            self._known = dict(zip(map(bytes, arrays["keys"]), arrays["features"], strict=True))

    @property
    def backbone(self) -> Backbone:
        """The language model, read when it is first needed."""
        if self._backbone is None:
            self._backbone = Backbone(self.name, self.folder)
        return self._backbone

    def __call__(self, texts: list[str]) -> Tensor:
        """Features (B, d) of texts."""
        keys = [hashlib.sha256(f"{self.name} {LENGTH} {text}".encode()).digest() for text in texts]
        missing = [text for key, text in zip(keys, texts, strict=True) if key not in self._known]
        if missing:
            _place(self.folder)
            self._read(missing, [key for key in keys if key not in self._known])
        return torch.from_numpy(np.stack([self._known[key] for key in keys]))

    @torch.inference_mode()
    def _read(self, texts: list[str], keys: list[bytes]) -> None:
        with tqdm(total=len(texts), desc="reading texts", unit="text", disable=not self.show_progress) as bar:
            for start in range(0, len(texts), _BATCH):
                part = texts[start : start + _BATCH]
                features = self.backbone(**self.backbone.tokens(part)).numpy()
                self._known |= zip(keys[start : start + _BATCH], features, strict=True)
                bar.update(len(part))
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        codes = np.array([np.frombuffer(key, np.uint8) for key in self._known])
        store.write(self.cache, {"keys": codes, "features": np.stack(list(self._known.values()))}, {})


def _place(folder: Path) -> tuple[str, dict[str, str]]:
    """Say where transformers finds a model: its folder, and the file where it is a GGUF."""
    if not folder.is_dir():
        raise InvalidInputError(
            f"There is no {folder}. Put the model there as Hugging Face publishes it "
            "(sentence-transformers/all-MiniLM-L6-v2 for minilm, SmolLM2-135M-Instruct for smollm2), "
            "or name another folder with --data or WHENCE_DATA."
        )
    packed = sorted(folder.glob("*.gguf"))
    return str(folder), {"gguf_file": packed[0].name} if packed else {}


def reads_texts(network: str) -> bool:
    """Tell whether a network's inputs are features of texts."""
    return network in _FOLDERS
