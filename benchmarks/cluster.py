"""Ray on this machine: two workers compared with one, rounds and bytes of a sharded solution, faults."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import nn

from benchmarks import cluster_faults
from benchmarks.data import fashion_features, read_idx, synthetic_features
from whence import DualDA, engine
from whence.engine import Group
from whence.features import FeatureBank, extract
from whence.svm import sharded, solve, solve_shards

IMAGES, HALVES_OF, HALVES, WIDE = 20_000, 10_000, 20, 20_000
CS, SHARDS, GAPS = (1e-5, 1e-3, 1e-1), (2, 4, 8), (1e-2, 1e-3, 1e-4)
STORE = 1 << 28

# By Ray's own setting workers stand back behind all else that runs, which may be a lot.
QUIET = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}


@contextmanager
def workers(n: int) -> Iterator[engine.Ray]:
    """Ray with n workers, for this machine alone."""
    import ray

    options = {"include_dashboard": False, "log_to_driver": False, "_node_ip_address": "127.0.0.1"}
    ray.init(address="local", num_cpus=n, object_store_memory=STORE, **options)
    try:
        yield engine.Ray()
    finally:
        ray.shutdown()


def network() -> nn.Sequential:
    """An untrained convolutional network, which takes as long as a trained one."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def images(data: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    folder = data / "fashion-mnist"
    x = read_idx(folder / "train-images-idx3-ubyte.gz")[:n, None].astype(np.float32) / 255.0
    return x, read_idx(folder / "train-labels-idx1-ubyte.gz")[:n].astype(np.int64)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _best(work: Callable[[], object]) -> float:
    """The shortest of three times, which others on the machine lengthen least."""
    return min(_timed(work) for _ in range(3))


def speeds(data: Path) -> dict[str, list[float]]:
    """Seconds of features and of halves, with one worker and with two that have begun."""
    x, y = images(data, IMAGES)
    X, labels = synthetic_features(HALVES_OF, 128, 10)
    explainer = DualDA(C=1000 / float((X**2).sum()), n_threads=1, show_progress=False)
    explainer.fit(features=FeatureBank.of(X, labels))
    seconds: dict[str, list[float]] = {"features": [], "halves": []}
    for n in (1, 2):
        with engine.limited(1), workers(n) as chosen, engine.using(chosen):
            few = x[: 256 * 8 * n], y[: 256 * 8 * n]
            extract(network(), few, show_progress=False)  # all workers begin
            explainer.stability(X, halves=2)
            seconds["features"].append(_best(lambda: extract(network(), (x, y), show_progress=False)))
            seconds["halves"].append(_best(lambda: explainer.stability(X, halves=HALVES)))
    return seconds


def _speed(data: Path) -> None:
    x, y = images(data, IMAGES)
    with engine.limited(1):
        here = _best(lambda: extract(network(), (x, y), show_progress=False))
    for name, (one, two) in speeds(data).items():
        print(f"| {name} | {one:.1f} s | {two:.1f} s | {one / two:.2f} |", flush=True)
    print(
        f"\nThe same features without Ray: {here:.1f} s; by Ray Data with two actors: {_ray_data(x):.1f} s."
    )


