"""Networks on language models: a linear head on their features, or their last block, which is trained.

The last block is trained on the cached states that enter it, so that each text is read once.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from whence.core.naming import optional_import
from whence.errors import InvalidInputError

LENGTH = 128  # tokens read per text
States = npt.NDArray[np.float32]


class Backbone(nn.Module):
    """A language model without its head: the mean over tokens for BERT's kind, the last token for Llama's.

    Parameters
    ----------
    folder
        Folder with the model as published on Hugging Face: a model folder, or a GGUF file.
    last
        Whether a text's feature is that of its last token, or the mean over its tokens.
    """

    def __init__(self, folder: Path, last: bool) -> None:
        super().__init__()
        where, options = _place(folder)
        with optional_import(
            f"'model.name' is a network on {folder.name}, which needs transformers. "
            "Run: pip install 'whence[transformers]'"
        ):
            from transformers import AutoModel, AutoTokenizer
        if options:
            with optional_import(
                f"The model in {folder} is a GGUF file, which needs gguf. Run: pip install gguf"
            ):
                import gguf  # noqa: F401  # required by transformers
        self.tokenizer = AutoTokenizer.from_pretrained(where, **options)
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.tokenizer.padding_side = "right"
        self.inner = AutoModel.from_pretrained(where, dtype=torch.float32, **options)
        self.last = last
        self.requires_grad_(False).eval()

    def tokens(self, texts: list[str]) -> dict[str, Tensor]:
        """Tokenize texts: token ids and attention mask, (B, T) each."""
        found: Any = self.tokenizer(
            list(texts), truncation=True, max_length=LENGTH, padding=True, return_tensors="pt"
        )
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map tokens (B, T) to features (B, d)."""
        states: Tensor = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return pooled(states, attention_mask, self.last)


def pooled(states: Tensor, here: Tensor, last: bool) -> Tensor:
    """Pool states (B, T, d) to (B, d): the state of the last token, or the mean over tokens.

    ``here`` (B, T) is 1 for a token and 0 for padding, which is on the right.
    """
    if last:
        return states[torch.arange(len(states), device=states.device), here.sum(1).long() - 1]
    weights = here / here.sum(1, keepdim=True)  # (B, T)
    return (states * weights[:, :, None].to(states)).sum(1)


class TextHead(nn.Module):
    """A linear head on features (N, d) of a frozen language model, standardised."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: Tensor, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", inputs.mean(0))
        # Divided by √d, so that features have a norm of about 1.
        self.register_buffer("scale", 1 / (inputs.std(0) + 1e-6) / inputs.shape[1] ** 0.5)
        self.head = nn.Linear(inputs.shape[1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, d) to logits (B, n_classes)."""
        logits: Tensor = self.head((x - self.mean) * self.scale)
        return logits


# Only here: weights that are loaded in inference mode could not be used for relevance later.
@torch.inference_mode()
def features(backbone: Backbone, texts: list[str]) -> list[States]:
    """Encode a batch of texts to features (1, d) each."""
    return list(backbone(**backbone.tokens(texts)).numpy()[:, None])


@torch.inference_mode()
def states(backbone: Backbone, texts: list[str]) -> list[States]:
    """Encode a batch of texts up to the last block: its input states (T_i, d), one row per token.

    Parameters
    ----------
    backbone
        The language model.
    texts
        Texts, cut to the first ``LENGTH`` tokens.
    """
    tokens = backbone.tokens(texts)
    hidden = backbone.inner(**tokens, output_hidden_states=True).hidden_states[-2]  # (B, T, d)
    lengths = tokens["attention_mask"].sum(1).tolist()  # padding is on the right
    return [row[:n].numpy().copy() for row, n in zip(hidden, lengths, strict=True)]


