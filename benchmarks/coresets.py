"""Networks retrained on the part of a training set that a method keeps, against random parts of it.

The protocol was fixed before Fashion-MNIST and CIFAR-10 were run; variants were chosen on MNIST alone.

- 2,000 training images, 1,000 of validation by whose labels values are taken, 2,000 tests that no method
  sees.
- The network and its training are those of the protocols cpu-mnist, cpu-fashion and cpu-cifar10: as many
  steps for every part, whatever its size. Two training seeds, other than the explained network's.
- Shares of 10, 20, 30, 40 and 50 %. Three draws of random parts, plain and with as many of every class.
- Values: ``Effects(output="log_prob")`` on features of up to five layers of the network that
  was trained on all samples; mean effects for the true classes of the validation set (``audit.values``).
  *Once*: the most valuable, as many of every class. *In rounds*: a fifth of what is left goes, the least
  valuable first, and the rest is valued again, so that of samples that do the same work some stay; with and
  without as many of every class. *Of pixels*: in rounds, on the pixels, which know nothing of the samples
  that are left out.
- *Cover* and *values by cluster*, added after a look at MNIST alone and before Fashion-MNIST and CIFAR-10
  were run with the present Effects: the features of every class are divided by k-means into as many clusters
  as samples of it are kept; of each cluster the sample nearest to its mean is kept, or the most valuable.
- ``audit.coreset``: the largest mean |τ| for the validation set, by DualDA.
- Reported: mean accuracy on the tests over seeds, and the spread of random parts over draws. A method is
  better than random where its mean is above that of the balanced draws by more than twice their standard
  deviation.
- *What is kept*, added later to see why: at the smallest share, which classes a part has, how sure the
  network is that was trained on all samples, and how near the part comes to the tests (``kept``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from torch import Tensor

import whence_studies.scenes.sources  # noqa: F401  registers the data sets
from whence import DualDA, Effects, audit
from whence.core.fingerprint import key_of
from whence.features import FeatureBank, extract
from whence.tasks import Classes
from whence_studies.scenes import datasets, networks
from whence_studies.scenes.training import Recipe, Trainer

TRAIN, VALIDATION, TESTS = 2_000, 1_000, 2_000
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
SEEDS, DRAWS, CUT = (1, 2), 3, 0.2
CNN = Recipe(name="narrow-cnn", steps=500)
RECIPES = {
    "mnist": CNN,
    "fashion-mnist": CNN,
    "cifar-10": Recipe(name="resnet8", steps=320, augment=True),
}
Parts = dict[float, np.ndarray]


@dataclass(frozen=True)
class Given:
    """A data set: inputs and labels for training, for validation and for tests."""

    name: str
    train: tuple[Tensor, np.ndarray]
    validation: tuple[Tensor, np.ndarray]
    tests: tuple[Tensor, np.ndarray]

    @classmethod
    def read(cls, name: str, folder: Path) -> Given:
        """Draw the samples."""
        train, rest = datasets.load(name, folder, TRAIN, VALIDATION + TESTS, 0)
        x, y = (torch.stack([part[i][0] for i in range(len(part))]) for part in (train, rest))
        v = VALIDATION
        return cls(name, (x, train.labels), (y[:v], rest.labels[:v]), (y[v:], rest.labels[v:]))

    @cached_property
    def trainer(self) -> Trainer:
        """How networks are trained here."""
        return Trainer(RECIPES[self.name], self.train[0], 10)

    @cached_property
    def network(self) -> torch.nn.Module:
        """The network that is explained, trained on all samples."""
        return self.trainer.train(self.train[0], torch.from_numpy(self.train[1]), 0).model

    def features(self, layers: str) -> tuple[np.ndarray, np.ndarray]:
        """Features of the training set and of the validation set; "pixels" are the inputs."""
        if layers == "pixels":
            flat = [inputs.flatten(1).numpy() for inputs, _ in (self.train, self.validation)]
            size = np.sqrt((flat[0] ** 2).sum(1).mean())
            return flat[0] / size, flat[1] / size
        (x, y), (xv, yv) = self.train, self.validation
        bank = extract(self.network, (x, torch.from_numpy(y)), layers=layers, show_progress=False)
        other = extract(self.network, (xv, torch.from_numpy(yv)), layers=bank.layers, show_progress=False)
        return bank.features, other.features

    def accuracy(self, part: np.ndarray, seed: int) -> float:
        """Of a network that is trained on a part, on the tests."""
        x, y = self.train[0][part], torch.from_numpy(self.train[1][part])
        found = networks.logits(self.trainer.train(x, y, seed).model, self.tests[0]).argmax(1).numpy()
        return float((found == self.tests[1]).mean())


def most(scores: np.ndarray, rows: np.ndarray, labels: np.ndarray, n: int, balanced: bool) -> np.ndarray:
    """Return the n of some rows with the largest scores, perhaps as many of every class, ascending."""
    order = np.argsort(-scores, kind="stable")
    rank = np.arange(len(rows))
    if balanced:  # the first of every class, then the second of every class …
        place = np.empty(len(rows), dtype=int)
        for c in np.unique(labels[rows]):
            mine = order[labels[rows][order] == c]
            place[mine] = np.arange(len(mine))
        order = np.lexsort((-scores, place))
    return np.sort(rows[order[rank[:n]]])


def random(given: Given, draw: int, balanced: bool) -> Parts:
    """Draw parts at random."""
    lots, rows = np.random.default_rng([7, draw]).random(TRAIN), np.arange(TRAIN)
    return {p: most(lots, rows, given.train[1], round(p * TRAIN), balanced) for p in SHARES}


def valued(features: tuple[np.ndarray, np.ndarray], given: Given, rows: np.ndarray) -> np.ndarray:
    """Value some rows of the training set, (n,), by Effects that are fitted on them."""
    bank = FeatureBank.of(features[0][rows], given.train[1][rows], task=Classes(10))
    explainer = Effects(output="log_prob", show_progress=False, n_threads=1)
    found = audit.values(explainer.fit(features=bank), features=features[1], y=given.validation[1])
    out = np.empty(len(rows))
    out[found.indices] = found.values
    return out


def once(given: Given, layers: str = "auto") -> Parts:
    """Keep the most valuable of all samples, as many of every class."""
    rows = np.arange(TRAIN)
    values = valued(given.features(layers), given, rows)
    return {p: most(values, rows, given.train[1], round(p * TRAIN), True) for p in SHARES}


def rounds(given: Given, balanced: bool, layers: str = "auto") -> Parts:
    """Leave out the least valuable, a fifth of what is left at a time."""
    features, rows, parts = given.features(layers), np.arange(TRAIN), {}
    for share in sorted(SHARES, reverse=True):
        while len(rows) > round(share * TRAIN):
            n = max(round(share * TRAIN), round((1 - CUT) * len(rows)))
            rows = most(valued(features, given, rows), rows, given.train[1], n, balanced)
        parts[share] = rows
    return parts


def clustered(given: Given, by_value: bool) -> Parts:
    """Keep one sample of every cluster of a class: the most valuable, or the one nearest to its mean."""
    features, labels = given.features("auto"), given.train[1]
    values = valued(features, given, np.arange(TRAIN)) if by_value else None
    parts = {}
    for share in SHARES:
        kept: list[int] = []
        for c in range(10):
            rows = np.flatnonzero(labels == c)
            X, n = features[0][rows], min(round(share * TRAIN / 10), len(rows))
            found = KMeans(n, n_init=1, random_state=0).fit(X)
            apart = np.linalg.norm(X - found.cluster_centers_[found.labels_], axis=1)
            scores = -apart if values is None else values[rows]
            clusters = (np.flatnonzero(found.labels_ == j) for j in np.unique(found.labels_))
            kept += [int(rows[cluster[scores[cluster].argmax()]]) for cluster in clusters]
        parts[share] = np.sort(kept)
    return parts


def evidence(given: Given) -> Parts:
    """Keep what carries the predictions on the validation set, by τ."""
    x, y = given.train
    explainer = DualDA(show_progress=False, n_threads=1).fit(given.network, (x, torch.from_numpy(y)))
    return {p: np.sort(audit.coreset(explainer, given.validation[0], p).indices) for p in SHARES}


def kept(given: Given, part: np.ndarray) -> dict[str, float]:
    """Say what a part is like, by the features and probabilities of the network trained on all samples.

    Returns
    -------
    smallest, largest : numbers of samples of the rarest class and of the most frequent one
    probability : mean probability of the labels of kept samples
    other class : share of kept samples whose predicted class differs from their label
    apart : mean distance of a kept sample to the nearest other one of its class
    reach : mean distance of a test to the nearest kept sample of its class
    rival nearer : share of tests that are nearer to a kept sample of another class
    """
    (x, y), (tests, truth) = given.train, given.tests
    labels, p = y[part], networks.logits(given.network, x[part]).softmax(1).numpy()
    f, g = (
        extract(given.network, (inputs, torch.from_numpy(classes)), show_progress=False).features
        for inputs, classes in ((x[part], labels), (tests, truth))
    )
    among = cdist(f, f) + np.where(labels[:, None] == labels, 0, np.inf) + np.diag(np.full(len(f), np.inf))
    near = cdist(g, f)
    own = np.where(truth[:, None] == labels, near, np.inf).min(1)
    rival = np.where(truth[:, None] == labels, np.inf, near).min(1)
    sizes = np.bincount(labels, minlength=10)
    apart = among.min(1)
    return {
        "smallest": sizes.min(),
        "largest": sizes.max(),
        "probability": p[np.arange(len(part)), labels].mean(),
        "other class": (p.argmax(1) != labels).mean(),
        "apart": apart[np.isfinite(apart)].mean(),
        "reach": own[np.isfinite(own)].mean(),
        "rival nearer": (rival < own).mean(),
    }


METHODS: dict[str, Callable[[Given], Parts]] = {
    **{f"random, draw {k}": lambda given, k=k: random(given, k, False) for k in range(DRAWS)},
    **{f"random balanced, draw {k}": lambda given, k=k: random(given, k, True) for k in range(DRAWS)},
    "values, once, balanced": once,
    "values, in rounds": lambda given: rounds(given, False),
    "values, in rounds, balanced": lambda given: rounds(given, True),
    "values of pixels, in rounds, balanced": lambda given: rounds(given, True, "pixels"),
    "audit.coreset, by τ": evidence,
    "cover, balanced": lambda given: clustered(given, False),
    "values by cluster, balanced": lambda given: clustered(given, True),
}


def measured(name: str, folder: Path, stored: Path) -> Iterator[tuple[str, float, list[float]]]:
    """Return method, share and accuracies by seed; what is stored is not trained again."""
    given = Given.read(name, folder)
    known: dict[str, float] = json.loads(stored.read_text()) if stored.exists() else {}
    for method, choose in METHODS.items():
        for share, part in choose(given).items():
            found = []
            for seed in SEEDS:
                key = key_of([part, seed])
                if key not in known:
                    known[key] = given.accuracy(part, seed)
                    stored.parent.mkdir(parents=True, exist_ok=True)
                    stored.write_text(json.dumps(known))
                found.append(known[key])
            yield method, share, found


def run(folder: Path, cache: Path, names: tuple[str, ...] = ("fashion-mnist", "cifar-10")) -> None:
    """Print a table per data set; random parts as mean ± standard deviation over draws."""
    torch.set_num_threads(1)
    for name in names:
        found: dict[str, dict[float, list[float]]] = {}
        for method, share, accuracies in measured(name, folder, cache / "coresets" / f"{name}.json"):
            found.setdefault(method.split(", draw")[0], {}).setdefault(share, []).append(
                float(np.mean(accuracies))
            )
            print(name, method, share, accuracies, flush=True)
        print(f"\n| {name} | {' | '.join(f'{p:.0%}' for p in SHARES)} |\n|---|{'---|' * len(SHARES)}")
        for method, cells in found.items():
            shown = [
                f"{np.mean(cells[p]):.3f}"
                + (f" ± {np.std(cells[p], ddof=1):.3f}" if len(cells[p]) > 1 else "")
                for p in SHARES
            ]
            print(f"| {method} | {' | '.join(shown)} |", flush=True)
        looks(name, folder)


def looks(name: str, folder: Path) -> None:
    """Print what each method keeps at the smallest share; of random parts the first draw."""
    given, share = Given.read(name, folder), min(SHARES)
    for place, (method, choose) in enumerate(METHODS.items()):
        found = kept(given, choose(given)[share])
        if place == 0:
            print(f"\n| {name}, {share:.0%} kept | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
        print(f"| {method} | {' | '.join(f'{value:.3g}' for value in found.values())} |", flush=True)
