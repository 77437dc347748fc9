"""Coreset selection and adversarial pruning: models retrained on what a method keeps, or leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field

from whence.errors import InvalidInputError
from whence.evaluate.metrics import coreset
from whence.evaluate.scenes import networks
from whence.evaluate.suite.metric import Accuracies, Case, Column, Count, Metric, Row, Share, register

if TYPE_CHECKING:
    from whence.evaluate.suite.protocol import Sweep


def _columns(title: str, rising: bool) -> tuple[Column, ...]:
    how = (
        "{seeds} training seeds, the same for all methods: Student’s t with the pooled spread of "
        "the losses’ logarithms about the means of methods and of seeds, as if all spread alike"
    )
    return (
        Column(f"{title}, smallest", "loss in nats", rising, first=True, ties="runs", how=how),
        Column(f"{title}, mean", "weighted loss in nats", rising, ties="runs", how=how),
    )


@register
class Coreset(Metric):
    """Loss of models trained on the most important samples only, weighted by 1/share; less is better."""

    name = "coreset"
    columns = _columns("Coreset", rising=False)
    sections = (
        Accuracies("Coreset selection", "More is better: the kept samples suffice.", "Kept", rising=True),
    )

    fractions: list[Share] = Field(default=list(coreset.FRACTIONS), min_length=1)
    seeds: Count = 2

    def trainings(self) -> int:
        """Count a model for every share and seed."""
        return len(self.fractions) * self.seeds

    def over(self, sweep: Sweep) -> Self:
        """Give the metric with the sweep's fractions and seeds, which must be among its own."""
        fractions, seeds = sweep.fractions or self.fractions, sweep.seeds or self.seeds
        if not set(fractions) <= set(self.fractions):
            raise InvalidInputError(
                f"'sweep.fractions' must be a list of some of {self.fractions}, those of {self.name}. "
                f"Got {fractions!r}."
            )
        if seeds > self.seeds:
            raise InvalidInputError(
                f"'sweep.seeds' must be at most {self.seeds}, those of {self.name}. Got {seeds!r}."
            )
        return self.model_copy(update={"fractions": fractions, "seeds": seeds})

    cut = staticmethod(coreset.coreset)
    """Gives the samples that a model is trained on, of their order and a share."""

    def measure(self, case: Case) -> list[Row]:
        """Give losses and accuracies by share, and the weighted mean of each seed."""
        order = coreset.coreset_order(case.scores, case.scene.workshop.seed)
        # Sorted: methods that choose the same samples, in whatever order, share a model.
        parts = [np.sort(self.cut(order, p)) for p in self.fractions]
        inputs, labels = case.scene.held_out
        found = [
            coreset.performance(networks.logits(model, inputs).numpy(), labels)
            for model in case.scene.retrained(parts, self.seeds)
        ]
        shape = self.seeds, len(self.fractions)
        losses = np.array([one.loss for one in found]).reshape(shape)
        accuracies = np.array([one.accuracy for one in found]).reshape(shape)
        each = [coreset.weighted_mean(row, self.fractions) for row in losses]
        curves = {"loss": losses.mean(0), "accuracy": accuracies.mean(0)}
        curves |= {coreset.loss_of(seed): row for seed, row in enumerate(losses)}
        rows = case.rows_of(self.name, np.array(each))
        for quantity, values in curves.items():
            rows += case.curve(self.name, quantity, self.fractions, values)
        return rows


@register
class Pruning(Coreset):
    """Loss of models trained without the most important samples, weighted by 1/share; more is better."""

    name = "pruning"
    columns = _columns("Pruning", rising=True)
    sections = (
        Accuracies(
            "Adversarial pruning",
            "Less is better: the removed samples cannot be replaced. The paper’s figures are those for as "
            "much kept as is left here.",
            "Removed",
            rising=False,
        ),
    )

    cut = staticmethod(coreset.pruned)
