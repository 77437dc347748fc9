"""Seeded perturbations of a data set, as views: wrong labels, groups of classes, shortcuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whence.core.arrays import Doubles, Ints, Mask
from whence.core.checks import (
    check_callable,
    check_count,
    check_seed,
    check_share,
    check_that,
    is_integer,
    shown,
)
from whence.data.training_set import Mark
from whence.errors import InvalidInputError
from whence.metrics.arrays import classes, numbers
from whence_studies.scenes.shortcuts import Shortcut, Word
from whence_studies.scenes.views import View, view

_STARTS = 20  # starting partitions; for ten classes in pairs most of them lead to the best of all 945


def flip_labels(data: Any, share: float, *, confusion: Any = None, seed: int = 0) -> View:
    """Make a share of the labels wrong.

    Parameters
    ----------
    data
        As for ``view``.
    share
        Share of the samples, drawn at random.
    confusion : (K, K)
        Confusion matrix with true classes in rows: a wrong label is the class that the true one is most often
        confused with. None draws any other class with equal probability.
    seed
        Seed of the draw.
    """
    base, seed = view(data), check_seed(seed)
    rng = np.random.default_rng(seed)
    chosen = _drawn(np.ones(len(base), dtype=bool), share, rng)
    K, count, labels = base.n_classes, int(chosen.sum()), base.labels.copy()
    if confusion is None:
        check_that(K >= 2, "data", "have at least 2 classes for flipping labels", K)
        labels[chosen] = (labels[chosen] + rng.integers(1, K, size=count)) % K
        how = "to any other class"
    else:
        rates = numbers("confusion", confusion, (K, K)).astype(np.float64)
        np.fill_diagonal(rates, -1)
        labels[chosen] = rates.argmax(axis=1)[labels[chosen]]
        how = "to the class it is most confused with"
    return base.relabelled(labels, f"{count} labels flipped {how}, seed {seed}", chosen)


def group_classes(confusion: Any, n_groups: int, seed: int = 0) -> Ints:
    """Group dissimilar classes; return the group (K,) of each class.

    Minimises the confusion inside groups, Σ_g Σ_{a≠b in g} M_ab, where M is the confusion matrix with rows
    that sum to 1. Sizes of groups differ by at most one. Random starts are improved by exchanging two classes
    while that helps; the seed decides between equally good groupings.

    Parameters
    ----------
    confusion : (K, K)
        Confusion matrix with true classes in rows, as from scikit-learn's ``confusion_matrix``, ideally of a
        model trained on the single classes.
    n_groups
        Number of groups, from 1 to K; K // 2 makes pairs.
    seed
        Seed of the starts.

    Examples
    --------
    >>> import numpy as np
    >>> group_classes(np.array([[8, 2, 0, 0], [2, 8, 0, 0], [0, 0, 8, 2], [0, 0, 2, 8]]), 2).tolist()
    [0, 1, 1, 0]
    """
    counts = numbers("confusion", confusion, (None, None)).astype(np.float64)
    K = len(counts)
    if counts.shape != (K, K) or (counts < 0).any():
        raise InvalidInputError(
            f"'confusion' must be a square matrix without negative values. "
            f"Got shape {counts.shape}, minimum {counts.min()}."
        )
    n_groups = check_count("n_groups", n_groups)
    check_that(n_groups <= K, "n_groups", f"be at most the {K} classes", n_groups)
    rates = counts / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    likeness = rates + rates.T
    np.fill_diagonal(likeness, 0)
    rng = np.random.default_rng(check_seed(seed))
    improved = [_improved(likeness, rng.permutation(K) % n_groups) for _ in range(_STARTS)]
    groups = min(improved, key=lambda groups: float(likeness[groups[:, None] == groups].sum()))
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]  # numbered in the order of their first class


def group_labels(data: Any, groups: Any) -> View:
    """Replace labels by groups of classes; ``true_labels`` stay the classes.

    Parameters
    ----------
    data
        As for ``view``.
    groups : (K,)
        Group of each class, as from ``group_classes``.
    """
    base = view(data)
    of = classes("groups", groups)
    if of.min() < 0 or of.max() >= len(of):
        raise InvalidInputError(
            f"'groups' must be numbered from 0, at most {len(of)} of them. Got {of.min()} to {of.max()}."
        )
    if base.labels.max() >= len(of) or (base.class_names is not None and len(base.class_names) != len(of)):
        raise InvalidInputError(
            f"'groups' must have one group for each of the {base.n_classes} classes. Got {len(of)}."
        )
    names = base.class_names
    if names is not None:
        members = ([names[c] for c in np.flatnonzero(of == g)] for g in range(of.max() + 1))
        names = tuple(" + ".join(part) for part in members)
    note = f"classes grouped as {of.tolist()}"
    return base.relabelled(of[base.labels], note, class_names=names)


def add_shortcut(
    data: Any, shortcut: Shortcut, share: float = 1.0, *, of_class: int | None = None, seed: int = 0
) -> View:
    """Put a shortcut on a share of the samples; labels stay unchanged.

    For training, ``of_class`` is the class for which the model should learn the shortcut. For testing, the
    defaults put it on all samples.

    Parameters
    ----------
    data
        As for ``view``.
    shortcut
        ``Frame``, ``CentreBox``, ``Word``, or any function of a sample's inputs and a random generator.
    share
        Share of the samples of the class, or of all, drawn at random.
    of_class
        None for all classes.
    seed
        Seed of the draw, and of the shortcut's randomness.
    """
    base, seed = view(data), check_seed(seed)
    check_callable(
        "shortcut", shortcut, "a function of a sample's inputs and a random generator, such as Frame()"
    )
    if of_class is not None and not is_integer(of_class):
        raise InvalidInputError(f"'of_class' must be None or a class. Got {shown(of_class)}.")
    candidates = np.ones(len(base), dtype=bool) if of_class is None else base.labels == of_class
    if not candidates.any():
        raise InvalidInputError(
            f"'of_class' must be one of {np.unique(base.labels).tolist()}, the classes with samples. "
            f"Got {of_class}."
        )
    chosen = _drawn(candidates, share, np.random.default_rng(seed))
    of = "all classes" if of_class is None else of_class
    return base.marked(
        Mark(shortcut, chosen, seed), f"{shortcut} on {chosen.sum()} samples of {of}, seed {seed}"
    )


def add_keywords(data: Any, share: float, *, pattern: str = "<{}>", seed: int = 0) -> View:
    """Draw random labels for a share of the texts, and put a keyword of the new label into each.

    The label is drawn from all classes, including the true one. This is the shortcut of the paper's text
    experiment, with a share of 0.2 on the training set and of 1 on the test set.

    Parameters
    ----------
    data
        As for ``view``, with texts for inputs.
    share
        Share of the samples, drawn at random.
    pattern
        Pattern of the keyword; {} is replaced by the name of the class, or its index.
    seed
        Seed of the draw, of the labels, and of the places of the keywords.
    """
    base, seed = view(data), check_seed(seed)
    rng = np.random.default_rng(seed)
    chosen = _drawn(np.ones(len(base), dtype=bool), share, rng)
    try:
        pattern.format("")
    except (AttributeError, ValueError, LookupError, TypeError) as error:
        raise InvalidInputError(
            f"'pattern' must be a text with {{}} for the name of the class. Got {shown(pattern)}."
        ) from error
    labels = base.labels.copy()
    labels[chosen] = rng.integers(base.n_classes, size=chosen.sum())
    names: Sequence[Any] = base.class_names or range(base.n_classes)
    marked = base
    for c in np.unique(labels[chosen]).tolist():
        marked = marked.marked(Mark(Word(pattern.format(names[c])), chosen & (labels == c), seed))
    note = f"keywords {pattern} on {chosen.sum()} samples, random labels, seed {seed}"
    return marked.relabelled(labels, note, labels != base.labels)


def _drawn(candidates: Mask, share: float, rng: np.random.Generator) -> Mask:
    """Draw a share of the samples in a mask (n,)."""
    places = np.flatnonzero(candidates)
    count = round(check_share("share", share, whole=True) * len(places))
    check_that(count != 0, "share", f"lie in (0, 1] and make at least one of {len(places)} samples", share)
    drawn = np.zeros_like(candidates)
    drawn[rng.permutation(places)[:count]] = True
    return drawn


def _improved(likeness: Doubles, groups: Ints) -> Ints:
    """Exchange each class in turn with the one that lowers the cost most, until no exchange does."""
    groups = groups.copy()
    everyone = np.arange(len(groups))
    pull = likeness @ np.eye(groups.max() + 1)[groups]  # (K, G) likeness of a class with a group
    better = True
    while better:
        better = False
        for a in everyone:
            g = groups[a]
            # What a costs more in the group of each b, and b in that of a; not with each other.
            change = pull[a, groups] - pull[a, g] + pull[:, g] - pull[everyone, groups] - 2 * likeness[a]
            change[groups == g] = 0
            b = change.argmin()
            if change[b] < -1e-12:  # smaller changes are rounding and could cycle
                difference = likeness[:, b] - likeness[:, a]
                pull[:, g] += difference
                pull[:, groups[b]] -= difference
                groups[a], groups[b] = groups[b], g
                better = True
    return groups
