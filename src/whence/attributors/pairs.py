"""Attributors whose pairs can be explained: why a training sample matters, on both samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from whence.attributors.base import Attributor
from whence.attributors.dual.surrogate import Surrogate
from whence.attributors.explainer import PairExplainer, Parts, Scored
from whence.core.arrays import Ints
from whence.core.checks import check_count, check_places, is_integer, shown
from whence.core.progress import bar
from whence.data import as_new
from whence.errors import InvalidInputError
from whence.explanation import ConceptExplanation, Explanations, Foretold
from whence.model.inputs import check_batch
from whence.model.layers import Layers
from whence.relevance.concepts import Concepts
from whence.relevance.xda import Method


class PairAttributor(Attributor):
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
    def foretold_(self) -> Foretold | None:
        """How scores were foretold where they say what would change; None where a logit is made of them."""
        self.check_fitted()
        return None

    @property
    def n_scoring_(self) -> int:
        """The number of training samples that can have a score."""
        return len(self.surrogate_.support)

    @abstractmethod
    def scored(self, features: Tensor, target: int) -> Scored:
        """Score the training samples for one test with features (1, d), those that have a score."""

    @abstractmethod
    def parts(self, features: Tensor, target: int, indices: Sequence[int]) -> Parts:
        """Give what the scores of some training samples are at the features of one test (1, d)."""

    def scored_input(self, x: Any, target: int | None = None) -> Scored:
        """``scored`` of one input, a batch of one as for ``attribute``."""
        features, classes = self._read(x, target)
        return self.scored(features, int(classes[0]))

    def explaining(self, k: int, method: Method | None, among: Ints | None = None) -> PairExplainer:
        """Give what explains one test sample, by the k strongest pairs of either sign, or by given ones."""
        return PairExplainer(self, k, method, among)

    def _check_index(self, index: int | Sequence[int] | None) -> Ints | None:
        """Give the training samples to explain by, or raise where one can have no score."""
        if index is None:
            return None
        several = check_places("index", [index] if is_integer(index) else index, self.n_train_)
        never = several[~np.isin(several, self.surrogate_.support)]
        if not len(several) or len(never):
            got = f"{never[0]}, whose scores are all 0" if len(never) else "none"
            raise InvalidInputError(
                f"'index' must name training samples that can score, the {self.n_scoring_:,} in support_. "
                f"Got {got}."
            )
        return several

    def explain(
        self,
        x: Any,
        k: int = 5,
        target: Any = None,
        *,
        index: int | Sequence[int] | None = None,
        truth: Any = None,
        method: Method | None = None,
    ) -> Explanations:
        """Explain predictions by their strongest training samples, and these by relevance maps on both.

        The relevance of feature j of a pair is λ_ic f(x)_j f(x_i)_j. It is propagated to the input of the
        test sample and to that of the training sample. A test sample costs one pass forward, its training
        samples one in a batch, and either one pass back. Effects are linear in the features of either sample
        too, so that on both the relevance is all of the effect but the part of the bias.

        Parameters
        ----------
        x
            A batch of inputs, as for ``attribute``.
        k
            Proponents and opponents to show; fewer where there are fewer.
        target
            As for ``attribute``.
        index
            Training samples to explain by, in the place of the k strongest. Those that have a score of 0 for
            a test are not shown there.
        truth
            The true classes (B,), or labels of another task (B, …), where they are known, for display.
        method
            How relevance goes from features to inputs: "epsilon_plus_flat", "attn_lrp", "attn_lrp_cp",
            "epsilon", ``whence.relevance.Rules``, or a class of ``captum.attr``. None takes attn_lrp for a
            model with attention, epsilon_plus_flat for other convolutional ones, epsilon for the rest.

        Returns
        -------
        Explanations, one per test sample. Positive scores and relevance are evidence for the target class.
        """
        self.check_fitted()
        k = min(check_count("k", k), self.n_train_)
        x = as_new(x)
        n = check_batch(x)
        wanted = [None] * n if target is None else self.task_.check_target(target, n).tolist()
        truths = [None] * n if truth is None else self.task_.check_truth(truth, n)
        explaining = self.explaining(k, method, self._check_index(index))
        batches = explaining.model.batches(x, 1)
        tests = bar("Explaining", n, "tests", parts=batches, show=self.show_progress and n >= 4)
        numbered = zip(range(n), tests, wanted, truths, strict=True)
        return Explanations([explaining(*test) for test in numbered])

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
        chosen = Concepts.neurons(self.vectors_.shape[1]) if concepts is None else concepts
        tests = zip(range(count), explaining.model.batches(x, 1), wanted, strict=True)
        return [explaining.concepts(*test, index, chosen, n, k) for test in tests]
