"""Evaluations of a user's own data, network and training, and suites of protocols."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from whence.app import cli
from whence.core.cache import Cache
from whence.core.naming import import_named
from whence.errors import InvalidInputError, WhenceError
from whence.methods import DualDA
from whence_studies import view
from whence_studies.scenes import datasets
from whence_studies.scenes.workshop import Workshop
from whence_studies.suite import protocol, results
from whence_studies.suite.protocol import Protocol
from whence_studies.suite.run import run

MODULE = """
import torch
from torch import nn
from whence_studies import fixed_steps

def blobs(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    return torch.randn(n, 4, generator=generator) + 3 * torch.eye(4)[labels], labels

def data(folder):
    return {"train": blobs(60, 0), "test": blobs(40, 1), "class_names": ["a", "b", "c"]}

def network(n_classes):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, n_classes))

NUMBER = 3

def train(dataset, seed, steps):
    with open("trained.txt", "a") as file:
        print(len(dataset), seed, steps, file=file)
    model = network(int(dataset.labels.max()) + 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for inputs, labels in fixed_steps(dataset, steps, 16, seed):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model

def wrong_width():
    return nn.Linear(4, 7)

def no_network():
    return "network"

def other_weights(dataset, seed):
    return nn.Linear(4, 3)

def ragged():
    return {"train": ([torch.zeros(2), torch.zeros(3)], [0, 1]), "test": ([torch.zeros(2)], [0])}

def no_mapping():
    return blobs(10, 0)

def unnamed():
    return {"train": blobs(30, 0), "test": blobs(30, 1), "class_names": ["a"]}
"""

TABLES: dict[str, Any] = {
    "name": "own",
    "data": {"name": "own_things:data", "train": 45, "test": 9, "held_out": 15},
    "model": {"name": "own_things:network", "train": "own_things:train", "steps": 30},
    "methods": [{"name": "dualda", "options": {"C": 1e-2}}, {"name": "tracin"}],
    "metrics": {
        "identical_class": {},
        "mislabeling": {},
        "identical_subclass": {"groups": 2},
        "lds": {"subsets": 3, "tuning": 1, "seeds": 2, "steps": 10},
        "coreset": {"fractions": [0.5], "seeds": 1},
    },
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the module, from which it can be imported."""
    (tmp_path / "own_things.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_things", None)


def trainings() -> list[tuple[int, ...]]:
    """Samples, seed and steps of every training that there was."""
    return [tuple(map(int, line.split())) for line in Path("trained.txt").read_text().splitlines()]


def own(**model: Any) -> Protocol:
    return protocol.parse({**TABLES, "model": {**TABLES["model"], **model}})


def test_own_data_network_and_training_are_evaluated(place: Path) -> None:
    said: list[str] = []
    found = run(own(), place, place / "out", show_progress=False, say=said.append)
    # The user's function trained every model: of all samples, of halves, and of the coresets.
    trained = trainings()
    assert {(n, steps) for n, _, steps in trained} == {(45, 10), (45, 30), (22, 10), (22, 30)}
    assert {seed for n, seed, _ in trained if n == 22} == {1, 2}
    assert found.value("lds", "dualda(C=0.01)") is not None
    # A score by hand: the model that the user's own function gives, and DualDA outside of the evaluation.
    train, test = datasets.load("own_things:data", place, 45, 24, 0)
    assert train.class_names == ("a", "b", "c")
    assert np.bincount(train.labels).tolist() == [15, 15, 15]
    inputs, tests = (torch.stack([part[i][0] for i in range(len(part))]) for part in (train, test))
    tests = tests[datasets.draw(test.labels, 9, 0, "test")]
    labels = torch.from_numpy(train.labels)
    torch.manual_seed(0)
    model = import_named("model", "own_things:train")(view((inputs, labels)), 0, 30).eval()
    said_class = model(tests).argmax(1)
    scores = DualDA(C=1e-2, show_progress=False).fit(model, (inputs, labels))
    top = scores.attribute(tests, said_class).topk(5).indices
    by_hand = (labels[top] == said_class[:, None]).float().mean().item()
    assert found.value("identical_class", "dualda(C=0.01)") == pytest.approx(by_hand)
    # TracIn wants checkpoints, which such a function does not give: its cells say so, the rest is there.
    assert any("TracIn failed" in line and "checkpoint" in line for line in said)
    assert run(own(), place, place / "out", show_progress=False, say=said.append).rows
    assert trainings() == [*trained, (45, 0, 30)]  # everything was found again; the last one was by hand


def test_an_own_network_is_trained_by_the_recipe(place: Path) -> None:
    wanted = own(train="own_things:train")
    plain = protocol.parse({**TABLES, "model": {"name": "own_things:network", "steps": 30, "checkpoints": 2}})
    scenes = [
        Workshop(one, place, Cache(place / "out"), False).scene("identical_class") for one in (wanted, plain)
    ]
    assert len(scenes[1].trained.checkpoints) == 2
    assert scenes[0].trainer.config != scenes[1].trainer.config
    models = list(scenes[1].retrained([(np.arange(20), 0), (np.arange(20), 1)]))
    assert not torch.equal(models[0][0].weight, models[1][0].weight)  # type: ignore[index]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "own_things:wrong_width", "train": None}, r"with 3 logits per sample.*\(7,\)"),
        ({"name": "own_things:no_network"}, "must make a torch module. Got str"),
        ({"name": "own_things:NUMBER"}, "must be a function or a class"),
        ({"name": "own_things:absent"}, "has no 'absent'"),
        ({"name": "nowhere:network"}, "must name a module"),
        ({"train": "own_things:other_weights"}, r'Missing key.*"0.weight"'),
        ({"train": "own_things:no_network"}, "takes 0 positional"),
    ],
)
def test_mistakes_of_own_networks_are_told(place: Path, model: dict[str, Any], message: str) -> None:
    wanted = own(**model)
    with pytest.raises((InvalidInputError, TypeError), match=message):
        Workshop(wanted, place, Cache(place / "out"), False).scene("identical_class")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_things:ragged", "tensors of one shape"),
        ("own_things:no_mapping", "a mapping with train and test.*Got tuple"),
        ("own_things:unnamed", "must name 3 classes. Got 1"),
    ],
)
def test_mistakes_of_own_data_are_told(place: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        datasets.load(name, place, None, None, 0)


def test_names_that_are_neither_ours_nor_own_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"resnet8.*or module:name of your own. Got 'resnet9'"):
        own(name="resnet9")
    with pytest.raises(InvalidInputError, match=r"'model.train' must be module:name"):
        own(train="mine")
    with pytest.raises(InvalidInputError, match=r"mnist.*or module:name of your own"):
        protocol.parse({**TABLES, "data": {"name": ":data"}})


