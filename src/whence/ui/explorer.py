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
from whence.attributors.usual import usual_of
from whence.audit import class_view
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.explanation import Explanation
from whence.explanation.summary import stability
from whence.explanation.view import Explained, Said, Strip, Usual, shown
from whence.explanation.wording import Question
from whence.features import as_float32
from whence.pages.samples import as_samples
from whence.project import Project
from whence.relevance import Concepts
from whence.svm.likeness import explained
from whence.tasks import Verdict
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
    task, names : what outputs stand for, and their names

    Parameters
    ----------
    max_seconds : limit of the solver of effects
    """

    def __init__(self, project: Project, max_seconds: float | None = None) -> None:
        self.project = project
        explainer = project.explainer
        self.task, self.names = explainer.task_, explainer.task_.called
        self.solved, self._lock = Solved(project, max_seconds), threading.Lock()

    @functools.cached_property
    def features(self) -> torch.Tensor:
        """Features (M, d) of the test samples; of those that could not be read, 0."""
        return torch.from_numpy(np.array(as_float32(self.project.test_bank.features)))

    @functools.cached_property
    def truths(self) -> Any:
        """True labels (M, …) of the test samples; of classes −1 for those that could not be read."""
        return self.project.test_bank.labels

    @property
    def valid(self) -> Any:
        """Whether each test sample (M,) could be read; the others are shown nowhere."""
        return self.project.test_bank.valid

    @functools.cached_property
    def outputs(self) -> torch.Tensor:
        """The model's outputs (M, K), of samples that could not be read 0."""
        explainer, bank = self.project.explainer, self.project.test_bank
        if bank.extractor.exact:
            return explainer.surrogate_.model_logits(self.features).double()
        # What the model does after its head shows in its own output only.
        found = torch.zeros(len(self.truths), len(self.names), dtype=torch.float64)
        places = np.flatnonzero(self.valid).tolist()
        for start in range(0, len(places), explainer.batch_size):
            rows = places[start : start + explainer.batch_size]
            found[rows] = bank.extractor.read(self.project.tests.take(rows)).logits.double().cpu()
        return found

    @functools.cached_property
    def targets(self) -> Any:
        """What is explained of each test sample (M,) where nobody names it: of several numbers the first."""
        several = self.task.speech == "number" and len(self.names) > 1
        return np.zeros(len(self.truths), int) if several else self.task.predicted(self.outputs).numpy()

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """What is said of each test sample."""
        ours = self.project.explainer.surrogate_.logits(self.features).cpu().numpy()
        said = zip(self.outputs.cpu().numpy(), ours, self.targets.tolist(), self.truths.tolist(), strict=True)
        return [self.task.verdict(*one) for one in said]

    @functools.cached_property
    def kind(self) -> Any:
        """What the samples are: image, text or values."""
        first = int(self.valid.argmax())
        return shown(self._samples(self.project.tests, [first])[0]).kind

    @functools.cached_property
    def surrogate_labels(self) -> Any:
        """What the surrogate says (M, …): of classes, the class."""
        return self.project.explainer.predict_features(self.features).numpy()

    @functools.cached_property
    def predicted(self) -> Any:
        """What the model says (M, …): of classes, the class."""
        return self.task.decided(self.outputs).numpy()

    def _agreement(self, a: Any, b: Any) -> float:
        """How far two arrays of labels of all tests agree: the share that is the same, of numbers R²."""
        a, b = a[self.valid], b[self.valid]
        return (
            explained(a.reshape(len(a), -1), b.reshape(len(b), -1))
            if self._numbers
            else float((a == b).mean())
        )

    @property
    def _numbers(self) -> bool:
        return self.task.speech == "number"

    def _has(self, labels: Any) -> Any:
        """Which classes or labels (M, K) are on in labels of all tests; of numbers none."""
        on = np.zeros((len(labels), len(self.names)), bool)
        if self.task.has_classes:
            on[self.valid, labels[self.valid]] = True
        elif not self._numbers:
            on[:] = labels > 0
        return on

    @functools.cached_property
    def _on(self) -> tuple[Any, Any]:
        """Which classes or labels (M, K) are true, and which are predicted."""
        return self._has(self.truths), self._has(self.predicted)

    @functools.cached_property
    def strange(self) -> Any:
        """Whether nothing like a test sample (M,) was in the training set."""
        return self.solved.usualness.of(self.features).strange

    def info(self) -> schema.Info:
        """What holds for all tests."""
        explainer = self.project.explainer
        return schema.Info(
            title=self.project.path.stem,
            kind=self.kind,
            speech=self.task.speech,
            classes=list(self.names),
            n_train=explainer.n_train_,
            n_tests=int(self.valid.sum()),
            n_support=len(explainer.support_),
            C=explainer.C_,
            Cs=self.solved.Cs(),
            gap=explainer.gap_,
            accuracy=self._agreement(self.predicted, self.truths),
            agreement=self._agreement(self.surrogate_labels, self.predicted),
        )

    def rows(self, wanted: schema.Wanted) -> schema.Rows:
        """A page of the test samples that fit, with small pictures.

        ``search`` is a place, or a part of the name of the true or the predicted class.
        """
        fits, (true, predicted) = self.valid.copy(), self._on
        for c, on in ((wanted.label, true), (wanted.predicted, predicted)):
            if c is not None:
                fits &= on[:, c] if c < on.shape[1] else False
        if wanted.wrong:
            fits &= [said.right is False for said in self.verdicts]
        if wanted.disagree:
            fits &= [not said.agrees for said in self.verdicts]
        if wanted.strange:
            fits &= self.strange
        if word := wanted.search.strip().casefold():
            meant = np.array([word in name.casefold() for name in self.names])
            found = (true & meant).any(1) | (predicted & meant).any(1)
            if self._numbers:
                found = np.array([word in f"{said.predicted} {said.truth}" for said in self.verdicts])
            if word.isdecimal() and len(word) < 18:
                found |= np.arange(len(fits)) == int(word)
            fits &= found
        places = np.flatnonzero(fits)
        page = places[wanted.offset : wanted.offset + wanted.limit].tolist()
        return schema.Rows(total=len(places), rows=self.summaries(page))

    def summaries(self, indices: Sequence[int]) -> list[schema.Row]:
        """One line per test sample."""
        true, predicted = self._on
        strange = self.strange if "usualness" in self.solved.__dict__ else None  # the list does not wait
        rows = []
        for index, sample in zip(indices, self._samples(self.project.tests, indices), strict=True):
            said, whole = self.verdicts[index], self.task.has_classes
            rows.append(
                schema.Row(
                    index=index,
                    verdict=Said.model_validate(said),
                    truths=np.flatnonzero(true[index]).tolist(),
                    predictions=np.flatnonzero(predicted[index]).tolist(),
                    truth=int(self.truths[index]) if whole else None,
                    predicted=int(self.predicted[index]) if whole else None,
                    probability=said.probability if whole else None,
                    surrogate_class=int(self.surrogate_labels[index]) if whole else None,
                    strange=None if strange is None else bool(strange[index]),
                    sample=sample,
                )
            )
        return rows

    def _samples(self, samples: TrainingSet, indices: Sequence[int]) -> list[Any]:
        """Samples to look at, of the tests or of the training set."""
        if not indices:
            return []
        tokenizer = self.project.explainer.require_model().prepare.find_tokenizer()
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
            x, truth = self._test(index), self.truths[index].tolist()
            why = explainer.explaining(k, None)(index, x, self._wanted(index, target), truth)
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
            several = self._numbers and len(self.names) > 1
            why = explainer.explain(x, k, 0 if target is None and several else target)[0]
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

    def usual(self, index: int) -> Usual:
        """How usual a test sample is for the training set, and which training samples are nearest to it."""
        return self._usual(self.features[self.project.read_tests([index])])

    def usual_own(self, x: Any) -> Usual:
        """How usual an input of the user's own is, a batch of one."""
        return self._usual(self.project.explainer.require_model().read(x, 1).features)

    def _usual(self, features: torch.Tensor) -> Usual:
        found = usual_of(self.project.explainer, self.solved.usualness, features)[0]
        return Usual.model_validate(found)

    def doubt(self, index: int, k: int = 5, target: int | None = None) -> schema.Doubt:
        """How stable the strongest training samples of a test are, over halves of the training set."""
        found = self.solved.stability.top_k_features(
            self.features[self.project.read_tests([index])], k, self._wanted(index, target)
        )
        sides = zip(found.top[:2], (found.proponents, found.opponents), strict=True)
        pairs = [pair for side, among in sides for pair in zip(side.indices[0], among[0], strict=True)]
        among = {int(i): int(n) for i, n in pairs if i >= 0}
        reason = stability(list(among.values()), found.halves)
        told = {"k": k, "halves": found.halves, "among": among, "reason": reason}
        return schema.Doubt.model_validate(told)

    def _wanted(self, index: int, target: int | None) -> int:
        """Give the class that is explained: the model's where none is named."""
        target = self._class(target)
        return int(self.targets[index]) if target is None else target

    def concepts(
        self, index: int, pair: int | None = None, target: int | None = None, C: float | None = None
    ) -> Strip:
        """Take the score of a pair apart into the principal components of the support vectors.

        ``pair`` is the training sample; None takes the strongest proponent.
        """
        explaining = self.solved.at(C).explaining(1, None)
        with self._lock:
            x = self._test(index)
            why = explaining.concepts(index, x, self._wanted(index, target), pair, self._components, 3, 9)
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
            changed_tests=int((after != self.surrogate_labels)[self.valid].sum()),
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
