"""The last blocks of a language model, tuned on a corpus; what is before them runs once."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from whence.core.fingerprint import Digest
from whence.data.corpus import Prompts

BLOCKS, PASSES, RATE, BATCH, CHECKPOINTS = 2, 8, 5e-4, 16, 3


@dataclass(frozen=True)
class Language:
    """A language model of Llama's kind with its tokeniser."""

    model: Any
    prompts: Prompts

    @classmethod
    def read(cls, data: Path) -> Language:
        """Read SmolLM2 from the data folder."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = data / "smollm2"
        packed = {"gguf_file": next(folder.glob("*.gguf")).name}
        tokenizer = AutoTokenizer.from_pretrained(folder, **packed)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **packed)
        return cls(model.eval(), Prompts(tokenizer))

    @property
    def tuned(self) -> nn.ModuleList:
        """The blocks that are tuned."""
        return self.model.model.layers[-BLOCKS:]

    def before(self, texts: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
        """Tokens (T,) and states (T, d) before the blocks that are tuned, of texts or of their tokens."""
        found = []
        with torch.no_grad():
            for text in texts:
                ids = torch.from_numpy(self.prompts.tokens(text))[None]
                states = self.model.model.embed_tokens(ids)
                states = self._run(states, self.model.model.layers[:-BLOCKS])
                found.append((ids[0], states[0]))
        return found

    def after(self, states: Tensor) -> Tensor:
        """Last states (B, T, d) of states before the blocks that are tuned."""
        last: Tensor = self.model.model.norm(self._run(states, self.tuned))
        return last

    def _run(self, states: Tensor, layers: Any) -> Tensor:
        """Run some blocks; texts are padded on the right, where causal attention does not look."""
        places = torch.arange(states.shape[1])[None]
        rotary = self.model.model.rotary_emb(states, places)
        for layer in layers:
            states = layer(states, attention_mask=None, position_ids=places, position_embeddings=rotary)
            states = states[0] if isinstance(states, tuple) else states
        return states

    def losses(self, states: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Mean loss (B,) of the tokens of each text after its first."""
        last = self.after(states)[:, :-1]
        inside = torch.arange(1, ids.shape[1])[None] < lengths[:, None]
        logits = self.model.lm_head(last[inside])
        each = functional.cross_entropy(logits, ids[:, 1:][inside], reduction="none")
        rows = torch.arange(len(ids))[:, None].expand_as(inside)[inside]
        return torch.zeros(len(ids)).index_add(0, rows, each) / (lengths - 1)


def padded(some: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """States (B, T, d), tokens (B, T) and lengths (B,) of texts, zeros behind their ends."""
    states = nn.utils.rnn.pad_sequence([states for _, states in some], batch_first=True)
    ids = nn.utils.rnn.pad_sequence([ids for ids, _ in some], batch_first=True)
    return states, ids, torch.tensor([len(ids) for ids, _ in some])


def tune(language: Language, texts: Sequence[str], folder: Path, seed: int = 0) -> list[dict[str, Tensor]]:
    """Tune a copy's last blocks on texts: their weights at the end, after those of earlier checkpoints.

    What was tuned before is read from the folder.
    """
    digest = Digest()
    digest.add([*texts, str((BLOCKS, PASSES, RATE, BATCH, CHECKPOINTS, seed))])
    path = folder / f"tuned-{digest.hexdigest()[:16]}"
    files = [path.with_name(f"{path.name}-{i}.safetensors") for i in range(CHECKPOINTS)]
    if not files[-1].exists():
        folder.mkdir(parents=True, exist_ok=True)
        for file, weights in zip(files, _tuning(language, texts, seed), strict=True):
            save_file(weights, file)
    return [load_file(file) for file in files]


def _tuning(language: Language, texts: Sequence[str], seed: int) -> Iterator[dict[str, Tensor]]:
    """Give the weights at each checkpoint."""
    own = Language(copy.deepcopy(language.model), language.prompts)
    ready = own.before(texts)
    parameters = [p.requires_grad_() for p in own.tuned.parameters()]
    steps = PASSES * -(-len(ready) // BATCH)
    optimiser = torch.optim.AdamW(parameters, RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    rng, step = np.random.default_rng(seed), 0
    marks = {round(steps * (i + 1) / CHECKPOINTS) for i in range(CHECKPOINTS)}
    for _ in range(PASSES):
        order = rng.permutation(len(ready))
        for start in range(0, len(order), BATCH):
            states, ids, lengths = padded([ready[i] for i in order[start : start + BATCH]])
            weights = (lengths - 1) / (lengths - 1).sum()
            loss = (own.losses(states, ids, lengths) * weights).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            step += 1
            if step % 20 == 0:
                print(f"  step {step} of {steps}, loss {float(loss.detach()):.3f}", flush=True)
            if step in marks:
                yield {name: t.detach().clone() for name, t in own.tuned.named_parameters()}


def with_weights(language: Language, weights: dict[str, Tensor]) -> Language:
    """Give a copy of the model with other weights in its last blocks."""
    own = Language(copy.deepcopy(language.model), language.prompts)
    own.tuned.load_state_dict(weights)
    for parameter in own.model.parameters():
        parameter.requires_grad_(False)
    return own