def packed(states: Sequence[States]) -> Tensor:
    """Pack texts into one tensor (N, T, d + 1): padding is 0, the last channel is 1 for tokens.

    Examples
    --------
    >>> import numpy as np
    >>> packed([np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)])[:, :, -1]
    tensor([[1., 1.],
            [1., 0.]])
    """
    if len(states) == 0 or any(one.ndim != 2 or len(one) == 0 for one in states):
        raise InvalidInputError(
            "'states' must be one array (tokens, d) per text, with at least one token. "
            f"Got {[one.shape for one in states][:5]}."
        )
    here = (torch.from_numpy(np.pad(one, ((0, 0), (0, 1)), constant_values=1)) for one in states)
    return pad_sequence(list(here), batch_first=True)


class LastBlock(nn.Module):
    """The last block of a language model with a linear head, as a network on cached states.

    All its weights are trainable. It has no dropout, so that equal seeds lead to equal weights.

    Parameters
    ----------
    backbone
        The language model; its last block (and last norm, if any) is copied.
    n_classes
        Outputs; the head is initialised from torch's random state.

    Attributes
    ----------
    layer, norm, head : the trained modules
    """

    def __init__(self, backbone: Backbone, n_classes: int) -> None:
        super().__init__()
        inner: Any = backbone.inner
        self.last = backbone.last
        self.layer = copy.deepcopy(_layers(backbone)[-1])
        self.norm = copy.deepcopy(inner.norm) if self.last else nn.Identity()
        self.rotary = copy.deepcopy(inner.rotary_emb) if self.last else None
        self.head = nn.Linear(inner.config.hidden_size, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        self.requires_grad_(True)

    def forward(self, states: Tensor) -> Tensor:
        """Map packed states (B, T, d + 1) to logits (B, n_classes)."""
        x, here = states[:, :, :-1], states[:, :, -1]
        T = x.shape[1]
        seen = here[:, None, None, :] > 0  # (B, 1, 1, T), visible to every token
        options: dict[str, Any] = {}
        if self.rotary is not None:
            seen = seen & torch.ones(T, T, dtype=torch.bool, device=x.device).tril()  # (B, 1, T, T)
            options["position_embeddings"] = self.rotary(x, torch.arange(T, device=x.device)[None])
        # An additive mask, which every attention implementation takes.
        mask = torch.where(seen, 0.0, torch.finfo(x.dtype).min).to(x)
        y = self.norm(self.layer(x, attention_mask=mask, **options))  # (B, T, d)
        logits: Tensor = self.head(pooled(y, here, self.last))
        return logits


class TextClassifier(nn.Module):
    """The full model from tokens to logits: a language model with a trained last block and its head.

    Parameters
    ----------
    backbone
        The language model, unchanged; its frozen weights are shared, not copied.
    block
        Replaces the last block, norm and head; shared too.
    """

    def __init__(self, backbone: Backbone, block: LastBlock) -> None:
        super().__init__()
        shared: list[Any] = [*backbone.parameters(), *backbone.buffers(), backbone.tokenizer]
        self.backbone = copy.deepcopy(backbone, {id(part): part for part in shared})
        _layers(self.backbone)[-1] = block.layer
        if block.last:
            self.backbone.inner.norm = block.norm
        self.head = block.head
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, n_classes)."""
        logits: Tensor = self.head(self.backbone(input_ids, attention_mask))
        return logits


def _layers(backbone: Backbone) -> nn.ModuleList:
    """Return the blocks of a model like Llama, or like BERT."""
    inner: Any = backbone.inner
    found: nn.ModuleList = inner.layers if backbone.last else inner.encoder.layer
    return found


def _place(folder: Path) -> tuple[str, dict[str, str]]:
    """Return where transformers finds a model: its folder, and the file name of a GGUF."""
    if not folder.is_dir():
        raise InvalidInputError(
            f"There is no {folder}. Put the model there as published on Hugging Face "
            "(sentence-transformers/all-MiniLM-L6-v2 for minilm, SmolLM2-135M-Instruct for smollm2), "
            "or pass another folder with --data or WHENCE_DATA."
        )
    packed = sorted(folder.glob("*.gguf"))
    return str(folder), {"gguf_file": packed[0].name} if packed else {}
