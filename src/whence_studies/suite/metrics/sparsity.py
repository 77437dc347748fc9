"""Sparsity: which share of the attribution few training samples hold."""

from __future__ import annotations

from whence.metrics.scores import sparsity_curve
from whence_studies.suite.metric import Case, Curves, Metric, Row, register

_SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@register
class Sparsity(Metric):
    """Share of the attribution that the top x % of the training samples hold: curves, and no score."""

    name = "sparsity"
    sections = (
        Curves(
            "Sparsity",
            "Share of the absolute attribution that the top share of the training samples holds. A curve "
            "that rises early is of few samples that matter; neither way is better in itself.",
            x="share of the training samples",
            y="share of the attribution (↑ sparser)",
            quantities={
                "absolute": "Attribution held",
                "positive": "Of the positive attribution",
                "negative": "Of the negative attribution",
            },
            log=True,
        ),
    )
    sweeps = False

    def measure(self, case: Case) -> list[Row]:
        """Return the curves of absolute, positive and negative attribution."""
        curve = sparsity_curve(case.scores, _SHARES)
        kinds = ("absolute", "positive", "negative")
        return [
            row for kind in kinds for row in case.curve(self.name, kind, curve.shares, getattr(curve, kind))
        ]
