"""Finding planted wrong labels: every ranking of ``whence.audit``, others that were tried, and cleanlab.

cleanlab is installed, without dependencies, into a folder below the cache and nowhere else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks import shortcuts
from benchmarks.mislabelled import NOISES, Planted, planted
from whence import DualDA
from whence.audit import RANKINGS, wrong_labels
from whence.audit.heldout import calibrated
from whence.audit.labels import nearest
from whence.features import FeatureBank

CLEANLAB = ("cleanlab==2.9.0", "termcolor==3.3.0")
CHOSEN_ON = [("fashion-mnist", 0), ("cifar-10", 4)]
REPORTED = {name: (0, 1, 2) for name in ("mnist", "cifar-10", "bbc-news")}


def label_quality(cache: Path) -> Callable[..., np.ndarray]:
    """Give cleanlab's ``get_label_quality_scores``; what it builds on is in the environment anyway."""
    folder = cache / "cleanlab"
    if not (folder / "cleanlab").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*command, *CLEANLAB], check=True)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    from cleanlab.rank import get_label_quality_scores

    return get_label_quality_scores


def out_of_sample(case: Planted, stored: Path) -> np.ndarray:
    """Probabilities by cleanlab's own recipe, logistic regression on the features in five folds, (N, K)."""
    if not stored.exists():
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        model = LogisticRegression(max_iter=400)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the likelihood is flat long before the limit
            found = cross_val_predict(model, case.features, case.labels, cv=folds, method="predict_proba")
        np.save(stored, found)
    return np.load(stored)


def suspicions(case: Planted, cache: Path, stored: Path) -> dict[str, np.ndarray]:
    """Scores (N,) of every ranking, larger being more suspicious."""
    X, y = case.features, case.labels
    explainer = DualDA(show_progress=False).fit(features=FeatureBank.of(X, y, head=(case.weight, case.bias)))
    found = {}
    for name in RANKINGS:
        listed = wrong_labels(explainer, ranking=name, features=X, k=1)
        found[f"whence {name}"] = scores = np.empty(len(y))
        scores[listed.indices] = listed.scores
    found |= tried(explainer, case)
    quality = label_quality(cache)
    for source, p in (
        ("cross-validated", out_of_sample(case, stored)),
        ("model in-sample", case.probabilities),
    ):
        for method in ("self_confidence", "normalized_margin"):
            found[f"cleanlab {method}, {source}"] = -quality(y, p, method=method)
    return found


def tried(explainer: DualDA, case: Planted) -> dict[str, np.ndarray]:
    """Rankings that whence does not offer."""
    X, y, rows = case.features.astype(np.float64), case.labels, np.arange(len(case.labels))
    W = explainer.coef_
    norms = (X**2).sum(1) + 1
    scores = X @ W[:, :-1].T + W[:, -1] - explainer.lam_.toarray() * norms[:, None]
    own = scores[rows, y].copy()
    scores[rows, y] = -np.inf
    near = nearest(case.features, rows, 20)
    # The paper's ranking where it is better: few samples are at the bound of a large C.
    sparse = DualDA(C=1e5 / norms.sum(), tol=1e-3, show_progress=False).fit(
        features=FeatureBank.of(case.features, y)
    )
    return {
        "tried: self-influence at κ = 10⁵": sparse.self_influence().numpy(),
        "tried: margin without the sample's own τ": scores.max(1) - own,
        "tried: model alone, calibrated": -calibrated(np.log(case.probabilities + 1e-300), y)[rows, y],
        "tried: share of 20 neighbours that disagree": (y[near] != y[:, None]).mean(1),
    }


def precision(name: str, noise: str, seed: int, cache: Path) -> dict[str, float]:
    """Average precision of every ranking on one training set."""
    case = planted(name, noise, seed, cache)
    stored = cache / "mislabelled" / f"{name}-{noise}-{seed}-logistic.npy"
    found = suspicions(case, cache, stored)
    return {key: float(average_precision_score(case.wrong, scores)) for key, scores in found.items()}


def run(folder: Path, cache: Path) -> None:
    """Print how well wrong labels and a shortcut are found in the data sets below ``folder``."""
    os.environ["WHENCE_DATA"] = str(folder)  # where the examples look
    labels(cache)
    shortcuts.run(cache)


def labels(cache: Path) -> None:
    """Print average precision, mean and spread over seeds."""
    columns: dict[str, list[dict[str, float]]] = {}
    for name, seed in CHOSEN_ON:
        for noise in NOISES[: 1 if name == "cifar-10" else 2]:
            columns[f"({name} {noise})"] = [precision(name, noise, seed, cache)]
    for name, seeds in REPORTED.items():
        for noise in NOISES:
            columns[f"{name} {noise}"] = [precision(name, noise, seed, cache) for seed in seeds]
    print(
        "\nAverage precision of finding the tenth of the labels that is wrong, mean ± standard deviation "
        "over 3 seeds.\nThe sets in parentheses, one seed, are those that the default was chosen on.\n"
    )
    print("| ranking | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for key in next(iter(columns.values()))[0]:
        print(
            f"| {key} | " + " | ".join(_cell([run[key] for run in runs]) for runs in columns.values()) + " |"
        )


def _cell(values: list[Any]) -> str:
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"
