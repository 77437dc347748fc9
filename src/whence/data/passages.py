"""Tokens as the text they stand for, cut where one likes: the words around a place, those of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from whence.core.arrays import Ints
from whence.data.corpus import Corpus

_BEFORE, _AFTER = 28, 14  # tokens around a place


class Around(NamedTuple):
    """A place of a document with the words around it.

    Attributes
    ----------
    before, token, after : the text of each, blanks included; … where it is cut
    """

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
    """Write tokens as text in parts, which begin at the first token and at each of some ascending places.

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
