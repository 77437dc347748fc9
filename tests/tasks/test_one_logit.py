"""One logit is two classes: everything is what the two-class model with logits −z/2 and z/2 gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import whence
from tests.helpers.nets import train
from whence import audit
from whence.errors import HeadError, ModelError, SampleError
from whence.features import FeatureBank
from whence.methods import get, names
from whence.tasks import Classes, OneLogit

N, D = 80, 6
EXACT = {"arnoldi", "dualda", "effects", "hingerp", "influence", "lissa", "representer", "similarity"}


class One(nn.Module):
    """One logit, (B,), or what another module makes of (B, 1)."""

    def __init__(self, after: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.after = nn.Linear(4, D), nn.Linear(D, 1), after

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.head(self.body(x).relu())
        return z[:, 0] if self.after is None else self.after(z)


class Two(nn.Module):
    """The same as two classes."""

    def __init__(self, one: One) -> None:
        super().__init__()
        self.body, self.head = one.body, nn.Linear(D, 2)
        with torch.no_grad():
            for ours, theirs in zip(self.head.parameters(), one.head.parameters(), strict=True):
                ours.copy_(torch.cat([-theirs / 2, theirs / 2]))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu())


@pytest.fixture(scope="module")
def trained() -> tuple[One, Tensor, Tensor]:
    """A trained model, inputs and labels 0 and 1."""
    model, generator = One(), torch.Generator().manual_seed(1)
    x = torch.randn(N, 4, generator=generator)
    y = (x[:, 0] + 0.3 * torch.randn(N, generator=generator) > 0).long()
    train(model, x, y.float(), 60, 0.05, loss=binary_cross_entropy_with_logits)
    return model, x, y


def dualda(**options: Any) -> whence.DualDA:
    return whence.DualDA(**{"metric": "raw", "C": 0.1, "tol": 1e-8, "show_progress": False, **options})


@pytest.mark.parametrize("name", sorted(set(names()) - {"ensemble"}))
def test_every_method_does_what_it_does_with_two_classes(
    name: str, trained: tuple[One, Tensor, Tensor]
) -> None:
    model, x, y = trained
    method: Any = get(name)
    found = []
    for each in (model, Two(model)):
        more = {"checkpoints": [each.state_dict()]} if method.capabilities.needs_checkpoints else {}
        found.append(method(show_progress=False).fit(each, (x, y), **more))
    ours, theirs = (one.attribute(x[:6]).double().numpy() for one in found)
    assert found[0].task_ == OneLogit(2)
    if name in EXACT:  # those that see the last layer as two rows
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    # Others have one row of gradients where the two classes have two, which counts the last layer twice.
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.9


def test_the_surrogate_is_the_binary_machine_of_scikit_learn(trained: tuple[One, Tensor, Tensor]) -> None:
    """2 w₁ minimises ½‖w‖² + 2C Σ hinge, on features that the constant follows."""
    model, x, y = trained
    explainer = dualda().fit(model, (x, y))
    f = explainer.fitted_.require_model().read(x, 64).features.double().numpy()
    F = np.hstack([f, np.full((N, 1), explainer.constant_)])
    binary = LinearSVC(loss="hinge", C=0.2, fit_intercept=False, tol=1e-9, max_iter=10**6, random_state=0)
    margins = binary.fit(F, y).decision_function(F)
    logits = explainer.surrogate_.logits(torch.from_numpy(f)).numpy()
    np.testing.assert_allclose(2 * logits[:, 1], margins, atol=1e-3)
    np.testing.assert_allclose(logits[:, 0], -logits[:, 1], atol=1e-9)
    scores = [explainer.attribute(x, target=c).double().sum(1) for c in (0, 1)]
    np.testing.assert_allclose(np.stack(scores, 1), logits, atol=1e-5)


@pytest.mark.parametrize("form", ["int", "float", "bool", "column"])
def test_labels_may_be_zeros_and_ones_of_any_kind(form: str, trained: tuple[One, Tensor, Tensor]) -> None:
    model, x, y = trained
    labels = {"int": y, "float": y.float(), "bool": y.bool(), "column": y.float()[:, None]}[form]
    explainer = dualda().fit(model, (x, labels), class_names=["no", "yes"])
    assert explainer.task_ == OneLogit(2, ("no", "yes"))
    assert explainer.labels_.tolist() == y.tolist()
    with torch.no_grad():
        said = (model(x) > 0).long()
    assert explainer.top_k(x).target.tolist() == said.tolist()
    why = explainer.explain(x[:3], truth=y[:3])
    assert [one.predicted for one in why] == said[:3].tolist()
    with torch.no_grad():
        chance = torch.sigmoid(model(x[:1])).item()
    assert why[0].probability == pytest.approx(max(chance, 1 - chance), abs=1e-6)
    assert "evidence for the target class" in why.to_html()


@pytest.mark.parametrize("layer", [None, "head"])
def test_a_probability_stands_for_its_logit(layer: str | None, trained: tuple[One, Tensor, Tensor]) -> None:
    model, x, y = trained
    ending, other = One(nn.Sigmoid()), One(nn.Softplus())
    ending.load_state_dict(model.state_dict())
    explainer = dualda().fit(ending, (x, y), layer=layer)
    plain = dualda().fit(model, (x, y))
    torch.testing.assert_close(explainer.attribute(x), plain.attribute(x))
    assert explainer.explain(x[:1])[0].probability == pytest.approx(plain.explain(x[:1])[0].probability)
    with pytest.raises(ModelError if layer is None else HeadError):
        dualda().fit(other, (x, y), layer=layer)


def test_it_is_saved_and_audited(tmp_path: Path, trained: tuple[One, Tensor, Tensor]) -> None:
    model, x, y = trained
    explainer = dualda().fit(model, (x, y))
    explainer.save(tmp_path / "it.whence")
    back = whence.load(tmp_path / "it.whence", model, (x, y))
    assert back.task_ == OneLogit(2)
    assert torch.equal(back.attribute(x), explainer.attribute(x))
    graddot = get("graddot")(show_progress=False).fit(model, (x, y))
    graddot.save(tmp_path / "gradients.whence")
    torch.testing.assert_close(
        whence.load(tmp_path / "gradients.whence", model).attribute(x[:3]), graddot.attribute(x[:3])
    )
    found, two = audit.wrong_labels(explainer), audit.wrong_labels(dualda().fit(Two(model), (x, y)))
    assert found.indices.tolist() == two.indices.tolist()


def test_a_head_with_one_row_may_be_given_with_features(trained: tuple[One, Tensor, Tensor]) -> None:
    model, x, y = trained
    plain = dualda().fit(model, (x, y))
    f = plain.fitted_.require_model().read(x, 64).features
    head = model.head.weight.detach().numpy(), model.head.bias.detach().numpy()
    for labels in (y, y.float()):
        bank = dualda().fit(features=FeatureBank.of(f, labels, head=head))
        assert bank.task_ == OneLogit(2)
        torch.testing.assert_close(bank.attribute(features=f), plain.attribute(x))


def test_what_is_wrong_is_said(trained: tuple[One, Tensor, Tensor]) -> None:
    model, x, y = trained
    with pytest.raises(SampleError, match=r"its label must be 0 or 1.*task=\"regression\""):
        dualda().fit(model, (x, y * 3))
    with pytest.raises(SampleError, match=r'it is 3.*task="regression"'):
        dualda().fit(model, (x, y.float() * 3), task="one-logit")
    with pytest.raises(ModelError, match=r"must give one logit.*gives 2 outputs.*task="):
        dualda().fit(Two(model), (x, y.float()))
    assert whence.features.extract(model, (x, y), show_progress=False).task == OneLogit(2)
    assert dualda().fit(Two(model), (x, y)).task_ == Classes(2)
