"""Mislabeling: whether wrong labels are found by falling self-influence."""

from __future__ import annotations

import numpy as np

from whence.evaluate.metrics.scores import mislabeling_curve, mislabeling_placements
from whence.evaluate.scenes.perturb import flip_labels
from whence.evaluate.suite.metric import Case, Column, Curves, Materials, Metric, Row, Scene, Share, register

_POINTS = 101  # of the curve that is drawn


@register
class Mislabeling(Metric):
    """Area under the curve of wrong labels found by falling self-influence, and the curve."""

    name = "mislabeling"
    columns = (
        Column(
            "Mislabeling",
            "scaled area under the curve",
            how="bootstrap over the wrong labels, with the correctly labelled samples as they are",
        ),
    )
    scene = "flips"
    sections = (
        Curves(
            "Wrong labels found",
            "Share of the wrong labels found when the training samples are inspected by falling "
            "self-influence.",
            x="share inspected",
            y="share found (↑ better)",
            quantities={"curve": "Wrong labels found"},
        ),
    )

    share: Share = 0.1

    def stage(self, given: Materials) -> Scene:
        """Train on wrong labels."""
        return given.scene(flip_labels(given.train, self.share, seed=given.workshop.seed), given.test)

    def measure(self, case: Case) -> list[Row]:
        """Give the share of correct labels below each wrong one, and the curve."""
        influence = case.attributor.self_influence().cpu().numpy()
        constant = bool(np.ptp(influence) <= 1e-5 * np.abs(influence).max())
        if constant:  # what is left is rounding
            influence = np.ones_like(influence)
        placements = mislabeling_placements(influence, case.scene.marked)
        curve = mislabeling_curve(influence, case.scene.marked)
        x = np.linspace(0, 1, _POINTS)
        found = np.interp(x, curve.inspected, curve.found)
        note = "0.5 by construction: every sample has the same self-influence" if constant else ""
        return [*case.rows_of(self.name, placements, note), *case.curve(self.name, "curve", x, found)]
