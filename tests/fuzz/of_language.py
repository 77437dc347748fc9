"""The calls of corpora and traces, each with arguments that are right."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import whence
from tests.fuzz import kinds, things, world
from tests.fuzz.calling import Arg, Call, need
from tests.helpers import writers
from whence.data import Corpus

TEXT = kinds.without(kinds.JUNK, "text") + kinds.wrong(number=lambda v: 3, texts=lambda v: ["the"])
NEW = kinds.without(kinds.count(), "large", "huge")  # which a small model has no room for
DOCUMENT = need(kinds.count(0, most=len(writers.TEXTS) - 1), lambda: 1)
SOME = need(kinds.without(things.INDICES, "empty") + kinds.NONE, lambda: [2])
DOCUMENTS = (
    kinds.without(kinds.JUNK, "text")
    + kinds.wrong(
        text=lambda v: "the cat", none_at_all=lambda v: [], numbers=lambda v: [1, 2], nones=lambda v: [None]
    )
    + kinds.odd(
        tuple=tuple, named=lambda v: [{"text": one} for one in v], generator=lambda v: (one for one in v)
    )
)


@functools.cache
def corpus() -> Corpus:
    return Corpus(writers.TEXTS, writers.tokenizer())


def _other(corpora: list[Corpus]) -> list[Corpus]:
    return [*corpora, Corpus(writers.TEXTS, writers.tokenizer(), length=5)]


@functools.cache
def explainer() -> whence.DualDA:
    return whence.DualDA(C=1.0, show_progress=False).fit(writers.taught(writers.llama()), corpus())


@functools.cache
def trace() -> Any:
    return explainer().trace("mira lives in", " tolm .")


LANGUAGE = [
    Call(
        "Corpus",
        lambda: Corpus,
        {
            "documents": need(DOCUMENTS + kinds.NONE, lambda: list(writers.TEXTS)),
            "tokenizer": need(kinds.JUNK + kinds.NONE, writers.tokenizer),
            "length": Arg(kinds.count(2), lambda: 8),
        },
        lambda found, args: len(found) > 0,
    ),
    Call("Corpus.text", lambda: corpus().text, {"document": DOCUMENT}),
    Call("Corpus.title", lambda: corpus().title, {"document": DOCUMENT}),
    Call("Corpus.tokens", lambda: corpus().tokens, {"document": DOCUMENT}),
    Call("Corpus.position", lambda: corpus().position, {"index": need(kinds.count(0), lambda: 3)}),
    Call("Corpus.of_documents", lambda: corpus().of_documents, {"documents": SOME}),
    Call("Corpus.firsts", lambda: corpus().firsts, {}, lambda found, args: len(found) == len(writers.TEXTS)),
    Call(
        "Corpus.more",
        lambda: corpus().more,
        {"documents": need(DOCUMENTS + kinds.NONE, lambda: ["the cat sat on the rug ."])},
        lambda found, args: found.length == corpus().length,
    ),
    Call(
        "Corpus.joined",
        lambda: Corpus.joined,
        {
            "corpora": need(
                kinds.JUNK
                + kinds.NONE
                + kinds.wrong(
                    none_at_all=lambda v: [], one=lambda v: v[0], texts=lambda v: ["the cat"], other=_other
                )
                + kinds.odd(tuple=tuple, alone=lambda v: v[:1]),
                lambda: [corpus(), corpus().more(["the cat sat on the rug ."])],
            )
        },
        lambda found, args: found.n_documents >= len(writers.TEXTS),
    ),
    Call(
        "Corpus.hardest",
        lambda: corpus().hardest,
        {
            "losses": need(kinds.numbers(columns=False), lambda: np.arange(len(corpus()), dtype=np.float64)),
            "share": need(kinds.number(0.0, 1.0, most=True), lambda: 0.5),
        },
        lambda found, args: 0 < len(found) <= len(corpus()),
    ),
    Call(
        "DualDA.trace",
        lambda: explainer().trace,
        {
            "prompt": need(TEXT + kinds.NONE, lambda: "the cat sat"),
            "continuation": Arg(TEXT, lambda: " on the mat ."),
            "k": Arg(kinds.count(), lambda: 2),
            "max_new_tokens": Arg(NEW, lambda: 3),
        },
        lambda found, args: len(found.tokens) > 0,
    ),
    Call(
        "DualDA.faithfulness_by_frequency",
        lambda: explainer().faithfulness_by_frequency,
        {"documents": Arg(DOCUMENTS, lambda: ["the cat sat on the rug ."])},
        lambda found, args: 0 <= found.agreement <= 1,
    ),
    Call(
        "Trace.explain",
        lambda: trace().explain,
        {"token": need(kinds.without(kinds.count(0, most=1), "below"), lambda: 0)},
    ),
    Call("Trace.without", lambda: trace().without, {"documents": SOME}),
    Call(
        "Trace.to_html",
        lambda: trace().to_html,
        {"path": Arg(kinds.may(things.PATH, "none"), lambda: world.folder() / "t.html")},
    ),
    Call("Trace.to_dict", lambda: trace().to_dict, {}),
]
