"""Features around a centre per class, and explainers of such."""

from __future__ import annotations

from typing import Any

import numpy as np

import whence
from whence.features import FeatureBank
from whence.tasks import Task


def around_centres(centres: np.ndarray, y: np.ndarray, spread: float, rng: Any) -> np.ndarray:
    """Return features (N, d) around the centre of each label's class."""
    return centres[y] + spread * rng.normal(size=(len(y), centres.shape[1]))


def dualda(X: Any, y: Any, C: float = 0.1, head: Any = None, task: Task | None = None, **options: Any) -> Any:
    """Return DualDA, fitted to features."""
    bank = FeatureBank.of(X, y, head=head, task=task)
    return whence.DualDA(**{"C": C, "metric": "raw", "show_progress": False, **options}).fit(features=bank)
