"""Groups of similar support vectors, and near-duplicates: by directions from the mean of the training set."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from whence.core.arrays import Array, Doubles, Ints
from whence.surrogate.scores import Vectors

_GROUPS = 12
"""Groups per label. On images of ten classes, with raw and whitened features, the ten strongest of all then
hold two thirds of the evidence in the median over tests, and at least .56 for nine of ten tests."""
_MEMBERS = 5  # minimum mean number of support vectors per group
_LEARN = 2_048  # support vectors per label for learning centres
_ALIKE = 0.25
"""Near-duplicates are nearer to each other than this share of the mean distance 1 − cos of a member from the
centre of its group: a cosine above .97 for raw features of images, above .91 for whitened ones. Above these
values pairs look the same; below, they are similar, such as two sandals with different straps. A fixed cosine
would not work: pairs of raw features at .95 look as different as pairs of whitened ones at .8."""


@dataclass(frozen=True, eq=False)
class SampleGroups:
    """Groups of similar support vectors, each of one label.

    Attributes
    ----------
    of : (S,) the group of each support vector
    labels : (G,) the label of each group; 0 if labels are not classes
    medoids : (G,) the support vector nearest to the centre of each group, as an index into the S
    alike : the cosine, after subtracting the mean, from which two samples are near-duplicates
    """

    of: Ints
    labels: Ints
    medoids: Ints
    alike: float

    def __len__(self) -> int:
        return len(self.medoids)


def group_samples(vectors: Vectors, labels: Ints, mean: Doubles, seed: int = 0) -> SampleGroups:
    """Group support vectors (S, d) with labels (S,) by the cosine of z_i − z̄: k-means within each label.

    Memory grows with the support vectors of one label; there is no matrix of similarities.
    """
    of = np.zeros(len(vectors), np.int64)
    medoids: list[int] = []
    owners: list[int] = []
    apart = 0.0
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        u = directions(vectors[places], mean)
        centres = _centres(u, min(_GROUPS, -(-len(u) // _MEMBERS)), seed)
        near = u @ centres.T
        nearest = near.argmax(axis=1)
        for group in np.unique(nearest):
            members = np.flatnonzero(nearest == group)
            of[places[members]] = len(medoids)
            medoids.append(int(places[members[near[members, group].argmax()]]))
            owners.append(int(label))
        apart += float((1.0 - near.max(axis=1)).sum())
    alike = 1.0 - _ALIKE * apart / max(len(of), 1)
    return SampleGroups(of, np.array(owners, np.int64), np.array(medoids, np.int64), alike)


def directions(vectors: Tensor, mean: Doubles) -> Doubles:
    """Return (z_i − z̄)/‖z_i − z̄‖ of features (n, d); a vector of zeros stays one."""
    moved: Doubles = vectors.double().cpu().numpy() - mean
    moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
    return moved


def fold(u: Doubles, labels: Array, k: int, alike: float) -> list[list[int]]:
    """Choose the first k different samples (n, …), each with its near-duplicates.

    Parameters
    ----------
    u : (n, d) directions, the strongest sample first
    labels : (n, …) only samples of one label are folded
    k : maximum number of samples to choose
    alike : the cosine from which two samples are near-duplicates

    Returns
    -------
    Lists of indices, each with the chosen sample first.

    Examples
    --------
    >>> fold(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.zeros(3), k=2, alike=0.9)
    [[0, 2], [1]]
    """
    equal = (labels[:, None] == labels[None]).reshape(len(u), len(u), -1).all(axis=2)
    same = (u @ u.T >= alike - 1e-9) & equal
    left = np.ones(len(u), bool)
    chosen: list[list[int]] = []
    while len(chosen) < k and left.any():
        first = int(left.argmax())
        members = np.flatnonzero(same[first] & left)
        left[members] = left[first] = False
        chosen.append([first, *members[members != first].tolist()])
    return chosen


def _centres(u: Doubles, n: int, seed: int) -> Doubles:
    """Learn n centres (n, d) of length 1, from a subset if there are many samples."""
    from sklearn.cluster import KMeans  # scikit-learn takes a while to import
    from sklearn.exceptions import ConvergenceWarning

    rows = u[np.unique(np.linspace(0, len(u) - 1, min(_LEARN, len(u))).astype(np.int64))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal samples make fewer groups
        centres = KMeans(n, n_init=1, random_state=seed).fit(rows).cluster_centers_
    return np.asarray(centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12))
