from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.adversarial import models

ROUNDS = int(os.environ.get("ATTACK_ROUNDS", "1"))
SEED = int(os.environ.get("ATTACK_SEED", "0"))


@pytest.fixture(params=range(ROUNDS))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """What is random about an attack; one per round."""
    return np.random.default_rng([SEED, request.param])


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in the test's folder, and put back what an attack does to modules and classes."""
    monkeypatch.chdir(tmp_path)
    with models.restored():
        yield
