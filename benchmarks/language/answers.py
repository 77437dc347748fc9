"""What a tuned model answers, which documents are behind it, and whether methods name them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.language import naming
from benchmarks.language.facts import Fact, Planted, planted
from benchmarks.language.naming import Query, Scene, Scores
from benchmarks.language.tuning import Language, tune, with_weights
from whence import DualDA
from whence.core.arrays import Doubles, Floats
from whence.data import Corpus

KAPPAS = (10.0, 100.0, 1000.0)
DRAWS, LONGEST = 1000, 12


@dataclass(frozen=True)
class Answered:
    """A fact with the model's answer.

    Attributes
    ----------
    fact : that was asked for
    query : with the answer
    value : which of the fact's values the answer is; None for another
    """

    fact: Fact
    query: Query
    value: int | None

    @property
    def documents(self) -> tuple[int, ...]:
        """Those that say what the model answered."""
        assert self.value is not None
        return self.fact.documents[self.value]


def asked(language: Language, facts: Sequence[Fact]) -> list[Answered]:
    """Ask a model for all facts."""
    found = []
    for fact in facts:
        ids = torch.from_numpy(language.prompts.tokens(fact.query))[None]
        with torch.no_grad():
            whole = language.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=LONGEST, do_sample=False,
                pad_token_id=0,
            )  # fmt: skip
        said = language.prompts.tokenizer.decode(whole[0, ids.shape[1] :])
        value = next((i for i, v in enumerate(fact.values) if said.strip().startswith(v)), None)
        text = f" {fact.values[value or 0]}"
        tokens, first = language.prompts.continued(fact.query, text)
        found.append(Answered(fact, Query(fact.query, text.strip(), tokens, first), value))
    return found


def scene(data: Path, folder: Path, leave_out: Sequence[int] = ()) -> tuple[Scene, Planted]:
    """Tune the model on the corpus, without some documents, or read what was tuned before."""
    language, told = Language.read(data), planted(data)
    texts = [text for i, text in enumerate(told.texts) if i not in set(leave_out)]
    checkpoints = tune(language, texts, folder)
    titles = [title for i, title in enumerate(told.titles) if i not in set(leave_out)]
    corpus = Corpus(texts, language.prompts.tokenizer, titles=titles)
    tuned = with_weights(language, checkpoints[-1])
    return Scene(tuned, checkpoints, corpus, texts, str(folder / "cache")), told


def measured(scores: Doubles, meant: Sequence[int], rng: np.random.Generator) -> tuple[float, float, float]:
    """Recall@1, recall@10 and reciprocal rank of the documents that are meant; ties in any order."""
    order = np.lexsort((rng.random(len(scores)), -scores))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    places = rank[list(meant)]
    return (
        float(places.min() == 1),
        float((places <= 10).sum() / min(10, len(places))),
        1 / float(places.min()),
    )


def judged(methods: Mapping[str, Scores], answered: Sequence[Answered]) -> dict[str, list[dict[str, float]]]:
    """Measure all methods on all answers, in the order of the answers."""
    found: dict[str, list[dict[str, float]]] = {}
    for name, method in methods.items():
        rng, started = np.random.default_rng(0), time.process_time()
        rows = []
        for one in answered:
            first, ten, reciprocal = measured(method(one.query), one.documents, rng)
            rows.append({"recall@1": first, "recall@10": ten, "MRR": reciprocal})
        found[name] = rows
        print(f"{name}: {_line(rows)}, {time.process_time() - started:.1f} s", flush=True)
    return found


def _line(rows: Sequence[Mapping[str, float]]) -> str:
    return ", ".join(f"{key} {np.mean([row[key] for row in rows]):.3f}" for key in rows[0]) if rows else "–"


def mean_square(features: Floats) -> float:
    """Mean squared length of features and their constant, as κ = C·N·mean‖f‖² has it."""
    return float(np.mean(np.square(features, dtype=np.float64).sum(1)))


def surrogates(made: Scene, tol: float, seconds: float) -> dict[str, DualDA]:
    """Fit DualDA with C by its rule, and at several κ."""
    bank = made.bank
    square = mean_square(np.asarray(bank.features, np.float32))
    Cs: dict[str, float | str] = {f"DualDA, κ = {k:g}": k / (len(bank.labels) * square) for k in KAPPAS} | {
        "DualDA": "auto"
    }
    found = {}
    for name, C in Cs.items():
        started = time.process_time()
        found[name] = DualDA(C=C, tol=tol, max_seconds=seconds).fit(features=bank)
        took = time.process_time() - started
        print(f"{name}: {found[name]!r}, {took:.0f} CPU-seconds", flush=True)
    return found


def run(data: Path, folder: Path, results: Path, tol: float, seconds: float) -> None:
    """Measure which documents methods name, and write and print what came out."""
    made, told = scene(data, folder)
    before = asked(Language.read(data), told.facts)
    answers = asked(made.language, told.facts)
    known = [one for one in answers if one.value is not None]
    shares = {name: np.mean([one.value is not None for one in some]) for name, some in
              {"untuned": before, "tuned": answers}.items()}  # fmt: skip
    print(f"Right: {shares}; by documents that tell it: {_by_documents(answers)}", flush=True)
    queries = [one.query for one in known]
    methods: dict[str, Scores] = {
        name: naming.dualda(made, explainer) for name, explainer in surrogates(made, tol, seconds).items()
    }
    methods |= {
        "cosine, same token": naming.cosine(made, same=True),
        "cosine, any token": naming.cosine(made, same=False),
        **naming.by_gradients(made, queries),
        "BM25, prompt and answer": naming.bm25(made.texts, answer=True),
        "BM25, prompt": naming.bm25(made.texts, answer=False),
        "random": naming.by_chance(len(made.texts), 0),
    }
    found = judged(methods, known)
    facts = [
        {"kind": one.fact.kind.name, "subject": one.fact.subject, "told": len(one.documents),
         "disagree": len(one.fact.values) > 1} for one in known
    ]  # fmt: skip
    results.write_text(json.dumps({"right": {k: float(v) for k, v in shares.items()}, "facts": facts,
                                   "methods": found}))  # fmt: skip
    print(table(results))


def _by_documents(answers: Sequence[Answered]) -> dict[str, float]:
    groups: dict[str, list[bool]] = {}
    for one in answers:
        told = "/".join(str(len(some)) for some in one.fact.documents)
        groups.setdefault(told, []).append(one.value is not None)
    return {told: float(np.mean(some)) for told, some in groups.items()}


def table(results: Path) -> str:
    """Write the table of what was measured: means, with their standard deviations by bootstrap."""
    saved = json.loads(results.read_text())
    disagree = np.array([fact["disagree"] for fact in saved["facts"]], bool)
    rng = np.random.default_rng(0)
    lines = [
        f"| method | agree ({(~disagree).sum()}): recall@1 | recall@10 | MRR | "
        f"disagree ({disagree.sum()}): recall@1 | recall@10 | MRR |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in saved["methods"].items():
        cells = [name]
        for some in (~disagree, disagree):
            places = np.flatnonzero(some)
            for key in ("recall@1", "recall@10", "MRR"):
                values = np.array([rows[i][key] for i in places])
                draws = rng.integers(0, max(len(values), 1), (DRAWS, len(values)))
                spread = values[draws].mean(1).std() if len(values) else 0.0
                cells.append(f"{values.mean():.3f} ± {spread:.3f}" if len(values) else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
