"""whence compared with other packages, on the same networks, training sets and tests.

``scene`` has what every package is given, ``packages`` one file per package, ``worker`` runs a method in
its package's environment and measures it, ``cells`` all of them, ``check`` compares scores with whence's own
version of a method, and ``render`` makes the table and the figure of what was saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import scene
from benchmarks.peers.contract import NAMES

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
    # Only here: other packages' environments, which read this file too, need not have what these import.
    from benchmarks.peers import cells, check, render

    names, scenes = names or list(scene.SCENES), folder / "scenes"
    for name in names:
        scene.prepare(scenes, name, data)
    cells.run(scenes, folder, results, names, packages or NAMES, budget, pilots)
    if pilots:
        return
    check.run(scenes, folder, results, names)
    for name in names:
        print(f"\n{scene.SCENES[name]}\n\n{render.table(results, name)}", flush=True)
    render.figure(results, IMAGE)
