"""Clothes among digits: tests that nothing in the training set is like, and which training samples say so.

``python -m examples.mnist_cnn`` trains the network, ``python -m examples.outliers`` mixes clothes of
Fashion-MNIST into the tests and reports how well they are found. ``whence fit`` takes ``test`` with the
network and its training set, and its pages mark them.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from examples import mnist_cnn
from whence import DualDA, OneClass
from whence.features import extract

N = 200  # of either kind


def mixed(digits: Tensor, labels: Tensor, clothes: Tensor) -> tuple[mnist_cnn.Digits, Tensor]:
    """Put digits and clothes together, and return which are digits; clothes get the label 0."""
    typical = torch.arange(len(digits) + len(clothes)) < len(digits)
    answers = torch.cat([labels, torch.zeros(len(clothes), dtype=labels.dtype)])
    return mnist_cnn.Digits(torch.cat([digits, clothes]), answers), typical


def tests() -> tuple[mnist_cnn.Digits, Tensor]:
    """Return 200 held-out digits and 200 clothes, and which are digits."""
    digits, clothes = (mnist_cnn.read("t10k", N, of).tensors for of in ("mnist", "fashion-mnist"))
    return mixed(*digits, clothes[0])


def test() -> mnist_cnn.Digits:
    """Return the same without the answer, for ``whence fit``."""
    return tests()[0]


def compare(model: torch.nn.Module, train: mnist_cnn.Digits, shown: mnist_cnn.Digits, typical: Tensor) -> str:
    """Return how well both ways find what is foreign, and what the most novel test is nearest to."""
    bank = extract(model, train, show_progress=False)
    explainer = DualDA(show_progress=False).fit(features=bank)
    machines = OneClass(show_progress=False).fit(features=bank)
    x = shown.tensors[0]
    features = extract(model, shown, show_progress=False).features
    near = explainer.novelty(bank).of(torch.from_numpy(np.array(features)))
    sums = machines.typicality(features=features).numpy()
    outside, foreign = sums < 1, ~typical.numpy()
    first = int(near.distances[:, -1].argmax())
    top = machines.top_k(x[[first]], k=3).proponents
    names = ", ".join(f"#{i} ({train.tensors[1][i]})" for i in near.neighbours[first].tolist())
    parts = ", ".join(f"#{i} {s:+.2f}" for i, s in zip(top.indices[0], top.scores[0], strict=True) if i >= 0)
    return "\n".join(
        [
            f"Neighbours: AUC {roc_auc_score(typical, -near.distances[:, -1]):.3f}; nothing like it was in "
            f"the training set: {near.novel[foreign].mean():.1%} of clothes, "
            f"{near.novel[~foreign].mean():.1%} of digits",
            f"One-class machines: AUC {roc_auc_score(typical, sums):.3f}; outside of the boundary: "
            f"{outside[foreign].mean():.1%} of clothes, {outside[~foreign].mean():.1%} of digits; "
            f"{len(machines.support_):,} of {machines.n_train_:,} training samples have a coefficient, "
            f"{len(machines.boundary_):,} make up the boundaries",
            f"The most novel test is {first}, further from its neighbours than {near.shares[first]:.1%} of "
            f"training samples are from theirs; nearest: {names}. Its typicality is {sums[first]:.2f}, 1 "
            f"being the boundary, most of it by {parts or 'nobody'}",
        ]
    )


def main() -> None:
    """Measure."""
    print(compare(mnist_cnn.build(), mnist_cnn.train(), *tests()))


if __name__ == "__main__":
    main()
