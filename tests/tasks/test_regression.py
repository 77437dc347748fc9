"""Numbers as labels: exact sums in the user's units, the tube, the choice of C and ε, and the words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from sklearn.svm import LinearSVR
from torch import Tensor, nn

import whence
from whence.errors import DataWarning, InvalidInputError, ModelError, SampleError
from whence.features import FeatureBank
from whence.tasks import Classes, Regression

N, D = 200, 6


class Net(nn.Module):
    """One output per sample, (B,) or (B, 1), or several."""

    def __init__(self, K: int = 1, flat: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.flat = nn.Linear(4, D), nn.Linear(D, K), flat

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x).relu())
        return found[:, 0] if self.flat else found


def data(model: Net, noise: float = 0.1, n: int = N) -> tuple[Tensor, Tensor]:
    """Inputs and targets that the model predicts but for some noise."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y = model(x)
    return x, y + noise * y.std() * torch.randn(y.shape, generator=torch.Generator().manual_seed(2))


def dualda(**options: Any) -> whence.DualDA:
    return whence.DualDA(**{"metric": "raw", "C": 0.5, "tol": 1e-8, "show_progress": False, **options})


def in_units(model: Net, x: Tensor, y: Tensor, factor: float, offset: float) -> tuple[Net, Tensor]:
    """The same model and targets in other units."""
    other = Net(len(model.head.bias), model.flat)
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other.head.weight *= factor
        other.head.bias.copy_(factor * other.head.bias + offset)
    return other, factor * y + offset


@pytest.mark.parametrize("flat", [False, True])
def test_the_surrogate_is_the_one_of_scikit_learn_and_scores_sum_to_its_prediction(flat: bool) -> None:
    model = Net(flat=flat)
    x, y = data(model)
    explainer = dualda().fit(model, (x, y), task=Regression(epsilon=0.2))
    f = explainer.fitted_.require_model().read(x, 64).features.double().numpy()
    b, mean, deviation = explainer.constant_, float(y.double().mean()), float(y.double().std(correction=0))
    F, t = np.hstack([f, np.full((N, 1), b)]), (y.double().numpy().ravel() - mean) / deviation
    theirs = LinearSVR(epsilon=0.2, C=0.5, fit_intercept=False, tol=1e-9, max_iter=10**6, random_state=0)
    predicted = mean + deviation * theirs.fit(F, t).predict(F)
    np.testing.assert_allclose(explainer.predict(x).numpy(), predicted, atol=1e-3 * deviation)
    scores = explainer.attribute(x).double()
    np.testing.assert_allclose(scores.sum(1) + mean, explainer.predict(x), rtol=1e-5)
    assert explainer.predict(x).shape == (N,)
    assert explainer.task_.name == "regression"
    assert scores.shape == (N, N)


def test_samples_inside_the_tube_drop_out_and_those_outside_pull_their_way() -> None:
    model = Net()
    x, y = data(model, 0.5)
    explainer = dualda().fit(model, (x, y), task=Regression(epsilon=0.3))
    error = y[:, 0].double() - explainer.predict(x)
    width, lam = 0.3 * explainer.task_.scale[0], explainer.lam_.toarray()[:, 0]
    inside, above, below = error.abs() < 0.999 * width, error > 1.001 * width, error < -1.001 * width
    assert min(int(inside.sum()), int(above.sum()), int(below.sum())) > 10
    assert (lam[inside] == 0).all()
    np.testing.assert_allclose(lam[above], 0.5 * explainer.task_.scale[0])
    np.testing.assert_allclose(lam[below], -0.5 * explainer.task_.scale[0])


