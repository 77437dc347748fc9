"""The rows of the table: whence's methods with their defaults, and what is tried where a row is tuned.

Settings are chosen on the development draw, by its own bank. dattri's published figures are the best of a
grid on the very retrainings that they are judged by.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.dattri import protocol, truth
from whence import methods

LOG_PROB = {"output": "log_prob"}
"""The benchmark's output, −cross-entropy of the true label."""


@dataclass(frozen=True)
class Row:
    """A method with options, the networks it is given, and the options that tuning chooses from.

    ``models`` is 0 for the network trained on all samples, else that many trained on random halves: as
    ``checkpoints`` of methods that take them, or as an ensemble. ``kinds`` are the networks it is for.
    """

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    models: int = 0
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    kinds: tuple[str, ...] = tuple(protocol.RECIPES)

    @property
    def variants(self) -> list[dict[str, Any]]:
        """All combinations of the grid."""
        values = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, chosen, strict=True)) for chosen in values] if self.grid else []


DAMPING = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
ROWS = {
    row.label: row
    for row in (
        Row("Effects", "effects"),
        Row("Effects, log-probability", "effects", LOG_PROB),
        Row("Effects, last layer", "effects", {**LOG_PROB, "layers": "last"}, kinds=("mlp",)),
        Row("Effects, 5 models", "effects", LOG_PROB, models=5, kinds=("mlp",)),
        Row("Effects, tangent", "effects", {**LOG_PROB, "layers": "tangent"}, kinds=("mlp",)),
        Row("EK-FAC", "ekfac", grid={"damping": DAMPING}),
        Row("Influence, last layer", "influence", grid={"damping": DAMPING}),
        Row("Arnoldi", "arnoldi", {"params": "all"}, grid={"damping": DAMPING[1:]}),
        Row("TRAK-1", "trak", models=1, grid={"ridge": RIDGES}),
        Row("TRAK-5", "trak", models=5),
        Row("TRAK-10", "trak", models=10, grid={"ridge": RIDGES}),
        Row("GradDot", "graddot"),
        Row("GradCos", "gradcos"),
        Row("TracIn, 10 models", "tracin", models=10),
        Row("Representer Points", "representer"),
        Row("Similarity", "similarity", grid={"metric": ("dot", "cosine", "whitened", "l2")}),
        Row("HingeRP", "hingerp"),
        Row("DualDA", "dualda", grid={"metric": ("raw", "unit", "whitened"), "C": (1e-4, 1e-3, 1e-2, 1e-1)}),
        Row("Random", "random"),
    )
}
_TAKE_CHECKPOINTS = ("trak", "tracin")


def compute(row: Row, kind: str, folder: Path, name: str, extra: Mapping[str, Any] | None = None) -> Path:
    """Return the file with a row's scores of a draw, computed once; its CPU-seconds are next to it."""
    path = folder / "scores" / f"{name}-{kind}-{slug(row.label, extra)}.safetensors"
    if path.exists():
        return path
    data = protocol.load(truth.DRAWS[name])
    full = truth.full(kind, data, folder, name)
    models = truth.members(kind, data, folder, name)[: row.models] if row.models else []
    start = time.process_time()
    method = methods.get(row.method)(**{**row.options, **(extra or {}), "show_progress": False})
    pairs = (data.train, data.train_labels)
    if not models:
        explainer = method.fit(full, pairs)
    elif row.method in _TAKE_CHECKPOINTS:
        explainer = method.fit(full, pairs, checkpoints=models)
    else:
        explainer = methods.Ensemble(method, show_progress=False).fit(models, pairs)
    path.parent.mkdir(parents=True, exist_ok=True)
    explainer.save_scores(path, data.test, target=data.test_labels)
    path.with_suffix(".seconds").write_text(f"{time.process_time() - start:.2f}")
    return path


def seconds(path: Path) -> float:
    """Return the CPU-seconds of fitting and scoring."""
    return float(path.with_suffix(".seconds").read_text())


def slug(label: str, extra: Mapping[str, Any] | None) -> str:
    """Return a file's name for a row and options."""
    text = " ".join([label, *(f"{key}={value}" for key, value in (extra or {}).items())])
    return "-".join(text.lower().replace(",", "").split())
