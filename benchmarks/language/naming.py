"""Methods that name documents behind an answer: scores (documents,) each, the larger the more they did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from benchmarks.language.tuning import Language, padded, with_weights
from whence import DualDA
from whence.core.arrays import Doubles, Floats, Ints
from whence.data import Corpus, as_training_set
from whence.features import FeatureBank, extract
from whence.model.language import as_language_model
from whence.tasks import Tokens

Scores = Callable[["Query"], Doubles]


@dataclass(frozen=True)
class Query:
    """A prompt and the tokens that the model answered with.

    Attributes
    ----------
    text, answer : the prompt and the answer, as texts
    ids : tokens of both
    first : how many are the prompt's
    """

    text: str
    answer: str
    ids: Ints
    first: int

    @property
    def tokens(self) -> Ints:
        """The answer's tokens."""
        return self.ids[self.first :]


@dataclass
class Scene:
    """A tuned model and its corpus.

    Attributes
    ----------
    language : the model
    checkpoints : weights of its last blocks in the course of tuning
    corpus : what it was tuned on
    texts : the same as texts
    cache : folder for features
    """

    language: Language
    checkpoints: Sequence[dict[str, Tensor]]
    corpus: Corpus
    texts: Sequence[str]
    cache: str

    @cached_property
    def bank(self) -> FeatureBank:
        """Features of all positions."""
        model = as_language_model(self.language.model)
        samples = as_training_set(self.corpus, 256, task=Tokens(), preprocess=self.corpus.prompts)
        return extract(model, samples, cache_dir=self.cache)

    def of_documents(self, scores: csr_array) -> Doubles:
        """Add the scores (T, positions) of tokens up to those of documents."""
        total = np.asarray(scores.sum(axis=0), np.float64).ravel()
        return np.bincount(self.corpus.document, total, self.corpus.n_documents)

    def features(self, query: Query) -> Floats:
        """Features (T, d) before each token of the answer."""
        assert self.bank.model is not None
        prefixes = [query.ids[:t] for t in range(query.first, len(query.ids))]
        return self.bank.model.read(prefixes, 256).features.numpy()


def dualda(scene: Scene, explainer: DualDA) -> Scores:
    """By the scores of a surrogate's positions, which sum to the answer's logits."""

    def scores(query: Query) -> Doubles:
        found = explainer.attribute_features(scene.features(query), query.tokens.tolist(), sparse=True)
        return scene.of_documents(found)

    return scores


def cosine(scene: Scene, same: bool) -> Scores:
    """By a document's position whose features point most as the answer's do."""
    rows = torch.nn.functional.normalize(torch.from_numpy(np.array(scene.bank.features, np.float32)))
    labels, document = scene.bank.labels, torch.from_numpy(scene.corpus.document)

    def scores(query: Query) -> Doubles:
        tests = torch.nn.functional.normalize(torch.from_numpy(scene.features(query)))
        total = np.zeros(scene.corpus.n_documents)
        for test, token in zip(tests, query.tokens.tolist(), strict=True):
            products = rows @ test
            if same:
                products = torch.where(torch.from_numpy(labels == token), products, -1.0)
            best = torch.full((len(total),), -1.0).scatter_reduce(0, document, products, "amax")
            total += best.double().numpy()
        return total

    return scores


class Gradients:
    """Gradients in the last block, of documents' mean losses and of answers'."""

    def __init__(self, scene: Scene, queries: Sequence[Query], weights: dict[str, Tensor]) -> None:
        self.language = with_weights(scene.language, weights)
        self.parameters = [p.requires_grad_() for p in self.language.tuned[-1].parameters()]
        tests = torch.stack([self._of_answer(query) for query in queries])
        self.lengths = tests.norm(dim=1)
        products, norms = [], []
        for ids, states in self.language.before(scene.texts):
            gradient = self._flat(self.language.losses(*padded([(ids, states)])).sum())
            products.append(tests @ gradient)
            norms.append(gradient.norm())
        self.products, self.norms = torch.stack(products, 1), torch.stack(norms)

    def _of_answer(self, query: Query) -> Tensor:
        ((ids, states),) = self.language.before([query.ids])
        last = self.language.after(states[None])[0, query.first - 1 : -1]
        logits = self.language.model.lm_head(last)
        return self._flat(torch.nn.functional.cross_entropy(logits, ids[query.first :]))

    def _flat(self, loss: Tensor) -> Tensor:
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, self.parameters)])


def by_gradients(scene: Scene, queries: Sequence[Query]) -> dict[str, Scores]:
    """GradDot and GradCos at the end of tuning, and TracIn over its course."""
    place = {id(query): i for i, query in enumerate(queries)}
    several = [Gradients(scene, queries, weights) for weights in scene.checkpoints]
    last = several[-1]
    n = len(several)
    rates = [1 - (i + 0.5) / n for i in range(n)]  # the mean of a rate that falls to 0
    tables = {
        "GradDot, last block": last.products,
        "GradCos, last block": last.products / last.norms / last.lengths[:, None],
        "TracIn, last block": sum(rate * each.products for rate, each in zip(rates, several, strict=True)),
    }

    def named(table: Tensor) -> Scores:
        return lambda query: table[place[id(query)]].double().numpy()

    return {name: named(table) for name, table in tables.items()}


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
    """In any order."""
    rng = np.random.default_rng(seed)
    return lambda query: rng.random(n)
