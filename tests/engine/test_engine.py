"""Engines: the same results everywhere, every error with its item, and no process left behind."""

from __future__ import annotations

import copy
import functools
import operator
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from joblib import cpu_count

import whence
from tests.helpers.registered import forgetting
from whence import engine
from whence.audit.heldout import held_out_scores
from whence.engine import Engine, Local, Outcome, Processes
from whence.engine.base import find
from whence.errors import DataWarning, InvalidInputError, SampleError, WorkerError

ROOT = Path(__file__).parents[2]


def piece(factor: np.ndarray, item: tuple[int, float]) -> tuple[torch.Tensor, int]:
    """Random numbers of a seed, in torch and numpy, and the threads they were made with."""
    seed, scale = item
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(50, 30, generator=generator) @ torch.from_numpy(factor)
    return scale * found, torch.get_num_threads()


FACTOR = np.random.default_rng(0).normal(size=(30, 200)).astype(np.float32)
WORK = functools.partial(piece, FACTOR)


class OddError(Exception):
    """An error that cannot be made anew from its message."""

    def __init__(self, one, two) -> None:
        super().__init__(f"{one} and {two}")


def trouble(item: str) -> str:
    """Fail, die, warn or leave, as the item says."""
    if item == "fail":
        raise ValueError("bad luck")
    if item == "sample":
        raise SampleError(3, "torn")
    if item == "odd":
        raise OddError(1, 2)
    if item == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "leave":
        sys.exit(5)
    if item == "warn":
        warnings.warn("careful", DataWarning, stacklevel=1)
    return threading.Lock() if item == "lock" else item.upper()


@pytest.fixture(scope="module")
def two():
    """Two processes, for all tests that do not care whether they are new."""
    with Processes(2) as processes:
        yield processes


@pytest.mark.parametrize("chosen", ["local", Local(), pytest.param("two", marks=pytest.mark.alone)])
@pytest.mark.parametrize("threads", [None, 1, 2])
def test_every_engine_gives_the_same_bits(chosen, threads, request) -> None:
    chosen = request.getfixturevalue(chosen) if chosen == "two" else chosen
    items = [(seed, 1.5) for seed in range(5)]
    before = torch.get_num_threads()
    with engine.limited(threads):
        expected = [piece(FACTOR, item) for item in items]
    found = engine.results(WORK, items, chosen, threads=threads)
    assert torch.get_num_threads() == before
    for (ours, used), (theirs, _) in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
        assert used == (threads or before)


def test_outcomes_have_their_places() -> None:
    outcomes = list(engine.run(operator.neg, [4, 5]))
    assert [(each.place, each.value, each.error) for each in outcomes] == [(0, -4, None), (1, -5, None)]
    assert list(engine.run(operator.neg, [])) == []
    assert engine.results(operator.neg, iter([7])) == [-7]


def test_an_error_is_told_with_its_item() -> None:
    outcomes = {each.place: each for each in engine.run(trouble, ["a", "fail", "b"])}
    assert [outcomes[0].value, outcomes[2].value] == ["A", "B"]
    assert repr(outcomes[1].error) == "ValueError('bad luck')"
    assert "in trouble" in outcomes[1].details
    with pytest.raises(ValueError, match="bad luck") as raised:
        engine.results(trouble, ["a", "fail"])
    assert raised.value.__notes__ == ["In piece 1 of 2, 'fail'"]


@pytest.mark.alone
def test_what_goes_wrong_in_a_process_costs_its_piece_alone(two) -> None:
    items = ["a", "kill", "fail", "b", "odd", "warn", "sample", "lock", "leave", "c"]
    with pytest.warns(DataWarning, match="careful") as warned:
        outcomes = {items[each.place]: each for each in engine.run(trouble, items, two)}
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert [outcomes[item].value for item in ("a", "b", "c", "warn")] == ["A", "B", "C", "WARN"]
    assert isinstance(outcomes["kill"].error, WorkerError)
    assert "its process ended with exit code -9 (killed, perhaps" in str(outcomes["kill"].error)
    assert repr(outcomes["fail"].error) == "ValueError('bad luck')"
    assert "in trouble" in outcomes["fail"].details
    assert str(outcomes["odd"].error) == "OddError: 1 and 2"
    assert "Sample 3 cannot be used: torn" in str(outcomes["sample"].error)
    assert "pickle" in str(outcomes["lock"].error)
    assert "ended with exit code 5" in str(outcomes["leave"].error)


@pytest.mark.alone
def test_an_error_of_a_process_shows_what_was_called_there(two) -> None:
    with pytest.raises(ValueError, match="bad luck") as raised:
        engine.results(trouble, ["fail", "a"], two)
    assert raised.value.__notes__[0] == "In piece 0 of 2, 'fail'"
    assert "in trouble" in raised.value.__notes__[1]
    with pytest.raises(WorkerError, match=r"Of piece 0 of 2, 'kill': its process ended with exit code -9"):
        engine.results(trouble, ["kill", "a"], two)
    with pytest.raises(DataWarning, match="careful"):  # which pytest makes an error
        engine.results(trouble, ["warn", "a"], two)


