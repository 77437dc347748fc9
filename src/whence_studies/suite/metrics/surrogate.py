"""Surrogate: how DualDA's last layer fits, what it cost, and how sparse it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.methods import DualDA
from whence_studies.suite.metric import Case, Metric, Row, register

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Method


_RIGHT = "share that the surrogate has right (↑ better)"
_SWEPT = {
    "train_accuracy": ("Accuracy, training samples", _RIGHT),
    "test_accuracy": ("Accuracy, tests", _RIGHT),
    "test_agreement": ("Agreement with the model", "share of tests (↑ better)"),
    "solve_seconds": ("Time to solve", "seconds (↓ better)"),
    "support_vectors": ("Support vectors", "training samples (↓ sparser)"),
    "support_vectors_a_class": ("Support vectors of each class", "training samples (↓ sparser)"),
}


@register
class SurrogateFit(Metric):
    """Accuracy, agreement with the model, time and support vectors of DualDA's surrogate."""

    name = "surrogate"
    swept = _SWEPT

    def applies(self, method: Method) -> bool:
        """Return whether the method is a DualDA."""
        return issubclass(method.kind, DualDA)

    def measure(self, case: Case) -> list[Row]:
        """Return a number of each kind, and the support vectors of each class."""
        fitted, scene = case.attributor, case.scene
        assert isinstance(fitted, DualDA)
        known, unknown = (
            fitted.predict(features=bank.features).cpu().numpy() for bank in (scene.bank, scene.bank_of_tests)
        )
        values = {
            "C": fitted.C_,
            "train_accuracy": (known == scene.train.labels).mean(),
            "test_accuracy": (unknown == scene.test.labels).mean(),
            "train_agreement": (known == scene.said).mean(),
            "test_agreement": (unknown == scene.explained).mean(),
            "solve_seconds": fitted.seconds_["solution"],
            "support_vectors": len(fitted.support_),
            "gap": fitted.gap_,
        }
        per_class = np.bincount(scene.train.labels[fitted.support_], minlength=fitted.n_classes_)
        return [
            *(case.row(self.name, name, float(v)) for name, v in values.items()),
            *case.curve(self.name, "support_vectors_a_class", range(len(per_class)), per_class),
        ]
