"""Statistics of BatchNorm at checkpoints, for methods that look at these."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tests.studies.test_study import MODEL, workshop
from whence.methods import GradDot, TracIn
from whence_studies.scenes.training import with_statistics

RNG = torch.Generator().manual_seed(0)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))


def test_statistics_are_those_of_the_weights_at_hand() -> None:
    x = torch.randn(200, 4, generator=RNG) * 3 + 1  # a single batch
    model, later = network(), network()
    with torch.no_grad():
        later[0].weight.mul_(7.0)
    before = copy.deepcopy(model.state_dict())
    state = with_statistics(model, later.state_dict(), x)
    hidden = later[0](x).detach().numpy()
    np.testing.assert_allclose(state["1.running_mean"], hidden.mean(0), rtol=1e-4)
    np.testing.assert_allclose(state["1.running_var"], hidden.var(0, ddof=1), rtol=1e-4)
    for name in ("0.weight", "0.bias", "1.weight", "4.weight"):
        assert torch.equal(state[name], later.state_dict()[name])
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_set_that_is_sorted_has_the_statistics_of_all_of_it() -> None:
    x = torch.randn(2_000, 4, generator=RNG)
    x[1_000:] += 10.0
    model = network()
    hidden = model[0](x).detach().numpy()
    found = with_statistics(model, model.state_dict(), x)["1.running_var"].numpy()
    np.testing.assert_allclose(found, hidden.var(0), rtol=0.05)


def test_without_such_layers_weights_are_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Dropout(0.5), nn.Linear(5, 3))
    state = with_statistics(model, model.state_dict(), torch.randn(10, 4))
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_tracin_is_not_led_by_statistics_that_lag(tmp_path: Path) -> None:
    shop = workshop(tmp_path, metrics={"identical_class": {}}, model={**MODEL, "name": "plain-cnn"})
    scene = shop.scene("identical_class")
    # A single checkpoint, the final weights, with statistics of a network that was never trained.
    lagging = copy.deepcopy(scene.trained.model.state_dict())
    for name, tensor in lagging.items():
        if name.endswith("running_var"):
            tensor.mul_(1e-2)
    scene.trained.checkpoints[:] = [lagging]
    scene.trained.learning_rates[:] = [1.0]
    found = scene.fit(scene.attributor(TracIn, {})).attribute(scene.tests[:4]).numpy()
    own = copy.deepcopy(scene.trained.model)
    own.load_state_dict(with_statistics(own, own.state_dict(), scene.inputs))
    classes = torch.from_numpy(scene.explained[:4])
    expected = GradDot(show_progress=False).fit(own, scene.data).attribute(scene.tests[:4], classes)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-4)
