"""A method, a metric, a rule, a data source and a network of a user's, in one file of theirs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.registered import forgetting
from whence.app import cli
from whence.core.cache import Cache
from whence.errors import InvalidInputError
from whence_studies.suite import protocol, results

MODULE = '''
import torch
from torch import nn

import whence
from whence.methods import Similarity
from whence_studies import Column, Metric, Network, Source
from whence.relevance import SharingRule
from whence.relevance.primitives import stab


@whence.register
class Opposite(Similarity):
    """Similar samples contradict a class."""

    name = "opposite"

    def score_tests(self, fitted, tests):
        return -super().score_tests(fitted, tests)


class Sparser(whence.DualDA):
    """A surrogate of its own name, which nobody has registered."""

    name = "sparser"


@whence.register
class Negative(Metric):
    """Share of the scores that are below a value."""

    name = "negative"
    columns = (Column("Below <zero>", "share of the scores", rising=False),)
    below: float = 0.0

    def measure(self, case):
        return case.rows_of(self.name, (case.scores < self.below).mean(axis=1))


@whence.register
class Gamma(SharingRule):
    """Positive weights count for more."""

    name = "own_gamma"

    def back(self, layer, c, z, x, epsilon):
        weight = layer.weight + 0.25 * layer.weight.clamp(min=0)
        return layer.transpose(c * z / stab(layer.apply(x, weight, layer.bias), epsilon), weight)


def blobs(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    return torch.randn(n, 4, generator=generator) + 3 * torch.eye(4)[labels], labels


def read(seed):
    return {"train": blobs(60, seed), "test": blobs(40, seed + 1), "class_names": ["a", "b"]}


BLOBS = whence.register(Source("blobs", read))


def make(inputs, n_classes):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs.shape[1], 8), nn.ReLU(), nn.Linear(8, n_classes))


SMALL = whence.register(Network("small", make, seconds=1e-5))


def train():
    return blobs(60, 0)


def test():
    return blobs(10, 1)


def build():
    return make(blobs(1, 0)[0], 2)
'''

PROTOCOL = """
[data]
name = "own_parts:BLOBS"
train = 40
test = 8
held_out = 10
[model]
name = "own_parts:SMALL"
steps = 20
[[methods]]
name = "own_parts:Opposite"
[[methods]]
name = "similarity"
[metrics]
identical_class = {}
"own_parts:Negative" = { below = -0.5 }
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the module and the protocol, in which the command line is used."""
    (tmp_path / "own_parts.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(PROTOCOL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with forgetting():
        yield tmp_path
    sys.modules.pop("own_parts", None)


def whence(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return done.output


def test_own_parts_are_evaluated(place: Path) -> None:
    said = whence("evaluate", "--protocol", "mine.toml", "--out", "out")
    assert "Opposite" in said
    assert "Below <zero>" in said
    found = results.read("out/results.parquet")
    ours, theirs = "similarity", "own_parts:Opposite"
    low = found.select("negative", theirs, "each")
    assert len(low) == 8
    assert found.value("negative", theirs) == pytest.approx(sum(row.value or 0 for row in low) / 8)
    assert found.value("negative", ours) != found.value("negative", theirs)
    html = Path("out/index.html").read_text(encoding="utf-8")
    assert "Below &lt;zero&gt;" in html
    assert "<zero>" not in html
    # The code of one's own is part of what a cell is kept under.
    before = len(Cache("out/cache").entries())
    whence("evaluate", "--protocol", "mine.toml", "--out", "out")
    assert len(Cache("out/cache").entries()) == before
    Path("own_parts.py").write_text(MODULE.replace("< self.below", "<= self.below"), encoding="utf-8")
    sys.modules.pop("own_parts")
    whence("evaluate", "--protocol", "mine.toml", "--out", "out")
    cells = [entry for entry in Cache("out/cache").entries() if entry.kind == "cell"]
    assert len(Cache("out/cache").entries()) == before + 3  # of random, opposite and similarity
    # So is that of one's own data; a metric that fails says so in its column.
    changed = MODULE.replace("seed + 1", "seed + 2").replace("(case.scores <", "(case.wrong <")
    Path("own_parts.py").write_text(changed, encoding="utf-8")
    sys.modules.pop("own_parts")
    said = whence("evaluate", "--protocol", "mine.toml", "--out", "out")
    assert "Opposite failed at negative" in said
    assert sum("failed " in line for line in said.splitlines() if " at " not in line) == 3
    again = [entry for entry in Cache("out/cache").entries() if entry.kind == "cell"]
    assert len(again) == len(cells) + 4  # identical class of three methods, and the scene


def test_registered_parts_go_by_their_names(place: Path) -> None:
    pytest.importorskip("own_parts")
    text = PROTOCOL.replace("own_parts:BLOBS", "blobs").replace("own_parts:SMALL", "small")
    text = text.replace("own_parts:Opposite", "opposite").replace('"own_parts:Negative"', "negative")
    Path("named.toml").write_text(text, encoding="utf-8")
    said = whence("evaluate", "--protocol", "named.toml", "--out", "out", "--dry-run")
    assert "negative: methods" in said
    found = protocol.load("named.toml")
    assert protocol.parse(json.loads(json.dumps(found.as_dict()))) == found
    Path("wrong.toml").write_text(text.replace("below = -0.5", "above = 1"), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"keys of metrics.negative must be among .*below.* 'above'"):
        protocol.load("wrong.toml")
    Path("wrong.toml").write_text(text.replace("negative =", '"own_parts:make" ='), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"must name a metric\. Got 'own_parts:make'"):
        protocol.load("wrong.toml")


def test_an_own_rule_explains(place: Path) -> None:
    fit = ("fit", "--model", "own_parts:build", "--data", "own_parts:train", "--test", "own_parts:test")
    whence(*fit, "--out", "x.whence", "--no-cache")
    opened = ("explain", "x.whence", "--trust", "--tests", "0", "-k", "1")
    for name in ("own_parts:Gamma", "own_gamma"):
        whence(*opened, "--out", name.rpartition(":")[-1], "--rules", name)
    assert Path("Gamma/index.html").is_file()
    assert Path("own_gamma/index.html").is_file()


def test_an_own_method_is_fitted_and_attributes(place: Path) -> None:
    fit = ("fit", "--model", "own_parts:build", "--data", "own_parts:train", "--test", "own_parts:test")
    found = {}
    for name in ("own_parts:Opposite", "similarity"):
        said = whence(*fit, "--method", name, "--batch-size", "20", "--out", "x.whence", "--no-cache")
        assert "Method       " in said
        opened = ("attribute", "x.whence", "--trust", "--tests", "0-3", "--json")
        found[name] = json.loads(whence(*opened))
    for theirs, ours in zip(found["own_parts:Opposite"], found["similarity"], strict=True):
        assert theirs["predicted"] == ours["predicted"]
        strongest = [
            [one["index"] for one in test[side]]
            for test, side in ((theirs, "opponents"), (ours, "proponents"))
        ]
        assert strongest[0] == strongest[1] != []
    said = CliRunner().invoke(cli.app, ["explain", *opened[1:5], "--out", "why"]).exception
    assert "It holds a Similarity: 'whence attribute' names its training samples" in str(said)


def test_an_own_method_needs_trust_and_has_its_own_options(place: Path) -> None:
    fit = ("fit", "--model", "own_parts:build", "--data", "own_parts:train", "--test", "own_parts:test")
    whence(*fit, "--method", "own_parts:Sparser", "--C", "0.1", "--out", "x.whence", "--no-cache")
    opened = ["attribute", "x.whence", "--tests", "0"]
    named = ["--model", "own_parts:build", "--data", "own_parts:train", "--test", "own_parts:test"]
    error = CliRunner().invoke(cli.app, [*opened, *named]).exception
    assert "names code that would be imported and run: method own_parts:Sparser" in str(error)
    whence(*opened, *named, "--method", "own_parts:Sparser")
    whence("explain", *opened[1:], "--trust", "--out", "why")
    whence("fit", "--config", "x.whence.json", "--trust", "--out", "again.whence")
    assert Path("x.whence").read_bytes() == Path("again.whence").read_bytes()
    error = CliRunner().invoke(cli.app, [*fit, "--method", "similarity", "--C", "1", "--out", "y"]).exception
    assert "'C' must be left out: Similarity has no such option" in str(error)
    error = CliRunner().invoke(cli.app, [*fit, "--method", "own_parts:blobs", "--out", "y"]).exception
    assert "'method' must name an attribution method. Got 'own_parts:blobs'" in str(error)
    error = CliRunner().invoke(cli.app, [*fit, "--method", "magic", "--out", "y"]).exception
    assert "'method' must be one of " in str(error)
