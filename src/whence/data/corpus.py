"""A corpus that a language model was trained on: every place in it where a next token was learned."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from torch.utils.data import Dataset

from whence.core.arrays import Ints, Mask
from whence.core.checks import (
    check_count,
    check_finite,
    check_places,
    check_several,
    check_shape,
    check_share,
    check_that,
    real_array,
    shown,
)
from whence.core.display import displayed
from whence.data.text import Prompts
from whence.errors import InvalidInputError

_TEXT = ("text", "content")
_PAIR = ("prompt", "completion")
_BEFORE, _AFTER = 28, 14  # tokens shown around a place


class Position(NamedTuple):
    """Where in a corpus a token was learned."""

    document: int  # its number
    token: int  # the token's place among the document's tokens


@displayed("n_documents", "__len__", "length")
class Corpus(Dataset[Any]):
    """Documents as a training set: a sample is a token in its place, and its input what comes before it.

    ``DualDA().fit(language_model, corpus)`` explains the next token by the places of the corpus where a
    model was tuned. A document longer than ``length`` is read in windows of so many tokens, each for itself.

    Parameters
    ----------
    documents
        Texts; or mappings with a ``text``, or with a ``prompt`` and its ``completion``, of which only the
        completion was learned. A list, or a ``datasets.Dataset``.
    tokenizer
        The model's, of transformers.
    length
        Tokens that the model sees at once.
    titles
        One per document, for display; None takes the beginning of each.

    Attributes
    ----------
    labels : (N,) the tokens that were learned
    document, place : (N,) the document of each, and its place among the document's tokens
    prompts : makes the model's inputs of texts

    Examples
    --------
    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import PreTrainedTokenizerFast
    >>> words = Tokenizer(models.WordLevel({"?": 0, "the": 1, "sea": 2, "is": 3, "blue": 4}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> corpus = Corpus(["the sea is blue"], PreTrainedTokenizerFast(tokenizer_object=words))
    >>> len(corpus), corpus.labels.tolist(), corpus[2]
    (3, [2, 3, 4], (array([1, 2, 3]), 4))
    """

    def __init__(
        self,
        documents: Iterable[Any],
        tokenizer: Any,
        *,
        length: int = 512,
        titles: Sequence[str] | None = None,
    ) -> None:
        usable = callable(tokenizer) and hasattr(tokenizer, "convert_ids_to_tokens")
        fix = "Load it with AutoTokenizer.from_pretrained."
        check_that(usable, "tokenizer", "be the model's, of transformers", tokenizer, fix)
        check_several("documents", documents, "several texts, such as a list of them")
        self.prompts, self.length = Prompts(tokenizer), check_count("length", length, 2)
        parts = [_parts(i, one) for i, one in enumerate(documents)]
        tokens, learned = self._read(parts)
        self._starts = np.concatenate([[0], np.cumsum([len(row) for row in tokens])])
        self._tokens = np.concatenate([*tokens, np.empty(0, np.int64)]).astype(np.int32)
        self.titles = None if titles is None else _titles(titles, len(parts))
        self._texts = ["".join(part) for part in parts]
        places = [np.flatnonzero(mask) for mask in learned]
        self.document = np.repeat(np.arange(len(parts)), list(map(len, places)))
        self.place = np.concatenate([*places, np.empty(0, np.int64)])
        check_that(len(self.place), "documents", "have a token that follows another", self._texts)
        self.labels = self._tokens[self._starts[self.document] + self.place].astype(np.int64)

    def _read(self, parts: list[tuple[str, str]]) -> tuple[list[Ints], list[Mask]]:
        """Return each document's tokens, and which of them were learned."""
        tokens, learned = [], []
        for prompt, text in parts:
            ids, first = self.prompts.continued(prompt, text) if prompt else (self.prompts.tokens(text), 0)
            mask = np.arange(len(ids)) >= max(first, 1)  # nothing comes before the first
            tokens.append(ids)
            learned.append(mask)
        return tokens, learned

    def __len__(self) -> int:
        """Return the number of places where a token was learned."""
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Ints, int]:
        """Return the tokens before a place, as far as the model saw them, and the token there."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"'index' must lie in [0, {len(self)}). Got {index}.")
        start, place = self._starts[self.document[index]], int(self.place[index])
        seen = (place - 1) // self.length * self.length
        return self._tokens[start + seen : start + place].astype(np.int64), int(self.labels[index])

    def hardest(self, losses: Any, share: float) -> Self:
        """Return the corpus with only a share of its places: those with the least likely next tokens.

        What is left out is context still, but no sample. Losses of the model *before* it was tuned keep what
        tuning had to teach; those of the tuned model would leave out what it learned best. There is one per
        sample, as of ``whence.model.token_losses(model, corpus)``. ``share`` is above 0 and up to 1.
        """
        share, given = check_share("share", share, whole=True), real_array("losses", losses)
        check_shape("losses", given, (len(self),), "be one number per sample, ")
        check_finite("losses", given)
        n = max(1, round(share * len(self)))
        kept = np.sort(np.argsort(-given.astype(np.float64), kind="stable")[:n])
        other = copy.copy(self)
        other.document, other.place, other.labels = self.document[kept], self.place[kept], self.labels[kept]
        return other

    def more(self, documents: Any) -> Corpus:
        """Return other documents as a corpus that is read as this one; a corpus unchanged."""
        return (
            documents
            if isinstance(documents, Corpus)
            else Corpus(documents, self.tokenizer, length=self.length)
        )

    @classmethod
    def joined(cls, corpora: Sequence[Corpus]) -> Corpus:
        """Return several corpora as one, whose samples and documents come one after the other."""
        given = isinstance(corpora, Sequence) and all(isinstance(corpus, Corpus) for corpus in corpora)
        if not given or not corpora:
            raise InvalidInputError(f"'corpora' must be a list of one Corpus or more. Got {corpora!r:.80}.")
        first = corpora[0]
        if len(corpora) == 1:
            return first
        for other in corpora[1:]:
            if other.length != first.length or not _alike(first.tokenizer, other.tokenizer):
                raise InvalidInputError(
                    "Corpora that are put together must have the same tokenizer and length. Got lengths "
                    f"{first.length} and {other.length}, vocabularies of {len(first.tokenizer):,} and "
                    f"{len(other.tokenizer):,} tokens. Make the second by first.more(documents)."
                )
        made, before = copy.copy(first), np.cumsum([0, *(corpus.n_documents for corpus in corpora)])
        ends = np.cumsum([0, *(len(corpus._tokens) for corpus in corpora)])
        made._tokens = np.concatenate([corpus._tokens for corpus in corpora])
        made._starts = np.concatenate(
            [[0], *(n + corpus._starts[1:] for n, corpus in zip(ends[:-1], corpora, strict=True))]
        )
        made._texts = [text for corpus in corpora for text in corpus._texts]
        made.document = np.concatenate(
            [n + corpus.document for n, corpus in zip(before[:-1], corpora, strict=True)]
        )
        made.place, made.labels = (
            np.concatenate([getattr(corpus, name) for corpus in corpora]) for name in ("place", "labels")
        )
        if any(corpus.titles is not None for corpus in corpora):
            made.titles = tuple(corpus.title(i) for corpus in corpora for i in range(corpus.n_documents))
        return made

    @property
    def n_documents(self) -> int:
        """The number of documents."""
        return len(self._texts)

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self.prompts.tokenizer

    def text(self, document: int) -> str:
        """Return a document as it was given."""
        return self._texts[self._known(document)]

    def title(self, document: int) -> str:
        """Return a document's title, or its beginning."""
        document = self._known(document)
        if self.titles is not None:
            return self.titles[document]
        line = next((line.strip() for line in self._texts[document].splitlines() if line.strip()), "")
        return line if len(line) <= 80 else f"{line[:79].rstrip()}…"

    def firsts(self) -> Ints:
        """Return for each document (documents,) the first that has the same text, mostly itself."""
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(text, i) for i, text in enumerate(self._texts)], np.int64)

    def tokens(self, document: int) -> Ints:
        """Return a document's tokens."""
        document = self._known(document)
        return self._tokens[self._starts[document] : self._starts[document + 1]].astype(np.int64)

    def position(self, index: int) -> Position:
        """Return where a sample lies."""
        index = check_count("index", index, 0, len(self) - 1)
        return Position(int(self.document[index]), int(self.place[index]))

    def of_documents(self, documents: Sequence[int] | Ints) -> Ints:
        """Return the samples that lie in these documents, ascending."""
        wanted = check_places("documents", documents, self.n_documents)
        return np.flatnonzero(np.isin(self.document, wanted))

    def _known(self, document: int) -> int:
        """Return the number of a document, or raise where there is none."""
        return check_count("document", document, 0, self.n_documents - 1)


