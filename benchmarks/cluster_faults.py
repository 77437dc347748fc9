"""Trials on Ray in which a worker, a node or the program itself is lost, and what comes out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from whence import DualDA, engine
from whence.features import FeatureBank, extract
from whence.svm import CrammerSinger, solve, solve_shards

N, D, K = 4_000, 64, 5
ROOT = Path(__file__).parents[1]
NODE = {
    "num_cpus": 1,
    "object_store_memory": 1 << 27,
    "include_dashboard": False,
    "node_ip_address": "127.0.0.1",
}


class Samples:
    """Made up samples, slow enough to be interrupted; where one is read first, its reader may die."""

    def __init__(self, flag: str | None = None) -> None:
        rng = np.random.default_rng(0)
        self.y = rng.integers(0, K, N)
        self.x = (rng.normal(size=(K, D))[self.y] + rng.normal(size=(N, D))).astype(np.float32)
        self.flag = flag

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index % 64 == 0:
            time.sleep(0.05)
        if index == N // 2 and self.flag:
            die_once(self.flag)
        return self.x[index], int(self.y[index])


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, K))


def die_once(flag: str) -> None:
    """Kill the process that comes here first."""
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def square(flag: str, item: int) -> int:
    if item == 3:
        die_once(flag)
    time.sleep(0.2)
    return item**2


@contextmanager
def nodes(n: int) -> Iterator[tuple[Any, list[Any]]]:
    """A head without workers and n nodes with one each, all on this machine."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
    others = [cluster.add_node(**NODE) for _ in range(n)]
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        cluster.wait_for_nodes()
        yield cluster, others
    finally:
        ray.shutdown()
        cluster.shutdown()


def _lose(cluster: Any, node: Any, seconds: float) -> threading.Thread:
    """Take a node away after a time, at once and for good."""

    def lose() -> None:
        time.sleep(seconds)
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    return thread


def _report(what: str, how: str) -> None:
    print(f"| {what} | {how} |", flush=True)


def _apart(found: np.ndarray, expected: np.ndarray) -> str:
    return f"W apart by {np.linalg.norm(found - expected) / np.linalg.norm(expected):.0e}"


def _features(flag: str | None = None) -> np.ndarray:
    bank = extract(network(), Samples(flag), batch_size=64, show_progress=False)
    return np.asarray(bank.features)


class Stopping:
    """A callback that does something after some rounds, once."""

    def __init__(self, rounds: int, what: Callable[[], object]) -> None:
        self.left, self.what = rounds, what

    def __call__(self, seconds: float, gap: float) -> None:
        """Count a round."""
        self.left -= 1
        if self.left == 0:
            self.what()


@dataclass(frozen=True)
class Fatal(CrammerSinger):
    """A problem in which a worker dies at a call of a method; the environment names both."""

    def descend(self, *arguments: Any) -> Any:
        """Move samples."""
        _perhaps_die("descend")
        return super().descend(*arguments)

    def sparse(self, *arguments: Any) -> Any:
        """Return λ."""
        _perhaps_die("sparse")
        return super().sparse(*arguments)

    def begin(self, *arguments: Any) -> Any:
        """Take over λ."""
        _perhaps_die("begin")
        return super().begin(*arguments)


_calls: Counter[str] = Counter()


def _perhaps_die(method: str) -> None:
    wanted, at, flag = os.environ["WHENCE_FAULT"].split(" ")
    _calls[method] += 1
    if method == wanted and _calls[method] == int(at):
        die_once(flag)


def _workers(folder: Path, expected: np.ndarray) -> None:
    with engine.using(engine.Ray()):
        found = engine.results(partial(square, str(folder / "piece")), range(6), threads=1)
        _report("a worker killed in a task", "same" if found == [i**2 for i in range(6)] else "OTHER RESULT")
        same = np.array_equal(_features(str(folder / "sample")), expected)
        _report("a worker killed in extraction", "same bits" if same else "OTHER BITS")


def _node_in_extraction(expected: np.ndarray) -> None:
    with nodes(3) as (cluster, others), engine.using(engine.Ray()):
        _features()
        lost = _lose(cluster, others[0], 0.6)
        found = _features()
        lost.join()
    same = np.array_equal(found, expected)
    _report("one of three nodes lost in extraction", "same bits" if same else "OTHER BITS")


