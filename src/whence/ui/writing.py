"""The page that traces the answer to a prompt, word by word, without scripts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse

from whence.data import Corpus
from whence.errors import WhenceError
from whence.explanation.page import look, shown
from whence.explanation.trace import Trace, Without
from whence.pages.render import render
from whence.project import Project
from whence.ui.background import Background

_KEPT = 32  # cached answers, and cached what-if results
_LETTERS = 8_000  # longest prompt
_MOST = 50  # passages per sign
_NEW = 40  # tokens that the model generates
_TRY, _WORDS = 4, 6  # documents whose beginnings are offered, and words of each


class PromptRequest(NamedTuple):
    """A request to trace an answer.

    Attributes
    ----------
    prompt : a text
    continuation : the answer; None has the model generate it
    k : passages per sign
    """

    prompt: str
    continuation: str | None
    k: int

    def address(self, without: int | None = None) -> str:
        """Return the address of the answer's page, or of what if without a document."""
        query = {"prompt": self.prompt, "continuation": self.continuation or "", "k": self.k}
        if without is None:
            return f"write?{urlencode(query)}"
        return f"write?{urlencode({**query, 'without': without})}#without"


class Writing:
    """A project of a language model, and its cached answers.

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
        """The corpus that the model was tuned on."""
        corpus = self.project.explainer.fitted_.require_data().corpus
        assert corpus is not None
        return corpus

    def trace(self, asked: PromptRequest) -> Trace:
        """Trace an answer; agreement is added as soon as it is known."""
        self.bands.begin()
        with self._lock:
            return replace(self._traced(asked), bands=self.bands.ready)

    def without(self, asked: PromptRequest, document: int) -> Without:
        """Re-solve without a document and its duplicates."""
        with self._lock:
            return self._left_out(asked, document)

    def _trace(self, asked: PromptRequest) -> Trace:
        prompt, continuation, k = asked
        return self.project.explainer.trace(prompt, continuation, k=k, max_new_tokens=_NEW)

    def _without(self, asked: PromptRequest, document: int) -> Without:
        firsts = self.corpus.firsts()
        same = [document] if document >= len(firsts) else np.flatnonzero(firsts == firsts[document]).tolist()
        return self._traced(asked).without(same, self.project.train_bank)

    def beginnings(self) -> list[str]:
        """Return the beginnings of some documents, as examples of prompts."""
        step = max(self.corpus.n_documents // _TRY, 1)
        texts = (self.corpus.text(i) for i in range(0, self.corpus.n_documents, step))
        words = (text.split() for text in texts)
        starts = (" ".join(text[: min(_WORDS, max(len(text) // 2, 1))]) for text in words)
        return [text for text in starts if text][:_TRY]


def add_writing(app: FastAPI, writing: Writing, from_here: Callable[[Request], bool]) -> None:
    """Add the page for prompts to an application.

    A request that does not come ``from_here`` gets the form, filled in, and nothing is computed.
    """

    @app.get("/write", response_class=HTMLResponse, include_in_schema=False)
    def write(
        request: Request,
        prompt: Annotated[str, Query(max_length=_LETTERS)] = "",
        continuation: Annotated[str, Query(max_length=_LETTERS)] = "",
        k: Annotated[int, Query(ge=1, le=_MOST)] = 5,
        without: Annotated[int | None, Query(ge=0)] = None,
    ) -> HTMLResponse:
        """Show the form, and the trace of an answer."""
        asked = PromptRequest(prompt, _following(prompt, continuation), k)
        trace, left_out, wrong, status = None, None, "", 200
        if prompt and not from_here(request):
            wrong, status = "Nothing was computed: another page opened this address. Press Trace to ask.", 403
        elif prompt:
            try:
                trace = writing.trace(asked)
                left_out = None if without is None else writing.without(asked, without)
            except WhenceError as error:
                wrong, status = str(error), 422
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
            address=lambda text: PromptRequest(text, None, k).address(),
            **(shown(trace) if trace is not None else {"trace": None}),
        )
        policy = {"content-security-policy": f"{page.policy}; frame-ancestors 'none'"}
        return HTMLResponse(html, status, policy)


def _following(prompt: str, continuation: str) -> str | None:
    """Return the continuation of a prompt, with a blank between words; None if it is empty."""
    if not continuation:
        return None
    apart = continuation[0].isalnum() and not prompt[-1:].isspace()
    return f" {continuation}" if apart else continuation
