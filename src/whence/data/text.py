"""Text and tokens: the tokenizer that a function uses, and prompts as model inputs."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Ints
from whence.core.fingerprint import code
from whence.errors import InvalidInputError

_DEEP = 4  # steps from a function to the tokenizer: what it calls, what that encloses, and so on
_WIDE = 500  # things that are looked at


def is_tokenizer(thing: Any) -> bool:
    """Whether a thing is a tokenizer of transformers, judged by the methods used here."""
    return not isinstance(thing, type) and callable(getattr(thing, "convert_ids_to_tokens", None))


def find_tokenizer(*things: Any) -> Any:
    """Find a tokenizer among things or inside them; None where there is none.

    Looked into are attributes, partial functions, methods, what functions enclose, take as defaults and use
    of their module, and what a function that keeps its one result has already made. No code of the user's is
    run.
    """
    seen: set[int] = set()
    nearest = [thing for thing in things if thing is not None]
    for _ in range(_DEEP + 1):
        further: list[Any] = []
        for thing in nearest:
            if is_tokenizer(thing):
                return thing
            if id(thing) not in seen and len(seen) < _WIDE:
                seen.add(id(thing))
                further += _inside(thing)
        nearest = further
    return None


def _inside(thing: Any) -> Iterator[Any]:
    """Return the parts of a thing that may hold a tokenizer."""
    if isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, types.MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, types.FunctionType):
        yield from code.enclosed(thing).values()
        yield from (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        yield from code.uses(thing).values()
    elif _is_kept(thing):
        yield thing()
    elif isinstance(thing, Mapping):
        yield from thing.values()
    elif isinstance(thing, list | tuple):
        yield from thing
    elif not isinstance(thing, type | types.ModuleType):
        yield from getattr(thing, "__dict__", {}).values()
        yield inspect.getattr_static(type(thing), "__call__", None)
    yield getattr(thing, "__wrapped__", None)


def _is_kept(thing: Any) -> bool:
    """Whether a thing is a cached function without arguments that has its result: to call it runs nothing."""
    kept = getattr(thing, "cache_info", None)
    return callable(kept) and kept().currsize == 1 and not inspect.signature(thing).parameters


@dataclass(frozen=True)
class Prompts:
    """Makes the model's inputs of texts, or of the tokens of texts: a batch, padded on the right."""

    tokenizer: Any

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Return ``input_ids`` (B, T) and ``attention_mask`` of texts, or of one row of tokens per sample."""
        rows = [self.tokens(one) for one in batch]
        empty = [i for i, row in enumerate(rows) if not len(row)]
        if empty:
            raise InvalidInputError(
                f"A prompt must have at least one token, after which another follows. Number {empty[0]} of "
                f"{len(rows)} has none."
            )
        lengths = torch.tensor([len(row) for row in rows])
        ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.from_numpy(row)
        return {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long()}

    def tokens(self, text: Any, special: bool = True) -> Ints:
        """Return the tokens of a text, with those that the tokenizer puts before it; tokens unchanged."""
        if isinstance(text, str):
            text = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        return np.asarray(text, dtype=np.int64)

    def continued(self, prompt: str, continuation: str) -> tuple[Ints, int]:
        """Return the tokens of a prompt and what follows it, and how many are the prompt's.

        They are those of both in one text where the prompt's are at its beginning, else one after the other.
        """
        first, whole = self.tokens(prompt), self.tokens(prompt + continuation)
        if len(whole) <= len(first) or not np.array_equal(whole[: len(first)], first):
            whole = np.concatenate([first, self.tokens(continuation, special=False)])
        return whole, len(first)

    def names(self, n: int) -> tuple[str, ...]:
        """Name n tokens: the text they stand for, or what the tokenizer calls them where others have it."""
        known = min(n, len(self.tokenizer))
        pieces = self.tokenizer.convert_ids_to_tokens(list(range(known)))
        texts = self.tokenizer.batch_decode([[i] for i in range(known)])
        counts: dict[str, int] = {}
        for text in texts:
            counts[text] = counts.get(text, 0) + 1
        taken = set(texts)
        named = []
        for i, (text, piece) in enumerate(zip(texts, pieces, strict=True)):
            alone = text and counts[text] == 1
            spare = piece if piece and piece not in taken else f"{piece} ({i})"
            named.append(text if alone else spare)
            taken.add(named[-1])
        return (*named, *(f"token {i}" for i in range(known, n)))
