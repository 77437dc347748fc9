"""Scores of another tool behind the explorer's page: tests, and the strongest training samples of each."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.core.checks import check_places, check_shape, check_that, real_array
from whence.core.progress import bar
from whence.data import TrainingSet
from whence.explanation.record import running
from whence.explanation.wording import MADE_OF
from whence.interop.scores import ForeignScores
from whence.model.inputs import run, to_model
from whence.model.modules import check_model, evaluating
from whence.model.passes import logits_in
from whence.pages.pictures import as_small_view, as_view, plain
from whence.pages.samples import as_samples
from whence.pages.style import percent
from whence.tasks import Task, Verdict, probabilities
from whence.ui.requests import Answer, Wanted
from whence.ui.solved import View

_WORDS = replace(
    MADE_OF["class"],
    mark="score ",
    side=("positive scores for", "negative scores for"),
    share=("positive scores", "negative scores"),
    everything=("all positive scores", "all negative scores"),
    nothing=("No training sample has a positive score.", "No training sample has a negative score."),
    sign=("score above 0", "score below 0"),
    total="of all scores",
    held="Share of all scores",
    other="its label differs",
)
_NEEDS: dict[View, str] = {
    "audit": "The label audit",
    "classes": "Comparing classes",
    "concepts": "The gallery of concepts",
    "whatif": "What if",
}


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model predicts for tests.

    Attributes
    ----------
    classes : (T,) the predicted classes
    outputs : (T, K) the model's outputs, or None where only the classes are known
    """

    classes: Ints
    outputs: Doubles | None

    @classmethod
    def of(cls, values: Any, n_tests: int) -> Predictions:
        """Read classes (T,) or outputs (T, K), or raise."""
        array = real_array("predictions", values)
        if array.ndim == 1:
            check_shape("predictions", array, (n_tests,), "have one class per test, ")
            whole = array.dtype.kind in "iu" and array.min(initial=0) >= 0
            check_that(whole, "predictions", "be classes 0 … K−1, or outputs (T, K)", array)
            return cls(array.astype(np.int64), None)
        check_shape("predictions", array, (n_tests, None), "have one row of outputs per test, ")
        check_that(np.isfinite(array).all(), "predictions", "be finite", "NaN or infinity")
        return cls(array.argmax(1), array.astype(np.float64))

    @classmethod
    def by_model(cls, model: Any, tests: TrainingSet, show_progress: bool) -> Predictions:
        """Run a model on tests."""
        network, parts = check_model(model), list[Any]()
        starts = range(0, len(tests), tests.batch_size)
        with evaluating(network):
            for start in bar("Predicting", len(starts), "batches", parts=starts, show=show_progress):
                rows = list(range(start, min(start + tests.batch_size, len(tests))))
                output = run(network, to_model(network, tests.take(rows)))
                parts.append(logits_in(output, len(rows))[0].double().cpu())
        return cls.of(torch.cat(parts), len(tests))


