"""Coreset selection and adversarial pruning: models retrained with or without the most important samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from pydantic import Field

from whence import audit, metrics
from whence.core.arrays import Doubles, Ints
from whence.core.checks import check_that
from whence.errors import InvalidInputError
from whence.methods import Effects, RandomAttributor
from whence_studies.scenes import networks
from whence_studies.suite.metric import (
    Accuracies,
    Case,
    Column,
    Count,
    Metric,
    Row,
    Share,
    register,
    register_variant,
)
from whence_studies.suite.results import SPREAD, loss_of

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Sweep

_FEW = 2  # with so few shares, the smallest dominates the mean
_HOW = (
    "{seeds} training seeds, the same for all methods: Student’s t of the differences of two methods’ "
    "logarithms of losses, with the spread of these differences alone"
)
_BY_CLASS = "The most important samples of every class, in proportion to the training set."
_SUFFICE = "Higher is better: the kept samples suffice."
_MISSED = "Lower is better: the removed samples cannot be replaced."


def _mean(title: str, rising: bool) -> Column:
    return Column(f"{title}, mean", "weighted loss in nats", rising, ties="runs", how=_HOW)


def _columns(title: str, rising: bool) -> tuple[Column, ...]:
    first = Column(f"{title}, smallest", "loss in nats", rising, first=True, ties="runs", how=_HOW)
    return first, _mean(title, rising)


@register
class CoresetSelection(Metric):
    """Loss of models trained on the most important samples only, weighted by 1/share; lower is better.

    Importance is mean |τ|, or the value of a sample for methods by value. Ties are broken at random for every
    training seed. For the random method all samples are tied.
    """

    name = "coreset"
    columns = _columns("Coreset", rising=False)
    sections = (Accuracies("Coreset selection", _SUFFICE, "Kept", rising=True),)
    orders = True
    balanced: ClassVar[bool] = False

    fractions: list[Share] = Field(default=list(metrics.FRACTIONS), min_length=1)
    seeds: Count = 2

    @classmethod
    def columns_for(cls, options: Mapping[str, Any]) -> tuple[Column, ...]:
        """Return the columns; with few shares there is none for the smallest, which dominates the mean."""
        few = len(options.get("fractions", metrics.FRACTIONS)) <= _FEW
        return tuple(column for column in cls.columns if not (column.first and few))

    def trainings(self) -> int:
        """Return the number of models: one per share and seed."""
        return len(self.fractions) * self.seeds

    def over(self, sweep: Sweep) -> Self:
        """Return the metric with the sweep's fractions and seeds, which must be among its own."""
        fractions, seeds = sweep.fractions or self.fractions, sweep.seeds or self.seeds
        if not set(fractions) <= set(self.fractions):
            raise InvalidInputError(
                f"'sweep.fractions' must be a list of some of {self.fractions}, those of {self.name}. "
                f"Got {fractions!r}."
            )
        check_that(
            seeds <= self.seeds, "sweep.seeds", f"be at most {self.seeds}, those of {self.name}", seeds
        )
        return self.model_copy(update={"fractions": fractions, "seeds": seeds})

    cut = staticmethod(metrics.coreset)
    """Choose the training samples by their order, a share, and labels to balance by."""

    def measure(self, case: Case) -> list[Row]:
        """Return losses and accuracies by share, and the weighted mean of each seed."""
        inputs, labels = case.scene.held_out
        performances = [
            metrics.performance(networks.logits(model, inputs).numpy(), labels)
            for model in case.scene.retrained(self._parts(case))
        ]
        shape = self.seeds, len(self.fractions)
        losses = np.array([one.loss for one in performances]).reshape(shape)
        accuracies = np.array([one.accuracy for one in performances]).reshape(shape)
        means = [metrics.weighted_mean(row, self.fractions) for row in losses]
        curves = {"loss": losses.mean(0), "accuracy": accuracies.mean(0)}
        if self.seeds > 1:
            curves[SPREAD] = accuracies.std(0, ddof=1)
        curves |= {loss_of(seed): row for seed, row in enumerate(losses)}
        rows = case.rows_of(self.name, np.array(means))
        for quantity, values in curves.items():
            rows += case.curve(self.name, quantity, self.fractions, values)
        return rows

    def _parts(self, case: Case) -> list[tuple[Ints, int]]:
        """Return the training samples with the seed, for every seed and share."""
        importance, scene = _importance(case), case.scene
        labels = scene.train.labels if self.balanced else None
        orders = [metrics.order_by(importance, scene.workshop.seed + seed) for seed in range(self.seeds)]
        # Sorted, so that methods that choose the same samples share a model.
        return [
            (np.sort(self.cut(order, p, labels)), seed)
            for seed, order in enumerate(orders)
            for p in self.fractions
        ]


def _importance(case: Case) -> Doubles:
    """Return the importance (N,) of the training samples by a method."""
    scene = case.scene
    if case.method.kind.name == RandomAttributor.name:
        return np.zeros(len(scene.inputs))
    if not case.method.by_value:
        return metrics.importance(case.scores)
    values = audit.values(cast(Effects, case.attributor), scene.tests, scene.test.labels)
    worth = np.zeros(len(scene.inputs))
    worth[values.indices] = values.values
    return worth


for _name, _text, _cut, _balanced, _titles, _section in (
    (
        "coreset_balanced",
        "Loss of models trained on the most important samples of every class; lower is better.",
        metrics.coreset,
        True,
        (_mean("Coreset balanced", rising=False),),
        Accuracies("Coreset selection, balanced", f"{_BY_CLASS} {_SUFFICE}", "Kept", rising=True),
    ),
    (
        "pruning",
        "Loss of models trained without the most important samples, weighted by 1/share; higher is better.",
        metrics.pruned,
        False,
        _columns("Pruning", rising=True),
        Accuracies(
            "Adversarial pruning",
            f"{_MISSED} The paper’s figures are for the same share of kept samples.",
            "Removed",
            rising=False,
        ),
    ),
    (
        "pruning_balanced",
        "Loss of models trained without the most important samples of every class; higher is better.",
        metrics.pruned,
        True,
        (_mean("Pruning balanced", rising=True),),
        Accuracies("Adversarial pruning, balanced", f"{_BY_CLASS} {_MISSED}", "Removed", rising=False),
    ),
):
    register_variant(
        CoresetSelection,
        _name,
        _text,
        {},
        cut=staticmethod(_cut),
        balanced=_balanced,
        columns=_titles,
        sections=(_section,),
    )
