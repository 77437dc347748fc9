"""Explanations and traces as pages that need no network and no scripts, and as data for the explorer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from os import PathLike
from typing import Any

import numpy as np

from whence.core import store
from whence.core.checks import check_path
from whence.core.display import counted
from whence.explanation.concepts import ConceptExplanation
from whence.explanation.evidence import Check, Contribution, Typicality, facts
from whence.explanation.record import COMPUTED, Explanation
from whence.explanation.trace import LOW, Passage, ScoredDocument, Trace
from whence.explanation.tree import TreeNode
from whence.explanation.wording import MADE_OF, Words, made_of
from whence.pages.pictures import Pictures, as_small_view, as_view, map_view, plain
from whence.pages.render import Look, read, render
from whence.pages.style import ends, marks, one_line, percent
from whence.pages.texts import readable

_SHOWN = ("about", "words", "full", "verdict", "n_members", "waterfall", "sparsity")


def write_explanations(explanations: Sequence[Explanation], path: str | PathLike[str] | None) -> str:
    """Render the page of explanations; return it, or write it and return its path."""
    html = render(
        "page.html",
        [__package__],
        Look(style()),
        explanations=explanations,
        words=shared_words(explanations),
        pictures=Pictures(),
        pictured=any(one.sample.image is not None for why in explanations for one in why.inputs.values()),
    )
    return _written(html, path)


def _written(html: str, path: str | PathLike[str] | None) -> str:
    """Write a page and return its path; without a path return the page."""
    if path is None:
        return html
    store.write_text(check_path("path", path), html)
    return os.fspath(path)


def shared_words(explanations: Sequence[Explanation]) -> Words:
    """Return the words of a page; they name two classes only where all explanations compare these."""
    if not explanations:
        return MADE_OF["class"]
    first = explanations[0]
    if first.against is None or all(why.words == first.words for why in explanations):
        return first.words
    return made_of(first.label_kind, first.relative, ("the target class", "the other class"))


@cache
def style() -> str:
    """Read the style of pages that show explanations."""
    return read(__package__, "templates/explanation.css") + marks()


# As data: the fields of a record, with its samples and maps as pictures


def explanation_data(why: Explanation) -> dict[str, Any]:
    """Return what the explorer's page reads of an explanation."""
    claim, checks = why.summary
    summary = {"claim": claim, "checks": [check_data(check) for check in checks]}
    apart = ("members", "others", "typicality", "class_names", "input")
    return {
        **{name: value for name, value in facts(why).items() if name not in apart},
        **{name: plain(getattr(why, name)) for name in (*COMPUTED, *_SHOWN)},
        "effect": why.effect and why.effect.description,
        "truth": plain(why.truth),
        "summary": summary,
        "sample": as_view(why.sample),
        "logit_map": map_view(why.sample, why.logit_map),
        "pairs": [_pair_data(why, pair) for pair in why.pairs],
        "tree": None if why.tree is None else _tree_data(why.tree, why.effect is not None),
    }


def _tree_data(tree: TreeNode, effects: bool) -> dict[str, Any]:
    """Return the strongest parts of a tree, with what they are in words."""
    return {**_node_data(tree.outline()), "words": tree.describe(effects)}


def _node_data(node: TreeNode) -> dict[str, Any]:
    return {
        **facts(node),
        "sample": None if node.sample is None else as_small_view(node.sample),
        "parts": [_node_data(part) for part in node.children],
    }


def _pair_data(why: Explanation, pair: Contribution) -> dict[str, Any]:
    return {
        **facts(pair),
        "alike_words": pair.alike_words,
        "label": plain(pair.label),
        "sample": as_view(pair.sample),
        "test_map": map_view(why.sample, pair.test_map),
        "train_map": map_view(pair.sample, pair.train_map),
    }


def typicality_data(typicality: Typicality) -> dict[str, Any]:
    """Return what the explorer's page reads of whether a test resembles the training set."""
    neighbours = [{**facts(near), "sample": as_small_view(near.sample)} for near in typicality.neighbours]
    words = {
        "heading": typicality.heading,
        "detail": typicality.detail,
        "check": check_data(typicality.check),
    }
    return {**facts(typicality), **words, "neighbours": neighbours}


