"""Where an answer comes from: for each token of a language model, the passages that it was learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from whence.core.arrays import Doubles, Ints, Mask
from whence.core.checks import check_count, check_that, is_integer
from whence.core.display import displayed, line, table
from whence.data.corpus import Around
from whence.explanation.record import Explanation

EDGES = (0, 1, 10, 100)
"""The least count of a token in the corpus, per band."""
LOW = 0.5
"""Agreement below which a surrogate is more often wrong about the model's token than right."""


@displayed()
class Band(NamedTuple):
    """Places whose token is about equally frequent in the corpus.

    Attributes
    ----------
    least, most : counts of the token in the corpus; None where there is no upper end
    places : number of places that were compared
    agreement : share of these where the surrogate predicts the model's token; None where there is none
    """

    least: int
    most: int | None
    places: int
    agreement: float | None

    @property
    def low(self) -> bool:
        """Whether surrogate and model disagree more often than not."""
        return self.agreement is not None and self.agreement < LOW

    @property
    def name(self) -> str:
        """The band as text."""
        if self.most is None:
            return f"{self.least:,}+"
        return str(self.least) if self.most == self.least else f"{self.least:,}–{self.most:,}"


@displayed("held_out", "places", "agreement", rows="columns")
@dataclass(frozen=True)
class Bands:
    """Share of places where the surrogate predicts the model's next token, by the token's frequency.

    Attributes
    ----------
    bands : from tokens that are not in the corpus to the most frequent
    held_out : whether the places are of documents that the surrogate was not fitted on
    """

    bands: tuple[Band, ...]
    held_out: bool

    @classmethod
    def of(cls, counts: Ints, agrees: Mask, *, held_out: bool) -> Bands:
        """Sort places (P,) by how often the model's token is in the corpus."""
        most = [*(edge - 1 for edge in EDGES[1:]), None]
        parts = [agrees[np.digitize(counts, EDGES) - 1 == i] for i in range(len(EDGES))]
        return cls(
            tuple(
                Band(low, high, len(part), float(part.mean()) if len(part) else None)
                for low, high, part in zip(EDGES, most, parts, strict=True)
            ),
            held_out,
        )

    @property
    def places(self) -> int:
        """How many places were compared."""
        return sum(band.places for band in self.bands)

    @property
    def agreement(self) -> float:
        """The share over all places."""
        return sum(band.places * (band.agreement or 0.0) for band in self.bands) / self.places

    @property
    def columns(self) -> dict[str, list[object]]:
        """The bands as columns of a table."""
        return {
            "token in the corpus": [band.name for band in self.bands],
            "places": [band.places for band in self.bands],
            "agreement": [band.agreement for band in self.bands],
        }

    def of_count(self, count: int) -> Band:
        """Return the band of a token by its count in the corpus."""
        return self.bands[int(np.digitize(check_count("count", count, 0), EDGES)) - 1]


@displayed("title", "score", "token")
@dataclass(frozen=True)
class Passage:
    """A place of the corpus where a token was learned, with its score for a token of an answer.

    Attributes
    ----------
    index : of the training sample
    document, title, place : the document's number and title, and the place among its tokens
    score : its part of the surrogate's logit; positive is evidence for the token of the answer
    around : the words before it, the token that was learned there, and the words after it
    copies : other documents with the same text, whose scores are included
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
    """A token of an answer, and the passages that support and contradict it.

    Attributes
    ----------
    text, id : the token, with the blank before it where there is one
    probability, rank : by the model, 1 for its most probable token
    logit : the surrogate's; the scores of all training samples sum to it
    first, surrogate_first : the most probable tokens by the model and by the surrogate
    agrees : whether these are the same; where they are not, the passages do not lead to it
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
class ScoredDocument:
    """A document with the scores of all its places for an answer.

    Attributes
    ----------
    document, title : its number and title
    score : the sum over its places and over the tokens of the answer
    scores : (T,) the same for each token
    copies : other documents with the same text, whose scores are included
    """

    document: int
    title: str
    score: float
    scores: Doubles
    copies: tuple[int, ...] = ()


