"""A method of a user's own: one class, registered from outside, and it does all that ours do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import whence
from tests.helpers.nets import mlp
from whence import methods
from whence.attribution.base import METHODS
from whence.attribution.fitted import Fitted, Tests
from whence.core.registry import register
from whence.errors import InvalidInputError, StoreError
from whence.methods import Attributor


@dataclass(eq=False)
class SameLabel(Attributor):
    """1 for every training sample of the target class, −1 for the others."""

    name: ClassVar[str] = "same-label"

    weight: float = 1.0

    def learn(self, training: Any, **given: Any) -> dict[str, Tensor]:
        return {"signs": self.weight * (2 * nn.functional.one_hot(training.labels, 3).T.float() - 1)}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        return fitted.arrays["signs"][tests.targets]

    def score_self(self, fitted: Fitted) -> Tensor:
        return torch.full((fitted.arrays["signs"].shape[1],), self.weight)


def case() -> tuple[nn.Module, Tensor, Tensor]:
    return mlp(4, 6, 3), torch.randn(12, 4), torch.arange(12) % 3


def test_a_method_is_found_by_module_and_name_without_registration() -> None:
    assert methods.get(f"{__name__}:SameLabel") is SameLabel
    with pytest.raises(InvalidInputError, match=r"must name an attribution method.*a function"):
        methods.get(f"{__name__}:case")


def test_a_registered_method_is_fitted_saved_and_loaded(tmp_path: Path, monkeypatch: Any) -> None:
    model, x, y = case()
    e = SameLabel(2.0, show_progress=False).fit(model, (x, y))
    scores = e.attribute(x[:4], target=1)
    assert torch.equal(scores, torch.where(y == 1, 2.0, -2.0).expand(4, -1))
    assert (y[e.top_k(x[:1], 2, 1).proponents.indices] == 1).all()
    e.save(tmp_path / "own.whence")
    with pytest.raises(StoreError, match=r"'same-label', which is not registered.*whence\.register"):
        whence.load(tmp_path / "own.whence", model)
    monkeypatch.setattr(METHODS, "_things", {method.name: method for method in METHODS})  # until the end
    assert register(SameLabel) is SameLabel
    assert methods.get("same-label") is SameLabel
    assert "same-label" in methods.names()
    back = whence.load(tmp_path / "own.whence", model)
    assert torch.equal(back.attribute(x[:4], target=1), scores)
