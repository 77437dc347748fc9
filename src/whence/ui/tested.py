"""The test samples of the explorer: the verdict on each, and filtered lists."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from whence.attribution.base import Attributor
from whence.attribution.members import together
from whence.core.arrays import Ints
from whence.data import TrainingSet
from whence.features import FeatureBank, as_float32
from whence.pages.pictures import as_small_view
from whence.pages.samples import as_samples
from whence.project import Project
from whence.relevance.sources import floating
from whence.svm.likeness import explained
from whence.tasks import Verdict
from whence.ui.requests import Answer, TestFilters, Wanted
from whence.ui.solved import Surrogates

_COMPARED = 256  # tests per batch when they are compared with the training set


class Tested:
    """The outputs of a model and its surrogate for all test samples. Unreadable samples are not shown.

    For an ensemble, the combined outputs of its members.

    Attributes
    ----------
    task, names : the task, and the names of its outputs
    """

    def __init__(self, project: Project, solved: Surrogates) -> None:
        self.project, self.solved = project, solved
        self.task, self.names = project.attributor.task_, project.attributor.task_.output_names

    @functools.cached_property
    def _read(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Features (M, d) and model outputs (M, K) of each member; 0 for unreadable samples."""
        project, (first, *others) = self.project, self.project.members
        banks = [project.test_bank, *(project.bank_of(project.tests, member) for member in others)]
        return [self._outputs_of(*pair) for pair in zip((first, *others), banks, strict=True)]

    def _outputs_of(self, member: Attributor, bank: FeatureBank) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.from_numpy(np.array(as_float32(bank.features)))
        if bank.extractor.exact:
            return features, member.surrogate_.model_logits(features).double()
        # Only the model's own output includes what it does after its head.
        outputs = torch.zeros(len(features), len(self.names), dtype=torch.float64)
        places = np.flatnonzero(bank.valid).tolist()
        for start in range(0, len(places), member.batch_size):
            rows = places[start : start + member.batch_size]
            outputs[rows] = bank.extractor.read(self.project.tests.take(rows)).logits.double().cpu()
        return features, outputs

    @property
    def features(self) -> torch.Tensor:
        """Features (M, d), 0 for unreadable samples; for an ensemble those of the first member."""
        return self._read[0][0]

    @functools.cached_property
    def truths(self) -> Any:
        """True labels (M, …); class −1 for unreadable samples and where labels are not known."""
        known = self.project.labelled
        return self.project.test_bank.labels if known else self.task.blank(len(self.valid))

    def truth(self, index: int) -> Any:
        """Return the true label of one test, None where it is not known."""
        return self.truths[index].tolist() if self.project.labelled else None

    @property
    def valid(self) -> Any:
        """Whether each test (M,) could be read."""
        return self.project.test_bank.valid

    @functools.cached_property
    def outputs(self) -> torch.Tensor:
        """The model's outputs (M, K), 0 for unreadable samples."""
        outputs = [member for _, member in self._read]
        return outputs[0] if len(outputs) == 1 else together(self.task, outputs)

    @functools.cached_property
    def surrogate_outputs(self) -> torch.Tensor:
        """The surrogate's outputs (M, K); for an ensemble the mean over its members."""
        pairs = zip(self.project.members, self._read, strict=True)
        return torch.stack(
            [member.surrogate_.logits(features).cpu() for member, (features, _) in pairs]
        ).mean(0)

    @functools.cached_property
    def targets(self) -> Any:
        """The default output (M,) to explain; for several regression outputs the first."""
        several = self.is_numeric and len(self.names) > 1
        return np.zeros(len(self.valid), int) if several else self.task.default_target(self.outputs).numpy()

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each test."""
        ours = self.surrogate_outputs.numpy()
        truths = map(self.truth, range(len(ours)))
        rows = zip(self.outputs.cpu().numpy(), ours, self.targets.tolist(), truths, strict=True)
        return [self.task.verdict(*one) for one in rows]

    @functools.cached_property
    def kind(self) -> Any:
        """The kind of samples: image, text or values."""
        first = int(self.valid.argmax())
        return self.samples([first])[0]["kind"]

    @functools.cached_property
    def surrogate_labels(self) -> Any:
        """The predictions of the surrogate (M, …); for classification the class."""
        return self.task.predict(self.surrogate_outputs).numpy()

    @functools.cached_property
    def predicted(self) -> Any:
        """The predictions of the model (M, …); for classification the class."""
        return self.task.predict(self.outputs).numpy()

    @property
    def is_numeric(self) -> bool:
        """Whether outputs are numbers."""
        return bool(self.task.label_kind == "number")

    @functools.cached_property
    def accuracy(self) -> float | None:
        """The model's accuracy, for regression R²; None where labels are not known."""
        return self._agreement(self.predicted, self.truths) if self.project.labelled else None

    @functools.cached_property
    def agreement(self) -> float:
        """The share of predictions on which surrogate and model agree; for regression R²."""
        return self._agreement(self.surrogate_labels, self.predicted)

    def _agreement(self, a: Any, b: Any) -> float:
        a, b = a[self.valid], b[self.valid]
        if self.is_numeric:
            return explained(a.reshape(len(a), -1), b.reshape(len(b), -1))
        return float((a == b).mean())

    @functools.cached_property
    def wrong(self) -> Any:
        """Whether the model is wrong (M,); always False for regression."""
        return self.valid & [verdict.right is False for verdict in self.verdicts]

    @functools.cached_property
    def differs(self) -> Any:
        """Whether surrogate and model disagree (M,)."""
        return self.valid & [not verdict.agrees for verdict in self.verdicts]

    @functools.cached_property
    def novel(self) -> Any:
        """Whether each test (M,) is unlike the training set."""
        novelty, places = self.solved.novelty.result(), np.flatnonzero(self.valid)
        novel = np.zeros(len(self.features), bool)
        for part in np.array_split(places, -(-len(places) // _COMPARED)):
            inputs = floating(self.project.model_inputs(part.tolist()))
            novel[part] = novelty.of(self.features[part], inputs).novel
        return novel

    @functools.cached_property
    def certainty(self) -> Any:
        """How certain the model is (M,): the class's probability, or that of the least certain label."""
        if self.is_numeric:
            return np.zeros(len(self.valid))
        if self.task.has_classes:
            return np.array([verdict.probability for verdict in self.verdicts])
        chances = torch.sigmoid(self.outputs)
        return torch.maximum(chances, 1 - chances).amin(1).numpy()

    @functools.cached_property
    def on(self) -> tuple[Any, Any]:
        """The true and the predicted classes or labels, as masks (M, K)."""
        return self._has(self.truths), self._has(self.predicted)

    def _has(self, labels: Any) -> Any:
        """Return labels of all tests as a mask (M, K); all False for regression."""
        on = np.zeros((len(labels), len(self.names)), bool)
        if self.task.has_classes:
            rows = np.flatnonzero(self.valid & (labels >= 0))
            on[rows, labels[rows]] = True
        elif not self.is_numeric:
            on[:] = labels > 0
        return on

    def rows(self, wanted: Wanted) -> Answer:
        """Return a page of the matching test samples, with small pictures."""
        places = self.fitting(wanted)
        if wanted.order == "least certain":
            places = places[np.argsort(self.certainty[places], kind="stable")]
        page = places[wanted.offset : wanted.offset + wanted.limit].tolist()
        return {"total": len(places), "rows": self.summaries(page)}

    def fitting(self, wanted: TestFilters) -> Ints:
        """Return the tests that match; a search is an index or part of a true or predicted class's name."""
        fits, (true, predicted) = self.valid.copy(), self.on
        for c, on in ((wanted.label, true), (wanted.predicted, predicted)):
            if c is not None:
                fits &= on[:, c] if c < on.shape[1] else False
        if wanted.wrong:
            fits &= self.wrong
        if wanted.disagree:
            fits &= self.differs
        if wanted.novel:
            fits &= self.novel
        if wanted.slice is not None:
            within = np.zeros(len(fits), bool)
            within[self.project.work.members(wanted.slice, "tests")] = True
            fits &= within
        if word := wanted.search.strip().casefold():
            meant = np.array([word in name.casefold() for name in self.names])
            matches = (true & meant).any(1) | (predicted & meant).any(1)
            if self.is_numeric:
                matches = np.array(
                    [word in f"{verdict.predicted} {verdict.truth or ''}" for verdict in self.verdicts]
                )
            if word.isdecimal() and len(word) < 18:
                matches |= np.arange(len(fits)) == int(word)
            fits &= matches
        return np.flatnonzero(fits)

    def summaries(self, indices: Sequence[int]) -> list[Answer]:
        """Return one record per test sample; ``novel`` is None until computed: the list does not wait."""
        true, predicted = self.on
        novel = None if self.solved.novelty.ready is None else self.novel
        whole = self.task.has_classes
        return [
            {
                "index": index,
                "verdict": self.verdicts[index]._asdict(),
                "truths": np.flatnonzero(true[index]).tolist(),
                "predictions": np.flatnonzero(predicted[index]).tolist(),
                "truth": self.truth(index) if whole else None,
                "predicted": int(self.predicted[index]) if whole else None,
                "probability": self.verdicts[index].probability if whole else None,
                "surrogate_class": int(self.surrogate_labels[index]) if whole else None,
                "novel": None if novel is None else bool(novel[index]),
                "sample": sample,
            }
            for index, sample in zip(indices, self.samples(indices), strict=True)
        ]

    def samples(self, indices: Sequence[int]) -> list[Answer]:
        """Return test samples for lists."""
        return samples_of(self.project, self.project.tests, indices)


def samples_of(project: Project, data: TrainingSet, indices: Sequence[int]) -> list[Answer]:
    """Return tests or training samples of a project as small views."""
    if not len(indices):
        return []
    prepare = project.attributor.fitted_.require_model().prepare
    return [as_small_view(sample) for sample in as_samples(data.take(list(indices)), prepare)]
