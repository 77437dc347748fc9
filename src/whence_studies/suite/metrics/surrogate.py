"""Surrogates: how well a method's last layer matches the model's, and the fit of DualDA's surrogate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whence.methods import DualDA, Representer
from whence.metrics import faithfulness
from whence.surrogate.agreement import Faithfulness
from whence_studies.suite.metric import Case, Metric, Numbers, Row, register

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Method, Protocol

_NAMES = {
    "agreement": "Agreement",
    "mcc": "Matthews correlation",
    "weight_cosine": "Weight cosine",
    "logit_cosine": "Logit cosine",
}
_RIGHT = "share of correct predictions (↑ better)"
_SWEPT = {
    "train_accuracy": ("Accuracy, training samples", _RIGHT),
    "test_accuracy": ("Accuracy, tests", _RIGHT),
    "test_agreement": ("Agreement with the model", "share of tests (↑ better)"),
    "solve_seconds": ("Time to solve", "seconds (↓ better)"),
    "support_vectors": ("Support vectors", "training samples (↓ sparser)"),
    "support_vectors_a_class": ("Support vectors of each class", "training samples (↓ sparser)"),
}


@register
class SurrogateFaithfulness(Metric):
    """Cosines and Matthews correlation of surrogates with the model's last layer.

    For Representer Points also at the sparsity of each DualDA with a C in the protocol.
    """

    name = "faithfulness"
    sections = (
        Numbers(
            "Faithfulness of surrogates",
            "How well the new last layer matches the model’s own; 1 is best. Sparsified Representer "
            "Points keep as many of the largest coefficients of each class as DualDA has support vectors.",
            _NAMES,
        ),
    )
    sweeps = False

    def applies(self, method: Method) -> bool:
        """Return whether the method has a last layer of its own."""
        return method.kind.capabilities.new_layer

    def depends(self, protocol: Protocol) -> list[dict[str, Any]]:
        """Return the options of the DualDAs whose sparsity is applied to Representer Points."""
        return [method.options for method in _duals(protocol)]

    def measure(self, case: Case) -> list[Row]:
        """Compare the surrogate's layer with the model's."""
        scene, limits = case.scene, case.method.kind.capabilities
        fitted: Any = case.attributor  # with coef_, as its capabilities declare
        train, test = scene.bank, scene.bank_of_tests
        model, features = fitted.fitted_.require_model(), test.features
        if model.extractor.layers is not None:  # the layer has its own features
            features = model.read(scene.tests, fitted.batch_size).features.float().cpu().numpy()
        head = model.extractor.head()
        pair = head.weight, head.bias
        if limits.dual or limits.effects:  # which may scale features
            whole = fitted.faithfulness(features=features)
        else:
            whole = faithfulness.surrogate_faithfulness(fitted.coef_, pair, features)
        rows = self._rows(case.method.key, whole)
        if case.method.name != Representer.name:
            return rows
        for dual in _duals(scene.workshop.protocol):
            dense: Any = scene.fit(scene.attributor(DualDA, dual.options))
            sparse = faithfulness.sparsified_faithfulness(
                fitted.alpha_,
                faithfulness.support_counts(dense.lam_),
                train.features,
                pair,
                test.features,
                bias=fitted.bias,
            )
            rows += self._rows(f"{case.method.key} sparsified as {dual.key}", sparse)
        return rows

    def _rows(self, key: str, measured: Faithfulness) -> list[Row]:
        return [Row(self.name, key, name, None, getattr(measured, name)) for name in _NAMES]


def _duals(protocol: Protocol) -> list[Method]:
    """Return the DualDAs with a C whose sparsity is applied to Representer Points."""
    return [m for m in protocol.methods if m.name == DualDA.name and not m.sweep and "C" in m.options]


@register
class SurrogateFit(Metric):
    """Accuracy, agreement with the model, time and support vectors of DualDA's surrogate."""

    name = "surrogate"
    swept = _SWEPT

    def applies(self, method: Method) -> bool:
        """Return whether the method has a dual solution."""
        return method.kind.capabilities.dual

    def measure(self, case: Case) -> list[Row]:
        """Return one row per number, and the support vectors of each class."""
        fitted: Any = case.attributor
        scene = case.scene
        known, unknown = (
            fitted.predict(features=bank.features).cpu().numpy() for bank in (scene.bank, scene.bank_of_tests)
        )
        values = {
            "C": fitted.C_,
            "train_accuracy": (known == scene.train.labels).mean(),
            "test_accuracy": (unknown == scene.test.labels).mean(),
            "train_agreement": (known == scene.train_predictions).mean(),
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
