"""Concepts: how much of a pair's score goes through a direction of the features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from whence.core.arrays import Doubles
from whence.core.checks import check_count, check_is, check_names, check_that, real_array, to_array
from whence.core.display import displayed
from whence.errors import InvalidInputError
from whence.model.passes import Pass
from whence.relevance.xda import only

_MOST = 1 << 15  # maximum number of features as concepts, whose matrix has its square
_LARGEST = 1e100


@displayed()
@dataclass(frozen=True, eq=False)
class Concepts:
    """Unit vectors v in the space of a model's features.

    The part of τ_c(x, i) = λ_ic f(x)·f_i that goes through a concept is τ_c(x, i | v) = λ_ic (f(x)·v)(f_i·v).
    Over an orthonormal basis the parts of all concepts sum to the score. A bias goes through no concept.

    Attributes
    ----------
    vectors : (q, d), rows of length 1
    names : one per concept
    accuracy : of the probe that found each concept, by cross-validation; None where none was fitted

    Examples
    --------
    >>> Concepts.neurons(4).names
    ('neuron 0', 'neuron 1', 'neuron 2', 'neuron 3')
    >>> Concepts.of([[3.0, 4.0]], ["stripes"]).vectors
    array([[0.6, 0.8]])
    """

    vectors: Doubles
    names: tuple[str, ...]
    accuracy: tuple[float, ...] | None = None

    @classmethod
    def of(cls, vectors: Any, names: Sequence[str] | None = None) -> Self:
        """Make concepts of any directions (q, d), which are normalised."""
        rows = _features("vectors", vectors, "concept", "(q, d)")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not lengths.all():
            raise InvalidInputError(
                f"'vectors' must have a direction. Row {int(np.argmin(lengths))} has length 0."
            )
        default = tuple(f"concept {i}" for i in range(len(rows)))
        chosen = default if names is None else check_names("names", names)
        check_that(len(chosen) == len(rows), "names", f"be one per concept, {len(rows)}", len(chosen))
        return cls(rows / lengths, chosen)

    @classmethod
    def neurons(cls, n_features: int) -> Self:
        """Make each feature a concept: an orthonormal basis."""
        n_features = check_count("n_features", n_features, 1, _MOST)
        return cls(np.eye(n_features), tuple(f"neuron {j}" for j in range(n_features)))

    @classmethod
    def principal(cls, features: Any) -> Self:
        """Make concepts of the principal components of features (n, d), by variance: an orthonormal basis.

        Use the support vectors to span all attributions: ``features=explainer.vectors_``.
        """
        X = _features("features", features)
        _, axes = np.linalg.eigh(np.cov(X.T, bias=True).reshape(X.shape[1], X.shape[1]))
        axes = axes.T[::-1]
        # The sign of an axis is arbitrary: towards the mean, so that concepts are typically present.
        axes = axes * np.where(axes @ X.mean(0) < 0, -1.0, 1.0)[:, None]
        return cls(axes, tuple(f"component {j}" for j in range(len(axes))))

    @classmethod
    def probe(cls, positive: Any, negative: Any, name: str = "concept", seed: int = 0) -> Self:
        """Fit a concept activation vector: the direction that separates examples from counterexamples.

        Parameters
        ----------
        positive, negative : (n, d)
            Features of samples that show the concept, and of samples that do not.
        name
            Name of the concept.
        seed
            Seed of the cross-validation.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_score

        seed = check_count("seed", seed, 0, 2**32 - 1)
        check_is("name", name, str, "a text")
        shown, absent = _features("positive", positive), _features("negative", negative)
        rule = f"have as many features as 'positive', {shown.shape[1]}"
        check_that(shown.shape[1] == absent.shape[1], "negative", rule, absent.shape[1])
        X = np.concatenate([shown, absent])
        y = np.arange(len(X)) < len(shown)
        scale = float(np.sqrt((X**2).mean())) or 1.0  # so that one regularisation strength fits all models
        folds = min(5, len(shown), len(absent))
        probe = LogisticRegression(max_iter=1000)
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed) if folds > 1 else None
        accuracy = cross_val_score(probe, X / scale, y, cv=splits).mean() if splits else float("nan")
        return replace(cls.of(probe.fit(X / scale, y).coef_, [name]), accuracy=(float(accuracy),))

    def __len__(self) -> int:
        """Return the number of concepts."""
        return len(self.names)

    def __add__(self, other: Concepts) -> Concepts:
        """Concatenate concepts; the result is not a basis."""
        both = [concepts.accuracy for concepts in (self, other)]
        accuracy = None if both[0] is None or both[1] is None else both[0] + both[1]
        return Concepts(np.concatenate([self.vectors, other.vectors]), self.names + other.names, accuracy)

    @property
    def is_basis(self) -> bool:
        """Whether the concepts are an orthonormal basis, so that their parts sum to the score."""
        q, d = self.vectors.shape
        return q == d and np.allclose(self.vectors @ self.vectors.T, np.eye(d), atol=1e-8)

    def activations(self, features: Any, name: str = "features") -> Doubles:
        """Compute the activations f·v of concepts for features (n, d), shape (n, q).

        ``name`` is what an error calls the argument.
        """
        X = _features(name, features)
        d = self.vectors.shape[1]
        check_that(X.shape[1] == d, name, f"have the concepts' {d} dimensions", X.shape[1])
        return X @ self.vectors.T

    def scores(self, test: Any, train: Any, lam: Any) -> Doubles:
        """Compute the parts τ(x, i | v) of the scores of pairs.

        Parameters
        ----------
        test : (d,)
            Features of the test sample.
        train : (m, d)
            Features of the training samples.
        lam : (m,)
            Their coefficients λ_ic for the class.

        Returns
        -------
        array (m, q); positive is evidence for the class.
        """
        rows = self.activations(train, "train")
        coefficients = _features("lam", to_array("lam", lam)[..., None], "training sample", "(m,)")
        if len(coefficients) != len(rows):
            raise InvalidInputError(f"'lam' must have shape ({len(rows)},). Got ({len(coefficients)},).")
        return coefficients * rows * self.activations(to_array("test", test)[None], "test")

    def top_samples(self, features: Any, k: int = 9) -> npt.NDArray[np.int64]:
        """Return the rows of features (n, d) that show each concept most, (q, k), strongest first."""
        k = check_count("k", k)
        return np.argsort(-self.activations(features), axis=0, kind="stable")[:k].T.astype(np.int64)


