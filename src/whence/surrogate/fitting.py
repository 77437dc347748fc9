"""Fitting of a surrogate to the features of a training set, with its agreement with the model."""

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
    """Solve the surrogate of a training set, or read it from the cache; warn about low agreement.

    ``device`` is the device of scores; None is the model's device, or the CPU for features.
    """
    bank = training.bank
    features = as_float32(bank.features)
    if device is None and bank.model is not None:
        device = bank.model.device
    solution = solver.of_bank(bank, features, C, training.cache_dir)
    task = training.task.with_choice(solution.choice)
    unseen = without_part(task, bank.labels, solver.options.seed, solution.choice is None)
    surrogate = make_surrogate(
        task, solution, features, bank.labels, bank.head, device, unseen, BankPlace.of(bank)
    )
    warn_of_data(task, bank.features, bank.labels)
    if surrogate.agreement is not None and bank.head is not None:
        rows = np.asarray(features[unseen]), bank.labels[unseen]
        warn_of_low(task, surrogate.agreement, bank.head, *rows, given=solution.choice is None)
    return surrogate


def make_surrogate(
    task: Task,
    solution: SurrogateSolution,
    features: Floats,
    labels: Array,
    head: Head | None,
    device: str | torch.device | None,
    unseen: Ints,
    bank: BankPlace | None = None,
    history: tuple[Change, ...] = (),
    sketch: Floats | None = None,
) -> Surrogate:
    """Make a surrogate from a solution on features (N, d) and labels (N, …) of all training samples.

    Agreement is measured on ``unseen``, the samples that had no part in choosing C. ``sketch`` is that of the
    fitted training set, if labels have changed.
    """
    measured = None
    if head is not None and len(unseen):
        rows = np.asarray(features[unseen]), labels[unseen]
        measured = agreement(task, solution.weight, head, *rows, solution.metric)
    return Surrogate(
        task=task,
        solution=solution,
        stored=Vectors.of(features, solution.support, device, solution.metric),
        labels=labels,
        head=head,
        sketch=make_sketch(features, labels) if sketch is None else sketch,
        unseen=unseen,
        bank=bank,
        agreement=measured,
        history=history,
    )
