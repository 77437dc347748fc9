"""Shortcuts: training samples and feature directions that suspicious samples have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.attribution.surrogates import solver_options
from whence.attribution.training_features import all_features
from whence.attribution.updating import refit
from whence.audit.access import surrogate_of, tests_of
from whence.audit.groups import group_attribution
from whence.audit.heldout import total_norm
from whence.core.arrays import Doubles, Floats, Ints
from whence.core.checks import check_count, check_that, to_array
from whence.core.display import Columns, displayed
from whence.errors import InvalidInputError
from whence.features import taken
from whence.features.metric import Metric
from whence.methods import DualDA
from whence.pages.pictures import plain
from whence.relevance.concepts import Concepts
from whence.surrogate.solving import HingeSolver

METRIC = Metric(centre=True, shrinkage=1.0)
"""Centred, to ignore what all inputs share; whitened, so that a mark counts as much as the directions of
largest variance; not at unit length, since samples with a mark are further from the mean than others."""

KAPPA = 1.0
"""C·N·mean‖z‖² at which training samples are at their bound λ_{i,y_i} = C, with equal weights."""

_TOL = 1e-3


@displayed()
@dataclass(frozen=True, eq=False)
class Direction:
    """A principal component of the features of the audit's surrogate, with its evidence.

    Attributes
    ----------
    name : name of the component
    vector : (d,) unit vector
    evidence : its part (w_c·v)(z̄·v) of the mean logit of the tests' class; positive is evidence for it
    samples : (k,) the training samples that show it most, with the same sign as the tests
    """

    name: str
    vector: Doubles
    evidence: float
    samples: Ints


@displayed("class_name", "C", "logit", "n_tests", rows="columns")
@dataclass(frozen=True, eq=False)
class Shortcuts:
    """The evidence that a set of samples shares.

    Attributes
    ----------
    target : the class of the evidence
    class_name : its name
    samples : (k,) the training samples that contribute most, strongest first
    scores : (k,) their mean contributions; **positive is evidence for the class**
    mean : (train,) mean contribution of every training sample; sums to ``logit``
    logit : the mean logit of the class, by the surrogate of the audit
    directions : principal components by their part of the logit, the largest first
    n_tests : number of samples in the set
    explainer : the surrogate of the audit, a fitted DualDA: ``explainer.attribute(x, target=target)`` returns
        the scores of single tests, and ``explainer.explain`` their relevance maps
    """

    target: int
    class_name: str
    samples: Ints
    scores: Doubles
    mean: Doubles
    logit: float
    directions: tuple[Direction, ...]
    n_tests: int
    explainer: DualDA

    @property
    def C(self) -> float:
        """The C of the surrogate."""
        return float(self.explainer.C_)

    def columns(self) -> Columns:
        """Return the samples as columns of plain values, the strongest first."""
        return {"index": self.samples.tolist(), "score": self.scores.tolist()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the explainer in plain JSON types."""
        whole = {name: value for name, value in vars(self).items() if name != "explainer"}
        return {**{name: plain(value) for name, value in whole.items()}, "C": self.C}


