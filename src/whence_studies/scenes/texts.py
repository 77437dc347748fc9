"""Language models that read texts: a linear head for their features, and their last block, to be trained.

The last block is trained on the states that enter it, which are cached, so that each text is read once.
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

LENGTH = 128  # tokens that are read of a text
States = npt.NDArray[np.float32]


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
        with optional_import(
            f"'model.name' is a network on {folder.name}, which needs transformers. "
            "Run: pip install 'whence[transformers]'"
        ):
            from transformers import AutoModel, AutoTokenizer
        if options:
            with optional_import(
                f"The model in {folder} is a GGUF file, which needs gguf. Run: pip install gguf"
            ):
                import gguf  # noqa: F401  # transformers reads it with that
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


# Only here: weights that are read in this mode could not be used for relevance later.
@torch.inference_mode()
def features(backbone: Backbone, texts: list[str]) -> list[States]:
    """Read a batch of texts: the features (1, d) of each."""
    return list(backbone(**backbone.tokens(texts)).numpy()[:, None])


@torch.inference_mode()
def states(backbone: Backbone, texts: list[str]) -> list[States]:
    """Read a batch of texts up to the last block: the states (T_i, d) that go into it, a row per token.

    Parameters
    ----------
    backbone
        The language model.
    texts
        Of which the first ``LENGTH`` tokens are read.
    """
    tokens = backbone.tokens(texts)
    hidden = backbone.inner(**tokens, output_hidden_states=True).hidden_states[-2]  # (B, T, d)
    lengths = tokens["attention_mask"].sum(1).tolist()  # padding is on the right
    return [row[:n].numpy().copy() for row, n in zip(hidden, lengths, strict=True)]


def packed(states: Sequence[States]) -> Tensor:
    """Put texts into one tensor (N, T, d + 1): padding is 0, the last channel is 1 for tokens.

    Examples
    --------
    >>> import numpy as np
    >>> packed([np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)])[:, :, -1]
    tensor([[1., 1.],
            [1., 0.]])
    """
    if len(states) == 0 or any(one.ndim != 2 or len(one) == 0 for one in states):
        raise InvalidInputError(
            "'states' must be one array (tokens, d) per text, with a token or more. "
            f"Got {[one.shape for one in states][:5]}."
        )
    here = (torch.from_numpy(np.pad(one, ((0, 0), (0, 1)), constant_values=1)) for one in states)
    return pad_sequence(list(here), batch_first=True)


class LastBlock(nn.Module):
    """The last block of a language model with a linear head, as a network of its own on cached states.

    Everything in it can be trained. It has no dropout, so that equal seeds give equal weights.

    Parameters
    ----------
    backbone
        Whose last block (and last norm, where there is one) is copied; it stays as it is.
    n_classes
        Outputs; the head's first weights come from torch's random state.

    Attributes
    ----------
    layer, norm, head : what is trained
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
        seen = here[:, None, None, :] > 0  # (B, 1, 1, T), by every token
        options: dict[str, Any] = {}
        if self.rotary is not None:
            seen = seen & torch.ones(T, T, dtype=torch.bool, device=x.device).tril()  # (B, 1, T, T)
            options["position_embeddings"] = self.rotary(x, torch.arange(T, device=x.device)[None])
        # Added to scores, which every kind of attention takes.
        mask = torch.where(seen, 0.0, torch.finfo(x.dtype).min).to(x)
        y = self.norm(self.layer(x, attention_mask=mask, **options))  # (B, T, d)
        logits: Tensor = self.head(pooled(y, here, self.last))
        return logits


class TextClassifier(nn.Module):
    """The whole model from tokens to logits: a language model with a trained last block and its head.

    Parameters
    ----------
    backbone
        Stays as it is; the frozen weights are shared with it, not copied.
    block
        Takes the place of the last block, norm and head; shared too.
    """

    def __init__(self, backbone: Backbone, block: LastBlock) -> None:
        super().__init__()
        shared: list[Any] = [*backbone.parameters(), *backbone.buffers(), backbone.tokeniser]
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
    """The blocks of a model of Llama's kind, or of BERT's."""
    inner: Any = backbone.inner
    found: nn.ModuleList = inner.layers if backbone.last else inner.encoder.layer
    return found


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
