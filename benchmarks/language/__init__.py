"""Language models tuned on a corpus with planted facts, and the documents that methods name.

The protocol, fixed before any result was seen
----------------------------------------------
- *Corpus* (``facts``): 60 invented facts of five kinds (where a person was born, when a company was founded,
  what a person plays, whose film it is, the capital of a land), each stated by 1, 2, 4 or 8 documents in
  other words; 20 more on which documents disagree, three against one or two against two. Names of
  people, companies, films and lands occur in one fact only; answers occur in several. Among them 30 ordinary
  documents, the beginnings of BBC News articles and of movie reviews. Seed 0.
- *Model* (``tuning``): SmolLM2-135M-Instruct, last two blocks tuned on all tokens by AdamW, 8 passes, a rate
  of 1e-3 that falls to 0, 4 documents per step. Control: the untuned model's share of right answers.
- *Queries* (``asking``): a wording that no document has, up to the answer. The model answers greedily; the
  answer counts by the tokens of the value it begins with, after which no letter or digit may follow.
  Reported separately: facts answered rightly, by how many documents state them; facts on which documents
  disagree, where the documents with the model's answer count as the fact's, and the others do not.
- *Scores of a document*: the sum of the scores of its positions over the tokens of the answer.
- *Methods* (``naming``, ``gradients``): DualDA (C by its own rule, and C at κ = 10, 100 and 1,000,
  and at the rule's κ on the half and the fifth of the places that the untuned model found hardest);
  cosine of last features, of a document's nearest position, of all and of those with the same next token;
  GradDot, GradCos and EK-FAC by gradients of the documents' mean losses and of the answer's by the linear
  layers of the last block, TracIn over three checkpoints; BM25 by bm25s with its defaults on prompt and
  answer, and on the prompt alone; random. EK-FAC has labels drawn by the model, and a tenth of a layer's
  mean eigenvalue as damping.
- *Measures*: recall@1 (the first document is one of the fact's), recall@10 (share of the fact's documents
  among the first ten), mean reciprocal rank of the first that is. Spread over queries by bootstrap.
- *Removal*: for 20 facts that are answered rightly, chosen by the seed, the documents that a method names
  first, as many as state the fact, are left out for all of them together, and the model is tuned again from
  the start: share of the facts that are still answered, and the change of the answers' log-probability
  (the loss of a query, QLD), of DualDA at κ = 1,000, against leaving out those that BM25 names, random ones
  and the true ones.
- *Faithfulness*: share of positions where the surrogate's first token is the model's, by how often the token
  is in the corpus, on the corpus and on 50 ordinary documents that the corpus does not have.
- *Growth* (``growing``): positions 10,000 to 300,000 of BBC News and the untuned model, κ = 1,000; time and
  memory of the solution.

Changed before any result was seen, to fit a share of two cores: 60 facts instead of 160, 20 in that of
40 on which documents disagree, 30 ordinary documents in that of 250. A pilot on 40 facts of another seed,
with 16 documents per step and a rate of 5e-4, learned a fifth of them, hence 4 and 1e-3; these were not tried
before. Answers are judged by the model's first tokens along the answer, which is what greedy writing gives,
and a word that goes on is no answer. EK-FAC, shares of the places and the log-probability were added;
removal and faithfulness are of κ = 1,000, the surrogate of the three that agrees most with the model on its
corpus, since the rule for C takes longest; gradients leave out the block's two normalisations; κ is that
of ``choose_C``, C·N·mean‖f − f̄‖².
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

TOL, SECONDS = 1e-3, 600.0  # of the surrogates' solver: the gap to reach, and when to stop
PACKAGES = ("whence", "torch", "transformers", "bm25s", "numpy", "numba")


def run(data: Path, folder: Path, results: Path) -> None:
    """Tune the model, ask it, and report which documents methods name; requires gguf and bm25s.

    Models and results of earlier runs are read from the folder; results are written after each step.
    """
    from benchmarks.language import answers, growing, report
    from benchmarks.language.asking import asked
    from benchmarks.machine import describe

    found: dict[str, Any] = {"machine": describe(), "versions": {name: version(name) for name in PACKAGES}}

    def keep(**more: Any) -> None:
        found.update(more)
        results.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")

    made = answers.scene(data, folder)
    facts = made.planted.facts
    before, after = (asked(language, facts, folder) for language in (made.base, made.language))
    keep(documents=len(made.documents), right=answers.shares(before, after))
    print(found["right"], flush=True)
    known = [one for one in after if one.value is not None]
    keep(facts=[{"kind": one.fact.kind.name, "subject": one.fact.subject, "answer": one.query.answer,
                 "stated by": one.stated_by, "meant": len(one.documents)} for one in known])  # fmt: skip
    explainers, measured = answers.surrogates(made, TOL, SECONDS, by_rule=False)
    methods = answers.of_surrogates(made, explainers) | answers.methods(made, known)
    judged = answers.judged(methods, known)
    keep(surrogates=measured, methods=judged)
    ways = {name: methods[name] for name in (answers.OURS, answers.WORDS, "random")}
    keep(removal=answers.removed(made, ways, known))
    keep(faithfulness=answers.faithfulness(data, {answers.OURS: explainers[answers.OURS]}))
    others, more = answers.surrogates(made, TOL, SECONDS, by_rule=True)  # takes longest
    judged |= answers.judged(answers.of_surrogates(made, others), known)
    keep(surrogates=measured | more, methods=judged)
    keep(growth=growing.measured(data, folder))
    print(report.tables(results))
    report.draw(results, results.parent.parent / "images" / "language.svg")
