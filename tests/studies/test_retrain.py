"""Retraining: models are trained once, survive a kill, and one failure loses no other."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from whence.core.cache import Cache
from whence.engine import Processes
from whence.errors import InvalidInputError, StoreError, WhenceError
from whence_studies import flip_labels, subset
from whence_studies.scenes.loops import fixed_steps, predict
from whence_studies.scenes.retrain import RetrainingWarning, code_fingerprint, retrain
from whence_studies.scenes.weights import load_weights, save_weights

torch.manual_seed(0)
Y = torch.arange(60) % 3
X = torch.randn(3, 4)[Y] + 0.5 * torch.randn(60, 4)
DATA = (X, Y)


def architecture() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def train(dataset, seed):
    """Few steps, noted in a file that the environment names; a seed of 13 fails, 666 kills its process."""
    if "TRAININGS" in os.environ:
        with open(os.environ["TRAININGS"], "a") as file:
            file.write(f"{seed}\n")
    time.sleep(float(os.environ.get("SECONDS", 0)))
    if seed == 13:
        raise ValueError("bad luck")
    if seed == 666:
        os.kill(os.getpid(), signal.SIGKILL)
    model = architecture()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for inputs, labels in fixed_steps(dataset, 10, 16, seed):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model


@pytest.fixture
def notes(tmp_path, monkeypatch):
    path = tmp_path / "trainings"
    path.touch()
    monkeypatch.setenv("TRAININGS", str(path))
    return lambda: [int(line) for line in path.read_text().split()]


retrain_quietly = functools.partial(retrain, show_progress=False)


def test_models_are_trained_once(tmp_path, notes) -> None:
    jobs = [(DATA, 0), (DATA, 1), (flip_labels(DATA, 0.2), 0), (DATA, 0)]
    runs = retrain_quietly(train, jobs, architecture(), tmp_path / "cache")
    assert notes() == [0, 1, 0]
    assert not any(run.cached for run in runs)
    again = retrain_quietly(train, jobs, architecture(), tmp_path / "cache")
    assert notes() == [0, 1, 0]
    assert all(run.cached for run in again)
    assert [run.seconds for run in again] == [run.seconds for run in runs]
    for run, (data, seed) in zip(again, jobs, strict=True):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            expected = train(data, seed).eval()
        found = run.model()
        assert not found.training
        torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)
        torch.testing.assert_close(found(X), expected(X))
    assert again[0].path == again[3].path
    assert len({run.path for run in again}) == 3
    entries = Cache(tmp_path / "cache").entries()
    assert [(entry.kind, entry.complete) for entry in entries] == [("model", True)] * 3
    assert "model trained with seed 0, 12 labels flipped to any other class, seed 0" in {
        entry.title for entry in entries
    }
    assert {path.name for path in again[0].path.parent.iterdir()} == {"about.json", "weights.safetensors"}


def test_what_makes_another_model(tmp_path, notes) -> None:
    def ask(model=None, data=DATA, function=train, **options):
        return retrain_quietly(function, [(data, 0)], model or architecture(), tmp_path, **options)[0].path

    first = ask()
    assert ask(data=(X.clone(), Y.numpy())) == first
    assert ask(data=subset(DATA, np.arange(60))) == first
    others = [ask(config={"lr": 0.1}), ask(config={"lr": 0.2}), ask(data=subset(DATA, np.arange(30)))]
    others += [ask(data=(X + 1e-3, Y)), ask(function=functools.partial(train))]
    assert len({first, *others}) == 6
    assert len(notes()) == 6


RATE = 0.1


def test_code_is_known_by_what_it_uses(monkeypatch) -> None:
    def enclosing(rate, inner=None):
        def function(dataset, seed):
            return rate, inner

        return function

    def with_constant(dataset, seed):
        return RATE

    def indirect(dataset, seed):
        return architecture(), fixed_steps

    assert code_fingerprint(enclosing(0.1)) == code_fingerprint(enclosing(0.1))
    assert code_fingerprint(enclosing(0.1)) != code_fingerprint(enclosing(0.2))
    assert code_fingerprint(enclosing(0, train)) != code_fingerprint(enclosing(0, architecture))
    torch.manual_seed(0)
    weights = [code_fingerprint(enclosing(0, architecture())) for _ in range(2)]
    assert weights[0] != weights[1]
    before = code_fingerprint(with_constant), code_fingerprint(indirect)
    monkeypatch.setitem(globals(), "RATE", 0.2)
    monkeypatch.setitem(globals(), "architecture", lambda: nn.Linear(4, 3))
    after = code_fingerprint(with_constant), code_fingerprint(indirect)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_failure_is_reported_and_loses_no_other(tmp_path, notes) -> None:
    jobs = [(DATA, seed) for seed in (1, 13, 2)]
    with pytest.warns(RetrainingWarning, match="Job 1 could not be trained: ValueError: bad luck"):
        runs = retrain_quietly(train, jobs, architecture(), tmp_path / "cache")
    assert [run.error for run in runs] == [None, "ValueError: bad luck", None]
    assert "in train" in runs[1].details
    with pytest.raises(WhenceError, match="could not be trained: ValueError: bad luck"):
        runs[1].model()
    assert predict(runs[2].model(), DATA).shape == (60, 3)
    with pytest.warns(RetrainingWarning):
        again = retrain_quietly(train, jobs, architecture(), tmp_path / "cache")
    assert [run.cached for run in again] == [True, False, True]
    assert sorted(notes()) == [1, 2, 13, 13]


@pytest.mark.alone
def test_a_process_that_dies_takes_no_other_with_it(tmp_path, notes) -> None:
    jobs = [(DATA, seed) for seed in (666, 13, 1, 2)]
    with pytest.warns(RetrainingWarning) as warned:
        runs = retrain_quietly(train, jobs, architecture(), tmp_path / "cache", engine=Processes(2))
    assert len(warned) == 2
    assert "Job 0 could not be trained" in str(warned[0].message)
    assert "WorkerError: its process ended with exit code -9 (killed" in runs[0].error
    assert (runs[1].error, "in train" in runs[1].details) == ("ValueError: bad luck", True)
    here = retrain_quietly(train, jobs[2:], architecture(), tmp_path / "elsewhere")
    for run, expected in zip(runs[2:], here, strict=True):
        for ours, theirs in zip(
            *(each.model().state_dict().values() for each in (run, expected)), strict=True
        ):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "TypeError: 'train_fn' must return the trained model. Got int."),
        (nn.Linear(4, 3), "ModelError: Training ended with weights that are not finite: 'weight'."),
    ],
)
def test_what_is_no_trained_model_is_a_failure(tmp_path, model, message) -> None:
    if isinstance(model, nn.Module):
        nn.init.constant_(model.weight, torch.nan)
    with pytest.warns(RetrainingWarning):
        (run,) = retrain_quietly(lambda dataset, seed: model, [(DATA, 0)], nn.Linear(4, 3), tmp_path)
    assert run.error == message
    assert not list(tmp_path.iterdir())


SCRIPT = """
import sys
from whence_studies.scenes.retrain import retrain
from whence.engine import Local, Processes
from tests.studies.test_retrain import DATA, architecture, train
engine = Processes(2) if sys.argv[2] == "2" else Local()
retrain(train, [(DATA, seed) for seed in range(8)], architecture(), sys.argv[1], engine=engine)
"""


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.alone)])
def test_killed_and_resumed(tmp_path, notes, workers) -> None:
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "SECONDS": "0.5",
        "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(script), str(cache), str(workers)]

    def trained() -> int:
        return sum(entry.complete for entry in Cache(cache).entries())

    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    try:
        while trained() < 3:
            assert process.poll() is None, "the script ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    begun, finished = -1, -1
    while begun != len(notes()) or finished != trained():  # what was under way in other processes ends
        begun, finished = len(notes()), trained()
        time.sleep(2)
    assert 3 <= finished < 8
    runs = retrain_quietly(train, [(DATA, seed) for seed in range(8)], architecture(), cache)
    assert sum(run.cached for run in runs) == finished
    assert len(notes()) == begun + 8 - finished
    for run in runs:
        assert run.model()(X).shape == (60, 3)


def test_a_damaged_file_is_trained_again(tmp_path, notes) -> None:
    (run,) = retrain_quietly(train, [(DATA, 0)], architecture(), tmp_path / "cache")
    whole = run.path.read_bytes()
    for broken in (whole[:-20], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        run.path.write_bytes(broken)
        (again,) = retrain_quietly(train, [(DATA, 0)], architecture(), tmp_path / "cache")
        assert not again.cached
    assert len(notes()) == 4


def odd_model(fill: float) -> nn.Module:
    """Tied weights of a type that numpy lacks, a number without a shape, and an empty buffer."""
    model = nn.Module()
    model.a = nn.Parameter(torch.full((2, 3), fill, dtype=torch.bfloat16))
    model.tied = model.a
    model.register_buffer("n", torch.tensor(int(fill)))
    model.register_buffer("empty", torch.zeros(0, 2))
    model.register_buffer("mask", torch.tensor([True, fill > 0]))
    return model


def test_weights_of_every_type_come_back(tmp_path) -> None:
    model, other = odd_model(7.0), odd_model(0.0)
    save_weights(tmp_path / "w", model.state_dict(), {})
    found = load_weights(tmp_path / "w", other)
    torch.testing.assert_close(found.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert found.tied is found.a
    assert not other.a.any()
    with pytest.raises(StoreError, match="weights of another architecture"):
        load_weights(tmp_path / "w", nn.Linear(2, 3))


def test_steps_are_fixed_and_samples_seen_equally_often() -> None:
    for n in (60, 7, 3):
        data = subset(DATA, np.arange(n))
        batches = list(fixed_steps(data, 11, 8, seed=1))
        assert [len(labels) for _, labels in batches] == [8] * 11
        inputs, labels = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        rows = (inputs[:, None] == X[:n]).all(2).int().argmax(1)
        torch.testing.assert_close(inputs, X[rows])
        torch.testing.assert_close(labels, Y[rows])
        counts = np.bincount(rows, minlength=n)
        assert counts.max() - counts.min() <= 1
        again = list(fixed_steps(data, 11, 8, seed=1))
        assert all((a[0] == b[0]).all() for a, b in zip(batches, again, strict=True))
        other = list(fixed_steps(data, 11, 8, seed=2))
        assert any((a[0] != b[0]).any() for a, b in zip(batches, other, strict=True))


def test_random_numbers_are_left_as_they_were(tmp_path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    model = architecture()
    torch.manual_seed(5)
    retrain_quietly(train, [(DATA, 0)], model, tmp_path)
    torch.testing.assert_close(torch.rand(3), expected)


def test_what_is_wrong_is_said(tmp_path) -> None:
    model = architecture()
    with pytest.raises(InvalidInputError, match="'jobs' must hold at least one"):
        retrain(train, [], model, tmp_path)
    with pytest.raises(InvalidInputError, match="'threads' must be an integer of at least 1"):
        retrain(train, [(DATA, 0)], model, tmp_path, threads=0)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="'cache_dir' must be a folder that can be made"):
        retrain(train, [(DATA, 0)], model, tmp_path / "file" / "cache")
    with pytest.raises(InvalidInputError, match="'config' must be a JSON-serialisable mapping"):
        retrain(train, [(DATA, 0)], model, tmp_path, config={"a": object()})
    lock = threading.Lock()
    with pytest.raises(InvalidInputError, match=r"sendable to other processes.*locks"):
        retrain_quietly(
            lambda dataset, seed: lock, [(DATA, 0), (DATA, 1)], model, tmp_path, engine="processes"
        )
