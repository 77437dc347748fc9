"""Faithfulness: how well the last layer of a surrogate stands for the model's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.methods import DualDA, Representer
from whence.metrics import faithfulness
from whence.surrogate.agreement import Faithfulness as Found
from whence_studies.suite.metric import Case, Metric, Numbers, Row, register

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Method, Protocol

_NAMES = {
    "agreement": "Agreement",
    "mcc": "Matthews correlation",
    "weight_cosine": "Weight cosine",
    "logit_cosine": "Logit cosine",
}


@register
class Faithfulness(Metric):
    """Cosines and Matthews correlation of surrogates with the model's own last layer.

    Of Representer Points also at the sparsity of each DualDA whose C the protocol gives.
    """

    name = "faithfulness"
    sections = (
        Numbers(
            "Faithfulness of surrogates",
            "How well the new last layer stands for the model’s own; 1 is best. Sparsified Representer "
            "Points keep, of each class, as many of the largest coefficients as DualDA has support vectors.",
            _NAMES,
        ),
    )
    sweeps = False

    def applies(self, method: Method) -> bool:
        """Return whether the method has a last layer of its own."""
        return method.kind.capabilities.new_layer

    def depends(self, protocol: Protocol) -> list[dict[str, Any]]:
        """Return the options of the DualDAs whose sparsity Representer Points are brought to."""
        own = [m.options for m in protocol.methods if m.name == DualDA.name and not m.sweep]
        return [options for options in own if "C" in options]

    def measure(self, case: Case) -> list[Row]:
        """Compare the surrogate's layer with the model's."""
        scene, fitted = case.scene, case.attributor
        layer: Any = fitted  # with coef_, as its limits say
        train, test = scene.bank, scene.bank_of_tests
        own, features = fitted.require_model(), test.features
        if own.extractor.layers is not None:  # the layer is one on features of its own
            features = own.read(scene.tests, fitted.batch_size).features.float().cpu().numpy()
        head = own.extractor.head()
        pair = head.weight, head.bias
        if fitted.fitted_.surrogate is not None:  # which may read features at another length
            whole = fitted.faithfulness(features=features)
        else:
            whole = faithfulness.surrogate_faithfulness(layer.coef_, pair, features)
        rows = self._rows(case.method.key, whole)
        if type(fitted) is not Representer:
            return rows
        for options in self.depends(scene.workshop.protocol):
            dense = scene.fit(scene.attributor(DualDA, options))
            assert isinstance(dense, DualDA)
            found = faithfulness.sparsified_faithfulness(
                fitted.alpha_,
                faithfulness.support_counts(dense.lam_),
                train.features,
                pair,
                test.features,
                bias=fitted.bias,
            )
            key = f"{case.method.key} sparsified as {DualDA.name}(C={options['C']})"
            rows += self._rows(key, found)
        return rows

    def _rows(self, key: str, found: Found) -> list[Row]:
        return [Row(self.name, key, name, None, getattr(found, name)) for name in _NAMES]
