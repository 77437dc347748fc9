"""A task and a problem of a user's own: numbers as labels, one or several, by the machine of absolute errors.

Nothing of it is known to whence but that it is registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from sklearn.svm import LinearSVR
from torch import Tensor, nn

import whence
from tests.helpers.boxed import Boxed
from tests.helpers.lazy import Samples
from tests.helpers.registered import forgetting
from whence import audit
from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.data import as_training_set
from whence.errors import InvalidInputError, ModelError, SampleError, StoreError
from whence.features import FeatureBank, extract
from whence.methods import get, names
from whence.project import Project
from whence.svm import Problem
from whence.svm.problem import joined
from whence.tasks import Classes, Task
from whence.tasks.task import label_array, refuse_sample

N, D = 60, 5


@dataclass(frozen=True)
class Absolute(Boxed):
    """min_W ½‖W‖² + C Σ_ic |w_c·f_i − y_ic|, with λ_ic in [−C, C]."""

    @property
    def box(self) -> tuple[Doubles, Doubles]:
        ends = np.full(self.wanted.shape, self.C)
        return -ends, ends

    def loss(self, scores: Doubles, wanted: Doubles) -> tuple[float, float, float]:
        errors = scores - wanted
        return float(np.abs(errors).sum()), float((np.sign(errors) * scores).sum()), 0.0

    @property
    def strata(self) -> Ints:
        return np.zeros(len(self.wanted), np.int64)

    def compare(
        self, parts: Iterable[tuple[Doubles, Doubles | None]], rows: Ints
    ) -> tuple[float, float | None]:
        """R² of the scores, and their correlation."""
        scores, theirs = joined(parts)
        truth = self.wanted[rows] if theirs is None else theirs
        explained = 1 - ((scores - truth) ** 2).sum() / ((truth - truth.mean(0)) ** 2).sum()
        alike = None if theirs is None else float(np.corrcoef(scores.ravel(), theirs.ravel())[0, 1])
        return max(0.0, float(explained)), alike


@dataclass(frozen=True)
class Numbers(Task):
    """A number per output: (N,) for one output, (N, K) for several; NaN where a sample could not be read."""

    name: ClassVar[str] = "numbers"
    problem: ClassVar[type[Problem]] = Absolute
    outputs: ClassVar[str] = "numbers"
    factor: float = 1.0

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Doubles:
        array = label_array(labels)
        if array.dtype.kind not in "iuf":
            raise InvalidInputError(f"'data' must give numbers as labels. Got dtype {array.dtype}.")
        wrong = ~np.isfinite(array).reshape(len(array), -1).all(1)
        refuse_sample(wrong, indices, lambda i: "its label is not finite", "Fix it.")
        return self.factor * array.astype(np.float64)

    def blank(self, n: int) -> Doubles:
        return np.full((n,) if self.n_outputs < 2 else (n, self.n_outputs), np.nan)

    def known(self, labels: Array) -> Mask:
        return np.asarray(~np.isnan(labels.reshape(len(labels), -1)).any(1))

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0] if self.n_outputs == 1 else outputs


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with forgetting():
        whence.register(Numbers)
        yield


def net(K: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, D), nn.ReLU(), nn.Linear(D, K))


def inputs(n: int = N, seed: int = 1) -> Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))


def numbers(model: nn.Module, x: Tensor) -> Tensor:
    """What the model says, and some noise: a model that was trained well."""
    noise = 0.05 * torch.randn(len(x), 1, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found: Tensor = model(x) + noise
    return found[:, 0] if found.shape[1] == 1 else found


def features(model: nn.Sequential, x: Tensor) -> Doubles:
    with torch.no_grad():
        return model[:-1](x).double().numpy()


def dualda(**options: Any) -> whence.DualDA:
    return whence.DualDA(**{"metric": "raw", "C": 1.0, "show_progress": False, **options})


@pytest.mark.parametrize("form", ["arrays", "samples", "features"])
@pytest.mark.parametrize("task", ["numbers", Numbers, Numbers()])
def test_it_reaches_the_optimum_that_scikit_learn_finds(form: str, task: Any) -> None:
    model, x = net(), inputs()
    y, f = numbers(model, x), features(model, x)
    if form == "features":
        bank = FeatureBank.of(f, y, task=Numbers())
        explainer = dualda(bias=False, tol=1e-7).fit(features=bank)
    else:
        data = (x, y) if form == "arrays" else list(zip(x, y, strict=True))
        explainer = dualda(bias=False, tol=1e-7).fit(model, data, task=task)
    np.testing.assert_array_equal(explainer.labels_, y.double())
    machine = LinearSVR(epsilon=0, C=1.0, fit_intercept=False, tol=1e-10, max_iter=5_000_000, random_state=0)
    w = machine.fit(f, y.double()).coef_
    np.testing.assert_allclose(explainer.coef_[0], w, atol=2e-3)
    ours, theirs = (0.5 * v @ v + np.abs(f @ v - y.double().numpy()).sum() for v in (explainer.coef_[0], w))
    assert ours <= theirs * (1 + 1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_scores_sum_to_the_surrogates_output(bias: bool) -> None:
    model, x, tests = net(2), inputs(), inputs(7, 3)
    explainer = dualda(bias=bias).fit(model, (x, numbers(model, x)), task="numbers")
    outputs = explainer.predict(tests)
    f, lam, b = features(model, tests), explainer.lam_.toarray(), explainer.constant_
    for c in range(2):
        scores = explainer.attribute(tests, target=c)
        np.testing.assert_allclose(scores.sum(1), outputs[:, c], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            scores, (f @ features(model, x).T + b**2) * lam[:, c], rtol=1e-4, atol=1e-6
        )
        moved = explainer.attribute(tests, target=c, relative=True)
        for each, relative in ((scores, False), (moved, True)):
            best = explainer.top_k(tests, 3, target=c, relative=relative).proponents
            np.testing.assert_allclose(best.scores, each.clamp(min=0).topk(3).values)
    strength = np.abs(lam).sum(1) * ((features(model, x) ** 2).sum(1) + b**2)
    np.testing.assert_allclose(explainer.self_influence(), strength, rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidInputError, match="'target' must name one of the 2 numbers"):
        explainer.attribute(tests)
    with pytest.raises(InvalidInputError, match=r"'target' must lie in \[0, 2\), the model's numbers. Got 2"):
        explainer.attribute(tests, target=2)


def test_C_is_chosen_by_agreement_with_the_model() -> None:
    model, x = net(), inputs(400)
    y = numbers(model, x)
    explainer = dualda(C="auto").fit(model, (x, y), task="numbers")
    with torch.no_grad():
        whole = r2_score(model(x)[:, 0], explainer.predict(x))
    assert explainer.agreement_ == pytest.approx(whole, abs=0.02)  # on a tenth of the samples
    assert whole > 0.95


def test_a_sample_that_cannot_be_read_has_no_part() -> None:
    model, x = net(), inputs()
    y = numbers(model, x)
    some = dualda().fit(model, Samples(x, y, (5,)), task="numbers", on_error="skip")
    rest = np.delete(np.arange(N), 5)
    fewer = dualda().fit(model, (x[rest], y[rest]), task="numbers")
    assert some.skipped_.tolist() == np.flatnonzero(~some.used_).tolist() == [5]
    assert np.isnan(some.labels_[5])
    assert (some.attribute(x)[:, 5] == 0).all()
    np.testing.assert_allclose(some.coef_, fewer.coef_, atol=1e-4)


def test_it_is_saved_and_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, tests = net(), inputs(), inputs(4, 3)
    y = numbers(model, x)
    data = Samples(x, y, (5,))
    explainer = dualda().fit(model, data, task=Numbers(factor=2.0), on_error="skip", class_names=["price"])
    explainer.save(tmp_path / "numbers.whence")
    back = whence.load(tmp_path / "numbers.whence", model, Samples(x, y))
    assert back.task_ == explainer.task_ == Numbers(1, ("price",), 2.0)
    np.testing.assert_array_equal(back.labels_, explainer.labels_)
    assert torch.equal(back.attribute(tests), explainer.attribute(tests))
    assert (
        back.explain(tests[:1], k=2)[0].proponents[0].index
        == explainer.top_k(tests[:1]).proponents.indices[0, 0]
    )
    with pytest.raises(InvalidInputError, match="59 of 60 samples have other labels: sample 0 has"):
        whence.load(tmp_path / "numbers.whence", model, (x, y + 1))
    monkeypatch.setattr(Numbers, "name", "renamed")
    explainer.save(tmp_path / "renamed.whence")
    with pytest.raises(StoreError, match="task 'renamed', which is not registered"):
        whence.load(tmp_path / "renamed.whence")


def test_an_explanation_has_maps_and_a_page() -> None:
    model, x, tests = net(), inputs(), inputs(2, 3)
    explainer = dualda().fit(model, (x, numbers(model, x)), task="numbers")
    why = explainer.explain(tests, k=3)
    outputs = explainer.predict(tests)
    for one, output in zip(why, outputs.tolist(), strict=True):
        assert one.logit == pytest.approx(output, rel=1e-5)
        assert one.pairs[0].label == explainer.labels_[one.pairs[0].index]
        assert (one.target, one.probability) == (0, None)
        assert one.to_dict()["proponents"][0]["label"] == one.proponents[0].label
    assert why.maps[0]["test"].shape == (len(why[0].pairs), 4)
    concepts = explainer.explain_concepts(tests[:1])[0]
    assert concepts.score == pytest.approx(float(explainer.attribute(tests[:1])[0, concepts.index]), rel=1e-4)
    assert "Pulls up “0”" in why.to_html()
    assert [len(figure().axes) > 0 for figure in (why.plot, why[0].plot, concepts.plot)] == [True] * 3
    true = explainer.explain(tests, truth=[0.25, -3])
    assert [one.verdict.truth for one in true] == ["0.25", "−3"]
    with pytest.raises(InvalidInputError, match=r"'truth' must be numbers per test, for 2 tests"):
        explainer.explain(tests, truth=[0.25])


def test_what_if_solves_it_again_with_other_numbers() -> None:
    model, x = net(), inputs()
    y, f = numbers(model, x), features(model, x)
    explainer = dualda(tol=1e-7).fit(features=FeatureBank.of(f, y, task=Numbers()))
    other = explainer.what_if(remove=[0, 1], relabel={3: 0.25}, training_features=f).explainer
    changed = y.clone()
    changed[3] = 0.25
    fresh = dualda(tol=1e-7).fit(features=FeatureBank.of(f[2:], changed[2:], task=Numbers()))
    assert other.skipped_.tolist() == [0, 1]
    np.testing.assert_allclose(other.coef_[:, :D], fresh.coef_[:, :D], atol=1e-2)
    for wrong in ("high", None, float("nan")):
        with pytest.raises(InvalidInputError, match=r"'relabel' must give numbers. Got .* for sample 3"):
            explainer.what_if(relabel={3: wrong}, training_features=f)


OPENED = """
from tests.tasks.test_own_task import inputs, net, numbers
model = net()
data = inputs(), numbers(model, inputs())
"""


def test_what_can_do_classes_only_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = net(), inputs()
    y = numbers(model, x)
    bank = extract(model, (x, y), task=Numbers(), show_progress=False)
    with pytest.raises(InvalidInputError, match="'by' must be \"whole\" for regression"):
        whence.OneClass(show_progress=False).fit(features=bank)
    for name in set(names()) - {"dualda", "random", "ensemble", "one-class"}:
        method: Any = get(name)
        more = {"checkpoints": [model.state_dict()]} if method.capabilities.needs_checkpoints else {}
        for given in ({"model": model, "data": (x, y), "task": "numbers"}, {"features": bank}):
            with pytest.raises(InvalidInputError, match=f"The model of {method.__name__} must have classes"):
                method(show_progress=False).fit(**given, **more)
    explainer = dualda().fit(model, (x, y), task="numbers")
    for ask in (audit.wrong_labels, audit.class_view, lambda e: audit.coreset(e, x)):
        with pytest.raises(InvalidInputError, match="must have classes"):
            ask(explainer)
    explainer.save(tmp_path / "numbers.whence")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fitted.py").write_text(OPENED)
    with pytest.raises(InvalidInputError, match="'numbers' must say how outputs compare"):
        explainer.faithfulness(x)
    opened = Project.open(tmp_path / "numbers.whence", model="fitted:model", data="fitted:data")
    assert opened.attributor.task_ == explainer.task_
    with pytest.raises(InvalidInputError, match="The model of Effects must have classes"):
        opened.with_effects()
    with pytest.raises(InvalidInputError, match="The model of GradDot must have classes"):
        get("graddot")(show_progress=False).fit(model, as_training_set((x, y), task=Numbers()))
    assert get("random")(show_progress=False).fit(model, (x, y), task="numbers").attribute(x).shape == (N, N)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "number",
            "'task' must be one of classes, many-labels, numbers, one-logit, regression, tokens, or module",
        ),
        (3, r"'task' must be None, .* or a task such as whence.tasks.Classes\(\)\. Got 3"),
        (int, "'task' must be None, to find it by the labels"),
        (Numbers(3), "'task' must have as many outputs as the model, 1 of layer '2'. Got 3"),
    ],
)
def test_other_tasks_are_refused(task: Any, message: str) -> None:
    model, x = net(), inputs()
    with pytest.raises(InvalidInputError, match=message):
        dualda().fit(model, (x, numbers(model, x)), task=task)


def test_it_is_chosen_where_samples_are_first_read() -> None:
    model, x = net(), inputs()
    y = numbers(model, x)
    samples = as_training_set((x, y), task=Numbers())
    bank = extract(model, samples, show_progress=False)
    assert dualda().fit(features=bank).task_ == dualda().fit(model, samples).task_ == Numbers(1)
    for source in ({"model": model, "data": samples}, {"features": bank}):
        with pytest.raises(InvalidInputError, match="'task'"):
            dualda().fit(**source, task="numbers")
    assert as_training_set((x, y), task="numbers").task == Numbers()
    assert extract(model, (x, y), task=Numbers, show_progress=False).task == Numbers(1)


def test_labels_that_do_not_fit_are_refused() -> None:
    model, x = net(2), inputs()
    y = numbers(model, x)
    with pytest.raises(SampleError, match=r"Sample 0 .*its label must have shape \(2,\); it has \(\)"):
        dualda().fit(model, (x, y[:, 0]), task="numbers")
    with pytest.raises(InvalidInputError, match=r"'labels' must be 60, one per row\. Got 59"):
        dualda().fit(features=FeatureBank.of(x, y[1:], task=Numbers()))
    with pytest.raises(SampleError, match=r"Sample 0 .*its label must have shape \(2,\); it has \(\)"):
        dualda().fit(features=FeatureBank.of(x, y[:, 0], task=Numbers(2)))
    y[3] = torch.inf
    with pytest.raises(SampleError, match=r"Sample 3 .*not finite"):
        dualda().fit(model, (x, y), task="numbers")
    with pytest.raises(InvalidInputError, match="must give integer labels"):
        dualda().fit(net(2), (x, torch.zeros(N)), task="classes")


def test_a_named_layer_must_have_the_outputs_own_values() -> None:
    """Classes need but the order; of numbers the values count."""
    model, x = nn.Sequential(*net(2), nn.Softplus()), inputs()
    labels = torch.arange(N) % 2
    assert dualda().fit(model, (x, labels), layer="2").task_ == Classes(2)
    with pytest.raises(ModelError):
        dualda().fit(model, (x, numbers(model, x)), layer="2", task="numbers")
