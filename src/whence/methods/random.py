"""Random attributions, the baseline for all methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import a_seed, parameter
from whence.core.fingerprint import Digest
from whence.data import NewSamples
from whence.features.training import Training
from whence.model.inputs import take


@register
@dataclass(eq=False)
class RandomAttributor(Attributor):
    """Attribute predictions at random: standard normal scores, equal for equal inputs and classes.

    Parameters
    ----------
    seed
        Seed of all scores.
    """

    name: ClassVar[str] = "random"
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory="nothing", cost=0.0, tasks=("class", "label", "number")
    )

    seed: int = parameter(0, a_seed)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        return {}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        targets = enumerate(tests.targets.tolist())
        rows = [self._row(fitted, take(tests.x, slice(i, i + 1)), target) for i, target in targets]
        return torch.from_numpy(np.array(rows, dtype=np.float32))

    def score_self(self, fitted: Fitted) -> Tensor:
        scores = np.random.default_rng(self.seed).standard_normal(len(fitted.used_labels))
        return torch.from_numpy(scores.astype(np.float32))

    def _row(self, fitted: Fitted, x: Any, target: int) -> Any:
        # Seeded by the input, so that its scores do not depend on the batch.
        if isinstance(x, NewSamples):
            x = x.inputs(fitted.require_model().prepare)
        if isinstance(x, Mapping) and len(x) == 1:  # independent of its name
            x = next(iter(x.values()))
        digest = Digest()
        digest.add(x)
        seed = [self.seed, int(digest.hexdigest(), 16), target]
        return np.random.default_rng(seed).standard_normal(len(fitted.used_labels))
