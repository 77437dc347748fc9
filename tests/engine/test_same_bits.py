"""What runs through engines gives the same bits here and in processes."""

from __future__ import annotations

import numpy as np
import pytest

from whence import engine
from whence.audit.heldout import held_out_scores

pytestmark = pytest.mark.alone

rng = np.random.default_rng(0)
Y = np.arange(120) % 3
X = (rng.normal(size=(3, 8))[Y] + rng.normal(size=(120, 8))).astype(np.float32)


def test_folds() -> None:
    here = held_out_scores(X, Y, 3, n_folds=3, n_threads=2)
    with engine.using(engine.Processes(2)):
        there = held_out_scores(X, Y, 3, n_folds=3, n_threads=2)
    for ours, theirs in zip(here.held_out, there.held_out, strict=True):
        np.testing.assert_array_equal(ours, theirs)
