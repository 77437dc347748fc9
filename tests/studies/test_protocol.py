"""Protocols of evaluations: what they may say, how they are run, resumed and shown."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tools.sample import to_idx
from torch import nn

from whence.core.cache import Cache
from whence.errors import InvalidInputError, StoreError
from whence.methods import GradDot
from whence_studies.report import charts, page, summary
from whence_studies.scenes import datasets, networks
from whence_studies.scenes.training import Recipe, Trainer
from whence_studies.scenes.views import View
from whence_studies.scenes.workshop import Workshop
from whence_studies.suite import costs, protocol, results, run
from whence_studies.suite.case import Case
from whence_studies.suite.metrics.coreset import CoresetSelection
from whence_studies.suite.results import ERROR, Results, Row, loss_of

TABLES: dict[str, Any] = {
    "name": "small",
    "data": {"name": "sample", "train": 60, "test": 10, "held_out": 30},
    "model": {"name": "narrow-cnn", "steps": 12, "checkpoints": 2, "batch_size": 16},
    "methods": [
        {"name": "dualda", "label": "Dual <b>1</b>", "options": {"C": 1e-3}},
        {"name": "dualda", "label": "Dual tuned", "tune": {"C": [1e-4, 1e-2]}},
        {"name": "representer"},
        {"name": "graddot"},
    ],
    "metrics": {
        "identical_class": {},
        "identical_subclass": {},
        "mislabeling": {},
        "shortcut": {"shares": [0.5], "class": 2},
        "lds": {"subsets": 4, "tuning": 3, "seeds": 2},
        "sparsity": {},
        "faithfulness": {},
        "surrogate": {},
        "coreset": {"fractions": [0.5], "seeds": 2},
        "pruning": {"fractions": [0.5], "seeds": 1},
    },
    "sweep": {"method": "dualda", "option": "C", "values": [1e-6, 1e-3, 1.0]},
}


def stacked(samples: View) -> torch.Tensor:
    """The inputs of all samples."""
    return torch.stack([samples[i][0] for i in range(len(samples))])


def changed(**over: Any) -> dict[str, Any]:
    """The small protocol with other tables."""
    return {**json.loads(json.dumps(TABLES)), **over}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """The small protocol, run once."""
    out = tmp_path_factory.mktemp("evaluation")
    return out, run.run(protocol.parse(TABLES), Path(), out, show_progress=False)


@pytest.mark.parametrize("name", protocol.names())
def test_packaged_protocols_are_valid(name: str) -> None:
    for found in map(protocol.load, protocol.suite(name).protocols):
        assert found.methods[0].name == "random"
        assert sum(item.seconds for item in costs.plan(found)) > 0
        assert json.dumps(found.as_dict())


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (changed(methods=[{"name": "duelda"}]), "arnoldi, dualda, effects, ekfac"),
        (changed(methods=[{"name": "dualda", "options": {"D": 1}}]), "C, bias, tol"),
        (changed(methods=[{"name": "dualda"}, {"name": "dualda"}]), "more than once"),
        (changed(metrics={"identical_clas": {}}), "identical_class, identical_subclass"),
        (changed(metrics={"lds": {"subset": 3}}), "subsets"),
        (changed(metrics={"lds": {"train": 0}}), "at least 1"),
        (changed(metrics={"identical_class": {}}), "tuning"),
        (changed(metrics={"shortcut": {"kind": "frames"}}), "'frame', 'box', 'both' or 'word'"),
        (changed(data={"name": "mnst"}), "bbc-news, cifar-10"),
        (changed(model={"name": "cnnn", "steps": 3}), "narrow-cnn"),
        (changed(model={"name": "cnn"}), "model.steps"),
        (changed(sizes={}), "threads"),
    ],
)
def test_what_is_unknown_is_refused_with_what_is_known(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        protocol.parse(tables)


def test_a_protocol_adds_methods_to_those_of_another(tmp_path: Path) -> None:
    path = tmp_path / "more.toml"
    further = '[[further_methods]]\nname = "similarity"\nlabel = "Near"\noptions = { metric = "l2" }\n'
    path.write_text('extends = "tiny"\n' + further, encoding="utf-8")
    both, one = protocol.load(path), protocol.load("tiny")
    assert {m.key for m in both.methods} - {m.key for m in one.methods} == {"similarity(metric=l2)"}
    assert len(both.methods) == len(one.methods) + 1


def test_a_protocol_extends_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "tiny"\n[data]\ntrain = 77\n', encoding="utf-8")
    mine, tiny = protocol.load(path), protocol.load("tiny")
    assert (mine.name, mine.data.train, mine.data.test) == ("mine", 77, tiny.data.test)
    assert mine.methods == tiny.methods
    path.write_text("[data\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="valid TOML"):
        protocol.load(path)
    with pytest.raises(InvalidInputError, match=r"one of .*quick.*'nowhere'"):
        protocol.load("nowhere")


def test_original_formats_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "mnist").mkdir()
    images, labels = rng.integers(0, 256, (30, 28, 28), np.uint8), np.repeat(np.arange(10, dtype=np.uint8), 3)
    for split in ("train", "t10k"):
        (tmp_path / "mnist" / f"{split}-images-idx3-ubyte.gz").write_bytes(to_idx(images))
        (tmp_path / "mnist" / f"{split}-labels-idx1-ubyte.gz").write_bytes(to_idx(labels))
    train, test = datasets.load("mnist", tmp_path, None, 10, 0)
    np.testing.assert_allclose(stacked(train)[:, 0], images / 255, rtol=1e-6)
    assert sorted(test.labels) == list(range(10))
    (tmp_path / "cifar-10").mkdir()
    records = rng.integers(0, 10, (4, 3073), np.uint8)
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        records.tofile(tmp_path / "cifar-10" / f"{name}.bin")
    train, test = datasets.load("cifar-10", tmp_path, None, None, 0)
    assert stacked(train).shape == (20, 3, 32, 32)
    expected = (records[1, 1 + 1024] / 255 - 0.482) / 0.243  # the first green pixel of the second record
    assert stacked(test)[1, 1, 0, 0] == pytest.approx(expected, rel=1e-5)
    (tmp_path / "bbc-news").mkdir()
    with (tmp_path / "bbc-news" / "bbc-news.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("label", "text"), *((f"t{i % 2}", f"text {i}") for i in range(10))])
    train, test = datasets.load("bbc-news", tmp_path, 4, 2, 0)
    texts = [{part[i][0] for i in range(len(part))} for part in (train, test)]
    assert not texts[0] & texts[1]
    assert (np.bincount(train.labels).tolist(), train.class_names) == ([2, 2], ("t0", "t1"))


def test_folders_of_images_are_read(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cat", 0), ("dog", 255)):
        (tmp_path / "awa2" / name).mkdir(parents=True)
        for i in range(5):
            image.new("RGB", (300, 250), (colour,) * 3).save(tmp_path / "awa2" / name / f"{i}.png")
    train, _ = datasets.load("awa2", tmp_path, 4, None, 0)
    images = stacked(train)
    assert images.shape == (4, 3, 224, 224)
    assert images[train.labels == 1].amin() == pytest.approx((1 - 0.485) / 0.229, rel=1e-5)


@pytest.mark.parametrize("name", [name for name in datasets.SOURCES.names() if name != "sample"])
def test_missing_data_say_how_to_get_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=rf"{name}.*Put .*http.*--data"):
        datasets.load(name, tmp_path, None, None, 0)


@pytest.mark.parametrize("name", ["cnn", "narrow-cnn", "resnet8", "resnet18"])
def test_networks_take_images(name: str) -> None:
    inputs = torch.rand(2, 1, 28, 28)
    model = networks.find(name).build(inputs, 4).eval()
    assert networks.logits(model, inputs).shape == (2, 4)


def test_training_is_seeded_and_takes_its_steps() -> None:
    inputs, labels = torch.rand(30, 1, 28, 28), torch.arange(30) % 3
    recipe = Recipe(name="narrow-cnn", steps=5, batch_size=8)
    trainer = Trainer(recipe, inputs, 3)
    first, again = (trainer.train(inputs, labels, 1, n_checkpoints=2) for _ in range(2))
    other = trainer.train(inputs, labels, 2)
    assert len(first.checkpoints) == len(first.learning_rates) == 2
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
        assert torch.equal(tensor, first.checkpoints[-1][name])
    assert not torch.equal(first.model.head.weight, other.model.head.weight)  # type: ignore[union-attr]
    longer = Trainer(recipe.model_copy(update={"steps": 6}), inputs, 3).train(inputs[:8], labels[:8], 1).model
    assert longer.head.weight.shape == (3, 32)  # type: ignore[union-attr]


def test_models_that_are_read_again_are_as_they_were_trained(tmp_path: Path) -> None:
    small = protocol.parse(changed(model={"name": "resnet8", "steps": 2, "checkpoints": 2, "batch_size": 16}))
    first, again = (
        Workshop(small, Path(), Cache(tmp_path), False).scene("identical_class").trained for _ in range(2)
    )
    assert first.learning_rates == again.learning_rates
    pairs = zip(
        [first.model.state_dict(), *first.checkpoints],
        [again.model.state_dict(), *again.checkpoints],
        strict=True,
    )
    for one, other in pairs:
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            assert tensor.shape == other[name].shape, name
            assert torch.equal(tensor, other[name]), name


def test_scores_are_those_of_the_definition(finished: tuple[Path, Results]) -> None:
    """Identical class by a loop over scores that are computed anew, with the saved model."""
    out, found = finished
    small = protocol.parse(TABLES)
    scene = Workshop(small, Path(), Cache(out / "cache"), False).scene("identical_class")
    scores = GradDot(show_progress=False).fit(scene.trained.model, scene.data).attribute(scene.tests)
    hits = 0.0
    for row, c in zip(scores, scene.explained, strict=True):
        hits += sum(scene.train.labels[i] == c for i in torch.argsort(row, descending=True)[:5].tolist()) / 5
    assert found.value("identical_class", "graddot") == pytest.approx(hits / len(scene.tests))
    each = [row.value for row in found.select("identical_class", "graddot", "each")]
    assert np.mean(each) == pytest.approx(hits / len(scene.tests))


def test_every_table_has_random_and_every_cell(finished: tuple[Path, Results]) -> None:
    _, found = finished
    shown = summary.ResultSummary(found)
    assert next(method.name for method, _ in shown.table()) == "random"
    for _, cells in shown.table():
        for column, cell in zip(shown.columns, cells, strict=True):
            assert cell.value is not None or (column.metric == "shortcut" and "fooled 0%" in cell.note)
    assert not found.select(quantity=ERROR)
    swept = {row.method for row in found.select("surrogate", quantity="C")}
    assert {"dualda(C=1e-06)", "dualda(C=0.001)", "dualda(C=1.0)"} <= swept
    sparse = [row for row in found.select("faithfulness", quantity="mcc") if "sparsified" in row.method]
    assert len(sparse) == 1
    assert found.value("lds", "target", "reliability_ceiling") is not None


def test_sparsified_representer_points_are_named_by_all_options_of_dualda(tmp_path: Path) -> None:
    duals = [{"C": 1e-3}, {"C": 1e-3, "metric": "unit"}, {"C": 1e-3, "bias": False}]
    methods = [{"name": "dualda", "label": f"Dual {i}", "options": each} for i, each in enumerate(duals)]
    tables = changed(methods=[*methods, {"name": "representer"}], metrics={"faithfulness": {}})
    found = run.run(protocol.parse({**tables, "sweep": {}}), Path(), tmp_path, show_progress=False)
    named = [row.method for row in found.select("faithfulness", quantity="mcc") if "sparsified" in row.method]
    assert sorted(named) == [
        "representer sparsified as dualda(C=0.001)",
        "representer sparsified as dualda(C=0.001, bias=False)",
        "representer sparsified as dualda(C=0.001, metric=unit)",
    ]


def test_single_values_are_kept_and_the_sweep_is_retrained_too(finished: tuple[Path, Results]) -> None:
    _, found = finished
    for key in ("random", "graddot", "dualda(C=1e-06)", "dualda(C=1.0)"):
        losses = [found.select("coreset", key, loss_of(seed))[0].value for seed in (0, 1)]
        assert np.mean(losses) == pytest.approx(found.select("coreset", key, "loss")[0].value)  # type: ignore[arg-type]
        assert found.value("pruning", key) is not None
        wrong = [row.value for row in found.select("mislabeling", key, "each")]
        assert len(wrong) == 6  # a tenth of 60
        assert np.mean(wrong) == pytest.approx(found.value("mislabeling", key))  # type: ignore[arg-type]


def test_methods_that_choose_the_same_samples_share_models() -> None:
    class Recorder:
        workshop = SimpleNamespace(seed=0)
        held_out = torch.rand(5, 3), np.array([0, 1, 0, 1, 0])

        def retrained(self, parts: list[tuple[Any, int]]) -> Iterator[nn.Module]:
            self.parts = parts
            return iter([nn.Linear(3, 2)] * len(parts))

    asked = []
    for importance in ([4.0, 3.0, 2.0, 1.0], [3.0, 4.0, 1.0, 2.0]):
        recorder = Recorder()
        case = Case(recorder, SimpleNamespace(key="a", kind=GradDot, by_value=False), {})  # type: ignore[arg-type]
        vars(case)["scores"] = np.array([importance])
        CoresetSelection(fractions=[0.5], seeds=1).measure(case)
        asked.append([part.tolist() for part, _ in recorder.parts])
    assert asked == [[[0, 1]], [[0, 1]]]


def test_tuning_never_sees_the_subsets_that_are_scored(finished: tuple[Path, Results]) -> None:
    _, found = finished
    scores = {row.note: row.value for row in found.select("tuning", quantity="score")}
    chosen = found.select("tuning", quantity="chosen")[0]
    assert chosen.value == max(value for value in scores.values() if value is not None)
    assert scores[chosen.note] == chosen.value
    assert set(scores) == {'{"C": 0.0001}', '{"C": 0.01}'}


def test_a_finished_run_is_not_run_again(
    finished: tuple[Path, Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, found = finished

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("trained or built again")

    monkeypatch.setattr("whence_studies.scenes.training.train", never)
    monkeypatch.setattr(Workshop, "scene", never)
    assert run.run(protocol.parse(TABLES), Path(), out, show_progress=False).rows == found.rows


def test_a_method_that_fails_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = changed(methods=TABLES["methods"][:1] + TABLES["methods"][3:], sweep={})
    tables["metrics"] = {"identical_class": {}, "mislabeling": {}}
    small, said = protocol.parse(tables), list[str]()

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no <memory>")

    with monkeypatch.context() as patched:
        patched.setattr(GradDot, "fit", fails)
        found = run.run(small, Path(), tmp_path, show_progress=False, say=said.append)
    assert [row.note for row in found.select("mislabeling", "graddot")] == ["RuntimeError: no <memory>"]
    assert found.value("identical_class", "dualda(C=0.001)") is not None
    failures = [line for line in said if "failed" in line]
    assert len(failures) == 2
    assert failures[0].startswith("GradDot failed at identical_class")
    html = page.render_page(found)
    assert 'class="failed"' in html
    assert "no &lt;memory&gt;" in html
    again = run.run(small, Path(), tmp_path, show_progress=False)
    assert again.value("mislabeling", "graddot") is not None


def test_runs_repeat(finished: tuple[Path, Results], tmp_path: Path) -> None:
    _, found = finished
    tables = changed(sweep={})
    tables["metrics"] = {name: TABLES["metrics"][name] for name in ("lds", "coreset", "shortcut")}
    again = run.run(protocol.parse(tables), Path(), tmp_path, show_progress=False)
    for row in again.select(quantity="score"):
        if row.metric != "tuning":
            assert found.value(row.metric, row.method) == row.value, row


def test_results_come_back_as_they_were(finished: tuple[Path, Results], tmp_path: Path) -> None:
    out, found = finished
    assert results.read(out / "results.parquet") == Results(
        found.rows, json.loads(json.dumps(found.protocol)), found.versions
    )
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(StoreError, match="holds no results"):
        results.read(tmp_path / "bad.parquet")
    with pytest.raises(InvalidInputError, match="run whence evaluate"):
        results.read(tmp_path / "none.parquet")


def test_the_papers_numbers_stand_beside_ours(finished: tuple[Path, Results]) -> None:
    _, found = finished
    mnist = dataclasses.replace(found, protocol={**found.protocol, "data": {"name": "mnist"}})
    html = page.render_page(mnist)
    assert "86.1" not in html
    method = protocol.parse(TABLES).methods[1]
    shares = [k / 10 for k in range(1, 10)]
    coreset, pruning = (summary.paper()[metric]["mnist"] for metric in ("coreset", "pruning"))
    found_there = [summary.printed(coreset, method, share) for share in shares]
    np.testing.assert_allclose(
        found_there, [0.9824, 0.9841, 0.9856, 0.9874, 0.9875, 0.9868, 0.9868, 0.9889, 0.9873], rtol=1e-12
    )
    # Of pruning the paper prints what is kept, and nothing between its steps of 10 %.
    kept = [summary.printed(pruning, method, share) for share in (0.9, 0.1)]
    np.testing.assert_allclose(kept, [0.9871, 0.9774], rtol=1e-12)
    assert summary.printed(coreset, method, 0.25) is None
    assert "98.8" in html  # DualDA at C = 0.001, half of the samples kept
    ranks = next(one for one in summary.ResultSummary(mnist).statements() if one["id"] == "rank")
    assert ranks["theirs"] == 4


def test_ranks_and_ties_by_hand() -> None:
    methods = [
        {"name": n, "label": n, "options": {}, "tune": {}, "sweep": False} for n in ("random", "a", "b")
    ]
    rows = [Row("identical_class", n, "score", None, v) for n, v in (("random", 0.1), ("a", 0.9), ("b", 0.9))]
    for name, values in (("random", [0.0, 0.2]), ("a", [0.8, 1.0]), ("b", [1.0, 0.8])):
        rows += [Row("identical_class", name, "each", i, v) for i, v in enumerate(values)]
    rows += [Row("mislabeling", n, "score", None, v) for n, v in (("random", 0.5), ("a", 0.7))]
    config = {"methods": methods, "metrics": {"identical_class": {}, "mislabeling": {}}, "data": "sample"}
    found = summary.ResultSummary(Results(tuple(rows), config, {}))
    assert found.ranks == {"random": (2.5, 2), "a": (1.25, 2), "b": (1.5, 1)}
    cells = {method.name: cells[0] for method, cells in found.table()}
    assert (cells["a"].best, cells["b"].best, cells["random"].best, cells["random"].tied) == (
        True,
        True,
        False,
        False,
    )


def test_axes_hold_their_values() -> None:
    for values in ([0.3, 0.31], [-2.0, 5.0], [7.0], [0.0]):
        axis = charts.linear(values)
        assert axis.low <= min(values) <= max(values) <= axis.high
        assert 2 <= len(axis.marks) <= 7
    axis = charts.powers([2e-9, 50.0])
    assert (axis.low, axis.high) == (pytest.approx(1e-9), pytest.approx(100.0))
    assert axis.place(1e-9) == pytest.approx(0.0)
    assert charts.number(-0.5) == "−0.5"
