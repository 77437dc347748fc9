"""How a surrogate of a language model grows with the positions of its corpus: time and memory."""

from __future__ import annotations

import json
import multiprocessing
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import next_tokens
from benchmarks.classes import Peak
from whence.errors import ConvergenceWarning
from whence.svm import solve
from whence.svm.inputs import length, spread

POSITIONS = (10_000, 30_000, 100_000, 300_000)
KAPPA, TOL, SECONDS = 1_000.0, 1e-3, 900.0


def measured(data: Path, folder: Path) -> list[dict[str, Any]]:
    """Solve on more and more positions, each in a process of its own; what was measured before is kept."""
    kept = folder / "growth.json"
    found: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    context = multiprocessing.get_context("spawn")
    for n in POSITIONS:
        if str(n) not in found:
            path, labels = next_tokens.read(data, folder, n)
            ours, theirs = context.Pipe()
            process = context.Process(target=_solved, args=(theirs, path, labels))
            process.start()
            found[str(n)] = ours.recv()
            process.join()
            kept.write_text(json.dumps(found))
        print(found[str(n)], flush=True)
    return list(found.values())


def _solved(pipe: Any, path: Path, labels: np.ndarray) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    X = np.load(path, mmap_mode="r")
    solve(np.asarray(X[:500]), labels[:500] % 200, C=1e-4, tol=1e-2, n_threads=1)  # compile
    C = KAPPA / (len(X) * spread(X) ** 2)
    with Peak() as peak:
        started = time.process_time()
        solution = solve(
            X, labels, n_classes=next_tokens.VOCABULARY, C=C, bias=length(X), tol=TOL, max_seconds=SECONDS,
            n_threads=1,
        )  # fmt: skip
        seconds = time.process_time() - started
    support = int(np.count_nonzero(np.diff(solution.lam.indptr)))
    pipe.send({
        "positions": len(X), "tokens": len(np.unique(labels)), "C": C, "seconds": seconds,
        "bytes": peak.bytes, "inputs": X.nbytes, "gap": solution.gap, "support": support,
        "entries": int(solution.lam.nnz),
    })  # fmt: skip