def test_other_units_give_the_same_in_these_units() -> None:
    model = Net()
    x, y = data(model)
    other, in_grams = in_units(model, x, y, 1000.0, -5e4)
    one, two = dualda(C="auto").fit(model, (x, y)), dualda(C="auto").fit(other, (x, in_grams))
    assert one.C_path_.epsilon == one.task_.epsilon == two.task_.epsilon
    assert pytest.approx(two.C_) == one.C_
    sums = [each.attribute(x[:9]).sum(1) for each in (one, two)]
    np.testing.assert_allclose(sums[1], 1000 * sums[0], rtol=1e-3, atol=1.0)
    # At a large C λ depends on how targets are rounded, W does not.
    one, two = dualda(C=0.02).fit(model, (x, y)), dualda(C=0.02).fit(other, (x, in_grams))
    np.testing.assert_allclose(two.attribute(x[:9]), 1000 * one.attribute(x[:9]), rtol=1e-2, atol=1.0)
    assert abs(len(one.support_) - len(two.support_)) <= 2


def test_several_outputs_are_each_solved_as_if_alone() -> None:
    model = Net(3)
    x, y = data(model)
    y = y * torch.tensor([1.0, 50.0, 0.01])
    bank = dualda().fit(model, (x, y), task=Regression(epsilon=0.1), class_names=["a", "b", "c"])
    f = bank.fitted_.require_model().read(x, 64).features
    for c in range(3):
        alone = dualda().fit(features=FeatureBank.of(f, y[:, c], task=Regression(epsilon=0.1)))
        together = bank.attribute(x[:5], target=c)
        np.testing.assert_allclose(
            alone.attribute(features=f[:5]), together, rtol=1e-2, atol=1e-3 * y[:, c].std()
        )
    with pytest.raises(InvalidInputError, match=r"'target' must name one of the 3 outputs\. Got None"):
        bank.attribute(x[:1])
    assert bank.predict(x).shape == (N, 3)


def test_C_and_epsilon_are_chosen_by_agreement_with_the_head() -> None:
    model = Net()
    x, y = data(model, 0.3, 600)
    explainer = dualda(C="auto", tol=1e-6).fit(model, (x, y))
    path = explainer.C_path_
    assert {point.epsilon for point in path.path} == {0.05, 0.1, 0.2, 0.4}
    shown = str(path)
    assert "R² with the model's outputs" in shown
    assert "rank correlation" in shown
    best = max(point.agreement for point in path.path)
    chosen = next(p for p in path.path if (p.C, p.epsilon) == (path.C, path.epsilon))
    assert chosen.agreement >= best - 0.01
    with torch.no_grad():
        truth = model(x)[:, 0]
    assert r2_score(truth, explainer.predict(x)) == pytest.approx(explainer.agreement_, abs=0.05)
    found = explainer.faithfulness(x)
    assert found.agreement == pytest.approx(r2_score(truth, explainer.predict(x)), abs=1e-6)
    assert found.mcc is None
    given = dualda(C=1.0).fit(model, (x, y))
    assert given.task_.epsilon == 0.1


@pytest.mark.parametrize("relative", [False, True])
def test_relevance_of_all_pairs_sums_to_that_of_the_prediction(relative: bool) -> None:
    model = Net()
    x, y = data(model, n=30)
    explainer = dualda().fit(model, (x, y))
    why = explainer.explain(x[:1], k=30, method="epsilon", relative=relative)[0]
    np.testing.assert_allclose(why.maps["test"].sum(0), why.logit_map, rtol=1e-3, atol=1e-4)
    assert why.total + why.base == pytest.approx(why.logit, rel=1e-5)
    # The paper's τ start from the mean target, scores relative to the mean from the mean prediction.
    start = explainer.predict(x).mean() if relative else y.mean()
    assert why.base == pytest.approx(float(start), rel=1e-5)
    assert why.sums["base"] + why.sums["features"] + why.sums["bias"] == pytest.approx(why.logit)


def test_pages_and_figures_have_the_words_of_numbers() -> None:
    model = Net()
    x, y = data(model)
    explainer = dualda().fit(model, (x, y), class_names=["<price>"])
    why = explainer.explain(x[:2], truth=y[:2])
    page = why.to_html()
    assert all(text in page for text in ("Pulls up “&lt;price&gt;”", "True value"))
    assert not any(text in page for text in ("evidence for", "<price>", "with probability", "≠"))
    figure = why.plot().findobj(match=lambda one: hasattr(one, "get_text"))
    assert "of the prediction: " in " ".join(text.get_text() for text in figure)
    assert why[0].to_dict()["verdict"]["predicted"] == f"{model(x[:1]).item():.4g}".replace("-", "−")