@displayed()
@dataclass(frozen=True)
class Changed:
    """How a token of an answer changes where documents are left out.

    Attributes
    ----------
    text : the token
    before, after : the surrogate's logit of it
    was_first, is_first : whether it is the surrogate's prediction, before and after
    instead : the surrogate's prediction after the change
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
    """An answer by the surrogate, re-solved exactly without some documents.

    Attributes
    ----------
    documents, titles : what was left out
    n_samples : the training samples in it
    tokens : how each token of the answer changes
    """

    documents: tuple[int, ...]
    titles: tuple[str, ...]
    n_samples: int
    tokens: tuple[Changed, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """The tokens that the surrogate predicts before the change, and not after it."""
        return tuple(token.text for token in self.tokens if token.was_first and not token.is_first)


class Tracer(Protocol):
    """The explainer that traced an answer, as a trace uses it."""

    def explain(self, trace: Trace, token: int) -> Explanation:
        """Explain one token, with relevance maps."""

    def without(self, trace: Trace, documents: Sequence[int], features: Any) -> Without:
        """Solve the surrogate again without documents."""


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Where an answer comes from: the evidence in the corpus for each of its tokens, and for all of it.

    Attributes
    ----------
    prompt, answer : the texts
    written : whether the model generated the answer; else it was given
    ids, start : (P + T,) all tokens, and the number P of those of the prompt
    tokens : of the answer, T
    scores : csr_array (T, documents), the scores of all places of a document; rows sum to the logits
    proponents, opponents : the documents with most evidence for and against the whole answer
    k : passages and documents of either sign
    n_train, n_support, n_documents : places of the corpus, those that can score, and its documents
    gap : relative duality gap of the surrogate, the certificate of its scores
    bands : agreement of surrogate and model by the token's frequency; None where that was not asked for
    tracer : the explainer
    """

    prompt: str
    answer: str
    written: bool
    ids: Ints
    start: int
    tokens: tuple[Token, ...]
    scores: csr_array
    proponents: tuple[ScoredDocument, ...]
    opponents: tuple[ScoredDocument, ...]
    k: int
    n_train: int
    n_support: int
    n_documents: int
    gap: float
    bands: Bands | None
    tracer: Tracer

    @property
    def agreement(self) -> float:
        """The share of the answer's tokens at which surrogate and model predict the same."""
        return float(np.mean([token.agrees for token in self.tokens]))

    def __len__(self) -> int:
        """Return the number of tokens of the answer."""
        return len(self.tokens)

    def __getitem__(self, token: int) -> Token:
        """Return a token of the answer."""
        return self.tokens[token]

    def band(self, token: int) -> Band | None:
        """Return the band of a token's frequency; None where that is not known."""
        token = self.check_token(token)
        return None if self.bands is None else self.bands.of_count(self.tokens[token].count)

    def explain(self, token: int) -> Explanation:
        """Explain a token of the answer: its passages, with relevance on their words and on the prompt.

        Parameters
        ----------
        token
            Its place in the answer; −1 for the last.
        """
        return self.tracer.explain(self, self.check_token(token))

    def without(self, documents: Sequence[int], features: Any = None) -> Without:
        """Solve the surrogate again without some documents, exactly, and return how the answer changes.

        The model itself is unchanged: that it would forget these documents is predicted, not measured.

        Parameters
        ----------
        documents
            Their numbers.
        features
            Of all training samples, an array (train, d) or a FeatureBank; None takes them from the cache of
            the fit, or computes them.
        """
        return self.tracer.without(self, documents, features)

    def check_token(self, token: Any) -> int:
        """Return the place of a token in the answer, counted from its beginning, or raise."""
        rule = f"be the place of one of the answer's {len(self)} tokens"
        check_that(is_integer(token) and -len(self) <= token < len(self), "token", rule, token)
        return int(token) % len(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything shown, in plain types that JSON takes."""
        return {
            "prompt": self.prompt,
            "answer": self.answer,
            "written": self.written,
            "agreement": self.agreement,
            "gap": self.gap,
            "tokens": [_plain_token(token) for token in self.tokens],
            "proponents": [_plain(source) for source in self.proponents],
            "opponents": [_plain(source) for source in self.opponents],
            "bands": None if self.bands is None else [band._asdict() for band in self.bands.bands],
        }

    def __repr__(self) -> str:
        first = self.proponents[0].title if self.proponents else None
        facts = {"prompt": self.prompt, "answer": self.answer, "tokens": len(self)}
        return line("Trace", {**facts, "agreement": self.agreement, "source": first})

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
            Where to write it; None writes no file.

        Returns
        -------
        The path as a string, or without a path the page itself. Texts are escaped.
        """
        from whence.explanation.page import write_trace

        return write_trace(self, path)


def _plain(source: ScoredDocument) -> dict[str, Any]:
    return {**vars(source), "scores": source.scores.tolist()}


def _plain_token(token: Token) -> dict[str, Any]:
    sides = {
        side: [{**vars(one), "around": one.around._asdict()} for one in getattr(token, side)]
        for side in ("proponents", "opponents")
    }
    return {**vars(token), **sides}
