"""What a model answers where it is asked for facts, and how likely it takes what documents say to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.language.facts import Fact
from benchmarks.language.tuning import Language, Read
from whence.core.arrays import Ints

_BATCH = 16


@dataclass(frozen=True)
class Query:
    """A prompt and an answer.

    Attributes
    ----------
    text, answer : the prompt and the answer, as texts
    ids : tokens of both
    first : how many are the prompt's
    """

    text: str
    answer: str
    ids: Ints
    first: int

    @property
    def tokens(self) -> Ints:
        """The answer's tokens."""
        return self.ids[self.first :]


@dataclass(frozen=True)
class Answered:
    """A fact with the model's answer.

    Attributes
    ----------
    fact : that was asked for
    queries : one per value, with it as the answer
    value : which of the fact's values the model writes; None for another
    log_p : of each value as the answer, by the model
    """

    fact: Fact
    queries: tuple[Query, ...]
    value: int | None
    log_p: tuple[float, ...]

    @property
    def query(self) -> Query:
        """The prompt with the model's answer."""
        assert self.value is not None
        return self.queries[self.value]

    @property
    def documents(self) -> tuple[int, ...]:
        """The documents that state the model's answer."""
        assert self.value is not None
        return self.fact.documents[self.value]

    @property
    def others(self) -> tuple[int, ...]:
        """The documents that state another value."""
        return tuple(i for v, some in enumerate(self.fact.documents) if v != self.value for i in some)

    @property
    def stated_by(self) -> str:
        """The number of documents that state each value."""
        return "/".join(str(len(some)) for some in self.fact.documents)


def asked(language: Language, facts: Sequence[Fact], folder: Path) -> list[Answered]:
    """Ask a model for facts.

    What it would write is known without writing: a value is its answer where each of the value's tokens is
    its first after those before, and the next one does not go on with the word.
    """
    several = [[_query(language, fact, value) for value in fact.values] for fact in facts]
    flat = [query for some in several for query in some]
    found = iter(_judged(language, flat, language.before([query.ids for query in flat], folder)))
    answered = []
    for fact, queries in zip(facts, several, strict=True):
        judged = [next(found) for _ in queries]
        value = next((i for i, (writes, _) in enumerate(judged) if writes), None)
        answered.append(Answered(fact, tuple(queries), value, tuple(log_p for _, log_p in judged)))
    return answered


def _query(language: Language, fact: Fact, value: str) -> Query:
    ids, first = language.prompts.continued(fact.query, f" {value}")
    return Query(fact.query, value, ids, first)


@torch.no_grad()
def _judged(language: Language, queries: Sequence[Query], read: Sequence[Read]) -> list[tuple[bool, float]]:
    """Return for each query whether the model writes its answer, and the answer's log-probability."""
    found = []
    for start in range(0, len(queries), _BATCH):
        some = range(start, min(start + _BATCH, len(queries)))
        states = torch.nn.utils.rnn.pad_sequence([read[i].states for i in some], batch_first=True)
        last = language.after(states)
        for row, i in enumerate(some):
            query = queries[i]
            rows = last[row, query.first - 1 : len(query.ids)]  # the last is after the whole answer
            found.append(_written(language, (rows @ language.head.T).log_softmax(1), query))
    return found


def _written(language: Language, log_p: Tensor, query: Query) -> tuple[bool, float]:
    tokens = torch.from_numpy(query.tokens)
    firsts = log_p.argmax(1)
    beyond: str = language.prompts.tokenizer.decode([int(firsts[-1])])
    own = bool((firsts[:-1] == tokens).all()) and not beyond[:1].isalnum()
    return own, float(log_p[:-1].gather(1, tokens[:, None]).sum())
