"""What several methods read of a training set is read once, and belongs to the cost of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.studies.test_study import small, workshop
from whence.features import FeatureBank
from whence.methods import GradDot
from whence_studies.resources import Resources, Spent, spending
from whence_studies.scenes import workshop as module
from whence_studies.suite import costs
from whence_studies.suite.case import Case
from whence_studies.suite.protocol import Protocol

METHODS = [
    {"name": "dualda", "options": {"C": 1e-3}},
    {"name": "similarity"},
    {"name": "ekfac"},
    {"name": "tracin"},
    {"name": "graddot"},
    {"name": "gradcos"},
    {"name": "trak", "options": {"projection": 64}},
    {"name": "trak", "label": "other ridge", "options": {"projection": 64, "ridge": 0.1}},
    {"name": "effects"},  # of several layers: it reads for itself
]


def cases(protocol: Protocol, scene: Any) -> dict[str, Case]:
    return {method.label: Case(scene, method, method.options) for method in protocol.methods}


def test_scores_are_those_of_methods_that_read_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop(tmp_path, methods=METHODS, metrics={"identical_class": {}})
    scene = shop.scene("identical_class")
    read, collected = [], []
    extract, collect = module.extract, GradDot.collect
    monkeypatch.setattr(module, "extract", lambda *a, **o: read.append(len(a[1][0])) or extract(*a, **o))
    for kind in {method.kind for method in shop.protocol.methods if hasattr(method.kind, "collect")}:
        monkeypatch.setattr(kind, "collect", lambda me, bank: collected.append(me.kind) or collect(me, bank))
    found = cases(shop.protocol, scene)
    scores = {label: case.scores for label, case in found.items()}
    assert read == [len(scene.inputs)]
    assert len(collected) == len(set(collected)) == 2  # of the loss, and of the margin
    for label, case in found.items():
        alone = scene.attributor(case.method.kind, case.options)
        more: dict[str, Any] = {}
        if alone.capabilities.needs_checkpoints:
            more = {"checkpoints": scene.checkpoints, "learning_rates": scene.trained.learning_rates}
        alone.fit(scene.trained.model, scene.data, **more)
        expected = alone.attribute(scene.tests, torch.from_numpy(scene.explained)).numpy()
        np.testing.assert_allclose(scores[label], expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_what_was_read_before_belongs_to_the_cost_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spending(make: Any, size: Any) -> tuple[Any, Spent]:
        made = make()
        seconds = 1e3 if isinstance(made, FeatureBank) else 1e5
        return made, Spent(seconds, 2 * seconds, size(made), None, None)

    monkeypatch.setattr(module, "spending", spending)
    shop = workshop(tmp_path, methods=METHODS, metrics={"identical_class": {}})
    expected = dict.fromkeys(("GradDot", "GradCos", "TRAK", "other ridge"), 101e3) | {"Effects": 0.0}
    for label, case in cases(shop.protocol, shop.scene("identical_class")).items():
        cost, seconds = case.measured.resources, expected.get(label, 1e3)
        assert cost.fit_seconds == pytest.approx(seconds, abs=100), label
        assert cost.cpu_seconds == pytest.approx(2 * seconds, abs=100), label


def test_a_plan_counts_once_what_is_shared() -> None:
    def planned(*methods: dict[str, Any], **model: Any) -> float:
        data = {"name": "sample", "train": 2000, "test": 20, "held_out": 40}
        asked = small(methods=list(methods), metrics={"identical_class": {}}, data=data)
        recipe = asked.model.model_copy(update={"name": "whitened-cnn", **model})
        asked = asked.model_copy(update={"model": recipe})
        return sum(item.seconds for item in costs.plan(asked))

    dot, cos = {"name": "graddot"}, {"name": "gradcos"}
    logits = {"name": "gradcos", "options": {"loss": "logit"}}
    a_pass = planned(dot) - planned()
    assert planned(dot, cos) - planned(dot) < 0.2 * a_pass
    assert planned(dot, logits) - planned(dot) == pytest.approx(a_pass)
    tracin = {"name": "tracin"}
    five, ten = (planned(tracin, checkpoints=n) - planned(checkpoints=n) for n in (5, 10))
    assert ten == pytest.approx(2 * five)
    some, whole = ({"name": "ekfac", "options": {"n_samples": n}} for n in (200, 2000))
    assert planned(some) - planned() < 0.5 * (planned(whole) - planned())


def test_memory_is_what_a_method_would_take_alone() -> None:
    own = Resources(1.0, 2.0, 3.0, n_tests=4, cache_bytes=5, peak_bytes=100, peak_device_bytes=None)
    features = Spent(10.0, 20.0, kept_bytes=30, peak_bytes=500, peak_device_bytes=None)
    gradients = Spent(100.0, 200.0, kept_bytes=60, peak_bytes=90, peak_device_bytes=None)
    found = own.after(features, gradients)
    assert (found.fit_seconds, found.cpu_seconds, found.explain_seconds) == (111.0, 223.0, 2.0)
    assert found.peak_bytes == 500  # while features were read
    small = Spent(10.0, 20.0, kept_bytes=30, peak_bytes=50, peak_device_bytes=None)
    assert own.after(small, gradients).peak_bytes == 30 + 60 + 100
    assert own.after() == own
    made, spent = spending(lambda: np.zeros(1 << 22, np.uint8) + 1, lambda array: array.nbytes)
    assert spent.kept_bytes == len(made) == 1 << 22
    assert spent.cpu_seconds >= 0 < spent.seconds