def _ray_data(x: np.ndarray) -> float:
    """The same forward passes as batch inference of Ray Data, from the call to the last row."""
    import ray

    class Forward:
        def __init__(self) -> None:
            torch.set_num_threads(1)
            self.body = network()[:-1]

        def __call__(self, batch):
            with torch.inference_mode():
                found = self.body(torch.from_numpy(np.array(batch["data"])))
            return {"features": found.numpy()}

    with workers(2):
        ray.data.DataContext.get_current().enable_progress_bars = False
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        rows = ray.data.from_numpy(np.array_split(x, len(x) // 256 + 1))
        pool = ray.data.ActorPoolStrategy(size=2)
        mapped = rows.map_batches(Forward, batch_size=256, compute=pool, num_cpus=1)
        return _timed(lambda: [len(batch["features"]) for batch in mapped.iter_batches(batch_size=None)])


class Wide:
    """Samples of 4,096 numbers, which cost nothing to make."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).normal(size=(256, 4096)).astype(np.float32)
        self.targets = np.arange(WIDE) % 10  # at hand, so that no sample is read for them

    def __len__(self) -> int:
        return WIDE

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.rows[index % 256], int(self.targets[index])


def _writer() -> None:
    """How fast wide rows come from two workers into one file, which the program alone writes."""
    model = nn.Sequential(nn.Identity(), nn.Linear(4096, 10))
    with (
        engine.limited(1),
        workers(2) as chosen,
        engine.using(chosen),
        tempfile.TemporaryDirectory() as folder,
    ):
        extract(model, Wide(), batch_size=255, show_progress=False)  # all workers begin
        took = _timed(lambda: extract(model, Wide(), cache_dir=folder, show_progress=False))
    size = WIDE * 4096 * 4 / 1e6
    print(
        f"Rows of 4,096 from two workers into one bank: {size / took:.0f} MB/s, of {size:.0f} MB.", flush=True
    )


class _Counted(Group):
    """Shards here, with a count of the bytes that go to them and come from them."""

    def hold(self, make, parts):
        self._members, self.bytes = [make(part) for part in parts], {}
        return self

    def call(self, method, *shared, each=None):
        found = super().call(method, *shared, each=each)
        sent = len(self) * sum(map(_size, shared)) + sum(map(_size, each or ()))
        self.bytes[method] = self.bytes.get(method, 0) + sent + sum(map(_size, found))
        return found


def _size(value: object) -> int:
    if isinstance(value, csr_array):
        return value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    return getattr(value, "nbytes", 8)


def _rounds(data: Path, cache: Path) -> None:
    """Rounds of CoCoA+ to a gap, and what a whole solution takes."""
    X, y = fashion_features(data, cache)
    print(
        f"\nRounds to a gap, {X.shape[0]:,} × {X.shape[1]}, 10 classes, shards in one process, one thread.\n"
    )
    gaps = " | ".join(f"rounds to {gap:.0e}" for gap in GAPS)
    print(
        f"| C | shards | {gaps} | kB a round | rounds in all, gap | rows together | MB in all | s | solve s |"
    )
    print("|---|---|" + "---|" * (len(GAPS) + 6), flush=True)
    asked = {"n_classes": 10, "tol": 1e-6, "n_threads": 1}
    for C in CS:
        alone = _timed(partial(solve, X, y, C=C, **asked))
        for n in SHARDS:
            reached = " | ".join(_rounds_to(X, y, n, C))
            held = _Counted([])
            found = solve_shards(X, y, n, held.hold, C=C, **asked)
            rows = held.bytes.get("near", 0) / (4 * X.shape[1])
            a_round = 2 * n * found.weight.nbytes  # W to every shard, its change back
            print(
                f"| {C:g} | {n} | {reached} | {a_round / 1e3:.0f} | {found.n_iter}, {found.gap:.0e} "
                f"| {rows:,.0f} | {sum(held.bytes.values()) / 1e6:.1f} | {found.seconds:.1f} | {alone:.1f} |",
                flush=True,
            )


def _rounds_to(X: np.ndarray, y: np.ndarray, n: int, C: float) -> list[str]:
    """How many rounds each gap takes where nothing is solved in one place."""
    seen: list[float] = []

    def note(seconds: float, gap: float) -> None:
        seen.append(gap)

    with mock.patch.object(sharded, "free_memory", return_value=0), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a gap that is not reached
        options = {"tol": GAPS[-1], "n_threads": 1, "max_seconds": 120, "callback": note}
        solve_shards(X, y, n, engine.Local().group, n_classes=10, C=C, **options)
    return [
        next((str(k + 1) for k, gap in enumerate(seen) if gap <= least), f"> {len(seen)}") for least in GAPS
    ]


def _same(data: Path, cache: Path) -> None:
    """Compare the explainer of two shards on Ray with that of one process."""
    X, y = fashion_features(data, cache)
    bank, tests = FeatureBank.of(X, y), X[:: len(X) // 1000]
    for C, tol in product((1e-3, 1e-1, 1e-5), (1e-5, 1e-6, 1e-7, 1e-8)):
        explain = DualDA(C=C, tol=tol, show_progress=False, n_threads=1)
        here = explain.fit(features=bank)
        coef, best = here.coef_, here.top_k(features=tests, k=5)
        with workers(2), engine.using(engine.Ray(n_shards=2)):
            there = DualDA(C=C, tol=tol, show_progress=False, n_threads=1).fit(features=bank)
            found = there.top_k(features=tests, k=5)
        apart = np.linalg.norm(there.coef_ - coef) / np.linalg.norm(coef)
        same = [
            _alike(ours.indices, theirs.indices) for ours, theirs in zip(found[:2], best[:2], strict=True)
        ]
        print(
            f"| {C:g} | {tol:g} | {here.gap_:.0e}, {there.gap_:.0e} | {apart:.0e} "
            f"| {same[0]:.1%}, {same[1]:.1%} "
            f"| {here.seconds_['solution']:.1f} s, {there.seconds_['solution']:.1f} s |",
            flush=True,
        )


def _alike(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The share of tests (rows) with the same samples, in any order."""
    return float((ours.sort(dim=1)[0] == theirs.sort(dim=1)[0]).all(dim=1).float().mean())


def run(data: Path, cache: Path) -> None:
    os.environ.update(QUIET)
    print(f"Ray, workers of one thread; load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| | one worker | two workers | times faster |\n|---|---|---|---|", flush=True)
    _speed(data)
    _writer()
    _rounds(data, cache)
    print("\n| C | tol | gap here, on Ray | W apart | same five for, against | solved here, on Ray |")
    print("|---|---|---|---|---|---|", flush=True)
    _same(data, cache)
    cluster_faults.run()
