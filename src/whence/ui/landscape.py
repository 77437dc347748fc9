"""The map of training and test samples in the plane: their places, colours and details."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch

from whence.attribution.explaining import has_parts
from whence.core.arrays import Array, Doubles, Floats
from whence.core.checks import check_choice
from whence.errors import InvalidInputError, UnsupportedError
from whence.features import MapPlane, as_float32, project_2d, taken
from whence.features.projection2d import available
from whence.surrogate.scores import Contrast
from whence.ui.background import Background
from whence.ui.explorer import Explorer
from whence.ui.requests import Answer
from whence.ui.solved import withheld

Colouring = Literal["label", "predicted", "label doubt", "self-influence", "score", "effect"]
KINDS: dict[Colouring, str] = {
    "label": "class",
    "predicted": "class",
    "label doubt": "size",
    "self-influence": "size",
    "score": "signed",
    "effect": "signed",
}
"""What the values of each colouring are: classes, sizes from 0 on, or signed scores of a test."""

_SUPPORTED = 12  # tests listed that a training sample supports
_BLOCK = 4_096  # training samples whose logits are computed at a time


class Landscape:
    """Places and colours of all samples: first the training set (N), then the tests (M).

    Parameters
    ----------
    explorer : whose samples are shown
    """

    def __init__(self, explorer: Explorer) -> None:
        self.explorer, self.project = explorer, explorer.project
        self._projections = {
            method: Background(functools.partial(self._project, method)) for method in available()
        }

    def projection(self, method: str) -> Background[MapPlane]:
        """Return the background work that makes a map."""
        self._check_supported()
        if method == "umap" and method not in self._projections:
            raise InvalidInputError("'method' must be 'pca' here. Got 'umap'. Install whence[umap] for it.")
        return self._projections[check_choice("method", method, tuple(self._projections))]

    def header(self, method: str) -> Answer:
        """Return what is on a map, and how it can be coloured; ``share`` is that of the variance it shows."""
        shown = self.projection(method).result()
        fitted = self.project.explainer.fitted_
        return {
            "method": method,
            "methods": list(self._projections),
            "n_train": fitted.n_train,
            "n_tests": len(self.explorer.tests.valid),
            "share": None if shown.shares is None else sum(shown.shares),
            "classes": list(self.explorer.names),
            "colourings": [
                {"name": name, "kind": kind, "of_test": name in ("score", "effect")}
                for name, kind in KINDS.items()
                if name != "effect" or self.explorer.solved.effects.ready is not None
            ],
        }

    def points(self, method: str) -> Floats:
        """Return the places (N + M, 2), float32; NaN where a sample could not be read."""
        shown = self.projection(method).result()
        places = np.full((len(self._used) + len(self._valid), 2), np.nan, np.float32)
        places[: len(self._used)][self._used] = shown.training
        places[len(self._used) :][self._valid] = shown.tests
        return places

    def colours(self, by: Colouring, test: int | None = None) -> Floats:
        """Return what points (N + M,) are coloured by, float32; NaN where it is not known.

        "label doubt" is known of the samples listed in Labels to check. "score" and "effect" are those of a
        test for its predicted class.
        """
        self._check_supported()
        check_choice("by", by, get_args(Colouring))
        if (KINDS[by] == "signed") != (test is not None):
            rule = "the index of a test" if KINDS[by] == "signed" else f"None to colour by {by}"
            raise InvalidInputError(f"'test' must be {rule}. Got {test}.")
        n, values = len(self._used), np.full(len(self._used) + len(self._valid), np.nan, np.float32)
        if by == "label":
            values[:n], values[n:] = self.project.explainer.labels_, self.explorer.tests.truths
        elif by == "predicted":
            values[:n], values[n:] = self.predicted, self.explorer.tests.predicted
        elif by == "label doubt":
            values[:n] = self.doubts
        elif by == "self-influence":
            values[:n] = self.project.explainer.self_influence().cpu().numpy()
        else:
            assert test is not None
            values[:n] = self.scores(by, test)
        if KINDS[by] == "class":
            values[values < 0] = np.nan
        values[:n][~self._used] = np.nan
        values[n:][~self._valid] = np.nan
        return values

    @functools.cached_property
    def predicted(self) -> Array:
        """The model's class of each training sample (N,), by its features; the surrogate's without a head."""
        surrogate, features = self.project.explainer.surrogate_, self.project.train_bank.features
        classes = np.empty(len(features), np.int64)
        for start in range(0, len(features), _BLOCK):
            rows = torch.from_numpy(np.array(features[start : start + _BLOCK], np.float32))
            classes[start : start + _BLOCK] = surrogate.model_logits(rows).argmax(1).cpu().numpy()
        return classes

    @functools.cached_property
    def doubts(self) -> Doubles:
        """The score of each label (N,) listed in Labels to check, else NaN; larger is more doubtful."""
        listed = self.explorer.solved.wrong_labels.result()
        doubts = np.full(len(self._used), np.nan)
        doubts[listed.indices] = listed.scores
        return doubts

    def scores(self, by: str, test: int) -> Doubles:
        """Return the score of each training sample (N,) on a test, for the class that is predicted."""
        explorer = self.explorer
        method: Any = self.project.explainer
        if by == "effect" and (method := explorer.solved.effects.ready) is None:
            raise InvalidInputError(
                "'by' must be 'score' until effects are fitted. Got 'effect'. "
                "Choose 'what would change' in Predictions first."
            )
        self.project.read_tests([test])
        contrast = Contrast(explorer.wanted(test, None), relative=has_parts(method.fitted_))
        scored = method.fitted_.scorer.scored(explorer.solved.test_features(method, test), contrast)
        scores = np.zeros(len(self._used))
        scores[scored.indices] = scored.scores
        return scores

    def supported(self, index: int) -> Answer:
        """Return the tests whose predictions a training sample supports most, and how many it supports."""
        self._check_supported()
        surrogate, tests = self.project.explainer.surrogate_, self.explorer.tests
        if index not in surrogate.support:
            return {"total": 0, "tests": []}
        targets = torch.as_tensor(tests.targets)
        weights = torch.as_tensor(surrogate.lam[[index]].toarray()[0])
        read = surrogate.expansion.shifted(tests.features, targets, None, True)
        products = read @ surrogate.stored[surrogate.rows([index])][0].to(read)
        scores = weights[targets].numpy() * products.cpu().double().numpy()
        scores[~self._valid] = 0
        best = np.argsort(-scores, kind="stable")[:_SUPPORTED]
        best = best[scores[best] > 0]
        return {
            "total": int((scores > 0).sum()),
            "tests": [
                {"index": int(i), "score": float(scores[i]), "sample": sample}
                for i, sample in zip(best, tests.samples(best.tolist()), strict=True)
            ],
        }

    def samples(self, training: Sequence[int], tests: Sequence[int]) -> Answer:
        """Return samples with pictures, labels and predictions; doubts where they are known already."""
        self._check_supported()
        explainer, solved = self.project.explainer, self.explorer.solved
        wrong = [i for i in training if i >= len(self._used) or not self._used[i]]
        if wrong:
            raise InvalidInputError(
                f"'training' must be indices of training samples that were read, below {len(self._used)}. "
                f"Got {wrong[0]}."
            )
        doubts = None if solved.wrong_labels.ready is None else self.doubts
        support = np.isin(list(training), explainer.support_)
        rows = [
            {
                "index": i,
                "label": int(explainer.labels_[i]),
                "predicted": int(self.predicted[i]),
                "support": bool(is_support),
                "doubt": None if doubts is None or np.isnan(doubts[i]) else float(doubts[i]),
                "sample": sample,
            }
            for i, is_support, sample in zip(
                training, support, self.explorer.training.samples(training), strict=True
            )
        ]
        return {
            "training": rows,
            "tests": self.explorer.tests.summaries(self.project.read_tests(list(tests))),
        }

    @property
    def _used(self) -> Any:
        """Which training samples (N,) took part in the fit."""
        return self.project.explainer.used_

    @property
    def _valid(self) -> Any:
        """Which tests (M,) could be read."""
        return self.explorer.tests.valid

    def _check_supported(self) -> None:
        if (reason := withheld(self.project).get("map")) is not None:
            raise UnsupportedError(reason)

    def _project(self, method: str) -> MapPlane:
        metric = self.project.explainer.surrogate_.metric
        training = metric.rows(taken(as_float32(self.project.train_bank.features), self._used))
        tests = metric(self.explorer.tests.features[torch.as_tensor(self._valid)])
        return project_2d(training, tests.cpu().numpy(), method=method)
