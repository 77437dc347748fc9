"""How many labels must be inspected for a better model: accuracy after retraining, by budget and order.

The protocol and the results are in docs/research/relabel.md. ``noise`` makes wrong labels, ``scenes`` has
data sets and networks, ``orders`` the orders of inspection, ``cells`` measures and keeps what was measured,
and ``render`` makes tables and the figure of the saved results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.environments import environment
from benchmarks.machine import describe
from benchmarks.relabel import cells, memorising, render
from benchmarks.relabel.orders import RAW
from benchmarks.relabel.scenes import SCENES

CLEANLAB = ("cleanlab==2.9.0", "scikit-learn==1.9.1")


def run(data: Path, folder: Path, results: Path, names: Sequence[str] = tuple(SCENES)) -> None:
    """Measure what is missing, save all that is known, and make the page's tables and its figure.

    Parameters
    ----------
    data : folder of the data sets
    folder : where trainings and orders are kept
    results : JSON of all data sets, in which those measured now are replaced
    names : data sets to measure, of ``SCENES``
    """
    os.environ["WHENCE_DATA"] = str(data)  # where the examples look
    python = environment(folder / "cleanlab", CLEANLAB)
    known = json.loads(results.read_text()) if results.exists() else {"cells": {}}
    for name in names:
        seeds = range(SCENES[name].seeds)
        known["cells"][name] = {str(s): cells.measure(name, s, folder, python) for s in seeds}
        known |= {"machine": describe(), "budgets": cells.BUDGETS}
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(known, indent=1) + "\n")
    if "raw" not in known:
        seeds = range(SCENES["bbc-news"].seeds)
        found = [cells.measure("bbc-news", s, folder, python, names=[RAW])["orders"][RAW] for s in seeds]
        known["raw"] = {str(seed): order for seed, order in enumerate(found)}
        results.write_text(json.dumps(known, indent=1) + "\n")
    if "memorising" not in known:
        known["memorising"] = memorising.measure(cells.SHARE)
        results.write_text(json.dumps(known, indent=1) + "\n")
    render.publish(results)
