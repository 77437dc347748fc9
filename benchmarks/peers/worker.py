"""Run one method in the interpreter that has its package, and measure it.

``python -m benchmarks.peers.worker SCENES SCENE FILE ROW TRAIN TESTS OUT`` writes ``OUT.json`` (seconds
of the clock and of the processors, bytes, threads, versions) and ``OUT.npy`` (scores of the first tests).
"""

from __future__ import annotations

import copy
import json
import resource
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import scene as scenes
from benchmarks.peers.contract import package

WARM = 400, 20  # training samples and tests of a first run, which is not measured
SHOWN = 50  # tests whose scores are kept, to be compared


def clock() -> np.ndarray:
    """Seconds of the clock, and of all processors with those of children."""
    used = sum(
        getattr(resource.getrusage(who), part)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for part in ("ru_utime", "ru_stime")
    )
    return np.array([time.perf_counter(), used])


def memory(field: str) -> int:
    """Bytes of a line in /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def dense(scores: Any, tests: int) -> np.ndarray:
    """The first rows of scores, dense and float32."""
    part = scores[:tests]
    return np.asarray(part.todense() if hasattr(part, "todense") else part, dtype=np.float32)


def measure(
    folder: Path, scene_name: str, file: str, label: str, n: int, tests: int
) -> tuple[dict[str, Any], Any]:
    """Cache and explain, and return the cost and the scores."""
    found = package(file)
    row = next(row for row in found.rows if row.label == label)
    for module in found.modules:
        import_module(module)
    scene = scenes.load(folder, scene_name).of(n, tests)
    before = memory("VmRSS")
    with (
        tempfile.TemporaryDirectory() as temporary
    ):  # what is done once per process is no matter of the method
        few = scene.of(*WARM)._replace(model=copy.deepcopy(scene.model))
        method = row.make()
        method.cache(few, Path(temporary))
        method.explain(few)
    method = row.make()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    with tempfile.TemporaryDirectory() as temporary:
        marks = [clock()]
        kept = method.cache(scene, Path(temporary))
        marks.append(clock())
        scores = method.explain(scene)
        marks.append(clock())
        peak = memory("VmHWM") - before
    caching, explaining = np.diff(marks, axis=0).tolist()
    shape = None if scores is None else list(scores.shape)
    if shape is not None and not (shape[0] == len(scene.tests) and (row.best or shape[1] == len(scene.x))):
        raise ValueError(f"{label}: scores must be (test, train). Got {shape}.")
    measured = {
        "n": len(scene.x),
        "tests": len(scene.tests),
        "caching": caching[0],
        "caching_cpu": caching[1],
        "explaining": None if scores is None else explaining[0],
        "explaining_cpu": None if scores is None else explaining[1],
        "bytes": kept,
        "peak": peak,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in (found.name, "torch", "numpy")},
        "accuracy": scene.accuracy,
    }
    return measured, scores


def main(folder: str, scene: str, file: str, label: str, n: str, tests: str, out: str) -> None:
    """Measure, and write what was found."""
    measured, scores = measure(Path(folder), scene, file, label, int(n), int(tests))
    if scores is not None:
        np.save(f"{out}.npy", dense(scores, SHOWN))
    Path(f"{out}.json").write_text(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
