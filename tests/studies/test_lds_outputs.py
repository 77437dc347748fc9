"""LDS with logits and log-probabilities, and for several explained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import spearmanr

from whence import engine
from whence.core.cache import Cache
from whence.errors import InvalidInputError
from whence.methods import GradDot
from whence_studies import compare_lds, lds, lds_reliability, random_subsets
from whence_studies.report.summary import ResultSummary
from whence_studies.scenes import networks
from whence_studies.scenes.workshop import Workshop
from whence_studies.suite import costs, protocol, run
from whence_studies.suite.results import ERROR, Results

BOTH, MODELS, SUBSETS, TUNING, SEEDS, TESTS = ["logit", "log_prob"], 2, 8, 3, 2, 8


class ByOutput(GradDot):
    """Scores of another sign where log-probabilities are asked for."""

    def __init__(self, output: str = "logit", seed: int = 0, show_progress: bool = False) -> None:
        super().__init__(seed=seed, show_progress=show_progress)
        self.output = output

    def attribute(self, x: Any, target: Any = None) -> Any:
        return super().attribute(x, target) * (-1 if self.output == "log_prob" else 1)


def tables(**options: Any) -> dict[str, Any]:
    """A small protocol with LDS alone."""
    sizes = {"subsets": SUBSETS, "tuning": TUNING, "seeds": SEEDS}
    return {
        "name": "predicted",
        "data": {"name": "sample", "train": 40, "test": TESTS, "held_out": 10},
        "model": {"name": "narrow-cnn", "steps": 15, "checkpoints": 1, "batch_size": 16},
        "methods": [
            {"name": "graddot"},
            {"name": "dualda", "label": "tuned", "tune": {"C": [1e-4, 1e-2]}},
            {
                "name": f"{__name__}:ByOutput",
                "label": "by output",
                "by_output": {"log_prob": {"output": "log_prob"}},
            },
        ],
        "metrics": {"lds": {**sizes, **options}},
    }


def made(given: dict[str, Any], out: Path) -> Results:
    return run.run(protocol.parse(given), Path(), out, show_progress=False, say=lambda _: None)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("predicted")


@pytest.fixture(scope="module")
def found(out: Path) -> Results:
    """Both outputs for two explained models."""
    return made(tables(outputs=BOTH, models=MODELS), out)


def outputs_of(out: Path, model: int) -> tuple[Any, Any, dict[str, Any]]:
    """Scene of an explained model, the subsets, and outputs (m, T) of the retrained networks, made here."""
    shop = Workshop(protocol.parse(tables(outputs=BOTH, models=MODELS)), Path(), Cache(out / "cache"), False)
    scene = shop.scene("lds").explaining(model)
    subsets = random_subsets(40, TUNING + SUBSETS, 0.5, 0)
    logits = np.array(
        [
            networks.logits(network, scene.tests).double().numpy()
            for network in scene.retrained(
                [(np.flatnonzero(row), s) for s in range(SEEDS) for row in subsets]
            )
        ]
    ).reshape(SEEDS, len(subsets), TESTS, -1)
    own = np.arange(TESTS), scene.explained
    both = {"lds": logits, "lds_log_prob": log_softmax(logits, axis=-1)}
    return scene, subsets, {name: values[:, :, *own].mean(axis=0) for name, values in both.items()}


def test_every_output_is_compared_with_its_own_truth_on_every_model(out: Path, found: Results) -> None:
    means = dict[str, list[float]](lds=[], lds_log_prob=[])
    for model in range(MODELS):
        scene, subsets, outputs = outputs_of(out, model)
        method = GradDot(seed=1_000 * model, show_progress=False)
        scores = method.fit(scene.trained.model, scene.data).attribute(scene.tests)
        sums = scores.double().numpy() @ subsets[TUNING:].T
        for metric, values in outputs.items():
            rhos = [spearmanr(sums[t], values[TUNING:, t]).statistic for t in range(TESTS)]
            rows = found.select(metric, "graddot", "each")
            own = [row.value for row in rows if row.note == f"explained model {model}"]
            np.testing.assert_allclose(own, rhos, atol=1e-9)
            means[metric].append(float(np.mean(rhos)))
            by_model = {row.x: row.value for row in found.select(metric, "graddot", "model")}
            assert by_model[model] == pytest.approx(np.mean(rhos), abs=1e-9)
    for metric, values in means.items():
        assert found.value(metric, "graddot") == pytest.approx(np.mean(values), abs=1e-9)
    assert means["lds"] != means["lds_log_prob"]


def test_explained_models_differ_by_their_seed_alone(out: Path) -> None:
    first, second = (outputs_of(out, model)[0] for model in range(MODELS))
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.tests, second.tests)
    assert not torch.equal(first.trained.model.head.weight, second.trained.model.head.weight)
    assert first.explaining(1) is first.explaining(1)
    assert first.explaining(1).made is first.made


def test_a_method_can_have_options_for_an_output(found: Results) -> None:
    key = f"{__name__}:ByOutput(log_prob: output=log_prob)"
    assert found.value("lds", key) == pytest.approx(found.value("lds", "graddot"))
    other = found.value("lds_log_prob", "graddot")
    assert other is not None
    assert found.value("lds_log_prob", key) == pytest.approx(-other)
    assert not found.select(quantity=ERROR)
    with pytest.raises(InvalidInputError, match=r"must be among .*output"):
        protocol.parse({**tables(), "methods": [{"name": "graddot", "by_output": {"logit": {"output": 1}}}]})
    with pytest.raises(InvalidInputError, match="'logit' or 'log_prob'"):
        protocol.parse(tables(outputs=["loss"]))


def test_what_methods_cost_is_told_per_output_and_model(found: Results) -> None:
    for metric in ("lds", "lds_log_prob"):
        for name in ("fit_seconds", "explain_seconds", "cpu_seconds"):
            rows = found.select(metric, "graddot", name)
            assert [row.x for row in rows] == [0, 1]
            assert all(row.value is not None and row.value >= 0 for row in rows)
    shown = ResultSummary(found)
    method = next(m for m in shown.methods if m.name == "graddot")
    assert shown.seconds(method) == found.select("lds", "graddot", "cpu_seconds")[0].value


def test_the_default_has_the_rows_of_a_single_model_and_logits(out: Path, found: Results) -> None:
    single = made(tables(), out)
    assert {row.metric for row in single.rows} == {"lds", "resources", "scene", "tuning"}
    assert [column.title for column in ResultSummary(single).columns] == ["LDS"]
    each = single.select("lds", "graddot", "each")
    assert [row.x for row in each] == list(range(TESTS))
    first = [row for row in found.select("lds", "graddot", "each") if row.note == "explained model 0"]
    assert [row.value for row in each] == [row.value for row in first]
    assert {row.note for row in each} == {""}
    assert "explained model" not in ResultSummary(single).judged()[0][0]


def test_the_plan_counts_explained_models_and_fits() -> None:
    one, several = (protocol.parse(tables(**o)) for o in ({}, {"outputs": BOTH, "models": 3}))
    trained = [costs.scene_item(each, ["lds"]).times for each in (one, several)]
    assert trained == [1 + (SUBSETS + TUNING) * SEEDS, 3 + (SUBSETS + TUNING) * SEEDS]
    fits = {method.label: several.metrics["lds"].fittings(method) for method in several.methods}
    assert (fits["GradDot"], fits["by output"]) == (3, 6)


def test_networks_are_retrained_on_the_engine_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tables(subsets=3, tuning=0, seeds=1)
    given["methods"] = []
    seen = []

    class Counting(engine.Local):
        def run(self, function: Any, items: list[Any], threads: int | None) -> Any:
            seen.append(len(items))
            return super().run(function, items, threads)

    with engine.using(Counting()):
        made(given, tmp_path)
    assert 3 in seen


def test_explained_models_are_drawn_too() -> None:
    """Scores that are right for one of two models alone have a mean that depends on which is drawn."""
    rng = np.random.default_rng(0)
    subsets = random_subsets(30, 40)
    truth = rng.standard_normal((2, 6, 30))
    outputs = np.einsum("mn,ktn->kmt", subsets, truth)[:, None]  # (models, seeds, m, T)
    half = np.stack([truth[0], rng.standard_normal((6, 30))])
    compared = compare_lds({"half": half, "right": truth}, subsets, outputs, draws=400)
    each = [lds(half[k], subsets, outputs[k]).mean() for k in range(2)]
    np.testing.assert_allclose(compared.mean, [np.mean(each), 1])
    # Both models are the same one in half of the draws, so that the interval reaches from one to the other.
    assert compared.high[0] == pytest.approx(1)
    assert compared.low[0] < each[1] + 0.1
    assert compared.ties[0, 1]
    again = compare_lds({"a": half[0]}, subsets, outputs[0], draws=50, seed=3)
    alone = compare_lds({"a": half[:1]}, subsets, outputs[:1], draws=50, seed=3)
    np.testing.assert_array_equal([again.mean, again.low, again.high], [alone.mean, alone.low, alone.high])


def test_the_reliability_is_over_the_tests_of_all_models() -> None:
    rng = np.random.default_rng(1)
    subsets, outputs = random_subsets(20, 12), rng.standard_normal((3, 2, 12, 4))
    scores = rng.standard_normal((3, 4, 20))
    found = compare_lds({"a": scores}, subsets, outputs, draws=5).reliability
    expected = lds_reliability(np.concatenate(list(outputs), axis=-1))
    assert found == expected
    with pytest.raises(InvalidInputError, match=r"scores\['a'\]' must have shape \(3, any, any\)"):
        compare_lds({"a": scores[:2]}, subsets, outputs)
