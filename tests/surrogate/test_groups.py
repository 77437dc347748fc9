"""Groups of similar support vectors, and near-duplicates."""

from __future__ import annotations

import numpy as np
import torch

from whence.features.metric import FeatureMap
from whence.surrogate.groups import fold, group_samples
from whence.surrogate.scores import Vectors


def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three tight bundles of directions from a common mean, 20 samples each; the last two share a label."""
    rng = np.random.default_rng(0)
    centres = np.eye(4)[:3] * 5
    bundle = np.repeat(np.arange(3), 20)
    z = centres[bundle] * rng.uniform(0.5, 2, (60, 1)) + 0.02 * rng.normal(size=(60, 4)) + 7
    return z, bundle, np.array([0, 1, 1])[bundle]


def vectors(z: np.ndarray) -> Vectors:
    return Vectors(torch.as_tensor(z, dtype=torch.float32), None, "cpu", FeatureMap())


def test_groups_have_one_label_and_one_direction() -> None:
    z, bundle, labels = blobs()
    groups = group_samples(vectors(z), labels, np.full(4, 7.0))
    for group in range(len(groups)):
        members = np.flatnonzero(groups.of == group)
        assert len(set(bundle[members])) == 1
        assert set(labels[members]) == {groups.labels[group]}
        # The medoid is the member with the largest mean cosine, computed by hand.
        u = (z[members] - 7) / np.linalg.norm(z[members] - 7, axis=1, keepdims=True)
        assert groups.medoids[group] in members[np.argsort(-u @ u.mean(axis=0))[:2]]
    assert len(groups) == 4 + 8  # one for every five samples of a label


def test_groups_are_the_same_again_and_those_of_equal_samples_are_one() -> None:
    z, _, labels = blobs()
    one, two = (group_samples(vectors(z), labels, np.full(4, 7.0)) for _ in range(2))
    assert np.array_equal(one.of, two.of)
    assert one.alike == two.alike
    same = group_samples(vectors(np.ones((30, 4))), np.zeros(30, int), np.zeros(4))
    assert len(same) == 1
    assert same.alike > 1 - 1e-6


def test_near_duplicates_of_one_label_are_folded_into_the_first() -> None:
    angle = np.radians([0, 3, 90, 2, 91, 45])
    u = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    labels = np.array([0, 0, 0, 1, 0, 0])
    near = float(np.cos(np.radians(5)))
    assert fold(u, labels, 3, near) == [[0, 1], [2, 4], [3]]  # 3 is as near to 0, but of another label
    assert fold(u, labels, 9, near) == [[0, 1], [2, 4], [3], [5]]
    several = np.array([[1, 0], [1, 0], [0, 1], [1, 1], [0, 0], [1, 1]])
    assert fold(u, several, 3, near) == [[0, 1], [2], [3]]