SCRIPT = """
import os, signal, sys, time
from whence import engine
from whence.audit.heldout import held_out_scores

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is begun without it

def note(item):
    time.sleep(0.1)
    open(f"{sys.argv[1]}/begun-{item}-{os.getpid()}", "w").close()
    time.sleep(LASTS)
    open(f"{sys.argv[1]}/ended-{item}", "w").close()
    return item

sys.argv[1:] = [FOLDER]
for outcome in engine.run(note, range(N), engine.Processes(2)):
    print(outcome.value, flush=True)
"""


def start(folder: Path, n: int, lasts: float = 1) -> subprocess.Popen[str]:
    """A script without a guard, whose function is its own, at work on ``n`` items of some seconds each."""
    script = folder / "script.py"
    text = SCRIPT.replace("sys.argv[1]}", "FOLDER}").replace("sys.argv[1:] = [FOLDER]", "")
    script.write_text(f"FOLDER = {str(folder)!r}\nN = {n}\nLASTS = {lasts}\n{text}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def alive(folder: Path) -> set[int]:
    """The processes that noted a beginning and still run."""
    ids = {int(path.name.split("-")[2]) for path in folder.glob("begun-*")}
    return set(filter(running, ids))


def running(process: int) -> bool:
    """Whether a process is there, and more than an entry of its end."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def until(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.alone
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    script = start(tmp_path, 3)
    out, err = script.communicate(timeout=120)
    assert script.returncode == 0, err
    assert sorted(out.split()) == ["0", "1", "2"]


@pytest.mark.alone
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_their_parent(tmp_path: Path, how) -> None:
    # Ctrl-C ends all at once, long before a piece would end; else what was under way is finished.
    script = start(tmp_path, 20, 600 if how == signal.SIGINT else 3)
    until(lambda: len(list(tmp_path.glob("begun-*"))) >= 2)
    script.send_signal(how)
    script.communicate(timeout=60)
    until(lambda: not alive(tmp_path))
    begun = {path.name.split("-")[1] for path in tmp_path.glob("begun-*")}
    ended = {path.name.split("-")[1] for path in tmp_path.glob("ended-*")}
    assert ended == (set() if how == signal.SIGINT else begun)
    assert len(begun) <= 4


@pytest.mark.alone
def test_closing_ends_what_runs(two) -> None:
    outcomes = engine.run(time.sleep, [0.01, 60, 60], two)
    assert next(outcomes).place == 0
    started = time.monotonic()
    outcomes.close()
    assert time.monotonic() - started < 10


def test_an_engine_of_ones_own() -> None:
    class Backwards(Engine):
        name = "backwards"

        def run(self, function, items, threads):
            yield from (Outcome(place, function(items[place])) for place in reversed(range(len(items))))

    with forgetting():
        whence.register(Backwards)
        assert "backwards" in engine.names()
        with engine.using("backwards"):
            assert [each.value for each in engine.run(operator.neg, [1, 2])] == [-2, -1]
            assert engine.results(operator.neg, [1, 2]) == [-1, -2]
    assert [each.value for each in engine.run(operator.neg, [1, 2])] == [-1, -2]
    assert repr(Processes(3)) == "Processes(n=3)"


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(InvalidInputError, match=r"'engine' must be one of .*local, processes.*Got 'gpu'"):
        engine.run(abs, [1], "gpu")
    with pytest.raises(InvalidInputError, match=r"'engine' must be an engine or the name of one. Got 3"):
        engine.run(abs, [1], 3)
    with pytest.raises(InvalidInputError, match="'n' must be an integer of at least 1"):
        Processes(0)
    with pytest.raises(InvalidInputError, match="'threads' must be an integer of at least 1"):
        engine.run(abs, [1], threads=0)
    with pytest.raises(InvalidInputError, match="'function' must be a function of one item"):
        engine.run(3, [1])
    with pytest.raises(InvalidInputError, match=r"'function' must be sendable.*open files and locks"):
        engine.results(functools.partial(operator.is_, threading.Lock()), [1, 2], "processes")


def _sent_as_it_is():
    """A function of no module, so that processes need not import this one."""

    def whose(item: float) -> int:
        time.sleep(item)
        return os.getpid()

    return whose


whose = _sent_as_it_is()  # which process does this


@pytest.mark.alone
def test_processes_stay_for_the_runs_to_come() -> None:
    processes = Processes(2)
    with engine.using(processes):
        first = set(engine.results(whose, [0.2] * 4))
        assert len(first) == 2
        assert os.getpid() not in first
        assert set(engine.results(whose, [0.01])) <= first  # a single piece has a process too
        assert engine.results(operator.neg, [1, 2, 3]) == [-1, -2, -3]
        with pytest.raises(ValueError, match="bad luck"):
            engine.results(trouble, ["a", "fail"])
        with pytest.raises(InvalidInputError, match="'items' must be sendable"):
            engine.results(str, [1, threading.Lock()])
        # The one that is at work when a run is given up ends, the other stays.
        first = set(engine.results(whose, [0.2] * 4))
        outcomes = engine.run(time.sleep, [0, 60])
        assert next(outcomes).place == 0
        outcomes.close()
        second = set(engine.results(whose, [0.2] * 4))
        assert len(first & second) == 1
        assert len(second) == 2
    assert all(map(running, second))
    del processes
    until(lambda: not any(map(running, first | second)))


@pytest.mark.alone
def test_processes_of_a_name_end_with_the_block_or_the_run() -> None:
    with engine.using("processes:1"):
        found = {*engine.results(whose, [0]), *engine.results(whose, [0])}
        assert len(found) == 1
        assert all(map(running, found))
    assert not any(map(running, found))
    assert not any(map(running, engine.results(whose, [0], "processes:1")))


@pytest.mark.alone
def test_one_that_died_between_runs_costs_nothing() -> None:
    with Processes(2) as processes:
        first, other = set(engine.results(whose, [0.2] * 4, processes))
        os.kill(first, signal.SIGKILL)
        until(lambda: not running(first))
        found = set(engine.results(whose, [0.2] * 4, processes))
        assert other in found
        assert first not in found
    assert not any(map(running, found))
    assert os.getpid() not in engine.results(whose, [0], processes)  # which begins another


@pytest.mark.alone
def test_runs_at_the_same_time_and_what_they_leave(two, tmp_path: Path, monkeypatch) -> None:
    outer = engine.run(whose, [0.01] * 6, two)
    ours = {next(outer).value}
    theirs = set(engine.results(whose, [0.01] * 6, two))
    ours |= {each.value for each in outer}
    assert not ours & theirs
    (tmp_path / "of_late.py").write_text("def here(item): return __import__('os').getcwd()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    from of_late import here  # type: ignore[import-not-found]

    assert engine.results(here, [1], two) == [str(tmp_path)]
    assert engine.results(eval, ["__import__('torch').get_num_threads()"], two, threads=3) == [3]
    before = torch.get_num_threads()
    assert engine.results(eval, ["__import__('torch').get_num_threads()"], two) == [before]


@pytest.mark.alone
@pytest.mark.parametrize("threads", [1, 2])
def test_cores_are_shared_out_among_pieces_with_their_threads(threads) -> None:
    found = set(engine.results(whose, [0.3] * 8, "processes", threads=threads))
    assert len(found) <= max(1, cpu_count() // threads)


def test_no_process_begins_for_nothing(two) -> None:
    assert engine.results(whose, [], "processes") == []
    alike = pickle.loads(pickle.dumps(two))
    assert repr(alike) == repr(copy.deepcopy(two)) == "Processes(n=2)"


IDLE = """
import os, sys, time
from whence import engine
from whence.audit.heldout import held_out_scores

class Found:
    def __init__(self, process): self.process = process

def whose(item):
    time.sleep(0.2)
    return Found(os.getpid())

processes = engine.Processes(2)
found = engine.results(whose, range(4), processes)
assert all(isinstance(each, Found) for each in found)
begun = engine.run(time.sleep, [0, 600], processes)
next(begun)
print(*{each.process for each in found}, flush=True)
sys.stdin.read()
"""


@pytest.mark.alone
@pytest.mark.parametrize("how", ["kill", "end"])
def test_processes_that_wait_end_with_their_parent(tmp_path: Path, how) -> None:
    (tmp_path / "script.py").write_text(IDLE if how == "end" else IDLE.replace("600", "2"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(tmp_path / "script.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as script:
        found = [int(each) for each in script.stdout.readline().split()]
        assert len(found) == 2
        assert all(map(running, found))
        if how == "kill":
            script.kill()
        script.communicate(timeout=30)
    until(lambda: not any(map(running, found)), 20)
    assert script.returncode == (-signal.SIGKILL if how == "kill" else 0)


def test_an_engine_has_a_name_and_what_it_takes(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my_engines.py").write_text(
        "from whence.engine import Local\n"
        "class Mine(Local):\n"
        "    def __init__(self, where='here', /): self.where = where\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    for given, expected in {
        "local": "Local()",
        "processes": "Processes(n=None)",
        "processes:4": "Processes(n=4)",
        "my_engines:Mine": "Mine(where='here')",
        "my_engines:Mine:tcp://there:80": "Mine(where='tcp://there:80')",
    }.items():
        assert repr(find(given)) == expected
    assert engine.results(operator.neg, [1], "my_engines:Mine:2") == [-1]
    for given in ("processes:", "processes:0", "processes:many", "local:2"):
        with pytest.raises(InvalidInputError, match=rf"as in processes:4. Got '{given}': ."):
            find(given)
    with pytest.raises(InvalidInputError, match=r"'engine' must name an engine. Got 'os:getcwd'"):
        find("os:getcwd")


@pytest.mark.alone
def test_folds_have_the_same_bits_in_processes(two) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = (rng.normal(size=(3, 8))[y] + rng.normal(size=(120, 8))).astype(np.float32)
    here = held_out_scores(X, y, 3, n_folds=3, n_threads=2)
    with engine.using(two):
        there = held_out_scores(X, y, 3, n_folds=3, n_threads=2)
    for ours, theirs in zip(here.held_out, there.held_out, strict=True):
        np.testing.assert_array_equal(ours, theirs)
