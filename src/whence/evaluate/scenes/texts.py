"""Language models that read texts, and a linear head for their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whence.errors import InvalidInputError

LENGTH = 128  # tokens that are read of a text


class Backbone(nn.Module):
    """A language model without its head: the mean over tokens for BERT's kind, the last token for Llama's.

    Parameters
    ----------
    folder
        With the model in it, as Hugging Face publishes it: a model folder, or a GGUF file.
    last
        Whether a text is seen by its last token, or by the mean over its tokens.
    """

    def __init__(self, folder: Path, last: bool) -> None:
        super().__init__()
        where, options = _place(folder)
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise InvalidInputError(
                f"'model.name' is a network on {folder.name}, which needs transformers. "
                "Run: pip install 'whence[transformers]'"
            ) from error
        self.tokeniser = AutoTokenizer.from_pretrained(where, **options)
        self.tokeniser.pad_token = self.tokeniser.pad_token or self.tokeniser.eos_token
        self.tokeniser.padding_side = "right"
        self.inner = AutoModel.from_pretrained(where, dtype=torch.float32, **options)
        self.last = last
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
        return pooled(states, attention_mask, self.last)


def pooled(states: Tensor, here: Tensor, last: bool) -> Tensor:
    """Bring states (B, T, d) to one per text, (B, d): that of its last token, or the mean over its tokens.

    ``here`` (B, T) is 1 for a token and 0 for padding, which comes behind.
    """
    if last:
        return states[torch.arange(len(states), device=states.device), here.sum(1).long() - 1]
    weights = here / here.sum(1, keepdim=True)  # (B, T)
    return (states * weights[:, :, None].to(states)).sum(1)


class TextHead(nn.Module):
    """A linear head on features (N, d) of a frozen language model, brought to mean 0 and deviation 1."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: Tensor, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", inputs.mean(0))
        # Divided by √d, so that features have norm 1 or so whatever their number.
        self.register_buffer("scale", 1 / (inputs.std(0) + 1e-6) / inputs.shape[1] ** 0.5)
        self.head = nn.Linear(inputs.shape[1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, d) to logits (B, n_classes)."""
        logits: Tensor = self.head((x - self.mean) * self.scale)
        return logits


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
