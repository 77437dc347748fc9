"""Plausibility of scores: small runs compared with whence's version of the same method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.peers import scene as scenes
from benchmarks.peers.cells import PILOT, place, read, write
from benchmarks.peers.contract import NAMES, Row, package


def own(scene: scenes.Scene, row: Row) -> np.ndarray:
    """Scores (test, train) of whence's version."""
    from whence import methods

    assert row.like is not None
    name, options = row.like
    method = methods.get(name)
    extra = {"checkpoints": scene.checkpoints} if method.capabilities.needs_checkpoints else {}
    explainer = method(**options, show_progress=False).fit(scene.model, (scene.x, scene.y), **extra)
    return np.asarray(explainer.attribute(scene.tests, target=scene.targets))


def agreement(ours: np.ndarray, theirs: np.ndarray) -> list[float]:
    """Pearson and Spearman correlations over training samples, in the median of the tests."""
    pairs = [(a, b) for a, b in zip(ours.astype(np.float64), theirs.astype(np.float64), strict=True)]
    pearson = [np.corrcoef(a, b)[0, 1] for a, b in pairs]
    return [float(np.nanmedian(found)) for found in (pearson, [spearmanr(a, b)[0] for a, b in pairs])]


def run(folder: Path, work: Path, results: Path, names: Any) -> None:
    """Add the agreement to the cells that have scores and no agreement yet."""
    for name in names:
        known: dict[str, np.ndarray] = {}
        for file in NAMES:
            for row in package(file).rows:
                key, cells = f"{name}/{file}/{row.label}", read(results)
                scores = place(work, key, small=True).with_suffix(".npy")
                if (
                    row.like is None
                    or file == "whence"
                    or key not in cells
                    or "agreement" in cells[key]
                    or not scores.exists()
                ):
                    continue
                theirs = np.load(scores)
                scene = scenes.load(folder, name).of(PILOT[name][0], len(theirs))
                wanted = json.dumps(row.like)
                if wanted not in known:
                    known[wanted] = own(scene, row)
                cells[key]["agreement"] = agreement(known[wanted], theirs)
                write(results, key, cells[key])
                print(key, "Pearson {:.3f}, Spearman {:.3f}".format(*cells[key]["agreement"]), flush=True)
