"""What the explorer shows, whoever asks: the state behind the page, live or written to a file."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from whence.attributors import DualDA
from whence.audit import WrongLabels, class_view, wrong_labels
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.features import as_float32
from whence.model.bound import probabilities
from whence.model.inputs import to_model
from whence.pages.samples import Sample, as_samples
from whence.project import Project
from whence.relevance import Concepts
from whence.ui import payload
from whence.ui.payload import Json

C_STEPS = (1e-2, 1e-1, 1.0, 1e1, 1e2)
"""The values of C on offer, as multiples of the explainer's own."""
_QUEUE = 1000  # samples in the audit queue: more than anyone looks at
_NEIGHBOURS = 5  # shown of a sample in the audit queue
_STRONGEST = 12  # samples of a class in the class view


class Explorer:
    """A project, and what can be asked of it.

    Attributes
    ----------
    project : the explainer with its model, training set and tests
    names : one a class
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        explainer = project.explainer
        self.names = explainer.task_.called
        self._lock, self._ranking = threading.RLock(), threading.Lock()
        self._path: dict[float, DualDA] = {explainer.C_: explainer}

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
    def kind(self) -> str:
        """What the samples are: image, text or values."""
        first = int(self.valid.argmax())
        return str(payload.sample(self._shown(self.project.tests, [first])[0])["kind"])

    @functools.cached_property
    def surrogate_classes(self) -> Any:
        """The surrogate's classes (M,)."""
        return self.project.explainer.predict_features(self.features).numpy()

    @functools.cached_property
    def predicted(self) -> Any:
        """The model's classes (M,)."""
        return self.probabilities.argmax(1).numpy()

    def info(self) -> Json:
        """What holds for all tests."""
        explainer = self.project.explainer
        return {
            "title": self.project.path.stem,
            "kind": self.kind,
            "classes": list(self.names),
            "n_train": explainer.n_train_,
            "n_tests": int(self.valid.sum()),
            "n_support": len(explainer.support_),
            "C": explainer.C_,
            "Cs": self.Cs(),
            "gap": explainer.gap_,
            "accuracy": float((self.predicted == self.truths)[self.valid].mean()),
            "agreement": float((self.predicted == self.surrogate_classes)[self.valid].mean()),
        }

    def Cs(self) -> list[float]:
        """The values of C that explanations can be asked for at, ascending."""
        C = self.project.explainer.C_
        return [float(f"{C * step:.3g}") if step != 1 else C for step in C_STEPS]

    def rows(
        self,
        *,
        offset: int = 0,
        limit: int = 24,
        label: int | None = None,
        predicted: int | None = None,
        wrong: bool = False,
        disagree: bool = False,
        search: str = "",
    ) -> Json:
        """A page of the test samples that fit, with small pictures.

        ``search`` is a place, or a part of the name of the true or the predicted class.
        """
        fits = self.valid.copy()
        if label is not None:
            fits &= self.truths == label
        if predicted is not None:
            fits &= self.predicted == predicted
        if wrong:
            fits &= self.predicted != self.truths
        if disagree:
            fits &= self.predicted != self.surrogate_classes
        if word := search.strip().casefold():
            meant = [c for c, name in enumerate(self.names) if word in name.casefold()]
            found = np.isin(self.truths, meant) | np.isin(self.predicted, meant)
            if word.isdecimal() and len(word) < 18:
                found |= np.arange(len(fits)) == int(word)
            fits &= found
        places = np.flatnonzero(fits)
        return {"total": len(places), "rows": self.summaries(places[offset : offset + limit].tolist())}

    def summaries(self, indices: Sequence[int]) -> list[Json]:
        """One line a test sample."""
        shown = self._shown(self.project.tests, indices)
        return [
            {
                "index": index,
                "truth": int(self.truths[index]),
                "predicted": int(self.predicted[index]),
                "probability": float(self.probabilities[index].max()),
                "surrogate_class": int(self.surrogate_classes[index]),
                "sample": payload.small(picture),
            }
            for index, picture in zip(indices, shown, strict=True)
        ]

    def _shown(self, samples: TrainingSet, indices: Sequence[int]) -> list[Sample]:
        """Samples to look at, of the tests or of the training set."""
        if not indices:
            return []
        tokenizer = self.project.explainer.require_model().prepare.preprocess
        return as_samples(samples.take(list(indices)), tokenizer)

    def _small(self, indices: Sequence[int]) -> list[Json]:
        """Small pictures of training samples, which must be those that were fitted."""
        explainer = self.project.explainer
        data, model = explainer.require_data(), explainer.require_model()
        for start in range(0, len(indices), explainer.batch_size):
            rows = list(indices[start : start + explainer.batch_size])
            found = model.read_batch(to_model(model.extractor.model, data.take(rows))).features
            explainer.surrogate_.check_training(found.float().cpu().numpy(), np.asarray(rows), "data")
        return [payload.small(shown) for shown in self._shown(data, indices)]

    def explain(self, index: int, k: int = 5, target: int | None = None, C: float | None = None) -> Json:
        """Explain a test sample."""
        target = self._class(target)
        with self._lock:
            explainer = self.at(C)
            why = self.project.explain([index], k, target, explainer=explainer)[0]
            scores = explainer.attribute_features(self.features[[index]], why.target, sparse=True).data
        return {"test": index, "C": explainer.C_, **payload.explanation(why, scores)}

    def explain_own(self, x: Any, k: int = 5, target: int | None = None, C: float | None = None) -> Json:
        """Explain an input of the user's own, a batch of one as the model or its preprocessing takes it."""
        target = self._class(target)
        with self._lock:
            explainer = self.at(C)
            why = explainer.explain(x, k, target)[0]
            scores = explainer.attribute(x, why.target, sparse=True).data
        return {"test": None, "C": explainer.C_, **payload.explanation(why, scores)}

    def at(self, C: float | None) -> DualDA:
        """Give the explainer at another C of ``Cs``, solved when it is first asked for."""
        own = self.project.explainer
        if C is None:
            return own
        if C not in self.Cs():
            known = ", ".join(f"{c:g}" for c in self.Cs())
            raise InvalidInputError(f"'C' must be one of {known}. Got {C:g}.")
        features = as_float32(self.project.train_bank.features)
        with self._lock:
            if C not in self._path:
                self._path[C] = own.what_if(features, C=C)
            return self._path[C]

    def concepts(
        self, index: int, pair: int | None = None, target: int | None = None, C: float | None = None
    ) -> Json:
        """Take the score of a pair apart into the principal components of the support vectors.

        ``pair`` is the training sample; None takes the strongest proponent.
        """
        target = self._class(target)
        with self._lock:
            inputs = self.project.tests.take(self.project.read_tests([index]))
            explaining = self.at(C).explaining(1, None)
            why = explaining.concepts(index, inputs, target, pair, self._components, 3, 9)
        return payload.concepts(why)

    @functools.cached_property
    def _components(self) -> Concepts:
        return Concepts.principal(self.project.explainer.vectors_)

    def _class(self, target: int | None) -> int | None:
        """Return a class, or raise."""
        if target is not None and not 0 <= target < len(self.names):
            raise InvalidInputError(f"'target' must be a class in [0, {len(self.names)}). Got {target}.")
        return target

    def what_if(self, index: int, remove: Sequence[int], relabel: dict[int, int], target: int | None) -> Json:
        """Solve the surrogate without or with other labels of some training samples; compare."""
        own, target = self.project.explainer, self._class(target)
        f = self.features[self.project.read_tests([index])]
        features = as_float32(self.project.train_bank.features)
        with self._lock:
            other = own.what_if(features, remove=remove, relabel=relabel)
        wanted = int(self.predicted[index]) if target is None else target
        after = other.predict_features(self.features).numpy()
        return {
            "test": index,
            "target": wanted,
            "before": _side(own, f, wanted),
            "after": _side(other, f, wanted),
            "changed_tests": int((after != self.surrogate_classes)[self.valid].sum()),
            "n_tests": int(self.valid.sum()),
            "seconds": other.seconds_["solution"],
        }

    def suspects(self, offset: int, limit: int) -> Json:
        """A page of the training samples whose labels may be wrong, the most suspicious first."""
        found = self._wrong_labels
        chosen = slice(offset, offset + limit)
        indices, near = found.indices[chosen], found.neighbours[chosen]
        shown = [row[row >= 0][:_NEIGHBOURS].tolist() for row in near]
        samples = iter(
            self._small([i for i, row in zip(indices.tolist(), shown, strict=True) for i in (i, *row)])
        )
        rows = [
            {
                "index": index,
                "label": int(found.labels[j]),
                "suggested": int(found.suggested[j]),
                "score": float(found.scores[j]),
                "disagreeing": int((found.neighbours[j] >= 0).sum()),
                "sample": next(samples),
                "neighbours": row,
                "neighbour_labels": self.project.explainer.labels_[row].tolist(),
                "neighbour_samples": [next(samples) for _ in row],
            }
            for j, (index, row) in enumerate(zip(indices.tolist(), shown, strict=True), offset)
        ]
        ranking = found.ranking.replace("_", " ")
        return {"total": len(found), "ranking": ranking, "looked_at": near.shape[1], "rows": rows}

    @functools.cached_property
    def _wrong_labels(self) -> WrongLabels:
        with self._ranking:  # not the lock of the explanations: they go on while labels are ranked
            if "_wrong_labels" in self.__dict__:
                return self._wrong_labels
            return wrong_labels(self.project.explainer, features=self.project.train_bank, n=_QUEUE)

    def classes(self) -> list[Json]:
        """The classes, and the training samples that carry them."""
        facts = ("name", "n_train", "n_support", "bounded")
        return [
            {fact: getattr(found, fact) for fact in facts}
            | {"top": found.proponents.tolist(), "samples": self._small(found.proponents.tolist())}
            for found in class_view(self.project.explainer, _STRONGEST).classes
        ]


def _side(explainer: DualDA, f: torch.Tensor, target: int) -> Json:
    """What a surrogate says of one test sample."""
    logits = explainer.surrogate_.logits(f)[0].double()
    return {
        "predicted": int(logits.argmax()),
        "logits": [float(value) for value in logits],
        "logit": float(logits[target]),
        "n_support": len(explainer.support_),
        "gap": explainer.gap_,
    }
