"""Wrong labels as annotators make them: some classes are confused more often, and with similar classes.

The tables were written by hand, before any result, and come from no method or model. A number is how often a
class (row) is taken for another, relative to the other numbers of its table.
"""

from __future__ import annotations

import numpy as np

Confusions = dict[str, dict[str, int]]

FASHION: Confusions = {
    "T-shirt": {"Shirt": 10, "Dress": 3, "Pullover": 2},
    "Trouser": {"Dress": 2},
    "Pullover": {"Coat": 7, "Shirt": 6, "T-shirt": 2},
    "Dress": {"T-shirt": 3, "Coat": 3, "Shirt": 2, "Trouser": 1},
    "Coat": {"Pullover": 7, "Shirt": 5, "Dress": 2},
    "Sandal": {"Sneaker": 4, "Ankle boot": 2},
    "Shirt": {"T-shirt": 10, "Pullover": 5, "Coat": 5, "Dress": 2},
    "Sneaker": {"Ankle boot": 4, "Sandal": 3},
    "Bag": {"Shirt": 1},
    "Ankle boot": {"Sneaker": 5, "Sandal": 1},
}
CIFAR: Confusions = {
    "airplane": {"bird": 3, "ship": 3, "truck": 1},
    "automobile": {"truck": 8},
    "bird": {"airplane": 3, "frog": 3, "deer": 2, "cat": 2},
    "cat": {"dog": 9, "frog": 3, "deer": 2},
    "deer": {"horse": 6, "bird": 2, "dog": 2, "cat": 2, "frog": 1},
    "dog": {"cat": 9, "horse": 3, "deer": 1},
    "frog": {"cat": 3, "bird": 2, "deer": 2},
    "horse": {"deer": 4, "dog": 4},
    "ship": {"airplane": 4, "truck": 1, "automobile": 1},
    "truck": {"automobile": 8, "ship": 1},
}
NEWS: Confusions = {
    "business": {"politics": 6, "tech": 6},
    "entertainment": {"tech": 3, "business": 2, "politics": 1, "sports": 1},
    "politics": {"business": 8, "tech": 2, "entertainment": 1, "sports": 1},
    "sports": {"entertainment": 3, "politics": 2, "business": 1},
    "tech": {"business": 7, "entertainment": 4},
}


def rates(confusions: Confusions) -> np.ndarray:
    """Return the table as an array (K, K) that sums to 1, classes in the order of its rows."""
    names = list(confusions)
    table = np.array([[row.get(name, 0) for name in names] for row in confusions.values()], dtype=float)
    return table / table.sum()


def mislabelled(truth: np.ndarray, confusions: Confusions, share: float, seed: int) -> np.ndarray:
    """Make a share of the labels wrong: samples by the frequency of their class, new labels by its row."""
    rng, table = np.random.default_rng(seed), rates(confusions)
    often = table.sum(axis=1)
    weights = often[truth]
    labels = truth.copy()
    for i in rng.choice(len(truth), round(share * len(truth)), replace=False, p=weights / weights.sum()):
        labels[i] = rng.choice(len(table), p=table[truth[i]] / often[truth[i]])
    return labels