class Viewed:
    """Scores with their tests and training set, and the answers to the page's requests.

    It answers what the list and the explanations of the page ask for. There are no maps and no surrogate: a
    matrix of scores says nothing about features or about what would change.

    Attributes
    ----------
    scores : the scores (test, train)
    task, names : the task, and the names of its classes
    truths, labels : classes of the tests (T,) and of the training samples (N,)
    predictions : what the model predicts, or None
    """

    scores_only: Literal[True] = True
    writes = False

    def __init__(
        self,
        scores: ForeignScores,
        train: TrainingSet,
        tests: TrainingSet,
        predictions: Predictions | None = None,
        *,
        show_progress: bool = True,
    ) -> None:
        train.task.require_classes("The explorer of scores")
        self.scores, self.predictions = scores, predictions
        self._train, self._tests = train, tests
        self.labels, self.truths = (samples.every_label(show_progress) for samples in (train, tests))
        outputs = None if predictions is None else predictions.outputs
        known = [self.labels, self.truths] if predictions is None else [
            self.labels, self.truths, predictions.classes,
        ]  # fmt: skip
        names, largest = train.class_names, max(int(part.max(initial=0)) for part in known) + 1
        K = len(names) if names else largest if outputs is None else outputs.shape[1]
        rule = f"be below {K}, the number of classes"
        check_that(largest <= K, "labels and predictions", rule, largest - 1)
        self.task: Task = train.task.with_outputs(K, names)
        self.names = self.task.output_names

    @property
    def title(self) -> str:
        """The name of the file."""
        return self.scores.path.stem

    @functools.cached_property
    def kind(self) -> Any:
        """The kind of samples: image, text or values."""
        return self._views(self._tests, [0])[0]["kind"]

    @functools.cached_property
    def wrong(self) -> Mask:
        """Whether the model is wrong (T,); False where its predictions are not known."""
        none = np.zeros(len(self.truths), np.bool_)
        return none if self.predictions is None else self.predictions.classes != self.truths

    @functools.cached_property
    def certainty(self) -> Doubles | None:
        """The probability (T,) of the predicted class; None where outputs are not known."""
        if self.predictions is None or self.predictions.outputs is None:
            return None
        return probabilities(torch.from_numpy(self.predictions.outputs)).amax(1).numpy()

    def info(self) -> Answer:
        """Return what was loaded."""
        scores, known = self.scores, self.predictions is not None
        return {
            "title": self.title,
            "kind": self.kind,
            "label_kind": self.task.label_kind,
            "classes": list(self.names),
            "n_train": len(self.labels),
            "n_tests": len(self.truths),
            "n_wrong": int(self.wrong.sum()),
            "n_differing": 0,
            "members": 1,
            "questions": ["scores"],
            "compares": False,
            "contrasts": False,
            "withheld": {view: self._withheld(view) for view in _NEEDS},
            "note": "",
            "writes": False,
            "C": None,
            "Cs": [],
            "compare": None,
            "accuracy": 1 - float(self.wrong.mean()) if known else None,
            "scores": {
                "tool": scores.tool,
                "about": scores.about,
                "orientation": scores.orientation,
                "path": scores.path.name,
                "predicted": known,
                "certain": self.certainty is not None,
            },
        }

    def _withheld(self, view: View) -> str:
        return (
            f"{_NEEDS[view]} needs a surrogate of the model. This page shows scores that {self.scores.tool} "
            "wrote to a file. Fit a DualDA to the model and its training set, and serve it."
        )

    def rows(self, wanted: Wanted) -> Answer:
        """Return a page of the tests that match, with small pictures."""
        places = np.flatnonzero(self._fitting(wanted))
        if wanted.order == "least certain" and self.certainty is not None:
            places = places[np.argsort(self.certainty[places], kind="stable")]
        page = places[wanted.offset : wanted.offset + wanted.limit].tolist()
        samples = self._views(self._tests, page)
        return {"total": len(places), "rows": [self._row(*one) for one in zip(page, samples, strict=True)]}

    def _row(self, test: int, sample: Answer) -> Answer:
        predicted = None if self.predictions is None else int(self.predictions.classes[test])
        verdict, truth = self._verdict(test), int(self.truths[test])
        return {
            "index": test,
            "verdict": verdict._asdict(),
            "truths": [truth],
            "predictions": [] if predicted is None else [predicted],
            "truth": truth,
            "predicted": predicted,
            "probability": verdict.probability,
            "surrogate_class": None,
            "novel": None,
            "sample": sample,
        }

    def _fitting(self, wanted: Wanted) -> Mask:
        """Return which tests (T,) match; a search is an index or part of a class's name."""
        classes = [self.truths] if self.predictions is None else [self.truths, self.predictions.classes]
        fits = np.ones(len(self.truths), np.bool_)
        if wanted.label is not None:
            fits &= self.truths == wanted.label
        if wanted.predicted is not None:
            fits &= classes[-1] == wanted.predicted
        if wanted.wrong:
            fits &= self.wrong
        if word := wanted.search.strip().casefold():
            meant = np.array([word in name.casefold() for name in self.names])
            matches = np.any([meant[each] for each in classes], axis=0)
            if word.isdecimal() and len(word) < 18:
                matches |= np.arange(len(fits)) == int(word)
            fits &= matches
        return fits

    def explain(self, test: int, k: int = 5) -> Answer:
        """Return the strongest training samples of a test, as the page shows an explanation."""
        test = int(check_places("test", [test], len(self.truths))[0])
        row = self.scores.row(test)
        target, verdict = self._target(test), self._verdict(test)
        predicted = target if self.predictions is None else int(self.predictions.classes[test])
        chosen = [i for sign in (1, -1) for i in strongest(row, k, sign).tolist()]
        sums = {1: float(row[row > 0].sum()), -1: float(row[row < 0].sum())}
        pairs = [
            self._pair(i, float(row[i]), sums, target, sample)
            for i, sample in zip(chosen, self._whole(self._train, chosen), strict=True)
        ]
        shares = {sign: sum(p["share"] for p in pairs if p["score"] * sign > 0) for sign in (1, -1)}
        curve = running(row, np.abs(row))
        words = _WORDS if self.predictions is not None else replace(_WORDS, predicted="labelled")
        return {
            "test": test, "C": None, "question": "scores", "label_kind": self.task.label_kind,
            "target": target, "predicted": predicted, "probability": verdict.probability, "against": None,
            "n_members": 0, "words": plain(words), "full": {"logit": 0, "train": 0, "test": 0},
            "other_scores": None, "logit_map": None, "tree": None, "equation": "", "waterfall": [],
            "verdict": verdict._asdict(),
            "summary": {"claim": self._claim(row, chosen, target), "checks": []},
            "facts": self._facts(row, shares),
            "sample": self._whole(self._tests, [test])[0],
            "pairs": pairs,
            "evidence_for": sums[1], "evidence_against": sums[-1], "total": float(row.sum()),
            "share_for": shares[1], "share_against": shares[-1],
            "sparsity": [(n, part / (curve[-1][1] or 1.0)) for n, part in curve],
        }  # fmt: skip

    def _pair(self, i: int, score: float, sums: dict[int, float], target: int, sample: Answer) -> Answer:
        label = int(self.labels[i])
        return {
            "index": i, "score": score, "share": score / sums[1 if score > 0 else -1],
            "label": label, "label_text": self.task.label_text(label),
            "differs": bool(self.task.differs(label, target)),
            "spread": None, "alike": [], "alike_words": "", "train_map": None, "test_map": None,
            "sample": sample,
        }  # fmt: skip

    def _target(self, test: int) -> int:
        """Return the class that scores are about: the file's, else the true one, as most losses have it."""
        return int((self.truths if self.scores.targets is None else self.scores.targets)[test])

    def _verdict(self, test: int) -> Verdict:
        """Compare prediction and label; the label alone where the prediction is not known."""
        truth, chance = int(self.truths[test]), None
        if self.predictions is None:
            return Verdict(self.names[truth], None, None, None, "", True)
        predicted = int(self.predictions.classes[test])
        if self.certainty is not None:
            chance = float(self.certainty[test])
        return Verdict(self.names[predicted], chance, self.names[truth], predicted == truth, "", True)

    def _claim(self, row: Doubles, chosen: Sequence[int], target: int) -> str:
        """Say what is on top, in one sentence."""
        positive = [i for i in chosen if row[i] > 0]
        if not positive:
            return "No training sample has a positive score."
        same = sum(int(self.labels[i]) == target for i in positive)
        return (
            f"{same} of the {len(positive)} training samples with the highest scores have the label "
            f"“{self.names[target]}”."
        )

    def _facts(self, row: Doubles, shares: dict[int, float]) -> list[tuple[str, str]]:
        about = f", {self.scores.about}" if self.scores.about else ""
        sign = "" if "positive" in about else " What a sign means is up to the tool."
        signed = int((row > 0).sum()), int((row < 0).sum())
        counts = f"{signed[0]:,} of {len(row):,} training samples have a positive score"
        held = f"{percent(shares[1])} of all positive scores and {percent(shares[-1])} of all negative ones"
        return [
            ("scores", f"From {self.scores.path.name}, written by {self.scores.tool}{about}.{sign}"),
            ("samples", f"{counts}, {signed[1]:,} a negative one."),
            ("shown", f"The samples below hold {held}."),
        ]

    def _views(self, samples: TrainingSet, indices: Sequence[int]) -> list[Answer]:
        return [as_small_view(sample) for sample in _shown(samples, indices)]

    def _whole(self, samples: TrainingSet, indices: Sequence[int]) -> list[Answer]:
        return [as_view(sample) for sample in _shown(samples, indices)]


def _shown(samples: TrainingSet, indices: Sequence[int]) -> list[Any]:
    """Return samples for display."""
    return as_samples(samples.take(list(indices)), samples.prepare) if len(indices) else []


def strongest(row: Doubles, k: int, sign: int) -> Ints:
    """Return the places of the k strongest scores of a sign, the strongest first."""
    signed: Array = sign * row
    places = np.argsort(-signed, kind="stable")[:k]
    return places[signed[places] > 0]
