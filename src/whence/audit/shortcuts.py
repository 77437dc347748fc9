"""Training samples and directions of the features that carry what suspicious samples have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.attribution.training_features import training_features
from whence.audit.access import surrogate_of, tests_of
from whence.audit.groups import group_attribution
from whence.audit.heldout import total_norm
from whence.core.arrays import Doubles, Floats, Ints
from whence.core.checks import check_count, check_that, to_array
from whence.core.display import Columns, displayed
from whence.core.progress import bar
from whence.errors import InvalidInputError
from whence.features import FeatureBank
from whence.methods import DualDA
from whence.pages.pictures import plain
from whence.relevance.concepts import Concepts
from whence.svm import solve
from whence.svm.inputs import check_C

_KAPPAS = tuple(10.0 ** (e / 2) for e in range(6, -1, -1))  # from 1,000 down to 1
_BOUNDED = 0.999
_TOL = 1e-3


@displayed()
@dataclass(frozen=True, eq=False)
class Direction:
    """A principal component of the training features that carries evidence.

    Attributes
    ----------
    name : which component
    vector : (d,) of length 1
    evidence : its part (w_c·v)(f̄·v) of the mean logit of the tests' class; positive is evidence for it
    samples : (k,) the training samples that show it most, the way the tests do
    """

    name: str
    vector: Doubles
    evidence: float
    samples: Ints


@displayed("class_name", "C", "bounded", "logit", "n_tests", rows="columns")
@dataclass(frozen=True, eq=False)
class SharedEvidence:
    """The evidence that a set of samples shares.

    Attributes
    ----------
    target : the class that the evidence is for
    class_name : its name
    C : the low C that the evidence was computed at
    bounded : share of the training set that is at its bound there
    samples : (k,) the training samples that contribute most, strongest first
    scores : (k,) their mean contributions; **positive is evidence for the class**
    mean : (train,) mean contribution of every training sample; sums to ``logit``
    logit : the mean logit of the class at this C
    directions : principal components by their part of the logit, the largest first
    n_tests : samples in the set
    """

    target: int
    class_name: str
    C: float
    bounded: float
    samples: Ints
    scores: Doubles
    mean: Doubles
    logit: float
    directions: tuple[Direction, ...]
    n_tests: int

    def columns(self) -> Columns:
        """Return the samples as columns of plain values, the strongest first."""
        return {"index": self.samples.tolist(), "score": self.scores.tolist()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain types that JSON takes."""
        return dict(plain(self))


def shared_evidence(
    explainer: DualDA,
    x: Any = None,
    target: int | None = None,
    *,
    test_features: Any = None,
    features: Any = None,
    C: float | None = None,
    k: int = 20,
    n_directions: int = 5,
) -> SharedEvidence:
    """Find the training samples that carry what suspicious samples have in common.

    A surrogate that predicts well depends on the few samples near its boundaries. What many samples share
    shows better where every sample counts alike; samples with a shortcut are easy, so that they are the first
    to clear their margin and drop out when C grows. So the surrogate is solved again at a low C: the
    largest, over half decades of κ = C·N·mean‖f‖² from 1,000 down to 1, at which all but one in a thousand
    training samples are at their bound λ_{i,y_i} = C. Then training samples are ranked by their mean
    contribution to the set, λ_ic f_i·f̄ with f̄ the mean of the set's features.

    Parameters
    ----------
    explainer
        A fitted DualDA.
    x
        Suspicious samples, as for ``explainer.attribute``. With neither these nor ``test_features`` the set
        is the training samples whose label is ``target``.
    target
        The class whose evidence is looked for; None takes the class that the model predicts most often.
    test_features
        Features (B, d) of the suspicious samples, instead of ``x``.
    features
        Features (N, d) of the training set, as for ``wrong_labels``.
    C
        A value of C to use instead.
    k
        Training samples to name, and to show for each direction.
    n_directions
        Principal components of the training features to name.

    Returns
    -------
    SharedEvidence. Whether it is a shortcut, a person must see: a class's honest traits are shared too.
    """
    surrogate_of(explainer)
    k = check_count("k", k)
    n_directions = check_count("n_directions", n_directions)
    X = training_features(explainer.fitted_, features, as_read=True)
    y = explainer.labels_[explainer.used_]
    tests, chosen = _tests(explainer, x, test_features, target, X, y)
    low, bounded = _dense(explainer, X, y, C)
    group = group_attribution(low, features=tests, target=chosen)
    mean = np.zeros(explainer.n_train_)
    mean[explainer.used_] = group.mean
    top = dataclasses.replace(group, mean=mean).top(k)
    return SharedEvidence(
        target=chosen,
        class_name=explainer.task_.output_names[chosen],
        C=low.C_,
        bounded=bounded,
        samples=top,
        scores=mean[top],
        mean=mean,
        logit=float(mean.sum()),
        directions=_directions(explainer, low, X, tests.mean(axis=0), chosen, n_directions, k),
        n_tests=group.n_tests,
    )