def test_it_is_saved_cached_and_asked_what_if(tmp_path: Path) -> None:
    model = Net(flat=True)
    x, y = data(model)
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    explainer = dualda(C="auto").fit(model, (x, y), **options)
    again = dualda(C="auto").fit(model, (x, y), **options)
    assert again.origins_["solution"] == "reused"
    assert again.task_ == explainer.task_
    explainer.save(tmp_path / "it.whence")
    back = whence.load(tmp_path / "it.whence", model, (x, y))
    assert back.task_ == explainer.task_
    assert torch.equal(back.attribute(x[:3]), explainer.attribute(x[:3]))
    assert torch.equal(back.predict(x[:3]), explainer.predict(x[:3]))
    f = explainer.fitted_.require_model().read(x, 64).features.numpy()
    answer = explainer.what_if(x[:5], remove=[0], relabel={1: float(y[1]) + 1.0}, training_features=f)
    other = answer.explainer
    assert other.skipped_.tolist() == [0]
    assert other.task_ == explainer.task_
    moved = (other.predict(x[:5]) - explainer.predict(x[:5])).tolist()
    table = answer.to_pandas()
    assert table["change"].tolist() == pytest.approx(sorted(moved, key=abs, reverse=True))
    assert list(table) == ["test", "before", "after", "change"]
    assert f"predictions for 5 tests change by {np.abs(moved).mean():.4g} on average" in str(answer)


def test_whole_numbers_for_one_output_suggest_a_regression() -> None:
    x, years = torch.randn(20, 3), torch.arange(20)
    model = nn.Linear(3, 1)
    for data in (
        {"model": model, "data": (x, years)},
        {"features": FeatureBank.of(x, years, head=(model.weight.detach(), model.bias.detach()))},
    ):
        with pytest.raises(
            SampleError, match=r'0 or 1, as the model has one output; it is 2.*task="regression"'
        ):
            whence.DualDA(show_progress=False).fit(**data)
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, years), task="regression")
    assert explainer.task_.name == "regression"


def test_what_is_wrong_is_said() -> None:
    model = Net()
    x, y = data(model)
    with pytest.warns(DataWarning, match="All training samples have the same target"):
        dualda().fit(model, (x, torch.ones(N) / 3))
    y[4] = torch.nan
    with pytest.raises(SampleError, match=r"Sample 4 .*its label must be finite"):
        dualda().fit(model, (x, y))
    with pytest.raises(InvalidInputError, match="'task' must have as many outputs as the model, 1 of layer"):
        dualda().fit(model, (x, torch.rand(N)), task=Regression(2))
    with pytest.raises(SampleError, match=r"its label must have shape \(3,\)"):
        dualda().fit(Net(3), (x, torch.rand(N)))
    with pytest.raises(InvalidInputError, match="'epsilon' must be"):
        Regression(epsilon=-1.0)
    with pytest.raises(ModelError):  # of numbers the values count
        dualda().fit(nn.Sequential(model, nn.Softplus()), (x, torch.rand(N)), layer="0.head")
    assert dualda().fit(Net(2), (x, torch.arange(N) % 2)).task_ == Classes(2)


def test_numbers_keep_the_length_of_features_by_default() -> None:
    model = Net()
    x, y = data(model)
    explainer = whence.DualDA(C=0.5, show_progress=False).fit(model, (x, y))
    features = explainer.fitted_.require_model().read(x, 64).features
    np.testing.assert_allclose(explainer.metric_(features), features - features.mean(0), atol=1e-5)
    x, y = torch.randn(20, 6), torch.arange(20) % 2
    assert whence.DualDA(C=0.5, show_progress=False).fit(nn.Linear(6, 2), (x, y)).metric_.unit
