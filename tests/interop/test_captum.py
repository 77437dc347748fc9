"""The adapter for captum, compared with captum's own class on a linear model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import whence
from whence.errors import InvalidInputError

influence = pytest.importorskip("captum.influence", reason="captum is not installed")

N, K = 40, 3


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(N, 4), torch.arange(N) % K


def wrapped(method: str = "dualda") -> tuple[whence.methods.Attributor, whence.interop.CaptumInfluence]:
    torch.manual_seed(1)
    made = whence.methods.get(method)(show_progress=False).fit(nn.Linear(4, K), *data())
    return made, whence.interop.CaptumInfluence(made)


@pytest.mark.parametrize("method", ["dualda", "graddot", "influence"])
def test_scores_are_those_of_the_method(method: str) -> None:
    (x, y), (made, form) = data(), wrapped(method)
    assert isinstance(form, influence.DataInfluence)
    expected = made.attribute(x[:5], y[:5])
    torch.testing.assert_close(form.influence((x[:5], y[:5])), expected)
    loader = DataLoader(TensorDataset(x[:5], y[:5]), 2)
    torch.testing.assert_close(form.influence(loader), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(form.influence((x[:5], None)), made.attribute(x[:5]))
    torch.testing.assert_close(form.self_influence(), made.self_influence())


def test_the_strongest_are_told_as_captum_tells_them() -> None:
    (x, y), (made, form) = data(), wrapped()
    scores = made.attribute(x[:5], y[:5])
    for proponents in (True, False):
        found = form.influence((x[:5], y[:5]), k=4, proponents=proponents, show_progress=False)
        order = scores.argsort(dim=1, descending=proponents, stable=True)[:, :4]
        torch.testing.assert_close(found.influence_scores, scores.gather(1, order))
        torch.testing.assert_close(scores.gather(1, found.indices), found.influence_scores)
    theirs = pytest.importorskip("captum.influence._utils.common").KMostInfluentialResults
    assert found._fields == theirs._fields


@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients")
def test_it_ranks_as_captums_own_tracin_does(tmp_path) -> None:
    """The product of the gradients of the loss by a linear model's weights, in both libraries."""
    x, y = data()
    torch.manual_seed(1)
    model = nn.Linear(4, K, bias=False)
    torch.save(model.state_dict(), tmp_path / "only.pt")

    def load(module: nn.Module, path: str) -> float:
        module.load_state_dict(torch.load(path))
        return 1.0

    theirs = influence.TracInCP(
        model, TensorDataset(x, y), [str(tmp_path / "only.pt")], load, batch_size=N,
        loss_fn=nn.CrossEntropyLoss(reduction="sum"), sample_wise_grads_per_batch=True,
    ).influence((x[:5], y[:5]), k=6)  # fmt: skip
    made = whence.methods.TracIn(show_progress=False)
    made.fit(model, x, y, checkpoints=[model.state_dict()])
    ours = whence.interop.CaptumInfluence(made).influence((x[:5], y[:5]), k=6)
    torch.testing.assert_close(ours.indices, theirs.indices)
    torch.testing.assert_close(ours.influence_scores, theirs.influence_scores, rtol=1e-4, atol=1e-5)


def test_bad_calls_are_refused() -> None:
    (x, y), (_, form) = data(), wrapped()
    for call, message in (
        (lambda: form.influence(x), r"labels last, such as \(x, y\)"),
        (lambda: form.influence((x, y), k=0), "'k' must be"),
        (lambda: form.influence((x, y), depth=3), "'depth' must be left out"),
        (lambda: form.self_influence((x, y)), "'inputs' must be None"),
        (lambda: whence.interop.CaptumInfluence(form), "'explainer' must be an attribution method"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()