def _tests(
    explainer: DualDA, x: Any, test_features: Any, target: int | None, X: Floats, y: Ints
) -> tuple[Doubles, int]:
    """Return features (B, d) of the set, and the class whose evidence is looked for."""
    if target is not None:
        check_that(to_array("target", target).ndim == 0, "target", "be one class for the whole set", target)
        target = int(explainer.task_.check_target(target, 1)[0])
    if x is None and test_features is None:
        if target is None:
            raise InvalidInputError(
                "One of 'x', 'test_features' and 'target' must be given: suspicious samples, or a class."
            )
        if not (y == target).any():
            raise InvalidInputError(f"'target' must have training samples. Class {target} has none.")
        return X[y == target].astype(np.float64), target
    parts = list(tests_of(explainer, x, test_features, None, "target")[1])
    if target is None:
        counts = sum(np.bincount(classes.numpy(), minlength=explainer.n_classes_) for _, classes in parts)
        target = int(np.argmax(counts))
    read = explainer.surrogate_.stored.as_read
    return np.concatenate([read(f).double().cpu().numpy() for f, _ in parts]), target


def _dense(explainer: DualDA, X: Floats, y: Ints, C: float | None) -> tuple[DualDA, float]:
    """Fit again at a low C; also the share of samples at their bound there."""
    K = explainer.n_classes_
    common: dict[str, Any] = {name: getattr(explainer, name) for name in ("seed", "n_threads")}
    common |= {"n_classes": K, "bias": explainer.constant_ or False, "tol": _TOL}

    def at_bound(lam: Any, C: float) -> float:
        largest = lam.maximum(0).sum(axis=1)  # only λ_{i,y_i} is ever positive
        return float((largest >= (1 - 1e-6) * C).mean())

    if C is None:
        scale = total_norm(X)
        show = explainer.show_progress
        for kappa in bar("Choosing C", len(_KAPPAS), "values of C", parts=_KAPPAS, show=show):
            C = kappa / scale
            if at_bound(solve(X, y, C=C, **common).lam, C) >= _BOUNDED:
                break
    assert C is not None
    low = dataclasses.replace(explainer, C=check_C(C), max_seconds=None)
    low.fit(features=FeatureBank.of(X, y, task=explainer.task_))
    return low, at_bound(low.lam_, C)


def _directions(
    explainer: DualDA, low: DualDA, X: Floats, mean: Doubles, target: int, n: int, k: int
) -> tuple[Direction, ...]:
    """Return principal components by their part of the mean logit, a bias left out."""
    concepts = Concepts.principal(X)
    pull = concepts.vectors @ low.coef_[target, : X.shape[1]]
    shown = concepts.vectors @ mean
    evidence = pull * shown
    samples = np.flatnonzero(explainer.used_)
    directions = []
    for j in np.argsort(-evidence, kind="stable")[:n]:
        v = concepts.vectors[j] * (1.0 if shown[j] >= 0 else -1.0)
        order = np.argsort(-(X @ v), kind="stable")[:k]
        directions.append(Direction(concepts.names[j], v, float(evidence[j]), samples[order]))
    return tuple(directions)