class ConceptMaps(NamedTuple):
    """Relevance of one pair through q concepts, (q, …) on the test and on the training sample."""

    test: Tensor
    train: Tensor


def concept_maps(test: Pass, train: Pass, on_test: Tensor, on_train: Tensor) -> ConceptMaps:
    """Propagate the parts of a pair's score that go through q concepts to both inputs.

    With raw features, relevance starts on the test sample at λ (f_i·v) v ⊙ f(x), which sums to the
    part τ(x, i | v), and on the training sample at λ (f(x)·v) v ⊙ f_i. Over a basis, the maps of all concepts
    sum to that of the pair.

    Parameters
    ----------
    test, train
        Passes of the test sample and of the training sample, batches of one.
    on_test, on_train : (q, d)
        Vectors whose products with either sample's features are the parts: λ (f_i·v) v and λ (f(x)·v) v.
    """

    def through(here: Pass, vectors: Tensor) -> Tensor:
        return only(here.maps(vectors.to(here.features)[:, None]))[:, 0]

    return ConceptMaps(through(test, on_test), through(train, on_train))


def _features(name: str, values: Any, of: str = "sample", shape: str = "(n, d)") -> Doubles:
    rows = real_array(name, values).astype(np.float64)
    if rows.ndim != 2 or 0 in rows.shape or not np.isfinite(rows).all():
        raise InvalidInputError(
            f"'{name}' must be finite, one row a {of}, shape {shape}. Got shape {rows.shape}."
        )
    if np.abs(rows).max() > _LARGEST:
        raise InvalidInputError(
            f"'{name}' must not be above {_LARGEST:g}, whose square overflows. Scale it down."
        )
    return rows
