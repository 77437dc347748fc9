"""A page to type a prompt, click a word of the answer, and see where it comes from; no script runs in it."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

import numpy as np
from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse

from whence.data import Corpus
from whence.errors import WhenceError
from whence.explanation.page import look, shown
from whence.explanation.trace import Trace, Without
from whence.pages.render import render
from whence.project import Project
from whence.ui.background import Background

_KEPT = 32  # answers that are kept, and as many questions of what if
_LETTERS = 8_000  # of the longest prompt
_MOST = 50  # passages of either sign
_NEW = 40  # tokens that the model generates
_TRY, _WORDS = 4, 6  # documents whose beginnings are offered, and how many words of each


class Asked(NamedTuple):
    """What is to be traced.

    Attributes
    ----------
    prompt : a text
    continuation : what follows; None has the model generate it
    k : passages of either sign
    """

    prompt: str
    continuation: str | None
    k: int

    def address(self, without: int | None = None) -> str:
        """Return the address of the page that answers, or of what if without a document."""
        query = {"prompt": self.prompt, "continuation": self.continuation or "", "k": self.k}
        if without is None:
            return f"write?{urlencode(query)}"
        return f"write?{urlencode({**query, 'without': without})}#without"


class Writing:
    """A project of a language model, and the answers that were asked for.

    Parameters
    ----------
    project : the explainer with its model and its corpus
    """

    def __init__(self, project: Project) -> None:
        self.project, self._lock = project, threading.Lock()
        self.bands = Background(lambda: project.bands)
        self._traced, self._left_out = lru_cache(_KEPT)(self._trace), lru_cache(_KEPT)(self._without)

    @property
    def corpus(self) -> Corpus:
        """What the model was tuned on."""
        corpus = self.project.explainer.fitted_.require_data().corpus
        assert corpus is not None
        return corpus

    def trace(self, asked: Asked) -> Trace:
        """Trace an answer; how far to trust it is shown as soon as it is known."""
        self.bands.begin()
        with self._lock:
            return replace(self._traced(asked), bands=self.bands.ready)

    def without(self, asked: Asked, document: int) -> Without:
        """Solve again without a document, and without others that have its text."""
        with self._lock:
            return self._left_out(asked, document)

    def _trace(self, asked: Asked) -> Trace:
        prompt, continuation, k = asked
        return self.project.explainer.trace(prompt, continuation, k=k, max_new_tokens=_NEW)

    def _without(self, asked: Asked, document: int) -> Without:
        firsts = self.corpus.firsts()
        same = [document] if document >= len(firsts) else np.flatnonzero(firsts == firsts[document]).tolist()
        return self._traced(asked).without(same, self.project.train_bank)

    def beginnings(self) -> list[str]:
        """Return how some documents begin, to try."""
        step = max(self.corpus.n_documents // _TRY, 1)
        texts = (self.corpus.text(i) for i in range(0, self.corpus.n_documents, step))
        words = (text.split() for text in texts)
        starts = (" ".join(text[: min(_WORDS, max(len(text) // 2, 1))]) for text in words)
        return [text for text in starts if text][:_TRY]


def add_writing(app: FastAPI, writing: Writing) -> None:
    """Let an application answer prompts."""

    @app.get("/write", response_class=HTMLResponse, include_in_schema=False)
    def write(
        prompt: Annotated[str, Query(max_length=_LETTERS)] = "",
        continuation: Annotated[str, Query(max_length=_LETTERS)] = "",
        k: Annotated[int, Query(ge=1, le=_MOST)] = 5,
        without: Annotated[int | None, Query(ge=0)] = None,
    ) -> HTMLResponse:
        """Show the form, and where an answer comes from."""
        asked = Asked(prompt, _following(prompt, continuation), k)
        trace, left_out, wrong = None, None, ""
        if prompt:
            try:
                trace = writing.trace(asked)
                left_out = None if without is None else writing.without(asked, without)
            except WhenceError as error:
                wrong = str(error)
        page = look(trace, asks=True)
        html = render(
            "write.html",
            [__package__, "whence.explanation"],
            page,
            asked=asked,
            wrong=wrong,
            writing=writing,
            left_out=left_out,
            beginnings=[] if prompt else writing.beginnings(),
            address=lambda text: Asked(text, None, k).address(),
            **(shown(trace) if trace is not None else {"trace": None}),
        )
        policy = {"content-security-policy": f"{page.policy}; frame-ancestors 'none'"}
        return HTMLResponse(html, 422 if wrong else 200, policy)


def _following(prompt: str, continuation: str) -> str | None:
    """Return what follows a prompt, with a blank between words; None where nothing does."""
    if not continuation:
        return None
    apart = continuation[0].isalnum() and not prompt[-1:].isspace()
    return f" {continuation}" if apart else continuation
