"""Methods that name documents behind an answer: scores (documents,) each, the larger the more they did."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array

from benchmarks.language import gradients
from benchmarks.language.asking import Query
from benchmarks.language.facts import Planted
from benchmarks.language.tuning import Language, Read, Weights
from whence import DualDA
from whence.core.arrays import Doubles, Floats
from whence.data import Corpus, as_training_set
from whence.features import FeatureBank, extract
from whence.model.language import as_language_model
from whence.tasks import Tokens

Scores = Callable[[Query], Doubles]


@dataclass
class Scene:
    """A tuned model and its corpus.

    Attributes
    ----------
    base, language : the model before and after it was tuned
    checkpoints : weights of its last blocks in the course of tuning
    planted : the corpus that it was tuned on
    documents : the same, as the blocks that are tuned see them
    folder : for what is computed once
    """

    base: Language
    language: Language
    checkpoints: Sequence[Weights]
    planted: Planted
    documents: Sequence[Read]
    folder: Path
    _features: dict[bytes, Floats] = field(default_factory=dict)

    @cached_property
    def corpus(self) -> Corpus:
        """The documents as a training set."""
        return Corpus(self.planted.texts, self.language.prompts.tokenizer, titles=self.planted.titles)

    @cached_property
    def bank(self) -> FeatureBank:
        """Features of all positions."""
        model = as_language_model(self.language.model)
        samples = as_training_set(self.corpus, 256, task=Tokens(), preprocess=self.corpus.prompts)
        return extract(model, samples, cache_dir=str(self.folder / "cache"))

    def of_documents(self, scores: csr_array) -> Doubles:
        """Add the scores (T, positions) of tokens up to those of documents."""
        total = np.asarray(scores.sum(axis=0), np.float64).ravel()
        return np.bincount(self.corpus.document, total, self.corpus.n_documents)

    def features(self, query: Query) -> Floats:
        """Features (T, d) before each token of the answer."""
        name = query.ids.tobytes()
        if name not in self._features:
            assert self.bank.model is not None
            prefixes = [query.ids[:t] for t in range(query.first, len(query.ids))]
            self._features[name] = self.bank.model.read(prefixes, 256).features.numpy()
        return self._features[name]


def dualda(scene: Scene, explainer: DualDA) -> Scores:
    """By the scores of a surrogate's positions, which sum to the answer's logits."""

    def scores(query: Query) -> Doubles:
        found = explainer.attribute(features=scene.features(query), target=query.tokens.tolist(), sparse=True)
        return scene.of_documents(found)

    return scores


def cosine(scene: Scene, same: bool) -> Scores:
    """By a document's position whose features point most as the answer's do."""
    rows = torch.nn.functional.normalize(torch.from_numpy(np.array(scene.bank.features, np.float32)))
    labels, document = torch.from_numpy(scene.bank.labels), torch.from_numpy(scene.corpus.document)

    def scores(query: Query) -> Doubles:
        tests = torch.nn.functional.normalize(torch.from_numpy(scene.features(query)))
        total = np.zeros(scene.corpus.n_documents)
        for test, token in zip(tests, query.tokens.tolist(), strict=True):
            products = rows @ test
            if same:
                products = torch.where(labels == token, products, -1.0)
            best = torch.full((len(total),), -1.0).scatter_reduce(0, document, products, "amax")
            total += best.double().numpy()
        return total

    return scores


def by_gradients(scene: Scene, queries: Sequence[Query]) -> dict[str, Scores]:
    """GradDot, GradCos and EK-FAC at the end of tuning, and TracIn over its course."""
    read = scene.base.before([query.ids for query in queries], scene.folder)
    named = hashlib.sha256(b"".join(query.ids.tobytes() for query in queries))
    several = []
    for i, weights in enumerate(scene.checkpoints):
        ends = i == len(scene.checkpoints) - 1
        own = hashlib.sha256(named.digest() + b"".join(t.numpy().tobytes() for t in weights.values()))
        path = scene.folder / f"gradients-{own.hexdigest()[:16]}.safetensors"
        if not path.exists():
            language = scene.base.with_weights(weights)
            bases = gradients.curvature(language, scene.documents) if ends else None
            found = gradients.products(language, scene.documents, queries, read, bases)
            save_file({name: table.contiguous() for name, table in found.items()}, path)
        several.append(load_file(path))
    place = {query.ids.tobytes(): i for i, query in enumerate(queries)}

    def of(table: Doubles) -> Scores:
        return lambda query: table[place[query.ids.tobytes()]]

    return {name: of(table) for name, table in gradients.tables(several).items()}


def bm25(texts: Sequence[str], answer: bool) -> Scores:
    """By words in common, of bm25s with its defaults."""
    import bm25s

    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(texts), show_progress=False), show_progress=False)

    def scores(query: Query) -> Doubles:
        asked = f"{query.text} {query.answer}" if answer else query.text
        words = bm25s.tokenize([asked], return_ids=False, show_progress=False)[0]
        return np.asarray(index.get_scores(words), np.float64)

    return scores


def by_chance(n: int, seed: int) -> Scores:
    """In any order, the same for the same query."""

    def scores(query: Query) -> Doubles:
        own = int.from_bytes(hashlib.sha256(query.ids.tobytes()).digest()[:4], "little")
        return np.random.default_rng([seed, own]).random(n)

    return scores


def first(scores: Doubles, n: int, rng: np.random.Generator) -> list[int]:
    """Return the n documents that a method names first; equal scores in any order."""
    order: list[int] = np.lexsort((rng.random(len(scores)), -scores))[:n].tolist()
    return order
