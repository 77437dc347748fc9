"""Whether methods name the documents behind what a tuned model answers, and what it says without them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.language import naming
from benchmarks.language.asking import Answered, asked
from benchmarks.language.facts import HELD_OUT, ordinary, planted
from benchmarks.language.naming import Scene, Scores
from benchmarks.language.tuning import Language, losses, tune
from whence import DualDA
from whence.core.arrays import Doubles
from whence.explanation.trace import Bands
from whence.features import FeatureBank
from whence.svm.inputs import spread

KAPPAS, SHARES = (10.0, 100.0, 1000.0), (0.5, 0.2)
REMOVED = 20  # facts whose documents are left out
OURS, WORDS = "DualDA, κ = 1000", "BM25, prompt and answer"  # of which removal is measured


def scene(data: Path, folder: Path, seed: int = 0) -> Scene:
    """Tune the model on the corpus, or read what was tuned before."""
    base, corpus = Language.read(data), planted(data, seed)
    documents = base.before(corpus.texts, folder)
    checkpoints = tune(base, documents, folder)
    return Scene(base, base.with_weights(checkpoints[-1]), checkpoints, corpus, documents, folder)


def shares(before: Sequence[Answered], after: Sequence[Answered]) -> dict[str, Any]:
    """Return how many facts are answered before and after tuning, by how many documents state them."""
    found: dict[str, Any] = {}
    for name, answered in (("untuned", before), ("tuned", after)):
        groups: dict[str, list[bool]] = {}
        for one in answered:
            groups.setdefault(one.stated_by, []).append(one.value is not None)
        found[name] = {count: [sum(some), len(some)] for count, some in groups.items()}
        values = [max(one.log_p) for one in answered]
        found[f"{name}, mean log p"] = float(np.mean(values))
    both = [one for one in after if len(one.fact.values) > 1 and one.value is not None]
    uneven = [one for one in both if len({*map(len, one.fact.documents)}) > 1]
    found["disagree, by more documents"] = [sum(one.value == 0 for one in uneven), len(uneven)]
    return found


def surrogates(
    made: Scene, tol: float, seconds: float, by_rule: bool
) -> tuple[dict[str, DualDA], dict[str, Any]]:
    """Fit DualDA at several κ, or with C by its rule, also on shares of the places."""
    bank = made.bank
    scale = len(bank.labels) * spread(np.asarray(bank.features, np.float32)) ** 2
    tried: dict[str, tuple[Any, float]] = {f"DualDA, κ = {k:g}": (k / scale, 1.0) for k in KAPPAS}
    if by_rule:
        shares = {f"DualDA, {share:.0%} of the places": (None, share) for share in SHARES}
        tried = {"DualDA, C by its rule": ("auto", 1.0), **shares}
    found: dict[str, DualDA] = {}
    measured: dict[str, Any] = {}
    for name, (C, share) in tried.items():
        started = time.process_time()
        C = next(iter(found.values())).C_ / share if C is None else C  # the same κ
        one = DualDA(C=C, tol=tol, max_seconds=seconds, show_progress=False)
        some = bank if share == 1 else hardest(made, share)
        found[name] = one.fit(features=some, cache_dir=str(made.folder / "cache") if share == 1 else None)
        measured[name] = {
            "C": one.C_, "κ": one.C_ * scale, "gap": one.gap_, "support": len(one.support_),
            "positions": one.n_train_, "agreement": one.agreement_,
            "CPU seconds": time.process_time() - started, "solution": one.origins_["solution"],
        }  # fmt: skip
        print(f"{name}: {measured[name]}", flush=True)
    return found, measured


def hardest(made: Scene, share: float) -> FeatureBank:
    """Leave out all places but a share, those that the untuned model found hardest; all keep their places."""
    documents = made.documents
    with torch.no_grad():
        each = []
        for start in range(0, len(documents), 16):
            last, labels, _ = made.base.predicting(documents[start : start + 16])
            each.append(losses(last, made.base.head, labels))
    kept = made.corpus.hardest(torch.cat(each).numpy(), share)
    places = {*zip(kept.document.tolist(), kept.place.tolist(), strict=True)}
    every = zip(made.corpus.document.tolist(), made.corpus.place.tolist(), strict=True)
    stays = np.array([place in places for place in every])
    labels = np.where(stays, made.bank.labels, -1)
    return replace(made.bank, labels=labels, parts={}, checksum="")


def of_surrogates(made: Scene, explainers: Mapping[str, DualDA]) -> dict[str, Scores]:
    """Return the methods that name documents by surrogates."""
    return {name: naming.dualda(made, explainer) for name, explainer in explainers.items()}


def methods(made: Scene, known: Sequence[Answered]) -> dict[str, Scores]:
    """Return all methods but the surrogates."""
    queries = [one.query for one in known]
    return {
        "cosine, same token": naming.cosine(made, same=True),
        "cosine, any token": naming.cosine(made, same=False),
        **naming.by_gradients(made, queries),
        WORDS: naming.bm25(made.planted.texts, answer=True),
        "BM25, prompt": naming.bm25(made.planted.texts, answer=False),
        "random": naming.by_chance(len(made.planted.texts), 0),
    }


def measured(scores: Doubles, meant: Sequence[int], rng: np.random.Generator) -> tuple[float, float, float]:
    """Recall@1, recall@10 and reciprocal rank of the documents that are meant; ties in any order."""
    order = naming.first(scores, len(scores), rng)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    places = rank[list(meant)]
    return (
        float(places.min() == 1),
        float((places <= 10).sum() / min(10, len(places))),
        1 / float(places.min()),
    )


def judged(methods: Mapping[str, Scores], answered: Sequence[Answered]) -> dict[str, list[dict[str, float]]]:
    """Measure all methods on all answers, in the order of the answers.

    Where documents disagree, also whether one that says the other thing comes before all that are meant.
    """
    found: dict[str, list[dict[str, float]]] = {}
    for name, method in methods.items():
        rng, started, rows = np.random.default_rng(0), time.process_time(), []
        for one in answered:
            scores = method(one.query)
            first, ten, reciprocal = measured(scores, one.documents, rng)
            row = {"recall@1": first, "recall@10": ten, "MRR": reciprocal}
            if one.others:
                row["other first"] = float(max(scores[list(one.others)]) > max(scores[list(one.documents)]))
            rows.append(row)
        found[name] = rows
        keys = ("recall@1", "recall@10", "MRR")
        line = ", ".join(f"{key} {np.mean([row[key] for row in rows]):.3f}" for key in keys)
        print(f"{name}: {line}, {time.process_time() - started:.1f} s", flush=True)
    return found


def removed(made: Scene, ways: Mapping[str, Scores], known: Sequence[Answered]) -> dict[str, Any]:
    """Retune without the documents that methods name for some facts, as many as state each, and ask again.

    "true" leaves out those that state them. Other facts measure the effect of retuning alone.
    """
    agree = [one for one in known if not one.others]
    places = {*np.random.default_rng(0).permutation(len(agree))[:REMOVED].tolist()}
    chosen = [one for i, one in enumerate(agree) if i in places]
    kept = [one for i, one in enumerate(agree) if i not in places]
    rng, found = np.random.default_rng(0), {}
    for name in ("true", *ways):
        out: set[int] = set()
        for one in chosen:
            n = len(one.documents)
            out |= {*(one.documents if name == "true" else naming.first(ways[name](one.query), n, rng))}
        documents = [one for i, one in enumerate(made.documents) if i not in out]
        again = made.base.with_weights(tune(made.base, documents, made.folder)[-1])
        found[name] = {"documents": len(out)}
        meant = {i for one in chosen for i in one.documents}
        found[name]["of the facts"] = len(out & meant)
        found[name]["they have"] = len(meant)
        for what, some in (("chosen", chosen), ("others", kept)):
            after = asked(again, [one.fact for one in some], made.folder)
            still = [float(one.value is not None) for one in after]
            change = [b.log_p[0] - a.log_p[0] for a, b in zip(some, after, strict=True)]
            found[name][what] = {"still": still, "change": change}
        print(f"without what {name} names: {_line(found[name])}", flush=True)
    return found


def _line(found: Mapping[str, Any]) -> str:
    parts = [f"{found['documents']} documents, {found['of the facts']} of {found['they have']}"]
    for what in ("chosen", "others"):
        still, change = (np.mean(found[what][key]) for key in ("still", "change"))
        parts.append(f"{what} still answered {still:.2f}, log p {change:+.2f}")
    return "; ".join(parts)


def faithfulness(data: Path, explainers: Mapping[str, DualDA]) -> dict[str, Any]:
    """Return how often surrogates name the model's token, on the corpus and on documents it does not have."""
    texts = [text for _, text in ordinary(data, HELD_OUT, skip=3)]
    found = {}
    for name, one in explainers.items():
        both = {"corpus": one.faithfulness_by_frequency(), "held out": one.faithfulness_by_frequency(texts)}
        found[name] = {where: _bands(bands) for where, bands in both.items()}
        print(f"{name}: {found[name]}", flush=True)
    return found


def _bands(bands: Bands) -> dict[str, Any]:
    rows = {band.name: [band.places, band.agreement] for band in bands.bands}
    return {"all": [bands.places, bands.agreement], **rows}
