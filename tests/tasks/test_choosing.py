"""Which task labels are for, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import whence
from whence.errors import InvalidInputError, ModelError
from whence.tasks import Classes, ManyLabels, OneLogit, Regression, find_task


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (np.array(3), Classes()),  # no labels of samples, of which the classes say what is wrong
        (np.array([0, 1, 2]), Classes()),
        (np.array([0, 1, 1]), Classes()),  # one output makes one logit of it
        (["cat", "dog"], Classes()),
        (np.array([0.0, 1.0, 1.0]), OneLogit()),
        (np.array([[0.0], [1.0]]), OneLogit()),
        (np.array([True, False]), OneLogit()),
        ([torch.tensor(1.0), torch.tensor(0.0)], OneLogit()),
        (np.array([0.0, 2.0]), Regression()),
        (np.array([[0.3], [1.0]]), Regression()),
        (np.array([[0.3, 1.0], [1.0, 2.0]]), Regression()),
        (np.array([[1, 1, 0], [0, 0, 1]]), ManyLabels()),
        ([[0.0, 0.0], [1.0, 0.0]], ManyLabels()),
        ([torch.tensor([1, 1]), torch.tensor([0, 1])], ManyLabels()),
        ([[0], [1, 2]], Classes()),  # which says what is wrong
    ],
)
def test_labels_tell_their_task(labels: Any, task: Any) -> None:
    assert find_task(labels) == task


def test_one_label_of_several_may_be_classes() -> None:
    with pytest.raises(InvalidInputError, match=r"labels\.argmax\(1\); for many labels pass task"):
        find_task(np.eye(3))


class Read(Dataset[Any]):
    """Samples whose labels nobody lists."""

    def __init__(self, x: Tensor, y: Any) -> None:
        self.x, self.y, self.read = x, y, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        return self.x[index], self.y[index]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("K", "make", "task"),
    [
        (2, lambda n: torch.arange(n) % 2, Classes),
        (1, lambda n: torch.arange(n) % 2, OneLogit),
        (1, lambda n: (torch.arange(n) % 2).float(), OneLogit),
        (1, lambda n: torch.linspace(0, 3, n), Regression),
        (1, lambda n: torch.linspace(0, 3, n).tolist(), Regression),
        (2, lambda n: torch.rand(n, 2), Regression),
        (2, lambda n: torch.stack([torch.arange(n) % 2, torch.arange(n) % 3 // 2], 1), ManyLabels),
    ],
)
def test_samples_that_are_read_one_by_one_tell_it_too(K: int, make: Any, task: Any, wrapped: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, K))
    x = torch.randn(40, 3)
    data: Any = Read(x, make(40))
    given = DataLoader(data, batch_size=16) if wrapped else data
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, given)
    assert type(explainer.task_) is task
    assert explainer.attribute(x[:2], target=0).shape == (2, 40)


class Output(nn.Module):
    """A model that returns what it is told to."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.layer, self.make = nn.Linear(3, 4), make

    def forward(self, x: Tensor) -> Any:
        return self.make(self.layer(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda z: [{"boxes": z, "labels": z, "scores": z} for _ in z],
            "Detection is not supported: .* boxes",
        ),
        (
            lambda z: {"logits": z[:, None], "pred_boxes": z[:, None]},
            "Detection is not supported: .* pred_boxes",
        ),
        (
            lambda z: z[:, :, None, None].expand(-1, -1, 5, 5),
            r"Segmentation.* not supported: .*\(8, 4, 5, 5\)",
        ),
        (lambda z: {"out": z[:, :, None, None]}, r"Segmentation.* not supported: .*\(8, 4, 1, 1\)"),
        (lambda z: z[:, None, :], r"must return logits, shape \(B, K\), or one output per sample"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(make: Any, message: str) -> None:
    x = torch.randn(20, 3)
    with pytest.raises(ModelError, match=message) as refusal:
        whence.DualDA(show_progress=False).fit(Output(make), (x, torch.arange(20) % 4))
    if "not supported" in message:
        assert "What is supported: one class per sample, one logit, several labels" in str(refusal.value)
