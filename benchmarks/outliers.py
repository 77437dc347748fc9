"""Foreign samples among tests: which score of the features detects them, by the area under the curve (AUC).

Protocol: a small network is trained on the first 5,000 images of one set (one seed, two epochs); its 128
penultimate features of these are the training set. Tests are the first 500 test images of the same set and
500 of the other one, scaled alike. Scores are of raw features, of unit length, and centred on the
training mean; the linear one-class machine also by the class that the model predicts. ν = 0.1 for all
machines, k = 5 for neighbours, scikit-learn's defaults for the rest. No parameter is chosen by the result.

BBC News, for texts that are foreign by their topic alone: 800 articles of 64 tokens, drawn with seed 0. Each
of the five topics is foreign in turn. MiniLM's last layer, its pooler and a head of the four other topics are
trained for three epochs (seed 0) on those of the first 600 articles that are not foreign; the training set is
the 384 features that go into the head. Tests are the articles of the four topics among the other 200, and all
foreign articles. The same scores and parameters; AUC by topic, and their mean. One score is new with BBC
News, and is run for the images too: the mean of the products with the 5 training samples where they are
largest, which at unit length is a mean of cosines, and a sum over training samples.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from examples import bbc_news
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import OneClassSVM
from torch import nn

from benchmarks.data import read_idx
from benchmarks.mislabelled import SETS, features_and_head
from whence.svm import OneClassProblem, solve

N, TESTS, NU, K = 5_000, 500, 0.1, 5
SEEN = 600  # of the articles, which can be trained on
Rows = np.ndarray
Score = Callable[[Rows, Rows], Rows]


def machine(X: Rows, nu: float = NU) -> Rows:
    """w of the one-class machine at the C whose Σλ/(C·N) is ν, by halving an interval of log C."""
    low, high = -12.0, 6.0
    scale = float((X**2).sum(axis=1).mean())
    for _ in range(14):
        C = float(np.exp((low + high) / 2) / scale)
        found = solve(
            X, np.ones(len(X)), problem=OneClassProblem, n_classes=1, C=C, bias=False, tol=1e-4, n_threads=1
        )
        share = float(found.lam.sum()) / (C * len(X))
        low, high = ((low + high) / 2, high) if share > nu else (low, (low + high) / 2)
    return found.weight[0]


SCORES: dict[str, Score] = {
    "linear one-class machine": lambda X, T: T @ machine(X),
    "one-class machine, RBF kernel (scikit-learn)": lambda X, T: (
        OneClassSVM(nu=NU).fit(X).decision_function(T)
    ),
    "isolation forest (scikit-learn)": lambda X, T: IsolationForest(random_state=0).fit(X).score_samples(T),
    "distance to the 5th neighbour": lambda X, T: (
        -NearestNeighbors(n_neighbors=K).fit(X).kneighbors(T)[0][:, -1]
    ),
    "mean product with the 5 nearest": lambda X, T: np.sort(T @ X.T, axis=1)[:, -K:].mean(axis=1),
    "nearness to the mean": lambda X, T: -np.linalg.norm(T - X.mean(axis=0), axis=1),
    "length": lambda X, T: np.linalg.norm(T, axis=1),
}


def unit(X: Rows) -> Rows:
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)


def images(data: Path, name: str, part: str, n: int) -> torch.Tensor:
    pixels = read_idx(data / name / f"{part}-images-idx3-ubyte.gz")[:n]
    return torch.from_numpy(pixels.astype(np.float32) / 255.0).unsqueeze(1)


def features(x: torch.Tensor, y: torch.Tensor) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(),
    )  # fmt: skip
    head = nn.Linear(128, 10)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(2):
        for rows in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(body(x[rows])), y[rows]).backward()
            optimiser.step()
    return body, head


def compared(X: Rows, y: Rows, T: Rows, logits: torch.Tensor, usual: Rows) -> dict[str, list[float]]:
    """AUC of every score, by features as they are, of unit length, and centred."""
    forms = [(X, T), (unit(X), unit(T)), (X - X.mean(axis=0), T - X.mean(axis=0))]
    found = {name: [roc_auc_score(usual, score(*form)) for form in forms] for name, score in SCORES.items()}
    said, by_class = logits.argmax(1).numpy(), []
    for A, B in forms:
        scores = np.empty(len(B))
        for c in np.unique(said):
            scores[said == c] = B[said == c] @ machine(A[y == c])
        by_class.append(roc_auc_score(usual, scores))
    sure = logits.softmax(1).max(1).values.numpy()
    return {
        **found,
        "linear one-class machine by class": by_class,
        "the model's own probability": [roc_auc_score(usual, sure)],
    }


def report(title: str, found: dict[str, list[float]]) -> None:
    for name, each in found.items():
        cells = [f"{value:.3f}" for value in each] + [""] * (3 - len(each))
        print(f"| {title} | {name} | {' | '.join(cells)} |", flush=True)


def foreign_topics() -> None:
    """BBC News, each topic foreign in turn."""
    states, labels, fit = SETS["bbc-news"](0)
    first = torch.arange(len(labels)) < SEEN
    everything = []
    for topic, name in enumerate(bbc_news.TOPICS):
        own = labels != topic
        train, tests = first & own, ~first | ~own
        y = (labels - (labels > topic).long())[train]  # 0 … 3; the head's fifth output is not looked at
        X, T, logits = _features(*fit(states[train], y, 0), states, train, tests)
        found = compared(X, y.numpy(), T, logits[:, :4], own[tests].long().numpy())
        report(f"bbc-news, {name} ({int(train.sum())}; {int(own[tests].sum())}, {int((~own).sum())})", found)
        everything.append(found)
    mean = {name: np.mean([each[name] for each in everything], axis=0).tolist() for name in everything[0]}
    report("bbc-news, mean of five", mean)


def _features(
    model: nn.Module, layer: str, states: torch.Tensor, train: torch.Tensor, tests: torch.Tensor
) -> tuple[Rows, Rows, torch.Tensor]:
    rows, head = features_and_head(model, layer, states)
    with torch.inference_mode():
        logits = head(rows[tests]).double()
    return rows[train].double().numpy(), rows[tests].double().numpy(), logits


def run(data: Path) -> None:
    print("\n| training set, foreign samples | score | as they are | unit length | centred |")
    print("|---|---|---|---|---|", flush=True)
    for own, foreign in (("mnist", "fashion-mnist"), ("fashion-mnist", "mnist")):
        x = images(data, own, "train", N)
        y = read_idx(data / own / "train-labels-idx1-ubyte.gz").astype(np.int64)[:N]
        body, head = features(x, torch.from_numpy(y))
        tests = torch.cat([images(data, name, "t10k", TESTS) for name in (own, foreign)])
        with torch.inference_mode():
            X, T = (body(part).numpy().astype(np.float64) for part in (x, tests))
            logits = head(torch.from_numpy(T.astype(np.float32))).double()
        report(f"{own}, {foreign}", compared(X, y, T, logits, np.repeat([1, 0], TESTS)))
    foreign_topics()
