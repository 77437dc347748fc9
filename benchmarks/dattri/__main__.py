"""dattri's MNIST benchmark: ``python -m benchmarks.dattri truth mlp``, ``… scores Effects``, ``… table``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.dattri import protocol, render, scores, truth
from benchmarks.dattri.methods import ROWS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", type=Path, default=Path("bench-data/dattri"), help="for networks and scores")
parts = parser.add_subparsers(dest="part", required=True)
part = parts.add_parser("truth", help="train networks; what is there is not trained again")
part.add_argument("kind", choices=list(protocol.RECIPES))
part.add_argument("--draw", choices=[*truth.DRAWS, "loo"], default="dattri")
part.add_argument("--n", type=int, default=500, help="samples that loo leaves out, one at a time")
part = parts.add_parser("scores", help="compute rows of the table and judge them")
part.add_argument("rows", nargs="*", metavar="METHOD", help=f"all by default: {', '.join(ROWS)}")
part.add_argument("--kind", choices=list(protocol.RECIPES), action="append")
part.add_argument("--tune", action="store_true", help="also with settings chosen on the development draw")
part.add_argument("--loo", action="store_true", help="judge by leaving samples out instead")
parts.add_parser("table", help="print the table of all that is known")
options = parser.parse_args()
torch.set_num_threads(1)
if options.part == "truth":
    if options.draw == "loo":
        truth.leave_one_out(options.kind, options.folder, options.n)
    else:
        truth.run(options.kind, options.folder, options.draw)
elif options.part == "scores":
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"METHOD must be among {', '.join(ROWS)}. Got {unknown[0]!r}.")
    for kind in options.kind or protocol.RECIPES:
        if options.loo:
            scores.leave_one_out(options.rows or list(ROWS), kind, options.folder)
        else:
            scores.run(options.rows or list(ROWS), kind, options.folder, tune=options.tune)
else:
    print(render.table(scores.load()))
