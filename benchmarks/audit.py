"""Finding planted wrong labels: the rankings of ``whence.audit``, what was tried, cleanlab and its Datalab.

Protocol, fixed before the reported sets were looked at:

- Reported are MNIST, CIFAR-10 and BBC News, seeds 0 to 2, with a tenth and with three tenths of the labels
  wrong, symmetric and in pairs, and with a tenth wrong and networks trained on until they fit 90 % of them.
- Every constant of the default was chosen on Fashion-MNIST, seeds 0, 1 and 3, CIFAR-10, seeds 3 and 4, and
  MNIST, seed 3, with 2, 10 and 30 % wrong, some of them memorised; never on the reported sets.
- Let d be the differences of average precision, another row minus the default, over the seeds of a column.
  The default is *best* in a column if no other row has mean(d) > 0, *tied* if no other row has mean(d) above
  the standard deviation of d, and *behind* otherwise.

cleanlab and Datalab live in a virtual environment of their own below the cache.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks import cleanlab_scores, shortcuts
from benchmarks.environments import environment
from benchmarks.mislabelled import NOISES, Plan, Planted, planted
from whence import DualDA
from whence.audit import RANKINGS
from whence.audit.heldout import calibrated
from whence.audit.rankings import Evidence, suited
from whence.features import FeatureBank

CLEANLAB = ["cleanlab[datalab]==2.9.0"]
DEFAULT = "whence, default"
NAMES, SEEDS = ("mnist", "cifar-10", "bbc-news"), (0, 1, 2)
PARTS = {
    "a tenth wrong": {"share": 0.1},
    "three tenths wrong": {"share": 0.3},
    "a tenth wrong, memorised": {"share": 0.1, "memorised": True},
}

Run = tuple[dict[str, float], str, float]
"""Average precision per row, the ranking that the default took, the part of wrong labels that was fitted."""


def crossed(case: Planted) -> np.ndarray:
    """Probabilities by cleanlab's own recipe, logistic regression on the features in five folds, (N, K)."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the likelihood is flat long before the limit
        found: np.ndarray = cross_val_predict(
            LogisticRegression(max_iter=400), case.features, case.labels, cv=folds, method="predict_proba"
        )
    return found


def cleanlab(case: Planted, stem: str, cache: Path) -> dict[str, np.ndarray]:
    """Scores (N,) of cleanlab and Datalab, computed once, in their environment."""
    out = cache / "mislabelled" / f"{stem}-cleanlab.npz"
    if not out.exists():
        python = environment(cache / "cleanlab", CLEANLAB)
        given = out.with_name(f"{stem}-given.npz")
        np.savez(
            given,
            labels=case.labels,
            features=case.features,
            crossed=crossed(case),
            inside=case.probabilities,
        )
        subprocess.run([str(python), cleanlab_scores.__file__, str(given), str(out)], check=True)
        given.unlink()
    with np.load(out) as arrays:
        return dict(arrays)


def ours(case: Planted) -> tuple[dict[str, np.ndarray], str]:
    """Scores (N,) of every ranking, and the name of the one that the default took."""
    X, y = case.features, case.labels
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a chosen C at the end of its path matters to slack only
        explainer = DualDA(show_progress=False).fit(
            features=FeatureBank.of(X, y, head=(case.weight, case.bias))
        )
        headless = DualDA(show_progress=False, C=explainer.C_).fit(features=FeatureBank.of(X, y))
    # What wrong_labels does, but for holding out anew for each ranking.
    evidence, less = Evidence(explainer, X), Evidence(headless, X)
    taken = suited(evidence)
    found = {name: ranking(evidence)[0] for name, ranking in RANKINGS.items()}
    rows = {DEFAULT: found[taken], f"{DEFAULT}, head unknown": RANKINGS[suited(less)](less)[0]}
    rows |= {f"whence {name}": scores for name, scores in found.items()}
    return rows | tried(case, evidence.held_out[:3]), taken


def tried(case: Planted, held_out: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Rankings that whence does not offer."""
    y, rows = case.labels, np.arange(len(case.labels))
    head = calibrated(np.log(case.probabilities + 1e-300), y)
    three = np.mean([calibrated(scores, y) for scores in held_out], axis=0)
    logs = {
        "tried: held out, κ to 3,000, alone": three,
        "tried: held out ⅓, model ⅔": three / 3 + head * 2 / 3,
        "tried: model alone, calibrated": head,
    }
    return {key: np.logaddexp.reduce(part, axis=1) - part[rows, y] for key, part in logs.items()}


def measured(plan: Plan, cache: Path) -> Run:
    """Average precision of every ranking on one training set."""
    case = planted(plan, cache)
    found, taken = ours(case)
    found |= cleanlab(case, plan.stem, cache)
    precision = {key: float(average_precision_score(case.wrong, scores)) for key, scores in found.items()}
    return precision, taken, case.fitted


def verdict(runs: list[Run]) -> str:
    """Say whether the default is best, tied or behind in a column, as the protocol has it."""
    rows = {key: np.array([precision[key] for precision, _, _ in runs]) for key in runs[0][0]}
    ahead = {key: values - rows[DEFAULT] for key, values in rows.items() if key != DEFAULT}
    ahead = {key: d for key, d in ahead.items() if d.mean() > 0}
    behind = {key: d.mean() for key, d in ahead.items() if d.mean() > d.std(ddof=1)}
    if behind:
        worst = max(behind, key=lambda key: behind[key])
        return f"behind by {behind[worst]:.4f} ({worst})"
    return "tied" if ahead else "best"


def run(folder: Path, cache: Path) -> None:
    """Print how well wrong labels and a shortcut are found in the data sets below ``folder``."""
    os.environ["WHENCE_DATA"] = str(folder)  # where the examples look
    for title, options in PARTS.items():
        columns = {
            f"{name} {noise}": [measured(Plan(name, noise, seed, **options), cache) for seed in SEEDS]  # type: ignore[arg-type]
            for name in NAMES
            for noise in NOISES
        }
        show(title, columns)
    shortcuts.run(cache)


def show(title: str, columns: dict[str, list[Run]]) -> None:
    """Print average precision, mean ± standard deviation over seeds, and how the default stands."""
    print(f"\nAverage precision of finding wrong labels, {title}, mean ± standard deviation over seeds.\n")
    print(f"| ranking | {' | '.join(columns)} |")
    print("|---|" + "---|" * len(columns))
    for key in next(iter(columns.values()))[0][0]:
        cells = ([precision[key] for precision, _, _ in runs] for runs in columns.values())
        print(f"| {key} | " + " | ".join(f"{np.mean(v):.3f} ± {np.std(v, ddof=1):.3f}" for v in cells) + " |")
    took = (", ".join(sorted({taken for _, taken, _ in runs})) for runs in columns.values())
    print(f"| the default took | {' | '.join(took)} |")
    share = (f"{np.mean([fitted for *_, fitted in runs]):.2f}" for runs in columns.values())
    print(f"| wrong labels fitted | {' | '.join(share)} |")
    print(f"| the default is | {' | '.join(map(verdict, columns.values()))} |", flush=True)
