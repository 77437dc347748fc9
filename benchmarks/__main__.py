"""Run the benchmarks, all or some: ``python -m benchmarks [solver attribution …]``; ``--help`` lists them."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import (
    attribution,
    audit,
    classes,
    clicks,
    cluster,
    coresets,
    effects,
    explorer,
    faults,
    flipping,
    growth,
    heldout_features,
    kills,
    language,
    layers,
    memory,
    methods,
    novelty,
    outliers,
    peers,
    relabel,
    response,
    soak,
    solver,
    tolerance,
    update,
    xda,
)
from benchmarks.machine import describe

PARTS = (
    "solver",
    "attribution",
    "memory",
    "tolerance",
    "update",
    "growth",
    "classes",
    "methods",
    "flipping",
    "audit",
    "coresets",
    "xda",
    "explorer",
    "layers",
    "effects",
    "response",
    "kills",
    "outliers",
    "novelty",
    "cluster",
)
ALONE = ("peers", "language", "relabel", "faults", "clicks", "heldout")
"""Parts that run only where they are asked for."""

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "parts",
    nargs="*",
    choices=[*PARTS, *ALONE, []],
    help=f"what to run; all but {', '.join(ALONE)} by default",
)
parser.add_argument("--data", type=Path, default=Path.home() / ".cache/whence/data", help="data folder")
parser.add_argument("--cache", type=Path, default=Path("bench-data"), help="where features are kept")
parser.add_argument("--limit", type=float, default=600.0, help="seconds for one fit of LinearSVC")
parser.add_argument(
    "--results",
    type=Path,
    default=Path("bench-data/solver.json"),
    help="cells of the solver's table: what is found there is not measured again",
)
parser.add_argument("--shape", action="append", choices=list(solver.SHAPES), help="only these of its rows")
parser.add_argument("--cell", action="append", type=int, help="only these cells of classes, by their number")
parser.add_argument("--seconds", type=float, default=600.0, help="for one cell of classes")
parser.add_argument("--again", action="store_true", help="measure whence's cells of that table again")
parser.add_argument(
    "--growth",
    type=Path,
    default=Path("bench-data/growth.json"),
    help="points of the growth curves: what is found there is not measured again",
)
parser.add_argument("--curve", action="append", choices=list(growth.CURVES), help="only these of them")
parser.add_argument(
    "--peers", type=Path, default=Path("bench-data/peers"), help="environments of other packages"
)
parser.add_argument("--peer", action="append", choices=peers.NAMES, help="only these of them")
parser.add_argument("--scene", action="append", choices=list(peers.scene.SCENES), help="only these data sets")
parser.add_argument("--budget", type=float, default=480.0, help="seconds for one of their cells")
parser.add_argument("--pilots", action="store_true", help="their small runs alone")
parser.add_argument("--soak", type=float, metavar="MINUTES", help="explorer: many visitors instead")
parser.add_argument("--clients", type=int, default=16, help="how many of them")
options = parser.parse_args()
chosen = options.parts or PARTS
print(describe(), "\n", flush=True)
if "solver" in chosen:
    solver.run(
        options.data, options.cache, options.limit, options.results, options.shape or [], options.again
    )
if "attribution" in chosen:
    attribution.run()
if "memory" in chosen:
    memory.run(options.data, options.cache)
if "growth" in chosen:
    growth.run(options.data, options.cache, options.growth, options.curve or [])
    growth.draw(options.growth, options.growth.with_suffix(".svg"))
if "classes" in chosen:
    classes.run(options.data, options.cache, options.cell or [], options.seconds)
if "tolerance" in chosen:
    tolerance.run(options.data, options.cache)
if "update" in chosen:
    update.run(options.data)
if "methods" in chosen:
    methods.run(options.data, options.cache)
if "flipping" in chosen:
    flipping.run(options.data, options.cache)
if "audit" in chosen:
    audit.run(options.data, options.cache)
if "coresets" in chosen:
    coresets.run(options.data, options.cache)
if "xda" in chosen:
    xda.run()
if "explorer" in chosen and options.soak:
    soak.run(options.cache, options.soak, options.clients, Path("docs/results/soak.json"))
elif "explorer" in chosen:
    explorer.run(options.cache)
if "layers" in chosen:
    layers.run(options.data, options.cache)
if "effects" in chosen:
    effects.run(options.data, options.cache)
if "response" in chosen:
    response.run(options.data)
if "kills" in chosen:
    kills.run()
if "outliers" in chosen:
    outliers.run(options.data)
if "novelty" in chosen:
    novelty.run(options.data)
if "cluster" in chosen:
    cluster.run(options.data, options.cache)
if "peers" in chosen:
    peers.run(
        options.data,
        options.peers,
        Path("docs/results/peers.json"),
        options.scene or [],
        options.peer or [],
        options.budget,
        options.pilots,
    )
if "language" in chosen:
    language.run(options.data, options.cache / "language", Path("docs/results/language.json"))
if "relabel" in chosen:
    relabel.run(options.data, options.cache / "relabel", Path("docs/results/relabel.json"))
if "faults" in chosen:
    faults.run(options.cache, Path("docs/results/faults.json"))
if "clicks" in chosen:
    clicks.run(options.cache, Path("docs/results/clicks.json"))
if "heldout" in chosen:
    heldout_features.run(options.data, Path("docs/results/heldout_features.json"))
