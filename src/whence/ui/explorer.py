"""What the explorer shows, whoever asks: the state behind the page, live or written to a file."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from whence.attributors import DualDA
from whence.attributors.pairs import PairAttributor
from whence.audit import class_view
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.explanation import Explanation
from whence.explanation.view import Explained, Strip, shown
from whence.explanation.wording import Question
from whence.features import as_float32
from whence.model.bound import probabilities
from whence.pages.samples import as_samples
from whence.project import Project
from whence.relevance import Concepts
from whence.ui import schema
from whence.ui.solved import Solved

_NEIGHBOURS = 5  # shown of a sample in the audit queue
_STRONGEST = 12  # samples of a class in the class view


class Explorer:
    """A project, and what can be asked of it.

    Attributes
    ----------
    project : the explainer with its model, training set and tests
    solved : what is solved when it is first asked for
    names : one per class

    Parameters
    ----------
    max_seconds : limit of the solver of effects
    """

    def __init__(self, project: Project, max_seconds: float | None = None) -> None:
        self.project = project
        explainer = project.explainer
        self.names = explainer.task_.called
        self.solved, self._lock = Solved(project, max_seconds), threading.Lock()

    @functools.cached_property
    def features(self) -> torch.Tensor:
        """Features (M, d) of the test samples; of those that could not be read, 0."""
        return torch.from_numpy(np.array(as_float32(self.project.test_bank.features)))

    @functools.cached_property
    def truths(self) -> Any:
        """True classes (M,) of the test samples; −1 of those that could not be read."""
        return self.project.test_bank.labels

    @property
    def valid(self) -> Any:
        """Whether each test sample (M,) could be read; the others are shown nowhere."""
        return self.project.test_bank.valid

    @functools.cached_property
    def probabilities(self) -> torch.Tensor:
        """The model's probabilities (M, K)."""
        explainer, bank = self.project.explainer, self.project.test_bank
        if bank.extractor.exact:
            return probabilities(explainer.surrogate_.model_logits(self.features))
        # What the model does after its head shows in its own output only.
        found = torch.full((len(self.truths), len(self.names)), 1 / len(self.names), dtype=torch.float64)
        places = np.flatnonzero(self.valid).tolist()
        for start in range(0, len(places), explainer.batch_size):
            rows = places[start : start + explainer.batch_size]
            found[rows] = probabilities(bank.extractor.read(self.project.tests.take(rows)).logits).cpu()
        return found

    @functools.cached_property
    def kind(self) -> Any:
        """What the samples are: image, text or values."""
        first = int(self.valid.argmax())
        return shown(self._samples(self.project.tests, [first])[0]).kind

    @functools.cached_property
    def surrogate_classes(self) -> Any:
        """The surrogate's classes (M,)."""
        return self.project.explainer.predict_features(self.features).numpy()

    @functools.cached_property
    def predicted(self) -> Any:
        """The model's classes (M,)."""
        return self.probabilities.argmax(1).numpy()

    def info(self) -> schema.Info:
        """What holds for all tests."""
        explainer = self.project.explainer
        return schema.Info(
            title=self.project.path.stem,
            kind=self.kind,
            classes=list(self.names),
            n_train=explainer.n_train_,
            n_tests=int(self.valid.sum()),
            n_support=len(explainer.support_),
            C=explainer.C_,
            Cs=self.solved.Cs(),
            gap=explainer.gap_,
            accuracy=float((self.predicted == self.truths)[self.valid].mean()),
            agreement=float((self.predicted == self.surrogate_classes)[self.valid].mean()),
        )

    def rows(self, wanted: schema.Wanted) -> schema.Rows:
        """A page of the test samples that fit, with small pictures.

        ``search`` is a place, or a part of the name of the true or the predicted class.
        """
        fits = self.valid.copy()
        if wanted.label is not None:
            fits &= self.truths == wanted.label
        if wanted.predicted is not None:
            fits &= self.predicted == wanted.predicted
        if wanted.wrong:
            fits &= self.predicted != self.truths
        if wanted.disagree:
            fits &= self.predicted != self.surrogate_classes
        if word := wanted.search.strip().casefold():
            meant = [c for c, name in enumerate(self.names) if word in name.casefold()]
            found = np.isin(self.truths, meant) | np.isin(self.predicted, meant)
            if word.isdecimal() and len(word) < 18:
                found |= np.arange(len(fits)) == int(word)
            fits &= found
        places = np.flatnonzero(fits)
        page = places[wanted.offset : wanted.offset + wanted.limit].tolist()
        return schema.Rows(total=len(places), rows=self.summaries(page))

    def summaries(self, indices: Sequence[int]) -> list[schema.Row]:
        """One line per test sample."""
        return [
            schema.Row(
                index=index,
                truth=int(self.truths[index]),
                predicted=int(self.predicted[index]),
                probability=float(self.probabilities[index].max()),
                surrogate_class=int(self.surrogate_classes[index]),
                sample=sample,
            )
            for index, sample in zip(indices, self._samples(self.project.tests, indices), strict=True)
        ]

    def _samples(self, samples: TrainingSet, indices: Sequence[int]) -> list[Any]:
        """Samples to look at, of the tests or of the training set."""
        if not indices:
            return []
        tokenizer = self.project.explainer.require_model().prepare.preprocess
        return as_samples(samples.take(list(indices)), tokenizer)

    def _trained(self, indices: Sequence[int]) -> list[Any]:
        """Training samples to look at, which must be those that were fitted."""
        explainer = self.project.explainer
        data, model = explainer.require_data(), explainer.require_model()
        for start in range(0, len(indices), explainer.batch_size):
            rows = list(indices[start : start + explainer.batch_size])
            found = model.read_batch(data.take(rows)).features
            explainer.surrogate_.check_training(found.float().cpu().numpy(), np.asarray(rows), "data")
        return self._samples(data, indices)

    def explain(
        self,
        index: int,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question = "made of",
    ) -> schema.Explained:
        """Explain a test sample: what its logit is made of, or what would change it."""
        explainer = self.solved.answering(question, C)
        with self._lock:
            x, truth = self._test(index), int(self.truths[index])
            why = explainer.explaining(k, None)(index, x, self._class(target), truth)
        return self._explained(why, x, index, explainer)

    def explain_own(
        self,
        x: Any,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question = "made of",
    ) -> schema.Explained:
        """Explain an input of the user's own, a batch of one as the model or its preprocessing takes it."""
        explainer = self.solved.answering(question, C)
        with self._lock:
            why = explainer.explain(x, k, target)[0]
        return self._explained(why, x, None, explainer)

    def _explained(
        self, why: Explanation, x: Any, test: int | None, explainer: PairAttributor
    ) -> schema.Explained:
        """Give an explanation with what the other question's answer is for its training samples."""
        other = self.solved.effects.ready if why.foretold is None else self.project.explainer
        beside = None
        if other is not None:
            found = other.scored_input(x, why.target)
            scores = dict(zip(found.indices.tolist(), found.scores.tolist(), strict=True))
            beside = [scores.get(pair.index, 0.0) for pair in why.pairs]
        C = explainer.surrogate_.solution.C
        return schema.Explained(test=test, C=C, beside=beside, **dict(Explained.of(why)))

    def doubt(self, index: int, k: int = 5, target: int | None = None) -> schema.Doubt:
        """How stable the strongest training samples of a test are, over halves of the training set."""
        found = self.solved.stability.top_k_features(
            self.features[self.project.read_tests([index])], k, self._wanted(index, target)
        )
        sides = zip(found.top[:2], (found.proponents, found.opponents), strict=True)
        pairs = [pair for side, among in sides for pair in zip(side.indices[0], among[0], strict=True)]
        return schema.Doubt(k=k, halves=found.halves, among={int(i): int(n) for i, n in pairs if i >= 0})

    def _wanted(self, index: int, target: int | None) -> int:
        """Give the class that is explained: the model's where none is named."""
        target = self._class(target)
        return int(self.predicted[index]) if target is None else target

    def concepts(
        self, index: int, pair: int | None = None, target: int | None = None, C: float | None = None
    ) -> Strip:
        """Take the score of a pair apart into the principal components of the support vectors.

        ``pair`` is the training sample; None takes the strongest proponent.
        """
        explaining = self.solved.at(C).explaining(1, None)
        with self._lock:
            x = self._test(index)
            why = explaining.concepts(index, x, self._class(target), pair, self._components, 3, 9)
        return Strip.of(why)

    @functools.cached_property
    def _components(self) -> Concepts:
        return Concepts.principal(self.project.explainer.vectors_)

    def _test(self, index: int) -> Any:
        """Give a test sample as the model takes it, or raise."""
        return self.project.tests.take(self.project.read_tests([index]))

    def _class(self, target: int | None) -> int | None:
        """Return a class, or raise."""
        if target is not None and not 0 <= target < len(self.names):
            raise InvalidInputError(f"'target' must be a class in [0, {len(self.names)}). Got {target}.")
        return target

    def what_if(
        self, index: int, remove: Sequence[int], relabel: dict[int, int], target: int | None
    ) -> schema.Answer:
        """Solve the surrogate without or with other labels of some training samples; compare."""
        own = self.project.explainer
        f = self.features[self.project.read_tests([index])]
        features = as_float32(self.project.train_bank.features)
        with self._lock:
            other = own.what_if(features, remove=remove, relabel=relabel)
        wanted = self._wanted(index, target)
        after = other.predict_features(self.features).numpy()
        return schema.Answer(
            test=index,
            target=wanted,
            before=_side(own, f, wanted),
            after=_side(other, f, wanted),
            changed_tests=int((after != self.surrogate_classes)[self.valid].sum()),
            n_tests=int(self.valid.sum()),
            seconds=other.seconds_["solution"],
            first_order=self._first_order(index, remove, relabel, wanted),
        )

    def _first_order(
        self, index: int, remove: Sequence[int], relabel: dict[int, int], target: int
    ) -> schema.FirstOrder | None:
        """What effects foretell of the same question, where they are fitted: to first order, and exactly."""
        effects = self.solved.effects.ready
        if effects is None or not (remove or relabel):
            return None
        vectors = effects.surrogate_.vectors.cpu().numpy()
        known = vectors if len(vectors) == effects.n_train_ else None  # as a rule all of them have weight
        x = self._test(index)
        with self._lock:
            found = effects.effect_of(x, target, remove=remove, relabel=relabel, training_features=known)
        return schema.FirstOrder(
            foretold=float(found.first_order[0]), exact=float(found.exact[0]), parted=found.parted
        )

    def suspects(self, offset: int, limit: int) -> schema.Suspects:
        """A page of the training samples whose labels may be wrong, the most suspicious first."""
        found = self.solved.wrong_labels
        chosen = slice(offset, offset + limit)
        indices, near = found.indices[chosen].tolist(), found.neighbours[chosen]
        nearest = [row[row >= 0][:_NEIGHBOURS].tolist() for row in near]
        wanted = list(dict.fromkeys(chain(indices, *nearest)))
        samples = dict(zip(wanted, self._trained(wanted), strict=True))
        rows = [
            schema.Suspect(
                index=index,
                label=int(found.labels[j]),
                suggested=int(found.suggested[j]),
                score=float(found.scores[j]),
                disagreeing=int((found.neighbours[j] >= 0).sum()),
                sample=samples[index],
                neighbours=row,
                neighbour_labels=self.project.explainer.labels_[row].tolist(),
                neighbour_samples=[samples[i] for i in row],
            )
            for j, (index, row) in enumerate(zip(indices, nearest, strict=True), offset)
        ]
        ranking = found.ranking.replace("_", " ")
        return schema.Suspects(total=len(found), ranking=ranking, looked_at=near.shape[1], rows=rows)

    def classes(self) -> list[schema.ClassFacts]:
        """The classes, and the training samples that carry them."""
        return [
            schema.ClassFacts(
                name=found.name,
                n_train=found.n_train,
                n_support=found.n_support,
                bounded=found.bounded,
                top=found.proponents.tolist(),
                samples=self._trained(found.proponents.tolist()),
            )
            for found in class_view(self.project.explainer, _STRONGEST).classes
        ]


def _side(explainer: DualDA, f: torch.Tensor, target: int) -> schema.Side:
    """What a surrogate says of one test sample."""
    logits = explainer.surrogate_.logits(f)[0].double()
    return schema.Side(
        predicted=int(logits.argmax()),
        logits=logits.tolist(),
        logit=float(logits[target]),
        n_support=len(explainer.support_),
        gap=explainer.gap_,
    )
