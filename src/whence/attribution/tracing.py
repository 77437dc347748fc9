"""From scores of places to whence an answer comes: tokens with their passages, documents with their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attribution.pairs import strongest
from whence.core.arrays import Array, Doubles, Ints
from whence.core.checks import check_is, check_places, shown
from whence.core.progress import bar
from whence.data import Corpus
from whence.data.corpus import around, cut
from whence.errors import InvalidInputError
from whence.explanation import Explanation
from whence.explanation.trace import Bands, Changed, Passage, ScoredDocument, Token, Trace, Without
from whence.model.language import NextToken

_PLACES = 3_000  # that agreement is measured on, whole documents


class PassageTracer:
    """Traces answers of a language model to the corpus that an explainer was fitted on.

    Parameters
    ----------
    explainer : fitted on a corpus, with its model

    Attributes
    ----------
    language, corpus : the model, and what it was tuned on
    counts : (V,) how often each token was learned
    firsts : (documents,) the first document with the same text
    """

    def __init__(self, explainer: Any) -> None:
        self.explainer, self.model = explainer, explainer.fitted_.require_model()
        data, language = explainer.fitted_.require_data(), self.model.extractor.model
        corpus = data.corpus
        if not isinstance(language, NextToken) or corpus is None:
            raise InvalidInputError(
                "Answers must be traced by an explainer of a causal language model and its corpus, such as "
                f"fit(model, documents, tokenizer=tokenizer) makes. This one has a {data.kind} of "
                f"{explainer.task_.outputs}."
            )
        self.language, self.corpus, self.firsts = language, corpus, corpus.firsts()
        self.counts = np.bincount(explainer.labels_[explainer.used_], minlength=explainer.n_classes_)

    def trace(
        self, prompt: str, continuation: str | None, k: int, max_new_tokens: int, bands: Bands | None
    ) -> Trace:
        """Trace what follows a prompt: what the model writes, or what is given."""
        check_is("prompt", prompt, str, "a text")
        ids, start = self._tokens(prompt, continuation, max_new_tokens)
        target = torch.from_numpy(ids[start:])
        read = self.model.read(self._beginnings(ids, start), len(target))
        features, logits = read.features, read.logits
        scores = self.explainer.attribute(features=features, target=target, sparse=True).astype(np.float64)
        ours = self.explainer.surrogate_.logits(features).cpu()
        texts = cut(self.corpus.tokenizer, ids, range(start, len(ids)))[1:]
        rows = zip(texts, target.tolist(), logits.double().cpu(), ours, strict=True)
        tokens = [self._token(*row, scores[[i]], k) for i, row in enumerate(rows)]
        documents = csr_array(scores @ _membership(self.corpus.document, self.corpus.n_documents))
        groups = csr_array(documents @ _membership(self.firsts, self.corpus.n_documents))
        return Trace(
            prompt=prompt,
            answer="".join(texts),
            written=continuation is None,
            ids=ids,
            start=start,
            tokens=tuple(tokens),
            scores=documents,
            proponents=self._sources(groups, k, 1),
            opponents=self._sources(groups, k, -1),
            k=k,
            n_train=self.explainer.n_train_,
            n_support=len(self.explainer.support_),
            n_documents=self.corpus.n_documents,
            gap=self.explainer.gap_,
            bands=bands,
            tracer=self,
        )

    def _token(self, text: str, target: int, theirs: Tensor, ours: Tensor, row: csr_array, k: int) -> Token:
        """Put a token of an answer together: of the logits (V,) of both, and its scores (1, N)."""
        first, named = int(theirs.argmax()), int(ours.argmax())
        return Token(
            text=text,
            id=target,
            probability=float(theirs.softmax(0)[target]),
            rank=int((theirs > theirs[target]).sum()) + 1,
            logit=float(ours[target]),
            first=self._name(first),
            surrogate_first=self._name(named),
            agrees=first == named,
            count=int(self.counts[first]),
            evidence_for=float(row.data.clip(min=0).sum()),
            evidence_against=float(row.data.clip(max=0).sum()),
            proponents=self._passages(row.indices, row.data, k, 1),
            opponents=self._passages(row.indices, row.data, k, -1),
        )

    def explain(self, trace: Trace, token: int) -> Explanation:
        """Explain one token, with relevance maps on what was written and on the passages."""
        end = trace.start + token
        ids, target = [trace.ids[:end]], int(trace.ids[end])
        why: Explanation = self.explainer.explain(ids, trace.k, target, relative=False)[0]
        return why

    def without(self, trace: Trace, documents: Sequence[int], features: Any) -> Without:
        """Solve again without all places of some documents, and compare the logits of the answer."""
        chosen = np.unique(check_places("documents", documents, self.corpus.n_documents))
        places = self.corpus.of_documents(chosen.tolist())
        remove = places[self.explainer.used_[places]]
        if not len(remove):
            raise InvalidInputError(
                f"'documents' must name some in which a token was learned, and that are not left out "
                f"already. Got {shown(documents)}."
            )
        other = self.explainer.what_if(remove=remove.tolist(), training_features=features).explainer
        target = torch.from_numpy(trace.ids[trace.start :])
        found = self.model.read(self._beginnings(trace.ids, trace.start), len(target)).features
        logits = [each.surrogate_.logits(found).cpu() for each in (self.explainer, other)]
        before, after = (each.gather(1, target[:, None])[:, 0].tolist() for each in logits)
        firsts = [each.argmax(1) for each in logits]
        was, stays = ((first == target).tolist() for first in firsts)
        texts = [token.text for token in trace.tokens]
        instead = map(self._name, firsts[1])
        parts = zip(texts, before, after, was, stays, instead, strict=True)
        titles = tuple(map(self.corpus.title, chosen.tolist()))
        return Without(tuple(chosen.tolist()), titles, len(remove), tuple(Changed(*part) for part in parts))

    def bands(self, documents: Any, seed: int) -> Bands:
        """Measure how often the surrogate names the model's token, in documents or in the corpus."""
        corpus = self.corpus if documents is None else self.corpus.more(documents)
        counts, agrees = [], []
        rows = _some(corpus, seed)
        size = self.explainer.batch_size
        starts = bar(
            "Comparing",
            -(-len(rows) // size),
            "batches",
            parts=range(0, len(rows), size),
            show=self.explainer.show_progress,
            delay=2,
        )
        for begin in starts:
            inputs = [corpus[i][0] for i in rows[begin : begin + size]]
            found = self.model.read(inputs, size)
            theirs = found.logits.argmax(1).cpu()
            ours = self.explainer.surrogate_.logits(found.features).argmax(1).cpu()
            counts.append(self.counts[theirs.numpy()])
            agrees.append((ours == theirs).numpy())
        return Bands.of(np.concatenate(counts), np.concatenate(agrees), held_out=documents is not None)

    def _tokens(self, prompt: str, continuation: str | None, most: int) -> tuple[Ints, int]:
        """Return all tokens, and how many are the prompt's."""
        prompts = self.corpus.prompts
        if continuation is None:
            first = prompts.tokens(prompt)
            if not len(first):
                raise InvalidInputError("'prompt' must have at least one token. Got none.")
            new = self.language.write(first, most)
            if not len(new):
                raise InvalidInputError(
                    "'prompt' must be one that the model goes on from. It writes the end of the text after "
                    f"{shown(prompt)}. Give another, or a continuation."
                )
            return np.concatenate([first, new]), len(first)
        check_is("continuation", continuation, str, "a text, or None for what the model writes")
        ids, start = prompts.continued(prompt, continuation)
        if not start or len(ids) == start:
            short = "continuation" if start else "prompt"
            raise InvalidInputError(f"'{short}' must have at least one token. Got none.")
        self.language.check_room(len(ids) - 1)
        return ids, start

    def _beginnings(self, ids: Ints, start: int) -> list[Ints]:
        """Return what comes before each token of the answer; the model runs once for all of them."""
        return [ids[:end] for end in range(start, len(ids))]

    def _passages(self, samples: Array, values: Doubles, k: int, sign: int) -> tuple[Passage, ...]:
        """Return the strongest passages of a sign; copies of a document count as one passage."""
        where = np.stack([self.firsts[self.corpus.document[samples]], self.corpus.place[samples]])
        _, chosen, groups = np.unique(where, axis=1, return_index=True, return_inverse=True)
        sums = np.bincount(groups.ravel(), values, len(chosen)).astype(np.float64)
        found = []
        for i in strongest(sums, k, sign):
            index = int(samples[chosen[i]])
            document, place = self.corpus.position(index)
            facts = index, document, self.corpus.title(document), place, float(sums[i])
            found.append(Passage(*facts, around(self.corpus, index), self._copies(document)))
        return tuple(found)

    def _sources(self, scores: csr_array, k: int, sign: int) -> tuple[ScoredDocument, ...]:
        """Return the strongest documents for or against the whole answer; copies count as one."""
        columns, sums = scores.tocsc(), np.asarray(scores.sum(axis=0), np.float64).ravel()
        each = ((i, columns[:, [i]].toarray()[:, 0]) for i in strongest(sums, k, sign))
        return tuple(
            ScoredDocument(i, self.corpus.title(i), float(sums[i]), own, self._copies(i)) for i, own in each
        )

    def _copies(self, document: int) -> tuple[int, ...]:
        """Return the other documents that have the text of one."""
        same = np.flatnonzero(self.firsts == self.firsts[document])
        return tuple(same[same != document].tolist())

    def _name(self, token: Any) -> str:
        name: str = self.explainer.task_.output_names[int(token)]
        return name


def _membership(groups: Ints, n: int) -> csr_array:
    """Return the group of each member (N,) among n groups as a matrix (N, n)."""
    parts = np.ones(len(groups)), groups, np.arange(len(groups) + 1)
    return csr_array(parts, shape=(len(groups), n))


def _some(corpus: Corpus, seed: int) -> list[int]:
    """Choose places of a corpus, of whole documents at random, until there are enough; ascending."""
    order = np.random.default_rng(seed).permutation(corpus.n_documents)
    sizes = np.bincount(corpus.document, minlength=corpus.n_documents)[order]
    enough = int(np.searchsorted(np.cumsum(sizes), _PLACES)) + 1
    chosen: list[int] = corpus.of_documents(order[:enough].tolist())[:_PLACES].tolist()
    return chosen
