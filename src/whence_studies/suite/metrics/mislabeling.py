"""Mislabeling: how well self-influence finds wrong labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.arrays import Doubles
from whence.methods import Attributor
from whence.metrics.scores import mislabeling_auc, mislabeling_curve, mislabeling_placements
from whence_studies.scenes import networks
from whence_studies.scenes.perturb import flip_labels
from whence_studies.scenes.training import TrainedNetwork
from whence_studies.suite.metric import (
    Case,
    Column,
    Curves,
    Materials,
    Metric,
    Numbers,
    Row,
    Scene,
    Share,
    register,
    register_variant,
)

_POINTS = 101  # points of the drawn curve
_HOW = "bootstrap over the wrong labels of one network, with fixed correctly labelled samples"
_OTHERS = {
    "by_margin": "Margin w_y·f − max w_c·f, the smallest first",
    "by_slack": "Slack max(0, 1 − margin), the largest first",
    "by_length": "λ‖f‖, as in the authors' scripts",
}


@register
class Mislabeling(Metric):
    """Area under the curve of wrong labels found by falling self-influence, and the curve.

    For DualDA also by other orders: its surrogate's margins and slacks, and λ‖f‖.

    Attributes
    ----------
    share : share of wrong labels
    checkpoint : "last" explains the network at the end of training, "best" its checkpoint with the highest
        accuracy on the held-out tests. The scene records the share of wrong labels that the network fits
    """

    name = "mislabeling"
    columns: ClassVar[tuple[Column, ...]] = (Column("Mislabeling", "scaled area under the curve", how=_HOW),)
    scene = "flips"
    sections = (
        Curves(
            "Wrong labels found",
            "Share of the wrong labels found when the training samples are inspected in order of falling "
            "self-influence.",
            x="share inspected",
            y="share found (↑ better)",
            quantities={"curve": "Wrong labels found"},
        ),
        Numbers(
            "Wrong labels by other orders",
            "The same area when the training samples are inspected in another order by DualDA.",
            _OTHERS,
        ),
    )

    share: Share = 0.1
    checkpoint: Literal["last", "best"] = "last"

    def stage(self, given: Materials) -> Scene:
        """Train on a set with wrong labels."""
        wrong = flip_labels(given.train, self.share, seed=given.workshop.seed)
        scene = given.scene(wrong, given.test)
        if self.checkpoint == "best":
            scene = replace(scene, trained=_best(scene))
        known = networks.logits(scene.trained.model, scene.inputs).argmax(1).numpy()
        marked, labels = scene.marked, scene.train.labels
        facts = {
            "wrong_labels": float(marked.mean()),
            "wrong_labels_fitted": float((known == labels)[marked].mean()),
            "right_labels_fitted": float((known == labels)[~marked].mean()),
            "test_accuracy": float((scene.explained == scene.test.labels).mean()),
            "n_test": len(scene.tests),
        }
        return replace(scene, facts=facts)

    def measure(self, case: Case) -> list[Row]:
        """Return the share of correct labels below each wrong one, and the curve."""
        influence, marked = case.attributor.self_influence().cpu().numpy(), case.scene.marked
        constant = bool(np.ptp(influence) <= 1e-5 * np.abs(influence).max())
        if constant:  # differences are rounding
            influence = np.ones_like(influence)
        placements = mislabeling_placements(influence, marked)
        curve = mislabeling_curve(influence, marked)
        x = np.linspace(0, 1, _POINTS)
        shares = np.interp(x, curve.inspected, curve.found)
        note = "0.5 by construction: every sample has the same self-influence" if constant else ""
        others = [
            case.row(self.name, name, float(mislabeling_auc(order, marked)))
            for name, order in self._others(case).items()
        ]
        rows = case.rows_of(self.name, placements, note)
        return [*rows, *case.curve(self.name, "curve", x, shares), *others]

    def _others(self, case: Case) -> dict[str, Doubles]:
        """Return other scores (N,) of DualDA by name; larger is more suspicious."""
        y = case.scene.train.labels
        fitted: Any = case.attributor
        if not fitted.capabilities.dual or case.method.sweep:
            return {}
        samples = np.arange(len(y))
        scores = fitted.surrogate_.logits(_features(case.scene, fitted)).cpu().numpy()
        of_label = scores[samples, y].copy()
        scores[samples, y] = -np.inf
        margins = of_label - scores.max(axis=1)
        lengths = np.zeros(len(y))
        lengths[fitted.support_] = fitted.surrogate_.stored.lengths().cpu().numpy()
        lam = fitted.task_.label_weights(fitted.lam_)
        return {"by_margin": -margins, "by_slack": np.maximum(0.0, 1.0 - margins), "by_length": lam * lengths}


def _features(scene: Scene, fitted: Attributor) -> Tensor:
    """Return the surrogate's features (N, d) of the training set."""
    model = fitted.fitted_.require_model()
    if model.extractor.layers is None:
        return torch.from_numpy(np.asarray(scene.bank.features))
    features: Tensor = model.read(scene.inputs, fitted.batch_size).features
    return features


def _best(scene: Scene) -> TrainedNetwork:
    """Return the checkpoint with the best accuracy on the held-out tests, and the checkpoints before it."""
    trained, (inputs, labels) = scene.trained, scene.held_out
    if not trained.checkpoints:
        return trained
    predicted = (
        networks.logits(_at(scene, state), inputs).argmax(1).numpy() for state in trained.checkpoints
    )
    at = int(np.argmax([(classes == labels).mean() for classes in predicted]))
    model, so_far = _at(scene, trained.checkpoints[at]), slice(0, at + 1)
    return TrainedNetwork(model, trained.checkpoints[so_far], trained.learning_rates[so_far])


def _at(scene: Scene, state: dict[str, Tensor]) -> nn.Module:
    """Return the network with some weights."""
    model = scene.trainer.build(0)
    model.load_state_dict(state)
    return model.eval()


for _name, _scene, _title, _defaults in (
    ("mislabeling_best", "flips, best", "10 % wrong, best", {"checkpoint": "best"}),
    ("mislabeling_memorised", "flips, memorised", "10 % wrong, memorised", {}),
    ("mislabeling_30_best", "30 % flips, best", "30 % wrong, best", {"share": 0.3, "checkpoint": "best"}),
    ("mislabeling_30_memorised", "30 % flips, memorised", "30 % wrong, memorised", {"share": 0.3}),
):
    register_variant(
        Mislabeling,
        _name,
        "Area under the curve of wrong labels found, at the best checkpoint or after a long training.",
        _defaults,
        scene=_scene,
        columns=(Column(_title, "scaled area under the curve", how=_HOW),),
    )