def _titles(titles: Any, n: int) -> tuple[str, ...]:
    """Return titles, of which several may be the same, or raise unless they are texts, one per document."""
    texts = () if isinstance(titles, str) or not isinstance(titles, Iterable) else tuple(titles)
    fits = len(texts) == n and all(isinstance(title, str) for title in texts)
    check_that(fits, "titles", f"be {n} texts, one per document", titles)
    return texts


def _alike(tokenizer: Any, other: Any) -> bool:
    """Whether two tokenizers have the same tokens."""
    return tokenizer is other or tokenizer.get_vocab() == other.get_vocab()


def _parts(number: int, document: Any) -> tuple[str, str]:
    """Return the prompt of a document, which is empty where it has none, and its text, or raise."""
    if isinstance(document, Mapping):
        if all(isinstance(document.get(name), str) for name in _PAIR):
            return document[_PAIR[0]], document[_PAIR[1]]
        document = next((document[name] for name in _TEXT if name in document), document)
    if not isinstance(document, str):
        raise InvalidInputError(
            f"'documents' must be texts, or mappings with a text, or with prompt and completion, as texts. "
            f"Got {shown(document)} as number {number}."
        )
    return "", document


class Around(NamedTuple):
    """A place of a document with the words around it, blanks included; … where they are cut."""

    before: str
    token: str
    after: str


