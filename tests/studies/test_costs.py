"""How far an evaluation is: it moves with every model that is trained, and ends at the whole."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from whence.core import progress
from whence.methods import GradDot
from whence_studies.scenes import networks
from whence_studies.scenes.retrain import MODELS
from whence_studies.suite import costs, protocol, run
from whence_studies.suite.costs import Meter

TABLES: dict[str, Any] = {
    "name": "small",
    "data": {"name": "sample", "train": 60, "test": 10, "held_out": 30},
    "model": {"name": "narrow-cnn", "steps": 12, "batch_size": 500},
    "methods": [{"name": "dualda", "tune": {"C": [1e-4, 1e-2]}}, {"name": "graddot"}],
    "metrics": {"lds": {"subsets": 4, "tuning": 3, "seeds": 2}},
}
MODEL = 12 * 500 * networks.find("narrow-cnn").seconds
"""Seconds of one of its models: steps, samples in each, and the network's own."""


def test_every_model_moves_it() -> None:
    small, said = protocol.parse(TABLES), list[str]()
    with Meter(small, False, said.append) as meter, meter.part(meter.total), meter.training(MODEL):
        progress.report("Trials of C", 7, 0)
        assert meter.done == 0
        progress.report(MODELS, 0, 14)
        progress.report(MODELS, 5, 14)  # which were there
        assert meter.done == pytest.approx(5 * MODEL)
        with meter.part(MODEL):
            progress.report(MODELS, 6, 14)
        assert meter.done == pytest.approx(6 * MODEL)  # and not counted twice
        progress.report(MODELS, 0, 2)
        progress.report(MODELS, 1, 2)
        assert meter.done == pytest.approx(7 * MODEL)
        assert said == [f"{share:.0%} of the work is done" for share in _shares(meter.total)]
        for done in range(1_000):  # more than there should be
            progress.report(MODELS, done, 1_000)
    assert meter.share == 1


def _shares(total: float) -> list[float]:
    """The shares after 5, 6 and 7 models, where another tenth was reached."""
    known = [0, *(models * MODEL / total for models in (5, 6, 7))]
    return [b for a, b in itertools.pairwise(known) if math.floor(10 * b) > math.floor(10 * a)]


def test_trained_models_are_said_before_methods_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, said, known = protocol.parse(TABLES), list[str](), list[float]()
    fit = GradDot.fit

    def watched(self: GradDot, *given: Any, **more: Any) -> GradDot:
        known.append(max(float(line.split("%")[0].split()[-1]) for line in said))
        return fit(self, *given, **more)

    monkeypatch.setattr(GradDot, "fit", watched)
    run.run(small, Path(), tmp_path, show_progress=False, say=said.append)
    # Seven parts and two seeds, besides the explained model, make up most of the plan.
    share = 14 * MODEL / sum(item.seconds for item in costs.plan(small))
    assert share > 0.5
    assert known == [pytest.approx(100 * share, abs=10)]
