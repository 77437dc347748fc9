"""A causal language model as a classifier of texts into the token that comes next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.arrays import Floats, Ints
from whence.core.checks import check_is
from whence.core.progress import bar
from whence.data import Corpus
from whence.errors import InvalidInputError, ModelError
from whence.model.inputs import to_model
from whence.model.modules import evaluating, unwrap

_TOKENS = 4096  # that run at once where texts are read for their features alone
_APART = 1e-3  # of the largest logit: rounding of batches of other shapes stays below


class NextToken(nn.Module):
    """Maps texts, as tokens padded on the right, to the logits (B, V) of the token that comes next.

    Where several rows of a batch are beginnings of one text, as places of a document are, the text runs once:
    a causal model gives a token the same state whatever follows. With gradients every row runs for itself.

    Parameters
    ----------
    language_model
        A causal language model of transformers, adapters included.

    Attributes
    ----------
    language_model : the model itself
    """

    def __init__(self, language_model: nn.Module) -> None:
        super().__init__()
        self.language_model = unwrap(language_model)
        if not writes(language_model):
            raise ModelError(
                "A language model must be a causal one of transformers, such as AutoModelForCausalLM gives. "
                f"Got {type(language_model).__name__}, which has no output embeddings."
            )

    @property
    def n_tokens(self) -> int:
        """The number V of tokens."""
        return int(self._inner.get_output_embeddings().weight.shape[0])

    @property
    def _inner(self) -> Any:
        """The model inside its adapters."""
        return _inside(self.language_model)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits (B, V) after the last token of each row."""
        lengths = attention_mask.sum(1)
        alone = torch.is_grad_enabled()
        if alone:
            states = self._states(input_ids, attention_mask)
            last = states[torch.arange(len(states), device=states.device), lengths - 1]
        else:
            last = self._shared(input_ids, lengths)
        logits: Tensor = self._inner.get_output_embeddings()(last)
        return logits

    def _states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Last hidden states (B, T, d)."""
        states: Tensor = self._inner.base_model(input_ids=ids, attention_mask=mask, use_cache=False)[0]
        return states

    def _shared(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Last states (B, d) of all rows, by a run of those that are no beginning of the row after them."""
        runs = _runs(ids, lengths)
        firsts = torch.tensor([rows.start for rows in runs] + [len(ids)])
        whole = firsts[1:] - 1  # the last row of a run is its longest
        states_of: list[Tensor] = [torch.empty(0)] * len(runs)
        order = torch.argsort(lengths.cpu()[whole], stable=True).tolist()
        for group in _groups(order, lengths.cpu()[whole].tolist()):
            longest = int(lengths[whole[group]].max())
            mask = torch.arange(longest, device=ids.device) < lengths[whole[group], None]
            states = self._states(ids[whole[group], :longest], mask.long())
            for j, run in enumerate(group):
                states_of[run] = states[j, lengths[runs[run]] - 1]
        return torch.cat(states_of)

    def write(self, tokens: Ints, most: int) -> Ints:
        """Return up to ``most`` tokens that follow, those of the largest logit; none after the end."""
        self.check_room(len(tokens) + most)
        ids = to_model(self, torch.from_numpy(tokens)[None])
        with evaluating(self):
            ids_after = self._inner.generate(  # with adapters it is the same, whose own would leave traces
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=most,
                do_sample=False,
                num_beams=1,
                repetition_penalty=1.0,
                no_repeat_ngram_size=0,
                pad_token_id=0,
            )
        new: Ints = ids_after[0, len(tokens) :].cpu().numpy().astype(np.int64)
        ends = np.flatnonzero(np.isin(new, self._ends))
        return new[: ends[0]] if len(ends) else new

    def check_room(self, n: int) -> None:
        """Raise InvalidInputError where a text of n tokens is longer than what the model can see."""
        room = getattr(self._inner.config, "max_position_embeddings", None)
        if room is not None and n > room:
            raise InvalidInputError(
                f"'prompt' and what follows must have at most {room:,} tokens, which the model can see. Got "
                f"{n:,}. Shorten the prompt, or lower max_new_tokens."
            )

    @property
    def _ends(self) -> list[int]:
        """Tokens that end a text."""
        ends = self._inner.generation_config.eos_token_id
        return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)

    def check(self, input_ids: Tensor, attention_mask: Tensor) -> None:
        """Raise ModelError unless these are the logits that the model itself gives, for each row alone."""
        with evaluating(self):
            ours = self(input_ids, attention_mask)
            for row, (ids, mask) in enumerate(zip(input_ids, attention_mask.bool(), strict=True)):
                theirs = self.language_model(input_ids=ids[mask][None], use_cache=False).logits[0, -1]
                apart = float((theirs - ours[row]).abs().max() / theirs.abs().max().clamp(min=1e-6))
                if apart > _APART:
                    raise ModelError(
                        "A language model must be causal, and its logits what its last layer makes of the "
                        f"last token's state. Those of {type(self.language_model).__name__} differ by "
                        f"{apart:.2g} of their size, perhaps since it bounds or scales them."
                    )


