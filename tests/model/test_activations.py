"""Models that end in a softmax, a log-softmax or a sigmoid, against the same models without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import whence
from tests.helpers.nets import mlp, train
from whence import DualDA
from whence.errors import HeadError, ModelError

N, K = 60, 3


class Digits(nn.Module):
    """The network of PyTorch's MNIST example, smaller."""

    def __init__(self, ending: Any = lambda z: functional.log_softmax(z, dim=1)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)
        self.dropout = nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(16, 8), nn.Linear(8, K)
        self.ending = ending

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2)
        x = self.fc2(self.dropout(self.fc1(torch.flatten(x, 1)).relu()))
        output: Tensor = self.ending(x)
        return output


def images() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    x, y = torch.rand(N, 1, 8, 8), torch.arange(N) % K
    x[:, 0, :4] += y[:, None, None] / 2
    return x, y


@pytest.mark.parametrize("ending", [nn.LogSoftmax(1), nn.Softmax(1), None])
def test_everything_is_that_of_the_logits(ending: nn.Module | None, tmp_path: Path) -> None:
    x, y = images()
    plain, model = Digits(lambda z: z), Digits() if ending is None else Digits(ending)
    train(plain, x, y, 40, 0.02)
    model.load_state_dict(plain.state_dict())
    options: dict[str, Any] = {"C": 0.1, "show_progress": False}
    expected, explainer = DualDA(**options).fit(plain, (x, y)), DualDA(**options).fit(model, (x, y))
    torch.testing.assert_close(explainer.attribute(x), expected.attribute(x))
    ours, theirs = explainer.faithfulness(x), expected.faithfulness(x)
    assert (ours.agreement, ours.logit_cosine) == (theirs.agreement, pytest.approx(theirs.logit_cosine))
    why, wanted = explainer.explain(x[0], truth=0)[0], expected.explain(x[0], truth=0)[0]
    assert why.probability == pytest.approx(plain.eval()(x[:1]).softmax(1).max().item(), abs=1e-6)
    assert why.verdict == wanted.verdict._replace(probability=why.probability)
    for name in ("logit", "test", "train"):
        np.testing.assert_allclose(why.maps[name], wanted.maps[name], rtol=1e-4, atol=1e-6)
    again = whence.audit.wrong_labels(explainer).scores
    np.testing.assert_allclose(again, whence.audit.wrong_labels(expected).scores, rtol=1e-3, atol=1e-5)
    explainer.save(tmp_path / "e.whence")
    loaded = whence.load(tmp_path / "e.whence", model, (x, y)).explain(x[0])[0]
    assert loaded.probability == why.probability


@pytest.mark.parametrize("ending", [nn.LogSoftmax(1), nn.Softmax(1)])
def test_gradients_are_those_of_the_logits(ending: nn.Module) -> None:
    x, y = images()
    plain, model = Digits(lambda z: z), Digits(ending)
    methods = [whence.methods.GradDot(show_progress=False) for _ in range(2)]
    scores = [one.fit(net, (x, y)).attribute(x[:4]) for one, net in zip(methods, (plain, model), strict=True)]
    torch.testing.assert_close(*scores, rtol=1e-4, atol=1e-6)


def test_many_labels_by_sigmoids() -> None:
    torch.manual_seed(0)
    plain, x = mlp(4, 6, K), torch.randn(N, 4)
    y = (torch.rand(N, K) > 0.5).float()
    explainer = DualDA(C=0.1, show_progress=False).fit(nn.Sequential(plain, nn.Sigmoid()), (x, y))
    chances = plain(x[:1]).sigmoid()[0]
    for c in range(K):
        why = explainer.explain(x[0], target=c)[0]
        assert why.probability == pytest.approx(chances[c].item(), abs=1e-6)


@pytest.mark.parametrize(
    ("ending", "labels", "message"),
    [
        (nn.Sigmoid(), torch.arange(N) % K, r'sigmoid after layer .* pass task="many-labels"'),
        (
            nn.Softmax(1),
            torch.randint(0, 2, (N, K)),
            'softmax after .* pass integer labels or task="classes"',
        ),
        (nn.Softmax(1), torch.rand(N, K), "softmax after .* pass a model that returns its output"),
        (nn.Tanh(), torch.arange(N) % K, "pass that layer's name as 'layer'"),
    ],
)
def test_endings_that_do_not_fit_the_labels_are_named(
    ending: nn.Module, labels: Tensor, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        DualDA(show_progress=False).fit(nn.Sequential(mlp(4, 6, K), ending), (torch.randn(N, 4), labels))


class Sometimes(nn.Module):
    """Returns probabilities of another temperature for some inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(4, 6, K)

    def forward(self, x: Tensor) -> Tensor:
        probabilities: Tensor = (self.body(x) / torch.where(x[:, :1] > 5, 3.0, 1.0)).softmax(1)
        return probabilities


def test_every_batch_is_checked() -> None:
    x = torch.randn(N, 4)
    explainer = DualDA(C=0.1, show_progress=False).fit(Sometimes(), (x, torch.arange(N) % K))
    x[3, 0] = 6
    with pytest.raises(HeadError, match="test 3 of 'x'"):
        explainer.attribute(x)
