"""The last blocks of a language model, tuned on a corpus; what is before them runs once."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from whence.data.text import Prompts

BLOCKS, PASSES, RATE, BATCH, CHECKPOINTS = 2, 8, 1e-3, 4, 3
ROWS = 256  # of logits over the vocabulary at a time
TOKENS = 2048  # that run at once before the blocks that are tuned, padding included

Weights = dict[str, Tensor]


class Read(NamedTuple):
    """A text as the blocks that are tuned see it: tokens (T,) and states (T, d)."""

    ids: Tensor
    states: Tensor


@dataclass(frozen=True)
class Language:
    """A language model of Llama's kind with its tokeniser."""

    model: Any
    prompts: Prompts
    blocks: int = BLOCKS

    @classmethod
    def read(cls, data: Path) -> Language:
        """Read SmolLM2 from the data folder."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = data / "smollm2"
        packed = {"gguf_file": next(folder.glob("*.gguf")).name}
        tokenizer = AutoTokenizer.from_pretrained(folder, **packed)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **packed)
        return cls(model.eval().requires_grad_(False), Prompts(tokenizer))

    @property
    def tuned(self) -> nn.ModuleList:
        """The blocks that are tuned."""
        return self.model.model.layers[-self.blocks :]

    def before(self, texts: Sequence[Any], folder: Path | None = None) -> list[Read]:
        """Read texts, or their tokens, up to the blocks that are tuned; kept in a folder, by the tokens."""
        rows = [torch.from_numpy(self.prompts.tokens(text)) for text in texts]
        lengths = [len(ids) for ids in rows]
        path = None if folder is None else folder / f"states-{_named(rows)}.safetensors"
        if path is None or not path.exists():
            states = torch.cat(self._states(rows))
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                save_file({"states": states}, path)
        else:
            states = load_file(path)["states"]
        return [Read(*pair) for pair in zip(rows, states.split(lengths), strict=True)]

    @torch.no_grad()
    def _states(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """States (T, d) of texts before the blocks that are tuned, those of about one length together."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: list[Tensor] = [torch.empty(0)] * len(rows)
        while order:
            size = max(TOKENS // len(rows[order[-1]]), 1)
            some, order = order[-size:], order[:-size]
            ids = nn.utils.rnn.pad_sequence([rows[i] for i in some], batch_first=True)
            states = self._run(self.model.model.embed_tokens(ids), self.model.model.layers[: -self.blocks])
            for i, each in zip(some, states, strict=True):
                found[i] = each[: len(rows[i])].clone()
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

    @property
    def head(self) -> Tensor:
        """Weights (V, d) of the last layer, which are those of the embedding."""
        weight: Tensor = self.model.lm_head.weight
        return weight

    def predicting(self, some: Sequence[Read]) -> tuple[Tensor, Tensor, Tensor]:
        """Last states (n, d) before all tokens of texts after their first; these (n,), and of which text."""
        states = nn.utils.rnn.pad_sequence([one.states for one in some], batch_first=True)
        ids = nn.utils.rnn.pad_sequence([one.ids for one in some], batch_first=True)
        lengths = torch.tensor([len(one.ids) for one in some])
        inside = torch.arange(1, ids.shape[1])[None] < lengths[:, None]
        rows = torch.arange(len(ids))[:, None].expand_as(inside)[inside]
        return self.after(states)[:, :-1][inside], ids[:, 1:][inside], rows

    def with_weights(self, weights: Weights) -> Language:
        """Return the model with other weights in its last blocks; what is before them is shared."""
        own = {id(p) for p in self.tuned.parameters()}
        shared = {id(p): p for p in self.model.parameters() if id(p) not in own}
        other = Language(copy.deepcopy(self.model, shared), self.prompts, self.blocks)
        other.tuned.load_state_dict(weights)
        return other

    def weights(self) -> Weights:
        """Copy the weights of the blocks that are tuned."""
        return {name: t.detach().clone() for name, t in self.tuned.named_parameters()}


class _Losses(torch.autograd.Function):
    """Cross-entropy (n,) of rows (n, d) by weights (V, d) that stay, a few rows at a time.

    The derivative by the rows is made at once, so that no table (n, V) is ever kept.
    """

    @staticmethod
    def forward(ctx: Any, last: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        losses, slopes = last.new_empty(len(last)), torch.empty_like(last)
        room = last.new_empty(min(ROWS, len(last)), len(weight))
        for start in range(0, len(last), ROWS):
            some = slice(start, start + ROWS)
            y = labels[some]
            logits = torch.mm(last[some], weight.T, out=room[: len(y)])
            top, own = logits.amax(1, keepdim=True), logits.gather(1, y[:, None])
            total = logits.sub_(top).exp_().sum(1, keepdim=True)
            losses[some] = (total.log() + top - own)[:, 0]
            slopes[some] = (logits @ weight).div_(total).sub_(weight[y])
        ctx.save_for_backward(slopes)
        return losses

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        return ctx.saved_tensors[0] * slopes[0][:, None], None, None


def losses(last: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (n,) of rows (n, d) by a head (V, d), with derivatives by the rows alone."""
    found: Tensor = _Losses.apply(last, weight, labels)
    return found


def tune(language: Language, documents: Sequence[Read], folder: Path, seed: int = 0) -> list[Weights]:
    """Tune the last blocks on documents: their weights at the end, after those of earlier checkpoints.

    What was tuned before is read from the folder.
    """
    options = str((language.blocks, PASSES, RATE, BATCH, CHECKPOINTS, seed))
    path = folder / f"tuned-{_named([one.ids for one in documents], options)}"
    files = [path.with_name(f"{path.name}-{i}.safetensors") for i in range(CHECKPOINTS)]
    if not files[-1].exists():
        folder.mkdir(parents=True, exist_ok=True)
        for file, weights in zip(files, tuning(language, documents, seed), strict=True):
            save_file(weights, file)
    return [load_file(file) for file in files]


def tuning(language: Language, documents: Sequence[Read], seed: int) -> Iterator[Weights]:
    """Tune a copy; return the weights at each checkpoint."""
    own = language.with_weights(language.weights())
    parameters = [p.requires_grad_() for p in own.tuned.parameters()]
    steps = PASSES * -(-len(documents) // BATCH)
    optimiser = torch.optim.AdamW(parameters, RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    rng, step, started = np.random.default_rng(seed), 0, time.process_time()
    marks = {round(steps * (i + 1) / CHECKPOINTS) for i in range(CHECKPOINTS)}
    for _ in range(PASSES):
        order = rng.permutation(len(documents))
        for start in range(0, len(order), BATCH):
            last, labels, _ = own.predicting([documents[i] for i in order[start : start + BATCH]])
            loss = losses(last, own.head, labels).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            step += 1
            if step % 20 == 0:
                took = time.process_time() - started
                print(f"  step {step} of {steps}, loss {float(loss.detach()):.3f}, {took:.0f} s", flush=True)
            if step in marks:
                yield own.weights()


def _named(rows: Sequence[Tensor], more: str = "") -> str:
    """Return a short name that belongs to some tokens and options."""
    digest = hashlib.sha256(more.encode())
    for row in rows:
        digest.update(len(row).to_bytes(4, "little") + row.numpy().tobytes())
    return digest.hexdigest()[:16]
