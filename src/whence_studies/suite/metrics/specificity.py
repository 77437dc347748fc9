"""Specificity: whether the lists of tests are distinct and near the test, and how far scores cancel."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from whence import metrics
from whence.core.arrays import Array
from whence_studies.scenes.workshop import Scene
from whence_studies.suite.metric import Case, Column, Count, Metric, Numbers, Row, register

_OF_LISTS = {
    "distinct": "Distinct",
    "distinct_listed": "Distinct in all lists",
    "most_frequent": "Most frequent",
    "near": "Near",
}
_OF_SCORES = {"cancel": "Σ|τ| / |Στ|, median", "held": "Held by the ten largest |τ|, median"}


@register
class Specificity(Metric):
    """Distinct top samples per test, the share of the most frequent one, and nearness of the top k.

    Nearness is measured by pixels, or by TF-IDF for texts, independently of the model.
    """

    name = "specificity"
    columns: ClassVar[tuple[Column, ...]] = (
        # Random lists are the most distinct, so only nearness counts in ranks.
        Column("Near", "share of the class that is nearer", rising=False),
    )
    sections = (
        Numbers(
            "Specificity of the lists",
            "Distinct: different top-1 samples per test, and different samples per entry of all lists. "
            "Most frequent: share of tests whose top-1 sample is the most frequent one of their class. "
            "Near: share of the class that is nearer to the test than the listed samples; 0.5 at random. "
            "For DualDA also by scores relative to the mean input, which order explanations.",
            _OF_LISTS | _OF_SCORES,
        ),
    )

    k: Count = 5

    def measure(self, case: Case) -> list[Row]:
        """Measure the lists of the k largest scores; for DualDA also of relative scores."""
        lists = self._lists(case.scene, case.scores)
        assert lists.each_near is not None
        rows = case.rows_of(self.name, lists.each_near)
        if case.method.sweep:
            return rows
        rows += self._numbers(case.method.key, lists, case.scores)
        if case.method.kind.capabilities.dual:
            fitted: Any = case.attributor
            target = torch.from_numpy(case.scene.explained)
            scores = fitted.attribute(case.scene.tests, target, relative=True).cpu().numpy()
            key = f"{case.method.key}, relative to the mean"
            rows += self._numbers(key, self._lists(case.scene, scores), scores)
        return rows

    def _lists(self, scene: Scene, scores: Array) -> metrics.Specificity:
        if self.name not in scene.made:
            scene.made[self.name] = _vectors(scene)
        train, tests = scene.made[self.name]
        return metrics.specificity(
            scores,
            target=scene.explained,
            k=self.k,
            train_labels=scene.train.labels,
            test_vectors=tests,
            train_vectors=train,
        )

    def _numbers(self, key: str, lists: metrics.Specificity, scores: Array) -> list[Row]:
        of_scores = metrics.cancellation(scores)
        values = {name: getattr(lists, name) for name in _OF_LISTS}
        values |= {name: getattr(of_scores, name) for name in _OF_SCORES}
        return [Row(self.name, key, name, None, value) for name, value in values.items()]


def _vectors(scene: Scene) -> tuple[Any, Any]:
    """Return vectors of the training samples and the tests that do not depend on the model."""
    if scene.workshop.encoder is None:
        return scene.inputs.flatten(1).numpy(), scene.tests.flatten(1).numpy()
    train, tests = ([part[i][0] for i in range(len(part))] for part in (scene.train, scene.test))
    words = TfidfVectorizer()
    return words.fit_transform(train), words.transform(tests)
