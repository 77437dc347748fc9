"""Readable tokens, with the spelling and white space of their text, and headlines of texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

_SHORT = 160  # letters of a text that needs no headline
_HEADLINE = 200  # maximum letters of a headline
_MARKS = ("Ġ", "Ċ", "▁")  # marks of tokenizers for blanks and line ends
_CLOSING = set(",.;:!?)]}%…’”")
_OPENING = set("([{$£€#@“‘")
_BINDING = set("-/_")
_ENDINGS = {"s", "t", "re", "ve", "ll", "d", "m"}  # after an apostrophe


def spelled(ids: Sequence[int], tokenizer: Any, text: str | None = None) -> tuple[str, ...]:
    """Make tokens readable, each with the white space before it.

    Joined they are the text as far as it was read, where that is known and the tokenizer returns the letters
    of its tokens; else what the tokenizer makes of them. Tokens that are not part of the text, such as [CLS],
    are empty, and so are those that only end a letter of which another token has the beginning.
    """
    left_out = _not_written(tokenizer)
    written = None if text is None else _as_written(list(ids), tokenizer, text, left_out)
    return _joined(list(ids), tokenizer, left_out) if written is None else written


def _not_written(tokenizer: Any) -> set[int]:
    """Return which tokens are special, without text; unknown or masked words are part of the text."""
    added = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "pad", "cls", "sep")}
    words = {getattr(tokenizer, f"{name}_token_id", None) for name in ("unk", "mask")}
    return set(tokenizer.all_special_ids) - (words - added)


def _as_written(ids: list[int], tokenizer: Any, text: str, left_out: set[int]) -> tuple[str, ...] | None:
    """Cut a text into its tokens; None if these are not its tokens, or offsets are unknown."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    for special in (True, False):
        read = tokenizer(
            text,
            truncation=True,
            max_length=len(ids),
            add_special_tokens=special,
            return_offsets_mapping=True,
        )
        if read["input_ids"] == ids:
            break
    else:
        return None
    out, end = [], 0
    for token, (_, stop) in zip(ids, read["offset_mapping"], strict=True):
        stop = end if token in left_out else max(end, stop)
        piece = text[end:stop]
        out.append(piece if end else piece.lstrip())
        end = stop
    return tuple(out)


def _joined(ids: list[int], tokenizer: Any, left_out: set[int]) -> tuple[str, ...]:
    """Join tokens by their marks of blanks, or by rules of English spacing."""
    pieces = [
        "" if token in left_out else piece
        for token, piece in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True)
    ]
    if not any(mark in piece for piece in pieces for mark in _MARKS):
        return tuple(_spaced(pieces))
    out, held = [""] * len(pieces), []
    for place, piece in enumerate(pieces):
        if not piece:
            continue
        held.append(place)
        run = [pieces[i] for i in held]
        written = (
            "".join(run).replace("▁", " ")
            if any("▁" in part for part in run)
            else tokenizer.convert_tokens_to_string(run)
        )
        if "\ufffd" not in written or place + 1 == len(
            pieces
        ):  # otherwise a character continues in the next token
            out[held[0]], held = written, []
    return tuple(out)


def _spaced(pieces: Sequence[str]) -> list[str]:
    """Add blanks before the words of a tokenizer that drops them: not before a comma, not inside 1.13bn."""
    out: list[str] = []
    before, last, open_quotes = "", "", set()
    for place, piece in enumerate(pieces):
        if not piece:
            out.append("")
            continue
        word = piece.removeprefix("##")
        following = next((other for other in pieces[place + 1 :] if other), "")
        glued = piece.startswith("##") or not last or word[0] in _CLOSING or last in _OPENING
        glued |= word in _BINDING or last in _BINDING
        glued |= last in (".", ",", ":") and before[-1:].isdigit() and word[0].isdigit()
        glued |= last == "'" and word in _ENDINGS
        if word in ("'", '"'):
            if word == "'" and following in _ENDINGS:
                glued = True
            elif word in open_quotes:
                open_quotes.discard(word)
                glued = True
            else:
                open_quotes.add(word)
        glued |= last in open_quotes
        out.append(word if glued else f" {word}")
        before, last = last, word
    return out


def headline(tokens: Sequence[str]) -> int:
    """Count the tokens of a text's headline: its first line or sentence; 0 for short texts."""
    if sum(map(len, tokens)) <= _SHORT:
        return 0
    letters, sentence, words = 0, 0, 0
    for place, token in enumerate(tokens):
        lead = token[: len(token) - len(token.lstrip())]
        if letters and "\n" in lead:
            return place
        if not sentence and lead and re.search(r"[.!?][\"'”’)]*$", "".join(tokens[:place])):
            sentence = place
        if lead and letters <= _HEADLINE * 0.6:
            words = place
        letters += len(token)
        if letters > _HEADLINE:
            break
    return sentence or words


def begun(tokens: Sequence[str], n: int) -> tuple[str, ...]:
    """Return the first n tokens of a text, with … if it is cut."""
    return tuple(tokens) if len(tokens) <= n else (*tokens[:n], " …")


def words_of(tokens: Sequence[str]) -> list[range]:
    """Group tokens into words, which are separated by white space."""
    starts = [i for i, token in enumerate(tokens) if token and (token[0].isspace() or not any(tokens[:i]))]
    return [range(a, b) for a, b in itertools.pairwise([*starts, len(tokens)])]


def readable(token: str) -> str:
    """Write a token on one line: a token of line ends or blanks only as a sign.

    These may be relevant but would be invisible. Empty tokens stay empty.
    """
    if not token.strip():
        return token and ("↵" if "\n" in token else " ␣")
    return (" " if token[0].isspace() else "") + " ".join(token.split())


def breaks(token: str) -> bool:
    """Return whether a line ends before a token's first letter."""
    return "\n" in token[: len(token) - len(token.lstrip())]