def around(corpus: Corpus, index: int) -> Around:
    """Return the words around a sample of a corpus."""
    document, place = corpus.position(index)
    ids = corpus.tokens(document)
    first, last = max(place - _BEFORE, 0), min(place + 1 + _AFTER, len(ids))
    before, token, after = cut(corpus.tokenizer, ids[first:last], [place - first, place + 1 - first])
    return Around(
        f"… {before.lstrip()}" if first else before, token, after + (" …" if last < len(ids) else "")
    )


def cut(tokenizer: Any, ids: Ints, places: Sequence[int]) -> list[str]:
    """Write tokens as text in parts, which begin at the first token and at each of ascending places.

    Parts put together are the text of all tokens, wherever the text of the first tokens is the beginning of
    that of more. Where it is not, as between the bytes of a character, a part is written for itself.
    """
    ends = [*places, len(ids)]
    texts = [_text(tokenizer, ids[:end]) for end in ends]
    parts = texts[:1]
    for i in range(1, len(ends)):
        follows = texts[i].startswith(texts[i - 1])
        parts.append(
            texts[i][len(texts[i - 1]) :] if follows else _text(tokenizer, ids[ends[i - 1] : ends[i]])
        )
    return parts


def _text(tokenizer: Any, ids: Ints) -> str:
    text: str = tokenizer.decode(ids.tolist(), clean_up_tokenization_spaces=False)
    return text