def as_language_model(model: Any) -> NextToken:
    """Return a language model as a classifier; one that is that already is returned."""
    inner = unwrap(model)
    return inner if isinstance(inner, NextToken) else NextToken(inner)


def token_losses(model: Any, corpus: Corpus, *, show_progress: bool = True) -> Floats:
    """Return the loss −log p (N,) of each token of a corpus that was learned, by a causal language model.

    ``corpus.hardest(losses, share)`` keeps a share of the places by it.
    """
    language = as_language_model(model)
    check_is("corpus", corpus, Corpus, "a whence.data.Corpus")
    starts = range(0, len(corpus), corpus.length)
    losses = []
    with evaluating(language):
        for start in bar("Losses", len(starts), "batches", parts=starts, show=show_progress, delay=2):
            rows = range(start, min(start + corpus.length, len(corpus)))
            logits = language(**to_model(language, corpus.prompts([corpus[i][0] for i in rows])))
            labels = torch.from_numpy(corpus.labels[rows.start : rows.stop]).to(logits.device)
            losses.append(nn.functional.cross_entropy(logits.float(), labels, reduction="none").cpu())
    by_token: Floats = torch.cat(losses).numpy()
    return by_token


def writes(model: Any) -> bool:
    """Whether a model is one of transformers that makes tokens of states, and no classifier of texts."""
    inner = _inside(unwrap(model))
    named = hasattr(inner, "get_output_embeddings") and hasattr(inner, "base_model")
    return named and inner.get_output_embeddings() is not None and inner.base_model is not inner


def of_documents(model: Any, data: Any, tokenizer: Any) -> tuple[NextToken, Corpus] | None:
    """Return a language model as a classifier, and its corpus; None where data are no documents.

    They are a ``Corpus``, or come with a tokenizer, their own or that of a ``pipeline``, and a generative
    model. The classifier is checked against the model itself at a few places of the corpus.
    """
    if tokenizer is None and getattr(model, "task", None) == "text-generation":
        tokenizer = model.tokenizer
    if not isinstance(data, Corpus) and (tokenizer is None or data is None or not writes(model)):
        return None
    if isinstance(data, Corpus) and tokenizer is not None and tokenizer is not data.tokenizer:
        raise InvalidInputError(
            "'tokenizer' must be left out with a Corpus, which has its own. Got another one."
        )
    corpus = data if isinstance(data, Corpus) else Corpus(data, tokenizer)
    language = as_language_model(model)
    prompts = [corpus[i][0] for i in sorted({*range(min(len(corpus), 3)), len(corpus) - 1})]
    language.check(**to_model(language, corpus.prompts(prompts)))
    return language, corpus


def _inside(model: Any) -> Any:
    """Return the model inside its adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _runs(ids: Tensor, lengths: Tensor) -> list[slice]:
    """Divide rows into runs, each of which has rows that begin the next, and longer ones."""
    inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:-1, None]
    begins = ((ids[:-1] == ids[1:]) | ~inside).all(1) & (lengths[:-1] < lengths[1:])
    firsts = [0, *((~begins).nonzero()[:, 0] + 1).tolist(), len(ids)]
    return [slice(a, b) for a, b in pairwise(firsts)]


def _groups(order: list[int], lengths: list[int]) -> Iterator[list[int]]:
    """Divide texts into groups of so many tokens, padding included; ``order`` has the shortest first."""
    group: list[int] = []
    for text in order:
        if group and (len(group) + 1) * lengths[text] > _TOKENS:
            yield group
            group = []
        group.append(text)
    yield group
