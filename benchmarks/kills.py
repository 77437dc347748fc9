"""Kills of ``whence fit`` at random moments, each resumed to the bytes of an undisturbed fit."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.helpers.killing import Kills, Zygote

KILLS, IN_SOLVING_AND_SAVING = 200, 50


def run() -> None:
    """Kill until there were enough, and print where the kills fell."""
    started = time.perf_counter()
    processes = Zygote()
    try:
        with tempfile.TemporaryDirectory() as folder:
            kills = Kills(processes, Path(folder), seed=0)
            while not _enough(kills):
                kills.trial(("anywhere", "solving", "saving"))
    finally:
        processes.close()
    total = sum(kills.counts.values())
    fell = ", ".join(f"{count} while {stage}" for stage, count in sorted(kills.counts.items()))
    print(
        f"Kills: {total} of {kills.trials} fits ({fell}), each resumed to the same bytes "
        f"of features, labels, solution, explainer and configuration; an undisturbed fit takes "
        f"{kills.seconds:.2f} s; {time.perf_counter() - started:.0f} s in all\n",
        flush=True,
    )


def _enough(kills: Kills) -> bool:
    aimed = kills.counts["solving"] + kills.counts["saving"]
    return sum(kills.counts.values()) >= KILLS and aimed >= IN_SOLVING_AND_SAVING
