"""Work on Ray: the same results as here, though a worker is killed in each kind of work."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import whence
from tests.engine.test_engine import running, trouble, until
from whence import engine
from whence.errors import DataWarning, InvalidInputError, WorkerError
from whence.features import FeatureBank
from whence.svm import CrammerSinger
from whence.tasks import Classes

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
HERE = int(os.environ.setdefault("WHENCE_TEST_PROCESS", str(os.getpid())))  # which workers know too
rng = np.random.default_rng(0)
Y = rng.integers(0, 3, 300)
X = (rng.normal(size=(3, 20))[Y] + rng.normal(size=(300, 20))).astype(np.float32)


def die_once(flag: Path) -> None:
    """Kill the worker that comes here first."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return
    assert os.getpid() != HERE
    os.kill(os.getpid(), signal.SIGKILL)


class Samples:
    """Pairs of arrays; where one of them is read first, its reader dies."""

    def __init__(self, flag: Path | None) -> None:
        self.flag = flag

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int):
        if index == 170 and self.flag is not None and os.getpid() != HERE:
            die_once(self.flag)
        return X[index], int(Y[index])


@dataclass(frozen=True)
class Fatal(CrammerSinger):
    """A problem whose third round kills its worker, once."""

    def descend(self, *arguments) -> int:
        folder = Path(os.environ["WHENCE_TEST_FOLDER"])
        calls = folder / f"calls-{os.getpid()}"
        with calls.open("a") as file:
            file.write(".")
        if calls.stat().st_size == 3:
            die_once(folder / "shard")
        return super().descend(*arguments)


class Doomed(Classes):
    """Classes of which such a problem is made."""

    name = "doomed"
    problem = Fatal


def square(folder: Path, item: int) -> tuple[int, int]:
    if item == 1:
        die_once(folder / "piece")
    return item**2, os.getpid()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Ray on this machine, with two workers and little memory; nothing of it is left."""
    folder = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHENCE_TEST_FOLDER", str(folder))
        import ray

        ray.init(
            address="local", num_cpus=2, object_store_memory=1 << 27, include_dashboard=False,
            log_to_driver=False, _node_ip_address="127.0.0.1",
        )  # fmt: skip
        try:
            assert ray.util.get_node_ip_address() == "127.0.0.1"
            yield folder
        finally:
            ray.shutdown()
    until(lambda: not any(_of(path, folder) for path in Path("/proc").glob("[0-9]*")))


def _of(process: Path, folder: Path) -> bool:
    """Whether a process was begun with this folder in its environment."""
    if int(process.name) == os.getpid() or not running(int(process.name)):
        return False
    try:
        return str(folder).encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))


@needs_ray
@pytest.mark.alone
def test_two_workers_of_which_one_is_killed_in_each_kind_of_work(cluster: Path, monkeypatch) -> None:
    """One test, since Ray and its workers take seconds to begin."""
    chosen = engine.Ray(n_shards=2)

    # Pieces: the one that was lost runs again elsewhere.
    found = engine.results(functools.partial(square, cluster), range(4), chosen, threads=1)
    assert [value for value, _ in found] == [0, 1, 4, 9]
    assert HERE not in {process for _, process in found}
    assert (cluster / "piece").exists()

    # Features: the same bits.
    options = {"batch_size": 32, "show_progress": False}
    bank = whence.features.extract(model(), Samples(None), **options)
    with engine.using(chosen):
        same = whence.features.extract(model(), Samples(cluster / "sample"), **options)
    assert (cluster / "sample").exists()
    np.testing.assert_array_equal(same.features, bank.features)
    np.testing.assert_array_equal(same.labels, bank.labels)

    # An explainer: a certified solution with the same W, and the same strongest samples of two shards.
    explain = functools.partial(whence.DualDA, C=0.01, tol=1e-8, show_progress=False, n_threads=1)
    here, tests = explain().fit(features=bank), bank.features[:200]
    expected = here.top_k(features=tests, k=5)
    with engine.using(chosen):
        there = explain().fit(features=FeatureBank.of(bank.features, bank.labels, task=Doomed(3)))
        found = there.top_k(features=tests, k=5, target=expected.target)
    assert (cluster / "shard").exists()
    assert there.gap_ <= 1e-8
    assert np.linalg.norm(there.coef_ - here.coef_) <= 1e-4 * np.linalg.norm(here.coef_)
    local = there.top_k(features=tests, k=5, target=expected.target)
    for side in (0, 1):
        assert torch.equal(found[side].indices, local[side].indices)
        torch.testing.assert_close(found[side].scores, local[side].scores)
        assert (found[side].indices == expected[side].indices).all(dim=1).float().mean() >= 0.99

    # Halves of the training set: the same bits.
    halves = here.stability(bank, halves=2).top_k(features=tests)
    with engine.using(engine.Ray()):
        again = here.stability(bank, halves=2).top_k(features=tests)
    assert torch.equal(again.proponents, halves.proponents)
    assert torch.equal(again.opponents, halves.opponents)

    # What goes wrong costs its piece alone; a piece that kills every worker is given up.
    monkeypatch.setattr("whence.engine.ray.RETRIES", 0)
    items = ["a", "kill", "fail", "warn", "lock", "b"]
    with pytest.warns(DataWarning, match="careful"):
        outcomes = {items[each.place]: each for each in engine.run(trouble, items, chosen, threads=1)}
    assert [outcomes[item].value for item in ("a", "b", "warn")] == ["A", "B", "WARN"]
    assert isinstance(outcomes["kill"].error, WorkerError)
    assert "its worker was lost" in str(outcomes["kill"].error)
    assert repr(outcomes["fail"].error) == "ValueError('bad luck')"
    assert "pickle" in str(outcomes["lock"].error)


def test_what_is_wrong_is_said(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InvalidInputError, match=r"needs Ray. Run: pip install 'whence\[ray\]'"):
        engine.Ray()
    monkeypatch.undo()
    pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.raises(InvalidInputError, match="'address' must be"):
        engine.Ray(3)
    with pytest.raises(InvalidInputError, match="'n_shards' must be an integer of at least 1"):
        engine.Ray(n_shards=0)
    assert (
        repr(engine.base.find("ray:127.0.0.1:6379"))
        == "Ray(address='127.0.0.1:6379', n_shards=None, gpus=0.0)"
    )
