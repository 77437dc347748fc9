"""whence beside other packages, on the same networks, training sets and tests.

``scene`` has what every package is given, ``packages`` one file per package, ``worker`` runs a method in
its package's environment and measures it, ``run`` all of them, ``check`` compares scores with whence's own
version of a method, and ``render`` makes the table and the figure of what was saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import check, render, scene
from benchmarks.peers.contract import NAMES
from benchmarks.peers.run import run as measure

IMAGE = Path("docs/images/peers.svg")


def run(
    data: Path,
    folder: Path,
    results: Path,
    names: Sequence[str],
    packages: Sequence[str],
    budget: float,
    pilots: bool,
) -> None:
    """Measure what is missing, and print the tables of all that is known."""
    names, scenes = names or list(scene.SCENES), folder / "scenes"
    for name in names:
        scene.prepare(scenes, name, data)
    measure(scenes, folder, results, names, packages or NAMES, budget, pilots)
    if pilots:
        return
    check.run(scenes, folder, results, names)
    for name in names:
        print(f"\n{scene.SCENES[name]}\n\n{render.table(results, name)}", flush=True)
    if set(names) == set(scene.SCENES):
        render.figure(results, IMAGE)
