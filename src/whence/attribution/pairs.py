"""Attributors whose pairs can be explained: why a training sample matters, on both samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from whence.attribution.explainer import PairExplainer, Parts, Scored
from whence.attribution.explaining import Explaining
from whence.attribution.usual import check_usualness
from whence.core.arrays import Ints
from whence.core.checks import check_count, shown
from whence.errors import InvalidInputError
from whence.explanation import ConceptExplanation, EffectOf
from whence.features import Usualness
from whence.model.inputs import check_batch
from whence.model.layers import Layers
from whence.relevance.concepts import Concepts
from whence.relevance.xda import Method
from whence.surrogate.surrogate import Surrogate
from whence.surrogate.training import training_features


class PairAttributor(Explaining):
    """An attributor whose scores are linear in features, so that relevance can take them apart.

    Attributes
    ----------
    surrogate_ : Surrogate, whose weights are a sum over the training samples
    vectors_ : (S, d), features of the training samples that can score
    gap_ : float, the surrogate's certificate
    """

    surrogate_: Surrogate
    vectors_: Tensor
    gap_: float

    @property
    def layers_(self) -> Layers | None:
        """The layers that features come from, and how; None for the last linear one's input as it is."""
        self.check_fitted()
        return None if self.model_ is None else self.model_.extractor.layers

    @property
    def foretold_(self) -> EffectOf | None:
        """How scores were foretold where they say what would change; None where a logit is made of them."""
        self.check_fitted()
        return None

    @property
    def scoring_(self) -> Ints:
        """Places of the training samples that can have a score, ascending."""
        self.check_fitted()
        return self.surrogate_.support

    @abstractmethod
    def scored(self, features: Tensor, target: int) -> Scored:
        """Score the training samples for one test with features (1, d), those that have a score."""

    @abstractmethod
    def parts(self, features: Tensor, target: int, indices: Sequence[int]) -> Parts:
        """Return what the scores of some training samples are at the features of one test (1, d)."""

    def scored_input(self, x: Any, target: int | None = None) -> Scored:
        """``scored`` of one input, a batch of one as for ``attribute``."""
        features, classes = self._read(x, target)
        return self.scored(features, int(classes[0]))

    def usualness(self, training: Any = None, *, k: int = 5, quantile: float = 0.99) -> Usualness:
        """Make what tells how usual tests are for the training set, by their nearest training samples.

        Features are brought to unit length, and the distance of a test to its k-th nearest training sample is
        compared with that of training samples to the others: beyond what ``quantile`` of these have, nothing
        like the test was in the training set. It is of no class, and the same for every task.

        Parameters
        ----------
        training
            Features of the training set, an array (train, d) or a FeatureBank; None has the model compute
            them, a pass over the training set.
        k
            Neighbours that must be near.
        quantile
            The share of training samples that count as usual.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(40, 3), torch.arange(40) % 2
        >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(3, 2), (x, y))
        >>> why = explainer.explain(x[:2], usualness=explainer.usualness())
        >>> why[0].typicality.neighbours[0].index, why[0].typicality.novel
        (0, False)
        """
        self.check_fitted()
        X, places = training_features(self, training, "training"), np.flatnonzero(self.used_)
        return Usualness(X, places, k, quantile, getattr(self, "seed", 0))

    def explaining(self, k: int, method: Method | None, usualness: Usualness | None = None) -> PairExplainer:
        """Return what explains one test sample, by the k strongest pairs of either sign."""
        return PairExplainer(self, k, method, check_usualness(self, usualness))

    def explain_concepts(
        self,
        x: Any,
        concepts: Concepts | None = None,
        index: int | None = None,
        n: int = 3,
        k: int = 9,
        target: Any = None,
        *,
        method: Method | None = None,
    ) -> list[ConceptExplanation]:
        """Take the score of a pair apart into concepts: τ_c(x, i | v) = λ_ic (f(x)·v)(f_i·v).

        Parameters
        ----------
        x
            A batch of inputs, as for ``attribute``.
        concepts
            Directions in feature space, see ``whence.relevance.Concepts``; None takes the single features.
        index
            The training sample, a support vector; None takes each test's strongest proponent.
        n
            Concepts to show, those with the largest parts of the score.
        k
            Samples to show for each concept, the support vectors that show it most.
        target, method
            As for ``explain``.

        Returns
        -------
        list of ConceptExplanation, one per test sample. Positive parts are evidence for the target class.
        """
        if self.foretold_ is not None:
            raise InvalidInputError(
                f"Concepts must be of what a logit is made of, λ (f(x)·v)(f_i·v). {type(self).__name__} says "
                "what would change, by samples that make up for each other: no concept lies between two of "
                "them. Use DualDA.explain_concepts, or explain."
            )
        n, k = check_count("n", n), min(check_count("k", k), self.n_train_)
        if index is not None:
            index = check_count("index", index, 0, self.n_train_ - 1)
        if concepts is not None and not isinstance(concepts, Concepts):
            raise InvalidInputError(
                f"'concepts' must be whence.relevance.Concepts, or None. Got {shown(concepts)}."
            )
        count = check_batch(x)
        wanted = [None] * count if target is None else self.task_.check_target(target, count).tolist()
        explaining = self.explaining(1, method)
        chosen = Concepts.neurons(self.surrogate_.stored.shape[1]) if concepts is None else concepts
        tests = zip(range(count), explaining.model.batches(x, 1), wanted, strict=True)
        return [explaining.concepts(*test, index, chosen, n, k) for test in tests]
