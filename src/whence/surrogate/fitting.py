"""From the features of a training set to a surrogate, with its agreement with the model."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from whence.core.arrays import Array, Floats, Ints
from whence.features import as_float32
from whence.features.folder import BankPlace
from whence.features.training import Training
from whence.model.heads import Head
from whence.surrogate.agreement import agreement, warn_of_data, warn_of_low, without_part
from whence.surrogate.changes import Change
from whence.surrogate.identity import make_sketch
from whence.surrogate.scores import Vectors
from whence.surrogate.solving import SurrogateSolution, SurrogateSolver
from whence.surrogate.surrogate import Surrogate
from whence.tasks import Task


def fit_surrogate(
    training: Training,
    solver: SurrogateSolver,
    C: float | Literal["auto"],
    device: str | torch.device | None,
) -> Surrogate:
    """Solve the surrogate of a training set, or take it from the cache; warn where it is not to be trusted.

    ``device`` is where scores are computed; None is the model's device, or the CPU for features.
    """
    bank = training.bank
    features = as_float32(bank.features)
    if device is None and bank.model is not None:
        device = bank.model.device
    solution = solver.of_bank(bank, features, C, training.cache_dir)
    task = training.task.with_choice(solution.choice)
    unseen = without_part(task, bank.labels, solver.options.seed, solution.choice is None)
    unit = solver.options.normalise
    surrogate = make_surrogate(
        task, solution, features, bank.labels, bank.head, device, unit, unseen, BankPlace.of(bank)
    )
    warn_of_data(task, bank.features, bank.labels)
    if surrogate.agreement is not None:
        warn_of_low(task, surrogate.agreement, len(unseen))
    return surrogate


def make_surrogate(
    task: Task,
    solution: SurrogateSolution,
    features: Floats,
    labels: Array,
    head: Head | None,
    device: str | torch.device | None,
    unit: bool,
    unseen: Ints,
    bank: BankPlace | None = None,
    history: tuple[Change, ...] = (),
    sketch: Floats | None = None,
) -> Surrogate:
    """Make a surrogate of a solution on features (N, d) and labels (N, …) of all training samples.

    ``unseen`` are the samples that had no part in choosing C, by which agreement is measured. ``sketch`` is
    of the training set that was fitted, where the labels are others.
    """
    measured = None
    if head is not None and len(unseen):
        rows = np.asarray(features[unseen]), labels[unseen]
        measured = agreement(task, solution.weight, head, *rows, unit)
    return Surrogate(
        task=task,
        solution=solution,
        stored=Vectors.of(features, solution.support, device, unit),
        labels=labels,
        head=head,
        sketch=make_sketch(features, labels) if sketch is None else sketch,
        unseen=unseen,
        bank=bank,
        agreement=measured,
        history=history,
    )