SUITE = """
title = "Both"
protocols = ["one.toml", "two.toml"]
[together.all]
title = "One and two"
protocols = ["one.toml", "two.toml"]
"""
ONE = """
[data]
name = "sample"
train = 60
test = 10
held_out = 20
[model]
name = "narrow-cnn"
steps = 5
[[methods]]
name = "similarity"
[metrics]
identical_class = {}
"""


def test_a_suite_runs_its_protocols_and_says_which_it_could_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("both.toml").write_text(SUITE, encoding="utf-8")
    Path("one.toml").write_text(ONE, encoding="utf-8")
    Path("two.toml").write_text(ONE.replace('"sample"', '"mnist"'), encoding="utf-8")
    done = CliRunner().invoke(cli.app, ["evaluate", "--protocol", "both.toml", "--data", ".", "--out", "out"])
    assert isinstance(done.exception, WhenceError)
    assert "failed" in str(done.exception)
    assert "two" in str(done.exception)
    assert "Put the four files" in done.output
    assert "all: no joint page yet. Results are missing for two." in done.output
    assert results.read("out/one/results.parquet").value("identical_class", "similarity") is not None
    Path("two.toml").write_text(ONE, encoding="utf-8")
    done = CliRunner().invoke(cli.app, ["evaluate", "--protocol", "both.toml", "--out", "out"])
    assert done.exit_code == 0, done.output
    pages = [Path(name) for name in ("one/index.html", "two/index.html", "all.html")]
    assert done.output.split()[-3:] == [str(tmp_path / "out" / page) for page in pages]
    assert "One and two" in Path("out/all.html").read_text(encoding="utf-8")


def test_a_metric_of_the_extended_protocol_is_left_out(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "tiny"\n[metrics]\nshortcut = false\n', encoding="utf-8")
    assert set(protocol.load("tiny").metrics) - set(protocol.load(mine).metrics) == {"shortcut"}


HALVES = """
import numpy as np
from whence_studies import Metric, subset

class Halves(Metric):
    name, scene = "halves", "halves"
    kept: int = 20

    def stage(self, given):
        return given.scene(subset(given.train, np.arange(self.kept)), given.test)

    def measure(self, case):
        return case.rows_of(self.name, np.array([case.scores.shape[1]], float))
"""


def test_a_metric_of_ones_own_makes_its_scene(place: Path) -> None:
    def measured() -> results.Results:
        metrics = {"own_halves:Halves": {"kept": 21}, "identical_class": {}}
        tables = {**TABLES, "methods": [{"name": "similarity"}], "metrics": metrics}
        return run(protocol.parse(tables), place, place / "out", show_progress=False, say=lambda _: None)

    (place / "own_halves.py").write_text(HALVES, encoding="utf-8")
    found = measured()
    assert found.value("halves", "similarity") == found.value("scene", "halves", "n_train") == 21
    assert found.value("scene", "clean", "n_train") == 45
    # The code of the scene is part of what its cells are kept under.
    (place / "own_halves.py").write_text(HALVES.replace("self.kept", "self.kept + 1"), encoding="utf-8")
    sys.modules.pop("own_halves")
    found = measured()
    sys.modules.pop("own_halves")
    assert found.value("halves", "similarity") == found.value("scene", "halves", "n_train") == 22