def _in_solving(folder: Path, features: np.ndarray) -> None:
    y = Samples().y
    asked = {"n_classes": K, "C": 1e-2, "tol": 1e-8, "n_threads": 1}
    whole = solve(features, y, **asked)
    for method, at in (("descend", 1), ("descend", 4), ("sparse", 1), ("sparse", 3), ("begin", 3)):
        flag = folder / f"{method}{at}"
        os.environ["WHENCE_FAULT"] = f"{method} {at} {flag}"
        with nodes(2):
            found = solve_shards(features, y, 2, engine.Ray().group, problem=Fatal, **asked)
        fell = "" if flag.exists() else " NOBODY DIED"
        how = f"gap {found.gap:.0e}, {_apart(found.weight, whole.weight)}{fell}"
        _report(f"a worker killed in solving, in call {at} of {method!r}", how)
    for rounds in (2, 5):
        with nodes(3) as (cluster, others):
            stop = Stopping(rounds, partial(cluster.remove_node, others[0], allow_graceful=False))
            found = solve_shards(features, y, 3, engine.Ray().group, callback=stop, **asked)
        how = f"gap {found.gap:.0e}, {_apart(found.weight, whole.weight)}"
        _report(f"one of three nodes lost in solving, after round {rounds}", how)


def _in_halves(features: np.ndarray) -> None:
    bank, tests = FeatureBank.of(features, Samples().y), features[:50]
    explainer = DualDA(C=1e-2, show_progress=False, n_threads=1).fit(features=bank)
    expected = explainer.stability(bank, halves=8).top_k(features=tests)
    with nodes(3) as (cluster, others), engine.using(engine.Ray()):
        lost = _lose(cluster, others[0], 3.0)
        found = explainer.stability(bank, halves=8).top_k(features=tests)
        lost.join()
    same = torch.equal(found.proponents, expected.proponents) and torch.equal(
        found.opponents, expected.opponents
    )
    _report("one of three nodes lost in halves of the training set", "same" if same else "OTHER RESULT")


DRIVER = """
import sys
from benchmarks.cluster import workers
from benchmarks.cluster_faults import Samples, network
from whence import DualDA, engine
with workers(2), engine.using(engine.Ray(n_shards=2)):
    explainer = DualDA(C=1e-2, tol=1e-8, batch_size=64, show_progress=False, n_threads=1)
    explainer.fit(network(), Samples(), cache_dir=sys.argv[1])
    print(explainer.origins_["features"], explainer.gap_, flush=True)
    explainer.save(sys.argv[2])
"""


def _driver(folder: Path, features: np.ndarray) -> None:
    """Kill the program after a time, again and again, until it comes to its end."""
    from whence import load

    command = [sys.executable, "-c", DRIVER, str(folder / "cache"), str(folder / "x.whence")]
    kills, output = 0, ""
    for share in (
        0.3,
        0.6,
        1.0,
        None,
    ):  # of the rows, when it is killed: in extraction twice, then in solving
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as driver:
            assert driver.stdout is not None
            while share is not None and driver.poll() is None:
                time.sleep(0.01)
                written = sum(path.stat().st_size for path in folder.glob("cache/bank-*/features.npy"))
                if written >= share * N * 64 * 4:
                    driver.kill()
                    kills += 1
                    break
            output = driver.stdout.read().strip() or output
    found = load(folder / "x.whence")
    here = DualDA(C=1e-2, tol=1e-8, show_progress=False, n_threads=1).fit(
        features=FeatureBank.of(features, Samples().y)
    )
    _report(
        f"the program killed {kills} times and begun again", f"{output}; {_apart(found.coef_, here.coef_)}"
    )


def run() -> None:
    print(f"\nWhat is lost, and what comes out: {N:,} samples, {K} classes, tolerance 1e-8.\n")
    print("| lost | compared with the undisturbed result |\n|---|---|", flush=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    with engine.limited(1), tempfile.TemporaryDirectory() as name:
        folder, features = Path(name), _features()
        with nodes(2):
            _workers(folder, features)
        _node_in_extraction(features)
        _in_solving(folder, features)
        _in_halves(features)
        _driver(folder, features)
