"""Two explainers on the same tests: where their predictions, outputs and training samples differ."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch

from whence.core.arrays import Doubles, Ints, Mask
from whence.core.checks import check_places
from whence.core.progress import report
from whence.errors import InvalidInputError
from whence.pages.style import percent
from whence.tasks import probabilities
from whence.ui.background import Background
from whence.ui.requests import Answer, WantedComparison
from whence.ui.solved import questions
from whence.ui.tested import Tested

_TOP = 10  # strongest samples per side that lists of training samples are compared by
_BATCH = 256  # tests whose training samples are ranked at once
_OUTPUTS = 8  # classes whose outputs are shown of a test
_SAME = 0.5  # share of equal labels from which two training sets of one size are taken as the same samples


class Compared:
    """The tests of two explainers, side by side.

    Both have the same tests. Their training sets correspond where they have the same number of samples and
    most labels are equal: then sample i is the same sample in both.

    Attributes
    ----------
    one, other : the tests of both
    places : the tests that both could read
    corresponds : whether the training sets do
    of : whose outputs are compared, the models' or the surrogates'
    overlap : of the strongest training samples (T,), the share that both have; ranked on first use
    """

    def __init__(self, one: Tested, other: Tested) -> None:
        self.one, self.other = one, other
        _check_same_tests(one, other)
        self.places: Ints = np.flatnonzero(one.valid & other.valid)
        labels = [np.asarray(tested.project.attributor.labels_) for tested in (one, other)]
        self.corresponds = labels[0].shape == labels[1].shape and _share_equal(*labels) > _SAME
        self.overlap: Background[Doubles] = Background(self._overlap)

    @functools.cached_property
    def of(self) -> Literal["model", "surrogate"]:
        """Whose outputs are compared: the surrogates' where both explain the same model."""
        first, second = (tested.outputs[self.places].cpu() for tested in (self.one, self.other))
        return "surrogate" if torch.allclose(first, second, rtol=1e-4, atol=1e-5) else "model"

    @functools.cached_property
    def values(self) -> tuple[Doubles, Doubles]:
        """The outputs (T, K) that are compared: of models with classes probabilities."""
        first, second = (self._values(tested) for tested in (self.one, self.other))
        return first, second

    def _values(self, tested: Tested) -> Doubles:
        if self.of == "surrogate":
            return tested.surrogate_outputs.double().numpy()
        outputs = tested.outputs.cpu()
        return (probabilities(outputs) if tested.task.has_classes else outputs.double()).numpy()

    @functools.cached_property
    def predicted(self) -> tuple[Any, Any]:
        """What both predict (T, …)."""
        if self.of == "surrogate":
            return self.one.surrogate_labels, self.other.surrogate_labels
        return self.one.predicted, self.other.predicted

    @functools.cached_property
    def differs(self) -> Mask:
        """Whether the predictions differ (T,); False for regression, where nearly all do."""
        if self.one.is_numeric:
            return np.zeros(len(self.one.valid), np.bool_)
        different = np.not_equal(*self.predicted)
        return np.asarray(different.reshape(len(self.one.valid), -1).any(1), np.bool_)

    @functools.cached_property
    def shown(self) -> tuple[Doubles, Doubles]:
        """Of both, the value (T,) for the class or the output that the first one explains."""
        rows, targets = np.arange(len(self.one.valid)), self.one.targets
        return self.values[0][rows, targets], self.values[1][rows, targets]

    def info(self) -> Answer:
        """Return what is compared, in words, and how much differs."""
        n = len(self.places)
        return {
            "names": _names(self.one, self.other),
            "about": [_about(tested) for tested in (self.one, self.other)],
            "corresponds": self.corresponds,
            "of": self.of,
            "kind": self._kind,
            "n_tests": n,
            "n_differing": int(self.differs[self.places].sum()),
            "questions": list(questions(self.other.project)),
            "top": _TOP,
        }

    def rows(self, wanted: WantedComparison) -> Answer:
        """Return a page of the tests, those that differ most first."""
        order = self.places[np.lexsort(self._keys(wanted.by))]
        page = order[wanted.offset : wanted.offset + wanted.limit].tolist()
        overlap = self.overlap.ready
        rows = [
            {
                "index": index,
                "sample": sample,
                "differs": bool(self.differs[index]),
                "predicted": self._words(index),
                "truth": self.one.verdicts[index].truth,
                "shown": self.one.names[int(self.one.targets[index])],
                "values": [float(values[index]) for values in self.shown],
                "overlap": None if overlap is None else float(overlap[index]),
            }
            for index, sample in zip(page, self.one.samples(page), strict=True)
        ]
        return {"total": len(order), "rows": rows}

    @property
    def _kind(self) -> str:
        """What values are, in a word."""
        if self.of == "model" and self.one.task.has_classes:
            return "probability"
        return "logit of the surrogate" if self.of == "surrogate" else "output"

    def _words(self, test: int) -> list[str]:
        """Return what both predict for a test, in words."""
        return [self.one.task.label_text(labels[test]) for labels in self.predicted]

    def _keys(self, by: str) -> tuple[Any, ...]:
        """Return what tests are sorted by, the last key first, as ``np.lexsort`` takes it."""
        places, (first, second) = self.places, self.shown
        change = -np.abs(second - first)[places]
        if by == "number":
            return (places,)
        if by == "samples":
            return places, change, self.overlap.result()[places]
        return places, change, ~self.differs[places]

    def outputs(self, test: int) -> Answer:
        """Return the outputs of both for one test, the largest first."""
        test = int(check_places("test", [test], len(self.one.valid))[0])
        first, second = (values[test] for values in self.values)
        chosen = np.argsort(-np.maximum(first, second), kind="stable")[:_OUTPUTS]
        return {
            "predicted": self._words(test),
            "names": [self.one.names[c] for c in chosen],
            "values": [first[chosen].tolist(), second[chosen].tolist()],
            "others": len(self.one.names) - len(chosen),
        }

    def _overlap(self) -> Doubles:
        """Rank the training samples of every test in both; for the class that each predicts."""
        shared = np.ones(len(self.one.valid))
        if not self.corresponds:
            raise InvalidInputError(
                '\'by\' must be "outputs" or "number" where the training sets differ. Got "samples", '
                "which compares training samples by their numbers."
            )
        done = 0
        for part in np.array_split(self.places, -(-len(self.places) // _BATCH)):
            report("Ranking training samples", done, len(self.places))
            lists = [_strongest(tested, part) for tested in (self.one, self.other)]
            for test, a, b in zip(part.tolist(), *lists, strict=True):
                shared[test] = len(a & b) / max(len(a), len(b), 1)
            done += len(part)
        return shared


def _strongest(tested: Tested, places: Ints) -> Iterator[set[int]]:
    """Yield the strongest training samples of either sign, of each test."""
    method, targets = tested.project.attributor, tested.targets[places]
    if method.capabilities.dual:
        top = method.top_k(features=tested.features[places], k=_TOP, target=targets)
    else:
        top = method.top_k(tested.project.tests.take(places.tolist()), _TOP, targets)
    for row in np.concatenate([top.proponents.indices, top.opponents.indices], axis=1):
        yield {int(i) for i in row if i >= 0}


def _check_same_tests(one: Tested, other: Tested) -> None:
    """Raise unless both have the same tests and the same outputs."""
    sizes = [len(tested.valid) for tested in (one, other)]
    if sizes[0] != sizes[1]:
        raise InvalidInputError(
            f"'compare' must have the same tests. Got {sizes[1]:,} tests and here {sizes[0]:,}. Name the "
            "same for both with --test, or pass tests to serve."
        )
    if (one.task.label_kind, len(one.names)) != (other.task.label_kind, len(other.names)):
        raise InvalidInputError(
            f"'compare' must have the same outputs. Got {len(other.names)} {other.task.outputs} and here "
            f"{len(one.names)} {one.task.outputs}."
        )
    if not (one.project.labelled and other.project.labelled):
        return
    both = one.valid & other.valid
    unlike = (one.truths != other.truths).reshape(len(both), -1).any(1) & both
    if unlike.any():
        first = int(np.flatnonzero(unlike)[0])
        raise InvalidInputError(
            f"'compare' must have the same tests with the same labels. Got other labels for "
            f"{int(unlike.sum()):,} of {len(both):,} tests, the first of them test {first}: "
            f"{other.verdicts[first].truth!r} and here {one.verdicts[first].truth!r}."
        )


def _share_equal(a: Any, b: Any) -> float:
    return float((a == b).mean())


def _names(one: Tested, other: Tested) -> list[str]:
    """Return a name for each: its file, or its method; numbered where they are the same."""
    names = [tested.project.path.stem for tested in (one, other)]
    return [f"{name} {i + 1}" for i, name in enumerate(names)] if names[0] == names[1] else names


def _about(tested: Tested) -> str:
    """Describe an explainer in a few words."""
    method, samples = tested.project.attributor, int(tested.project.attributor.used_.sum())
    named = [type(method).__name__, *([f"C = {method.C_:.3g}"] if method.capabilities.dual else [])]
    accuracy = "" if tested.accuracy is None or tested.is_numeric else f", {percent(tested.accuracy)} right"
    return f"{', '.join(named)}, {samples:,} training samples{accuracy}"
