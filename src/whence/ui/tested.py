"""The test samples of the explorer: the verdict on each, and lists of those that fit."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from whence.attribution.base import Attributor
from whence.attribution.members import together
from whence.data import TrainingSet
from whence.features import FeatureBank, as_float32
from whence.pages.pictures import as_small_view
from whence.pages.samples import as_samples
from whence.project import Project
from whence.svm.likeness import explained
from whence.tasks import Verdict
from whence.ui.requests import Answer, Wanted
from whence.ui.solved import Surrogates


class Tested:
    """The outputs of a model and its surrogate for all test samples. Those that cannot be read are not shown.

    Of an ensemble, the outputs of its members together.

    Attributes
    ----------
    task, names : of the outputs
    """

    def __init__(self, project: Project, solved: Surrogates) -> None:
        self.project, self.solved = project, solved
        self.task, self.names = project.attributor.task_, project.attributor.task_.output_names

    @functools.cached_property
    def _read(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Features (M, d) and the model's outputs (M, K), of each member; 0 where one could not be read."""
        project, (first, *others) = self.project, self.project.members
        banks = [project.test_bank, *(project.bank_of(project.tests, member) for member in others)]
        return [self._outputs_of(*pair) for pair in zip((first, *others), banks, strict=True)]

    def _outputs_of(self, member: Attributor, bank: FeatureBank) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.from_numpy(np.array(as_float32(bank.features)))
        if bank.extractor.exact:
            return features, member.surrogate_.model_logits(features).double()
        # What the model does after its head shows in its own output only.
        outputs = torch.zeros(len(features), len(self.names), dtype=torch.float64)
        places = np.flatnonzero(bank.valid).tolist()
        for start in range(0, len(places), member.batch_size):
            rows = places[start : start + member.batch_size]
            outputs[rows] = bank.extractor.read(self.project.tests.take(rows)).logits.double().cpu()
        return features, outputs

    @property
    def features(self) -> torch.Tensor:
        """Features (M, d); of those that could not be read, 0. Of an ensemble, those of the first member."""
        return self._read[0][0]

    @functools.cached_property
    def truths(self) -> Any:
        """True labels (M, …); of classes −1 for those that could not be read."""
        return self.project.test_bank.labels

    @property
    def valid(self) -> Any:
        """Whether each (M,) could be read."""
        return self.project.test_bank.valid

    @functools.cached_property
    def outputs(self) -> torch.Tensor:
        """The model's outputs (M, K), of samples that could not be read 0."""
        outputs = [member for _, member in self._read]
        return outputs[0] if len(outputs) == 1 else together(self.task, outputs)

    @functools.cached_property
    def surrogate_outputs(self) -> torch.Tensor:
        """The surrogate's outputs (M, K), of an ensemble the mean over its members'."""
        pairs = zip(self.project.members, self._read, strict=True)
        return torch.stack(
            [member.surrogate_.logits(features).cpu() for member, (features, _) in pairs]
        ).mean(0)

    @functools.cached_property
    def targets(self) -> Any:
        """What is explained of each (M,) where nobody names it: of several numbers the first."""
        several = self.is_numeric and len(self.names) > 1
        return np.zeros(len(self.truths), int) if several else self.task.default_target(self.outputs).numpy()

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each."""
        ours = self.surrogate_outputs.numpy()
        rows = zip(self.outputs.cpu().numpy(), ours, self.targets.tolist(), self.truths.tolist(), strict=True)
        return [self.task.verdict(*one) for one in rows]

    @functools.cached_property
    def kind(self) -> Any:
        """What the samples are: image, text or values."""
        first = int(self.valid.argmax())
        return self.samples([first])[0]["kind"]

    @functools.cached_property
    def surrogate_labels(self) -> Any:
        """The predictions of the surrogate (M, …): of classes, the class."""
        return self.task.predict(self.surrogate_outputs).numpy()

    @functools.cached_property
    def predicted(self) -> Any:
        """The predictions of the model (M, …): of classes, the class."""
        return self.task.predict(self.outputs).numpy()

    @property
    def is_numeric(self) -> bool:
        """Whether outputs are numbers."""
        return bool(self.task.label_kind == "number")

    @functools.cached_property
    def accuracy(self) -> float:
        """How right the model is: the share of labels, of numbers R²."""
        return self._agreement(self.predicted, self.truths)

    @functools.cached_property
    def agreement(self) -> float:
        """How far the surrogate agrees with the model, likewise."""
        return self._agreement(self.surrogate_labels, self.predicted)

    def _agreement(self, a: Any, b: Any) -> float:
        a, b = a[self.valid], b[self.valid]
        if self.is_numeric:
            return explained(a.reshape(len(a), -1), b.reshape(len(b), -1))
        return float((a == b).mean())

    @functools.cached_property
    def wrong(self) -> Any:
        """Whether the model is wrong (M,); of numbers nowhere."""
        return self.valid & [verdict.right is False for verdict in self.verdicts]

    @functools.cached_property
    def differs(self) -> Any:
        """Whether surrogate and model disagree (M,)."""
        return self.valid & [not verdict.agrees for verdict in self.verdicts]

    @functools.cached_property
    def novel(self) -> Any:
        """Whether nothing like it is in the training set (M,)."""
        return self.solved.novelty.result().of(self.features).novel

    @functools.cached_property
    def certainty(self) -> Any:
        """How sure the model is (M,): of a class its probability, of labels that of the least sure one."""
        if self.is_numeric:
            return np.zeros(len(self.truths))
        if self.task.has_classes:
            return np.array([verdict.probability for verdict in self.verdicts])
        chances = torch.sigmoid(self.outputs)
        return torch.maximum(chances, 1 - chances).amin(1).numpy()

    @functools.cached_property
    def on(self) -> tuple[Any, Any]:
        """Which classes or labels (M, K) are true, and which are predicted."""
        return self._has(self.truths), self._has(self.predicted)

    def _has(self, labels: Any) -> Any:
        """Return which classes or labels (M, K) are on in labels of all tests; of numbers none."""
        on = np.zeros((len(labels), len(self.names)), bool)
        if self.task.has_classes:
            on[self.valid, labels[self.valid]] = True
        elif not self.is_numeric:
            on[:] = labels > 0
        return on

    def rows(self, wanted: Wanted) -> Answer:
        """Return a page of the test samples that fit, with small pictures."""
        places = np.flatnonzero(self._fitting(wanted))
        if wanted.order == "least certain":
            places = places[np.argsort(self.certainty[places], kind="stable")]
        page = places[wanted.offset : wanted.offset + wanted.limit].tolist()
        return {"total": len(places), "rows": self.summaries(page)}

    def _fitting(self, wanted: Wanted) -> Any:
        """Return which tests (M,) fit; a search is a place or part of the true or predicted class's name."""
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
        if word := wanted.search.strip().casefold():
            meant = np.array([word in name.casefold() for name in self.names])
            matches = (true & meant).any(1) | (predicted & meant).any(1)
            if self.is_numeric:
                matches = np.array(
                    [word in f"{verdict.predicted} {verdict.truth}" for verdict in self.verdicts]
                )
            if word.isdecimal() and len(word) < 18:
                matches |= np.arange(len(fits)) == int(word)
            fits &= matches
        return fits

    def summaries(self, indices: Sequence[int]) -> list[Answer]:
        """Return one line per test sample; ``novel`` is None until it is known: the list does not wait."""
        true, predicted = self.on
        novel = None if self.solved.novelty.ready is None else self.novel
        whole = self.task.has_classes
        return [
            {
                "index": index,
                "verdict": self.verdicts[index]._asdict(),
                "truths": np.flatnonzero(true[index]).tolist(),
                "predictions": np.flatnonzero(predicted[index]).tolist(),
                "truth": int(self.truths[index]) if whole else None,
                "predicted": int(self.predicted[index]) if whole else None,
                "probability": self.verdicts[index].probability if whole else None,
                "surrogate_class": int(self.surrogate_labels[index]) if whole else None,
                "novel": None if novel is None else bool(novel[index]),
                "sample": sample,
            }
            for index, sample in zip(indices, self.samples(indices), strict=True)
        ]

    def samples(self, indices: Sequence[int]) -> list[Answer]:
        """Test samples for lists."""
        return samples_of(self.project, self.project.tests, indices)


def samples_of(project: Project, data: TrainingSet, indices: Sequence[int]) -> list[Answer]:
    """Return a project's tests or training samples as lists show them."""
    if not len(indices):
        return []
    tokenizer = project.attributor.fitted_.require_model().prepare.find_tokenizer()
    return [as_small_view(sample) for sample in as_samples(data.take(list(indices)), tokenizer)]
