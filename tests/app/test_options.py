"""The options that commands share, as a user gives them."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.commands import NAMED, mistake, run, whole
from whence import engine
from whence.app.options import Fit, engine_at
from whence.attribution.base import Attributor
from whence.engine import Local
from whence.methods import DualDA
from whence.project import READING
from whence_studies.suite import results

PROTOCOL = """
title = "Mine"
[data]
name = "sample"
train = 40
test = 5
held_out = 10
[model]
name = "narrow-cnn"
steps = 5
[[methods]]
name = "dualda"
options = { C = 1e-3 }
[metrics]
lds = { subsets = 4, seeds = 1 }
"""


@pytest.mark.alone
def test_commands_give_the_same_wherever_they_work(place: Path) -> None:
    for where in ("local", "processes:2"):
        out = f"{where[:5]}.whence"
        run("fit", *NAMED, "--batch-size", "20", "--out", out, "--no-cache", "--engine", where)
    assert (place / "local.whence").read_bytes() == (place / "proce.whence").read_bytes()
    found = [run("audit", "local.whence", "--json", "--engine", where) for where in ("local", "processes:2")]
    assert found[0].stdout == found[1].stdout
    assert len(json.loads(found[0].stdout)["columns"]["index"]) == 90


@pytest.mark.alone
def test_an_evaluation_gives_the_same_in_processes(place: Path) -> None:
    (place / "mine.toml").write_text(PROTOCOL)
    found = []
    for where in ("local", "processes:2"):
        run("evaluate", "--protocol", "mine.toml", "--out", where[:5], "--engine", where)
        rows = results.read(place / where[:5] / "results.parquet").select("lds")
        assert all(row.quantity != "error" for row in rows)
        found.append([row for row in rows if not row.quantity.endswith("_seconds")])
    assert found[0] == found[1]
    assert {row.method for row in found[0]} >= {"random", "dualda(C=0.001)"}


def test_an_engine_of_ones_own_is_named(fitted: Path) -> None:
    (fitted / "counting.py").write_text(
        "from whence.engine import Local\n"
        "class Counting(Local):\n"
        "    seen = []\n"
        "    def run(self, function, items, threads):\n"
        "        self.seen.append(len(items))\n"
        "        yield from super().run(function, items, threads)\n"
    )
    run("audit", "x.whence", "--engine", "counting:Counting")
    shutil.rmtree("whence-cache")
    run("fit", "--config", "x.whence.json", "--out", "y.whence", "--engine", "counting:Counting")
    import counting  # type: ignore[import-not-found]

    assert counting.Counting.seen == [5, 2, 1]  # the folds of the audit, the batches of both sets
    assert isinstance(engine.base.find(None), Local)


def test_a_wrong_engine_is_told_before_any_work(place: Path) -> None:
    said = whole("fit", *NAMED, "--out", "x.whence", "--engine", "gpu")
    assert said.returncode == 2
    expected = (
        "Error: --engine must be one of local, processes, ray, or module:name of your own. Got 'gpu'.\n"
    )
    assert said.stderr == expected
    assert "Got 'processes:0': 'n' must be an integer" in str(
        mistake("evaluate", "--engine", "processes:0", "--dry-run")
    )
    assert "must name a module" in str(mistake("audit", "x.whence", "--engine", "nowhere:Engine"))


def test_an_address_is_that_of_a_ray_cluster(place: Path) -> None:
    assert engine_at("ray", "auto") == "ray:auto"
    assert engine_at("processes:2", None) == "processes:2"
    said = whole("evaluate", "--engine", "processes", "--address", "auto")
    assert said.returncode == 2
    assert said.stderr == "Error: --address must come with --engine ray. Got the engine processes.\n"


def test_options_of_a_fit_have_the_defaults_of_the_library() -> None:
    methods = [
        *inspect.signature(DualDA).parameters.values(),
        *inspect.signature(Attributor.fit).parameters.values(),
    ]
    defaults = {parameter.name: parameter.default for parameter in methods}
    for name in {*READING, *Fit.HYPERPARAMETERS, "layer", "device"} - {"cache_dir"}:
        assert getattr(Fit, name) == defaults[name], name
    assert set(READING) == {"cache_dir", "cache_key", "dtype", "autocast", "num_workers", "on_error"}
