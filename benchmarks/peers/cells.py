"""Make the environments, run every cell in a process of its own, and keep what was measured.

A cell is a row of a package on a scene. Each is run small first, which also fills caches of compiled code.
Where a whole run would take longer than the budget, it is run on fewer tests, then on as many samples
as the budget allows, and its figures are brought to the whole scene on the line through both runs,
since not all of them grows: ``whole`` is then false. Cells that were measured are not measured again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.environments import environment
from benchmarks.peers.contract import Package, Row, package

SIZES = {"mnist": (60_000, 2_000), "cifar10": (50_000, 2_000), "bbc": (1_225, 1_000)}
PILOT = {"mnist": (2_400, 100), "cifar10": (2_000, 100), "bbc": (1_225, 100)}
ROOT = Path(__file__).parents[2]


def interpreter(found: Package, folder: Path) -> Path:
    """Return the interpreter that has a package, made where it is missing."""
    if not found.installs:
        return Path(sys.executable)
    python = environment(folder / found.name, *found.installs)
    for module in found.without:
        [library] = (folder / found.name / "lib").glob("python*/site-packages")
        (library / module).mkdir(exist_ok=True)
        (library / module / "__init__.py").write_text(STUB)
    return python


STUB = '''"""Nothing: stands for a package that is imported and not used."""
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec


class Nothing:
    """Anything."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Nothing


class Empty(MetaPathFinder, Loader):
    """Modules below this one, all empty."""

    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self, is_package=True) if name.startswith(__name__ + ".") else None

    def exec_module(self, module):
        module.__getattr__ = __getattr__


sys.meta_path.append(Empty())
'''


def attempt(
    python: Path, scenes: Path, scene: str, file: str, row: Row, n: int, tests: int, out: Path, limit: float
) -> dict[str, Any]:
    """Run a cell once: what was measured, or the error."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if python != Path(sys.executable):
        paths = str(ROOT)
    call = [python, "-m", "benchmarks.peers.worker", scenes, scene, file, row.label, n, tests, out]
    try:
        subprocess.run(
            [str(part) for part in call],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"},
            cwd=out.parent,
            check=True,
            timeout=limit,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit:.0f} s for {n:,} training samples and {tests:,} tests"}
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.strip()]
        return {"error": said[-1] if said else f"ended by signal {-error.returncode}", "said": said[-25:]}
    measured: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    return measured


def predicted_seconds(small: dict[str, Any], row: Row, n: int, tests: int) -> float:
    """Predict the seconds of a larger run, in proportion."""
    more = n / small["n"]
    pairs = tests / small["tests"] * (1 if row.per_test else more)
    return float(small["caching"] * more + (small["explaining"] or 0.0) * pairs)


def fitting(small: dict[str, Any], row: Row, n: int, tests: int, budget: float) -> tuple[int, int]:
    """Find what the budget allows: fewer tests, then fewer samples, but two times those of the small run.

    A run on as many samples as the small one would not show what grows with them.
    """
    if predicted_seconds(small, row, n, tests) <= budget:
        return n, tests
    fewer = tests if row.per_test else min(tests, 2 * small["tests"])
    part = budget / predicted_seconds(small, row, n, fewer)
    return min(n, max(2 * small["n"], int(n * part))), fewer


def scaled(found: dict[str, Any], small: dict[str, Any], row: Row, n: int, tests: int) -> dict[str, Any]:
    """Bring a measurement to the whole scene, on the line through it and the small run."""

    def samples(run: dict[str, Any]) -> int:
        return int(run["n"])

    def asked(run: dict[str, Any]) -> int:
        return int(run["tests"] * (1 if row.per_test else run["n"]))

    sizes = {"caching": samples, "caching_cpu": samples, "explaining": asked, "explaining_cpu": asked}
    sizes["bytes"] = samples
    scene = {"n": n, "tests": tests}
    whole = {
        key: found[key] and on_line(size(small), small[key], size(found), found[key], size(scene))
        for key, size in sizes.items()
    }
    return {**found, **whole, "whole": (found["n"], found["tests"]) == (n, tests)}


def on_line(x0: float, y0: float, x1: float, y1: float, x: float) -> float:
    """The value at x of the line through two points; in proportion to the second where it falls."""
    if x1 > x0 and y0 == y1:
        return y1
    if x == x1 or x1 <= x0 or y1 <= y0:
        return y1 * x / x1
    return y1 + (y1 - y0) / (x1 - x0) * (x - x1)


def run(
    scenes: Path,
    folder: Path,
    results: Path,
    names: Sequence[str],
    files: Sequence[str],
    budget: float,
    pilots: bool,
) -> None:
    """Measure the cells that are missing, small ones first; ``pilots`` does these alone."""
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    for file in files:
        found = package(file)
        try:
            python = interpreter(found, folder)
        except subprocess.CalledProcessError as error:
            print(f"{found.name} does not install: {error}", flush=True)
            continue
        for scene, row in product(names, found.rows):
            key = f"{scene}/{file}/{row.label}"
            cell = read(results).get(key, {})
            out = place(folder, key)
            arguments = (python, scenes, scene, file, row)
            if "caching" not in cell.get("small", {}):
                small = place(folder, key, small=True)
                cell["small"] = attempt(*arguments, *PILOT[scene], small, max(budget, 300.0))
                print(key, "small:", _told(cell["small"]), flush=True)
            if not pilots and "error" not in cell["small"] and "caching" not in cell.get("measured", {}):
                n, tests = fitting(cell["small"], row, *SIZES[scene], budget)
                cell["measured"] = attempt(*arguments, n, tests, out, 3 * budget)
                print(key, _told(cell["measured"]), flush=True)
            write(results, key, cell)


def read(results: Path) -> dict[str, Any]:
    """Return the cells of a file of results, none where there is none."""
    cells: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    return cells


def write(results: Path, key: str, cell: dict[str, Any]) -> None:
    """Put a cell into a file of results."""
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps({**read(results), key: cell}, indent=1, sort_keys=True) + "\n")


def place(folder: Path, key: str, small: bool = False) -> Path:
    """Return the path of a cell's files, without suffix."""
    name = key.replace("/", "-").replace(" ", "_").replace(",", "")
    return folder / "cells" / (name + "-small" * small)


def _told(cell: dict[str, Any]) -> str:
    if "error" in cell:
        return str(cell["error"])
    explaining = "—" if cell["explaining"] is None else f"{cell['explaining']:.2f} s"
    size = f"{(cell['bytes'] or 0) / 1e6:.1f} MB, peak {cell['peak'] / 1e6:.0f} MB"
    return f"n = {cell['n']:,}, {cell['tests']:,} tests: {cell['caching']:.2f} s, {explaining}, {size}"
