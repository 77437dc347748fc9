"""DualDA on features of one and of several layers: agreement, identical subclass, shortcuts, pair flipping.

MNIST and Fashion-MNIST, a narrow CNN, two seeds each. The protocol with C = "auto" was fixed before any
result. Its shortcuts were at chance for all layers, as DualDA's are at such a C, so κ = C·N·mean‖f‖² of 3 and
of 300 were added. All of it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whence.methods import DualDA
from whence_studies import Column, Metric, explain_pairs
from whence_studies.suite import protocol
from whence_studies.suite import run as suite

LAYERS: tuple[Any, ...] = ("last", 2, "all")  # "auto" is all of the 5 of this network
KAPPAS = (3.0, 300.0)
SETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
SEEDS = (0, 1)
COLUMNS = {
    "agreement on tests": ("surrogate", "test_agreement"),
    "support vectors": ("surrogate", "support_vectors"),
    "identical subclass": ("identical_subclass", "score"),
    "shortcut": ("shortcut", "score"),
    "flipping, XDA": ("pair_flipping", "XDA"),
    "flipping, random": ("pair_flipping", "random"),
    "seconds to solve": ("surrogate", "solve_seconds"),
}


@dataclass(eq=False)
class AtKappa(DualDA):
    """DualDA with a C that compares across features: C = κ/(N mean‖f‖²)."""

    name = "kappa"
    kappa: float = 1.0

    def learn(self, training: Any, **given: Any) -> Any:
        self.C = self.kappa / float(np.square(training.bank.features, dtype=np.float64).sum())
        return super().learn(training, **given)


class PairFlipping(Metric):
    """Area under the score of the strongest pairs while the most relevant patches of the test are removed."""

    name = "pair_flipping"
    columns = (Column("Pair flipping", "area (↓ better)", rising=False),)

    tests: int = 20
    patch: int = 4
    steps: int = 10

    def applies(self, method: Any) -> bool:
        """Return whether the method has pairs to explain."""
        return issubclass(method.kind, DualDA)

    def measure(self, case: Any) -> Any:
        """Return the mean area over pairs, by XDA and by random orders."""
        assert isinstance(case.attributor, DualDA)
        x, target = case.scene.tests[: self.tests], case.scene.explained[: self.tests]
        pairs = explain_pairs(case.attributor, x, target=target, methods={"XDA": None, "random": "random"})
        found = pairs.flip("test", steps=self.steps, patch=self.patch, n_random=3)
        return [
            case.row(self.name, name, float(areas.mean()))
            for name, areas in zip(found.methods, found.areas, strict=True)
        ]


def wanted(data: str, seed: int) -> protocol.Protocol:
    """Return the protocol of one data set and seed."""
    methods: list[dict[str, Any]] = [
        {"name": "dualda", "label": f"C auto, {which}", "options": {"layers": which}} for which in LAYERS
    ]
    methods += [
        {
            "name": "benchmarks.layers:AtKappa",
            "label": f"κ = {kappa:g}, {which}",
            "options": {"layers": which, "kappa": kappa},
        }
        for kappa in KAPPAS
        for which in LAYERS
    ]
    return protocol.parse(
        {
            "title": f"Layers of DualDA, {SETS[data]}",
            "seed": seed,
            "data": {"name": data, "train": 1000, "test": 500, "held_out": 100},
            "model": {"name": "narrow-cnn", "steps": 300},
            "methods": methods,
            "metrics": {
                "surrogate": {},
                "identical_subclass": {},
                "shortcut": {"maps": 0},
                "benchmarks.layers:PairFlipping": {},
            },
        }
    )


def run(data: Path, cache: Path) -> None:
    for name, title in SETS.items():
        rows: list[Any] = []
        for seed in SEEDS:
            out = cache / "layers" / f"{name}-{seed}"
            rows += suite.run(wanted(name, seed), data, out, show_progress=False).rows
        print(f"\n{table(title, rows)}\n", flush=True)


def table(title: str, rows: list[Any]) -> str:
    """Write the means over tests and seeds, one line per choice of layers."""
    lines = [f"| {title} | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for method in wanted("mnist", 0).methods:
        cells = []
        for metric, quantity in COLUMNS.values():
            values = [
                row.value
                for row in rows
                if (row.metric, row.method, row.quantity) == (metric, method.key, quantity)
            ]
            cells.append(f"{np.mean(values):.3f}" if values else "–")
        lines.append(f"| {method.label} | {' | '.join(cells)} |")
    return "\n".join(lines)