def shortcuts(
    explainer: DualDA,
    x: Any = None,
    target: int | None = None,
    *,
    test_features: Any = None,
    features: Any = None,
    k: int = 20,
    n_directions: int = 5,
) -> Shortcuts:
    """Find the training samples behind what suspicious samples have in common.

    A surrogate that predicts well depends on the few samples near its boundaries. Samples with a mark that
    the model follows are easy: they reach their margin first and drop out as C grows. The audit therefore
    solves its own surrogate, independently of the explainer's C and metric: features are centred and whitened
    with shrinkage 1, z = (Σ + tr(Σ)/d·I)^(−½)(f − μ), and κ = C·N·mean‖z‖² = 1, where samples are at their
    bound λ_{i,y_i} = C. Training samples are ranked by their mean contribution to the set, λ_ic z_i·z̄, where
    z̄ is the mean of the set's features. The explainer stays unchanged.

    Parameters
    ----------
    explainer
        A fitted DualDA.
    x
        Suspicious samples, as for ``explainer.attribute``. Without ``x`` and ``test_features``, the set is
        the training samples with the label ``target``.
    target
        The class of the evidence; None is the class that the model predicts most often.
    test_features
        Features (B, d) of the suspicious samples, instead of ``x``.
    features
        Features (N, d) of the training set, as for ``wrong_labels``.
    k
        Number of training samples, in all and per direction.
    n_directions
        Number of principal components.

    Returns
    -------
    Shortcuts. Check by eye whether they are shortcuts: legitimate traits of a class are shared too.

    Examples
    --------
    >>> import numpy as np, whence
    >>> y = np.arange(60) % 3
    >>> f = np.eye(3, 4)[y] + 0.1 * np.random.default_rng(0).normal(size=(60, 4))
    >>> f[:12:3, 3] += 3  # a mark on four samples of class 0
    >>> bank = whence.features.FeatureBank.of(f, y)
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    >>> tests = np.array([[0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 1.0, 3.0]])  # of other classes, with the mark
    >>> found = whence.audit.shortcuts(explainer, target=0, test_features=tests, features=f, k=4)
    >>> sorted(found.samples.tolist())
    [0, 3, 6, 9]
    """
    surrogate_of(explainer)
    k = check_count("k", k)
    n_directions = check_count("n_directions", n_directions)
    X = all_features(explainer.fitted_, features)
    tests, chosen = _tests(explainer, x, test_features, target, X)
    low = _solved(explainer, X)
    group = group_attribution(low, features=tests, target=chosen)
    top = group.top(k)
    return Shortcuts(
        target=chosen,
        class_name=explainer.task_.output_names[chosen],
        samples=top,
        scores=group.mean[top],
        mean=group.mean,
        logit=float(group.mean.sum()),
        directions=_directions(low, X, tests, chosen, n_directions, k),
        n_tests=group.n_tests,
        explainer=low,
    )


def _tests(
    explainer: DualDA, x: Any, test_features: Any, target: int | None, X: Floats
) -> tuple[Floats, int]:
    """Return features (B, d) of the set, and the class of the evidence."""
    if target is not None:
        check_that(to_array("target", target).ndim == 0, "target", "be one class for all samples", target)
        target = int(explainer.task_.check_target(target, 1)[0])
    if x is None and test_features is None:
        if target is None:
            raise InvalidInputError(
                "One of 'x', 'test_features' and 'target' must be given: suspicious samples, or a class."
            )
        own = explainer.labels_ == target
        if not own.any():
            raise InvalidInputError(f"'target' must have training samples. Class {target} has none.")
        return taken(X, own), target
    parts = list(tests_of(explainer, x, test_features, None, "target")[1])
    if target is None:
        counts = sum(np.bincount(classes.numpy(), minlength=explainer.n_classes_) for _, classes in parts)
        target = int(np.argmax(counts))
    return np.concatenate([f.cpu().numpy() for f, _ in parts]), target


def _solved(explainer: DualDA, X: Floats) -> DualDA:
    """Return a copy of the explainer with the audit's surrogate."""
    known = taken(X, explainer.used_)
    C = KAPPA / total_norm(METRIC.fit(known).rows(known))
    low = dataclasses.replace(explainer, C=C, metric=METRIC, tol=_TOL, max_seconds=None)
    low.fitted_ = refit(explainer.fitted_, HingeSolver(explainer.task_, solver_options(low)), X, C)
    return low


def _directions(low: DualDA, X: Floats, tests: Floats, target: int, n: int, k: int) -> tuple[Direction, ...]:
    """Return principal components by their part of the mean logit without the bias."""
    samples, metric = np.flatnonzero(low.used_), low.surrogate_.metric
    Z = metric.rows(taken(X, low.used_))
    concepts = Concepts.principal(Z)
    pull = concepts.vectors @ low.coef_[target, : X.shape[1]]
    shown = concepts.vectors @ metric.rows(tests).mean(axis=0, dtype=np.float64)
    evidence = pull * shown
    directions = []
    for j in np.argsort(-evidence, kind="stable")[:n]:
        v = concepts.vectors[j] * (1.0 if shown[j] >= 0 else -1.0)
        order = np.argsort(-(Z @ v), kind="stable")[:k]
        directions.append(Direction(concepts.names[j], v, float(evidence[j]), samples[order]))
    return tuple(directions)
