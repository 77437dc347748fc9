"""Many labels: a binary machine per label, solved together; the labels that are on are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC
from torch import Tensor, nn

import whence
from whence import audit
from whence.errors import DataWarning, InvalidInputError, SampleError
from whence.tasks import ManyLabels

N, D, NAMES = 120, 6, ("even", "<loop>", "large")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, D), nn.ReLU(), nn.Linear(D, 3))


def data(model: nn.Module) -> tuple[Tensor, Tensor]:
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        z = model(x)
        model[2].bias -= z.median(0).values  # type: ignore[index, union-attr]
        z = model(x)
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(2))
    return x, (z + 0.05 * noise > 0).float()


def dualda(**options: Any) -> whence.DualDA:
    return whence.DualDA(**{"metric": "raw", "C": 1.0, "tol": 1e-8, "show_progress": False, **options})


@pytest.fixture(scope="module")
def fitted() -> tuple[whence.DualDA, nn.Module, Tensor, Tensor]:
    model = net()
    x, y = data(model)
    return dualda().fit(model, (x, y), class_names=NAMES), model, x, y


def test_each_label_is_the_binary_machine_of_scikit_learn(fitted: Any) -> None:
    explainer, _, x, y = fitted
    assert explainer.task_ == ManyLabels(3, NAMES)
    f = explainer.fitted_.require_model().read(x, 64).features.double().numpy()
    F = np.hstack([f, np.full((N, 1), explainer.constant_)])
    logits = explainer.surrogate_.logits(torch.from_numpy(f)).numpy()
    for c in range(3):
        binary = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=1e-9, max_iter=10**7, random_state=0)
        np.testing.assert_allclose(logits[:, c], binary.fit(F, y[:, c]).decision_function(F), atol=1e-2)
        scores = explainer.attribute(x, target=c).double()
        np.testing.assert_allclose(scores.sum(1), logits[:, c], atol=1e-5)
        own = explainer.lam_.toarray()[:, c]
        assert (own * (2 * y[:, c].numpy() - 1) >= 0).all()
    assert explainer.predict(x).tolist() == (logits > 0).astype(int).tolist()


def test_the_label_that_is_on_most_surely_is_explained(fitted: Any) -> None:
    explainer, model, x, _ = fitted
    with torch.no_grad():
        first = model(x).argmax(1)
    assert explainer.top_k(x).target.tolist() == first.tolist()
    torch.testing.assert_close(explainer.attribute(x), explainer.attribute(x, target=first))
    assert explainer.attribute(x, sparse=True).shape == (N, N)


def test_the_page_names_the_labels_that_are_on(fitted: Any) -> None:
    explainer, model, x, y = fitted
    why = explainer.explain(x[:3], truth=y[:3], target=1)
    page = why.to_html()
    assert "&lt;loop&gt;" in page
    assert "<loop>" not in page
    with torch.no_grad():
        z = model(x[:1])[0]
    named = ", ".join(name for name, one in zip(NAMES, z, strict=True) if one > 0) or "no label"
    assert why[0].verdict.predicted == named
    assert why[0].probability == pytest.approx(torch.sigmoid(z[1]).item(), abs=1e-6)
    for pair in why[0].pairs:
        assert pair.differs == (y[pair.index, 1] == 0)
        assert pair.label_text == (
            ", ".join(n for n, one in zip(NAMES, y[pair.index], strict=True) if one) or "no label"
        )


def test_it_is_chosen_saved_and_asked_what_if(tmp_path: Path, fitted: Any) -> None:
    _, model, x, y = fitted
    explainer = dualda(C="auto", tol=1e-6).fit(model, (x, y), cache_dir=tmp_path / "cache")
    assert "agreement with the model's labels" in str(explainer.C_path_)
    assert explainer.agreement_ is not None
    found = explainer.faithfulness(x)
    with torch.no_grad():
        on = model(x) > 0
    assert found.agreement == pytest.approx(
        float((explainer.predict(x).bool() == on).float().mean()), abs=1e-6
    )
    explainer.save(tmp_path / "it.whence")
    back = whence.load(tmp_path / "it.whence", model, (x, y))
    assert torch.equal(back.attribute(x), explainer.attribute(x))
    f = explainer.fitted_.require_model().read(x, 64).features.numpy()
    other = explainer.what_if(relabel={0: [1, 1, 1]}, remove=[2], training_features=f).explainer
    assert other.labels_[:3].tolist() == [[1, 1, 1], y[1].int().tolist(), [-1, -1, -1]]
    with pytest.raises(InvalidInputError, match="'relabel' must give 3 zeros and ones"):
        explainer.what_if(relabel={0: 1}, training_features=f)


def test_what_is_wrong_is_said(fitted: Any) -> None:
    explainer, model, x, y = fitted
    with pytest.raises(InvalidInputError, match=r"exactly one 1 per sample.*labels.argmax.*many-labels"):
        dualda().fit(model, (x, torch.eye(3)[torch.arange(N) % 3]))
    assert dualda().fit(
        model, (x, torch.eye(3)[torch.arange(N) % 3]), task="many-labels"
    ).task_ == ManyLabels(3)
    with pytest.raises(SampleError, match=r"Sample 0 .*its label must have shape \(3,\); it has \(2,\)"):
        dualda().fit(model, (x, y[:, :2].contiguous()))
    with pytest.raises(SampleError, match=r"Sample 5 .*zeros and ones; they are \[0.5"):
        dualda().fit(model, (x, torch.where(torch.arange(N)[:, None] == 5, 0.5, y)), task=ManyLabels)
    with pytest.warns(DataWarning, match="No training sample differs in the label large"):
        dualda().fit(model, (x, y * torch.tensor([1.0, 1.0, 0.0])), class_names=NAMES)
    with pytest.raises(InvalidInputError, match=r"'target' must lie in \[0, 3\), the model's labels"):
        explainer.attribute(x, target=3)
    for ask in (audit.wrong_labels, audit.class_view):
        with pytest.raises(InvalidInputError, match=r"must have classes.*'many-labels'"):
            ask(explainer)
