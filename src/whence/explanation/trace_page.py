"""Whence an answer comes, as one page that needs no network and no scripts: its words are links."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whence.core import store
from whence.core.checks import check_path
from whence.core.display import counted
from whence.explanation.bands import LOW
from whence.explanation.page import style as explanation_style
from whence.pages.render import Look, read, render
from whence.pages.style import ends, one_line, percent
from whence.pages.texts import readable

if TYPE_CHECKING:
    from whence.explanation.trace import Passage, Source, Trace


class Group(NamedTuple):
    """Passages of one document.

    Attributes
    ----------
    document, title : of the document
    score : the sum of the passages that are shown
    passages : the strongest first
    copies : other documents that have the same text
    """

    document: int
    title: str
    score: float
    passages: tuple[Passage, ...]
    copies: tuple[int, ...]


def write(trace: Trace, path: str | PathLike[str] | None) -> str:
    """Render the page, and write it where a path is given."""
    html = render("trace.html", [__package__], look(trace), **shown(trace))
    if path is not None:
        store.write_text(check_path("path", path), html)
    return html


def look(trace: Trace | None, *, asks: bool = False) -> Look:
    """Return the style of a page that shows an answer, with a rule for each of its words."""
    chosen = [
        f'main:has(#t{i}:target) .answer a[href="#t{i}"]' for i in range(0 if trace is None else len(trace))
    ]
    rule = f"\n{', '.join(chosen)} {{ background: var(--ink); color: var(--paper); }}\n" if chosen else ""
    return Look(_style() + rule, asks=asks)


def shown(trace: Trace) -> dict[str, Any]:
    """Return what the templates show of an answer."""
    return {
        "trace": trace,
        "sentences": sentences(trace),
        "grouped": grouped,
        "strongest_tokens": lambda source: strongest_tokens(trace, source),
        "full": max(
            (float(np.abs(s.scores).max()) for s in (*trace.proponents, *trace.opponents)), default=0.0
        ),
    }


def sentences(trace: Trace) -> list[str]:
    """Say in plain words what an answer rests on, and how far to trust that."""
    n, documents = len(trace), counted(trace.n_documents, "document")
    titles = " and ".join(f"“{ends(one_line(source.title))}”" for source in trace.proponents[:2])
    first = f"Of {documents}, what speaks most for this answer is {titles}."
    if not titles:
        first = f"None of the {documents} speaks for this answer."
    if not trace.written:
        own = sum(token.rank == 1 for token in trace.tokens)
        first += f" It was given: of its words the model itself would write {own} of {n}."
    same = sum(token.agrees for token in trace.tokens)
    share = (
        f"all {counted(n, 'word')}" if same == n else f"{same} of {counted(n, 'word')}, {percent(same / n)}"
    )
    trust = (
        f"The surrogate, of whose logits the scores are parts, would write the same as the model at {share}"
    )
    trust += "." if same == n else ": do not trust the passages of the others, which are dotted."
    return [first, trust, *_doubt(trace)]


def _doubt(trace: Trace) -> list[str]:
    """Say that the surrogate does not stand for the model, where it does so in less than half of places."""
    bands = trace.bands
    if bands is None or bands.agreement >= LOW:
        return []
    where = "documents that it has not seen" if bands.held_out else "the corpus that it was fitted on"
    return [
        f"⚠ Agreement is low: in {counted(bands.places, 'place')} of {where} the surrogate names the model’s "
        f"word in {percent(bands.agreement)} only. Where it does not, its passages say little of the model."
    ]


def grouped(passages: Sequence[Passage]) -> list[Group]:
    """Put passages of one document together, the documents of the largest sums first."""
    found: dict[int, list[Passage]] = {}
    for passage in passages:
        found.setdefault(passage.document, []).append(passage)
    groups = [
        Group(document, some[0].title, sum(one.score for one in some), tuple(some), some[0].copies)
        for document, some in found.items()
    ]
    return sorted(groups, key=lambda group: -abs(group.score))


def strongest_tokens(trace: Trace, source: Source) -> list[tuple[str, float]]:
    """Name up to three words of an answer that a document speaks most for, or against, with its scores."""
    sign = 1 if source.score > 0 else -1
    order = np.argsort(-sign * source.scores, kind="stable")[:3]
    return [
        (readable(trace.tokens[i].text), float(source.scores[i]))
        for i in order.tolist()
        if source.scores[i] * sign > 0
    ]


@cache
def _style() -> str:
    return explanation_style() + read(__package__, "templates/trace.css")
