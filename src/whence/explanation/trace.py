"""Whence an answer comes: of each token that a language model wrote, the passages it was learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Ints
from whence.core.checks import is_integer, shown
from whence.core.display import displayed, line, table
from whence.data.corpus import Around
from whence.errors import InvalidInputError
from whence.explanation.bands import Band, Bands
from whence.explanation.record import Explanation


@displayed("title", "score", "token")
@dataclass(frozen=True)
class Passage:
    """A place of the corpus where a token was learned, with what it adds to the token of an answer.

    Attributes
    ----------
    index : of the training sample
    document, title, place : where it lies: the document's number and title, and the place among its tokens
    score : its part of the surrogate's logit; positive is evidence for the token of the answer
    around : the words before it, the token that was learned there, and the words after it
    copies : other documents that have the same text; what they add there is counted in
    """

    index: int
    document: int
    title: str
    place: int
    score: float
    around: Around
    copies: tuple[int, ...] = ()

    @property
    def token(self) -> str:
        """The token that was learned there."""
        return self.around.token


@displayed("text", "probability", "rank", "logit", "agrees")
@dataclass(frozen=True)
class Token:
    """A token of an answer, and the passages that speak for and against it.

    Attributes
    ----------
    text, id : the token, with the blank before it where there is one
    probability, rank : what the model gives it, 1 for its first token
    logit : the surrogate's; the scores of all training samples sum to it
    first, surrogate_first : the tokens that the model and the surrogate would write here
    agrees : whether these are the same; where they are not, do not trust the passages
    count : how often the model's first token was learned in the corpus
    evidence_for, evidence_against : the sums of all positive and of all negative scores
    proponents, opponents : the strongest passages of either sign, strongest first
    """

    text: str
    id: int
    probability: float
    rank: int
    logit: float
    first: str
    surrogate_first: str
    agrees: bool
    count: int
    evidence_for: float
    evidence_against: float
    proponents: tuple[Passage, ...]
    opponents: tuple[Passage, ...]


@displayed("document", "title", "score")
@dataclass(frozen=True, eq=False)
class Source:
    """A document with what all its places add to an answer.

    Attributes
    ----------
    document, title : its number and title
    score : the sum over its places and over the tokens of the answer
    scores : (T,) the same for each token
    copies : other documents that have the same text; what they add is counted in
    """

    document: int
    title: str
    score: float
    scores: Doubles
    copies: tuple[int, ...] = ()


@displayed()
@dataclass(frozen=True)
class Changed:
    """What becomes of a token of an answer where documents are left out.

    Attributes
    ----------
    text : the token
    before, after : the surrogate's logit of it
    was_first, is_first : whether it is the token that the surrogate would write
    instead : the token that the surrogate would write after the change
    """

    text: str
    before: float
    after: float
    was_first: bool
    is_first: bool
    instead: str


@displayed("titles", "n_samples", "lost")
@dataclass(frozen=True)
class Without:
    """What the surrogate would say of an answer, had it not seen some documents: solved again, exactly.

    Attributes
    ----------
    documents, titles : what was left out
    n_samples : the training samples in it
    tokens : what becomes of each token of the answer
    """

    documents: tuple[int, ...]
    titles: tuple[str, ...]
    n_samples: int
    tokens: tuple[Changed, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """The tokens that the surrogate would write before the change, and not after it."""
        return tuple(token.text for token in self.tokens if token.was_first and not token.is_first)


class Tracer(Protocol):
    """What an answer can be asked further, by the explainer that traced it."""

    def explain(self, trace: Trace, token: int) -> Explanation:
        """Explain one token, with relevance maps."""

    def without(self, trace: Trace, documents: Sequence[int], features: Any) -> Without:
        """Solve again without documents."""


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Whence an answer comes: what every token of it rests on in the corpus, and what the whole of it does.

    Attributes
    ----------
    prompt, answer : the texts
    written : whether the model wrote the answer; else it was given
    ids, start : (P + T,) all tokens, and the number P of those of the prompt
    tokens : of the answer, T
    scores : csr_array (T, documents), the scores of all places of a document; rows sum to the logits
    proponents, opponents : the documents that speak most for and against the whole answer
    k : passages and documents of either sign
    n_train, n_support, n_documents : places of the corpus, those that can score, and its documents
    gap : relative duality gap of the surrogate, the certificate of its scores
    bands : how often the surrogate names the model's token in places like those of the answer; None where
        nobody asked
    tracer : what explains further
    """

    prompt: str
    answer: str
    written: bool
    ids: Ints
    start: int
    tokens: tuple[Token, ...]
    scores: csr_array
    proponents: tuple[Source, ...]
    opponents: tuple[Source, ...]
    k: int
    n_train: int
    n_support: int
    n_documents: int
    gap: float
    bands: Bands | None
    tracer: Tracer

    @property
    def agreement(self) -> float:
        """The share of the answer's tokens at which surrogate and model would write the same."""
        return float(np.mean([token.agrees for token in self.tokens]))

    def __len__(self) -> int:
        """Return the number of tokens of the answer."""
        return len(self.tokens)

    def __getitem__(self, token: int) -> Token:
        """Return a token of the answer."""
        return self.tokens[token]

    def band(self, token: int) -> Band | None:
        """Return how the surrogate does in places like that of a token; None where it is not known."""
        return None if self.bands is None else self.bands.of_count(self.tokens[token].count)

    def explain(self, token: int) -> Explanation:
        """Explain a token of the answer: its passages, with relevance on their words and on what was written.

        Parameters
        ----------
        token
            Its place in the answer; −1 for the last.
        """
        return self.tracer.explain(self, self.check_token(token))

    def without(self, documents: Sequence[int], features: Any = None) -> Without:
        """Return what the surrogate would say of the answer, had it not seen some documents.

        The surrogate is solved again without all their places, exactly. The model itself stays as it is:
        that it would forget what they say is foretold, not measured.

        Parameters
        ----------
        documents
            Their numbers.
        features
            Of all training samples, an array (train, d) or a FeatureBank; None takes them from the cache of
            the fit, or has the model compute them.
        """
        return self.tracer.without(self, documents, features)

    def check_token(self, token: Any) -> int:
        """Return the place of a token in the answer, counted from its beginning, or raise."""
        if not is_integer(token) or not -len(self) <= token < len(self):
            raise InvalidInputError(
                f"'token' must be the place of one of the answer's {len(self)} tokens. Got {shown(token)}."
            )
        return int(token) % len(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all that is shown, in plain types that JSON takes."""
        kinds = {"prompt": self.prompt, "answer": self.answer, "written": self.written}
        return {
            **kinds,
            "agreement": self.agreement,
            "gap": self.gap,
            "tokens": [_plain_token(token) for token in self.tokens],
            "proponents": [_plain(source) for source in self.proponents],
            "opponents": [_plain(source) for source in self.opponents],
            "bands": None if self.bands is None else [band._asdict() for band in self.bands.bands],
        }

    def __repr__(self) -> str:
        first = self.proponents[0].title if self.proponents else None
        told = {"prompt": self.prompt, "answer": self.answer, "tokens": len(self)}
        return line("Trace", {**told, "agreement": self.agreement, "source": first})

    def _repr_html_(self) -> str:
        facts = {"prompt": self.prompt, "answer": self.answer, "agreement": self.agreement}
        best = [token.proponents[0] if token.proponents else None for token in self.tokens]
        rows: dict[str, list[Any]] = {
            "token": [token.text for token in self.tokens],
            "probability": [token.probability for token in self.tokens],
            "surrogate agrees": [token.agrees for token in self.tokens],
            "strongest passage": ["" if one is None else "".join(one.around) for one in best],
            "document": ["" if one is None else one.title for one in best],
            "score": [0.0 if one is None else one.score for one in best],
        }
        return table("Trace", facts, rows)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Write the answer as a page that needs no network and no scripts, with words to click.

        Parameters
        ----------
        path
            Where to write it; None only returns it.

        Returns
        -------
        The page. Texts are escaped.
        """
        from whence.explanation.trace_page import write

        return write(self, path)


def _plain(source: Source) -> dict[str, Any]:
    return {**vars(source), "scores": source.scores.tolist()}


def _plain_token(token: Token) -> dict[str, Any]:
    sides = {
        side: [{**vars(one), "around": one.around._asdict()} for one in getattr(token, side)]
        for side in ("proponents", "opponents")
    }
    return {**vars(token), **sides}