def check_data(check: Check) -> dict[str, Any]:
    """Return what the explorer's page reads of a check."""
    return {**check._asdict(), "mark": check.mark}


def concepts_data(why: ConceptExplanation) -> dict[str, Any]:
    """Return what the explorer's page reads of the concepts of a pair."""
    parts = [
        {
            **facts(part),
            "test_map": map_view(why.test, part.test_map),
            "train_map": map_view(why.train, part.train_map),
            "samples": [as_small_view(sample) for sample in part.samples],
        }
        for part in why.parts
    ]
    return {
        **{name: getattr(why, name) for name in ("index", "score", "bias", "is_basis", "full")},
        "train": as_view(why.train),
        "test": as_view(why.test),
        "parts": parts,
    }


# Traces: the words of an answer are links


def write_trace(trace: Trace, path: str | PathLike[str] | None) -> str:
    """Render the page; return it, or write it and return its path."""
    return _written(render("trace.html", [__package__], look(trace), **shown(trace)), path)


def look(trace: Trace | None, *, asks: bool = False) -> Look:
    """Return the style of a page that shows an answer, with a rule for each of its words."""
    chosen = [
        f'main:has(#t{i}:target) .answer a[href="#t{i}"]' for i in range(0 if trace is None else len(trace))
    ]
    rule = f"\n{', '.join(chosen)} {{ background: var(--ink); color: var(--paper); }}\n" if chosen else ""
    return Look(style() + read(__package__, "templates/trace.css") + rule, asks=asks)


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
    """Name the evidence for an answer in plain words, and where the surrogate agrees with the model."""
    n, documents = len(trace), counted(trace.n_documents, "document")
    titles = " and ".join(f"“{ends(one_line(source.title))}”" for source in trace.proponents[:2])
    first = f"Of {documents}, the strongest evidence for this answer is in {titles}."
    if not titles:
        first = f"None of the {documents} supports this answer."
    if not trace.written:
        likely = sum(token.rank == 1 for token in trace.tokens)
        first += f" The answer was given: the model itself would generate {likely} of its {n} words."
    same = sum(token.agrees for token in trace.tokens)
    share = (
        f"all {counted(n, 'word')}" if same == n else f"{same} of {counted(n, 'word')}, {percent(same / n)}"
    )
    follows = (
        f"The surrogate, whose logits are the sums of the scores, predicts the same as the model at {share}"
    )
    follows += (
        "."
        if same == n
        else ": the passages of the others, which are dotted, do not lead to the model’s words."
    )
    return [first, follows, *_doubt(trace)]


def _doubt(trace: Trace) -> list[str]:
    """Warn where the surrogate agrees with the model in less than half of the places."""
    bands = trace.bands
    if bands is None or bands.agreement >= LOW:
        return []
    where = "documents that it has not seen" if bands.held_out else "the corpus that it was fitted on"
    return [
        f"⚠ Agreement is low: in {counted(bands.places, 'place')} of {where} the surrogate predicts the "
        f"model’s word in {percent(bands.agreement)} only. Elsewhere its passages say little about the model."
    ]


def grouped(passages: Sequence[Passage]) -> list[list[Passage]]:
    """Group passages by document, the documents of the largest sums first."""
    groups: dict[int, list[Passage]] = {}
    for passage in passages:
        groups.setdefault(passage.document, []).append(passage)
    return sorted(groups.values(), key=lambda group: -abs(sum(passage.score for passage in group)))


def strongest_tokens(trace: Trace, source: ScoredDocument) -> list[tuple[str, float]]:
    """Return up to three words of an answer that a document supports or contradicts most, and scores."""
    sign = 1 if source.score > 0 else -1
    order = np.argsort(-sign * source.scores, kind="stable")[:3]
    return [
        (readable(trace.tokens[i].text), float(source.scores[i]))
        for i in order.tolist()
        if source.scores[i] * sign > 0
    ]
