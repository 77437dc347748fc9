"""dattri's MNIST benchmark: ``python -m benchmarks.dattri truth mlp``, ``… scores Effects``, ``… table``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.dattri import flips, protocol, removal, render, scores, truth
from benchmarks.dattri.methods import ROWS

KINDS = list(protocol.RECIPES)
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", type=Path, default=Path("bench-data/dattri"), help="for networks and scores")
parts = parser.add_subparsers(dest="part", required=True)
part = parts.add_parser("truth", help="train networks; what is there is not trained again")
part.add_argument("kind", choices=KINDS)
part.add_argument("--draw", choices=[*truth.DRAWS, "loo"], default="dattri")
part.add_argument("--n", type=int, default=500, help="samples that loo leaves out, one at a time")
WHAT = {
    "scores": "compute rows of the table and judge them by LDS",
    "loo": "judge rows by leaving samples out, one at a time",
    "removal": "retrain without the samples that rows rank highest",
    "flips": "forecast flips of predictions by rows",
}
for name, text in WHAT.items():
    part = parts.add_parser(name, help=text)
    part.add_argument("rows", nargs="*", metavar="METHOD", help=f"all by default: {', '.join(ROWS)}")
    part.add_argument("--kind", choices=KINDS, action="append")
    if name == "scores":
        part.add_argument(
            "--tune", action="store_true", help="also with settings that the development draw chooses"
        )
parts.add_parser("table", help="print the tables of all that is known, and draw the reliability diagram")
options = parser.parse_args()
torch.set_num_threads(1)
if options.part == "truth":
    if options.draw == "loo":
        truth.leave_one_out(options.kind, options.folder, options.n)
    else:
        truth.run(options.kind, options.folder, options.draw)
elif options.part == "table":
    print("\n\n".join(render.tables(scores.load()).values()))
    render.figures(scores.load())
else:
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"METHOD must be among {', '.join(ROWS)}. Got {unknown[0]!r}.")
    for kind in options.kind or KINDS:
        rows = [name for name in options.rows or ROWS if kind in ROWS[name].kinds]
        if options.part == "scores":
            scores.run(rows, kind, options.folder, tune=options.tune)
        elif options.part == "loo":
            scores.leave_one_out(rows, kind, options.folder)
        elif options.part == "removal":
            removal.run(rows, kind, options.folder)
        else:
            flips.run(rows, kind, options.folder)
