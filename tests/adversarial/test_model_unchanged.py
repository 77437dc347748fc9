"""An explainer answers for the model that was fitted: a model that changed since is refused, no other is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests.adversarial import models
from tests.adversarial.models import BLIND, CHANGES, Net
from tests.adversarial.test_reuse import arrays, plain
from whence.core import store
from whence.errors import ModelError, StoreError

X = arrays()[0][:20]


def fitted(model: nn.Module) -> Any:
    x, y = arrays()
    return whence.methods.get("similarity")(show_progress=False).fit(model, x[:60], y[:60])


def logits(model: nn.Module) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(X)


@pytest.mark.parametrize("name", [*CHANGES, *BLIND])
def test_a_change_after_the_fit_is_seen(tmp_path: Path, name: str) -> None:
    model = Net() if name in CHANGES else BLIND[name][0](tmp_path)
    change = CHANGES[name] if name in CHANGES else BLIND[name][1]
    explainer = fitted(model)
    before = explainer.attribute(X), logits(model)
    assert torch.equal(explainer.attribute(X), before[0])
    change(model)
    assert not torch.equal(logits(model), before[1]), "the change must matter, or the test says nothing"
    with pytest.raises(ModelError, match="The model changed after fitting"):
        explainer.attribute(X)


# Where the library is patched, or the model keeps its own state at random, nothing of the fit shows it.
@pytest.mark.parametrize("name", [*CHANGES, *BLIND])
def test_load_without_data_refuses_a_changed_model(tmp_path: Path, name: str) -> None:
    model = Net() if name in CHANGES else BLIND[name][0](tmp_path)
    change = CHANGES[name] if name in CHANGES else BLIND[name][1]
    fitted(model).save(tmp_path / "x.whence")
    whence.load(tmp_path / "x.whence", model).attribute(X)
    change(model)
    with pytest.raises(StoreError, match="The explainer was fitted on another model"):
        whence.load(tmp_path / "x.whence", model)


@pytest.mark.parametrize("changed", [0, 1])
def test_every_model_of_an_ensemble_is_checked(changed: int) -> None:
    networks = [plain(), plain()]
    dualda = whence.DualDA(C=1e-2, tol=1e-2, show_progress=False)
    x, y = arrays()
    ensemble = whence.Ensemble(dualda, show_progress=False).fit(networks, (x[:60], y[:60]))
    ensemble.explain(X[:1], k=1, novelty=False)
    networks[changed].register_forward_hook(lambda module, inputs, output: -output)
    for ask in (ensemble.attribute, ensemble.top_k, lambda x: ensemble.explain(x, k=1, novelty=False)):
        with pytest.raises(ModelError, match="The model changed after fitting"):
            ask(X[:1])


@pytest.mark.parametrize("shape", [(16, 2042), (16, 1021), (7, 8), (4096, 3), (64, 4096)])
def test_weights_in_another_order_are_other_weights(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    model = nn.Linear(*shape[::-1])
    before = store.glance(model), store.fingerprint(model, "")
    assert (store.glance(model), store.fingerprint(model, "")) == before
    i, j = rng.choice(shape[0], 2, replace=False)
    with torch.no_grad():
        model.weight[[i, j]] = model.weight[[j, i]]
    assert store.glance(model) != before[0]
    assert store.fingerprint(model, "") != before[1]


def test_scores_of_flipped_rows_are_never_given() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 2042), nn.ReLU(), nn.Linear(2042, 16), nn.ReLU(), nn.Linear(16, 3))
    explainer = fitted(model)
    with torch.no_grad():
        model[2].weight.data = model[2].weight.data.flip(0)
    with pytest.raises(ModelError, match=r"2\.weight has other values"):
        explainer.attribute(X)


# An ordinary notebook


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.relu, self.history = nn.Linear(5, 6), nn.Linear(6, 3), nn.ReLU(), []

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.relu(self.fc1(x)))

    def fit(self, loader: Any) -> Any:
        for x, y in train_loader:  # noqa: F821
            losses.append(criterion(self(x), y))  # noqa: F821
        return losses  # noqa: F821


CELLS = '''
fc1 = 3
fc2 = relu = history = body = data = shape = weight = lambda: None
model = None
x = y = X = batch = images = labels = 5
train_loader = [1, 2, 3]
losses = []
losses.append(0.5)
criterion = print
optimizer = object()
device = "cpu"
epoch = 7
for i in range(3): epoch += i
forward = training = parameters = 1
import math, json as nn
from collections import Counter as torch
def helper(x): return x
class fc3: pass
named_modules = state_dict = __name__
why = scores = top = None
'''  # fmt: skip


@pytest.mark.parametrize("cell", [line for line in CELLS.splitlines() if line])
def test_a_notebook_may_assign_what_it_likes(cell: str) -> None:
    """As in ``__main__``: the module of the class is the one whose names are assigned."""
    space: dict[str, Any] = {"__name__": "notebook", "nn": nn, "Tensor": Tensor, "Any": Any, "losses": [],
                             "epoch": 0}  # fmt: skip
    import inspect

    exec("from __future__ import annotations\n" + inspect.getsource(Small), space)
    torch.manual_seed(0)
    explainer = fitted(space["Small"]())
    before = explainer.attribute(X)
    exec(cell, space)
    assert torch.equal(explainer.attribute(X), before)


def test_a_whole_notebook_session_raises_no_alarm(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "notebook", "nn": nn, "Tensor": Tensor, "Any": Any, "losses": [],
                             "epoch": 0}  # fmt: skip
    import inspect

    exec("from __future__ import annotations\n" + inspect.getsource(Small), space)
    torch.manual_seed(0)
    model = space["Small"]()
    explainer = fitted(model)
    before = explainer.attribute(X)
    exec(CELLS, space)
    model.train()
    logits(model)
    model(X).sum().backward()
    model.zero_grad()
    model.fc1.weight.register_hook(lambda gradient: gradient)
    model.register_full_backward_hook(lambda *_: None)
    model.requires_grad_(False).eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    model.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert torch.equal(explainer.attribute(X), before)


def test_a_class_that_is_defined_again_is_the_same() -> None:
    model = models.Net()
    explainer = fitted(model)
    before = explainer.attribute(X)
    models.Net.forward = models.Net.forward  # as a cell that runs twice
    assert torch.equal(explainer.attribute(X), before)
