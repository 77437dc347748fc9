"""Whence a word: language models tuned on a corpus with planted facts, and which documents methods name.

The protocol, fixed before any result was seen
----------------------------------------------
- *Corpus* (``facts``): 160 invented facts of five kinds (where a person was born, when a company was founded,
  what a person plays, whose film it is, the capital of a land), each told by 1, 2, 4 or 8 documents in other
  words; 40 more on which documents disagree: three say one thing and one another, or two and two. Names of
  people, companies, films and lands occur in one fact only; answers occur in several. Among them 250 ordinary
  documents, the beginnings of BBC News articles and of movie reviews. Seed 0.
- *Model* (``tuning``): SmolLM2-135M-Instruct, last two blocks tuned on all tokens by AdamW, 8 passes, a rate
  of 5e-4 that falls to 0, 16 documents per step. Control: the untuned model's share of right answers.
- *Queries*: a wording that no document has, up to the answer. The model answers greedily; the answer counts
  by the tokens of the value it begins with. Told apart: facts answered rightly, by how many documents tell
  them; facts on which documents disagree, where the documents that say what the model answers are meant, and
  those that say the other thing are not.
- *Scores of a document*: the sum of the scores of its positions over the tokens of the answer.
- *Methods*: DualDA (C by its own rule, and C at κ = 10, 100, 1,000 said beside); cosine of last features,
  of a document's nearest position, of all and of those with the same next token; GradDot and GradCos by
  gradients of the documents' mean losses and of the answer's in the last block, TracIn over three
  checkpoints; BM25 by bm25s with its defaults on prompt and answer, and on the prompt alone; random.
- *Measures*: recall@1 (the first document is one of the fact's), recall@10 (share of the fact's documents
  among the first ten), mean reciprocal rank of the first that is. Spread over queries by bootstrap.
- *Removal*: for 20 facts that are answered rightly, chosen by the seed, the documents that a method names
  first, as many as tell the fact, are left out for all of them together, and the model is tuned again from
  the start: share of the facts that are still answered, against leaving out those that BM25 names, random
  ones and the true ones.
- *Faithfulness*: share of positions where the surrogate's first token is the model's, by how often the token
  is in the corpus, on the corpus and on 50 ordinary documents that the corpus does not have.
- *Growth*: positions 10,000 to 300,000 of BBC News, time and memory of the solution.
"""

from __future__ import annotations

from pathlib import Path

TOL, SECONDS = 1e-3, 600.0  # of the surrogates' solver: the gap to reach, and when to stop


def run(data: Path, folder: Path, results: Path) -> None:
    """Tune the model, ask it, and print which documents methods name; needs gguf and bm25s."""
    from benchmarks.language import answers

    answers.run(data, folder, results, TOL, SECONDS)
