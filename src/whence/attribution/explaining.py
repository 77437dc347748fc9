"""Attributors that explain: what they have in common, whatever explains one test sample."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from whence.attribution.base import Attributor
from whence.core.arrays import Ints
from whence.core.checks import check_count, check_places, is_integer
from whence.core.progress import bar
from whence.data import as_new
from whence.errors import InvalidInputError
from whence.explanation import Explanation, Explanations
from whence.features import Novelty
from whence.model.bound import BoundModel
from whence.model.inputs import check_batch
from whence.relevance.xda import Method


class Explains(Protocol):
    """Explains test samples one at a time."""

    model: BoundModel

    def __call__(
        self, number: int, inputs: Any, target: int | None, truth: Any, among: Ints | None = None
    ) -> Explanation:
        """Explain one test sample, a batch of one; ``number`` is its place among the tests.

        ``among`` are training samples to show instead of the strongest.
        """


class Explaining(Attributor):
    """An attributor that explains predictions by pairs of training samples and tests."""

    @property
    @abstractmethod
    def scoring_(self) -> Ints:
        """Places of the training samples that can have a score, ascending."""

    @abstractmethod
    def explaining(self, k: int, method: Method | None, usualness: Novelty | None = None) -> Explains:
        """Return what explains one test sample, by the k strongest pairs of either sign."""

    def explain(
        self,
        x: Any,
        k: int = 5,
        target: Any = None,
        *,
        index: int | Sequence[int] | None = None,
        truth: Any = None,
        method: Method | None = None,
        usualness: Novelty | None = None,
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
            Training samples to explain by, instead of the k strongest. Those that have a score of 0 for
            a test are not shown there.
        truth
            The true classes (B,), or labels of another task (B, …), where they are known, for display.
        method
            How relevance goes from features to inputs: "epsilon_plus_flat", "attn_lrp", "attn_lrp_cp",
            "epsilon", ``whence.relevance.Rules``, or a class of ``captum.attr``. None takes attn_lrp_cp for
            a model with attention, epsilon_plus_flat for other convolutional ones, epsilon for the rest.
        usualness
            What ``usualness()`` gave, to tell beside each prediction how usual the test is for the training
            set; None leaves it out.

        Returns
        -------
        Explanations, one per test sample. Positive scores and relevance are evidence for the target class.
        """
        self.check_fitted()
        k = min(check_count("k", k), self.n_train_)
        x = as_new(x)
        n, among = check_batch(x), self._check_index(index)
        wanted = [None] * n if target is None else self.task_.check_target(target, n).tolist()
        truths = [None] * n if truth is None else self.task_.check_truth(truth, n)
        explaining = self.explaining(k, method, usualness)
        batches = explaining.model.batches(x, 1)
        tests = bar("Explaining", n, "tests", parts=batches, show=self.show_progress and n >= 4)
        numbered = zip(range(n), tests, wanted, truths, strict=True)
        return Explanations([explaining(*test, among) for test in numbered])

    def _check_index(self, index: int | Sequence[int] | None) -> Ints | None:
        """Return the training samples to explain by, or raise where one can have no score."""
        if index is None:
            return None
        several = check_places("index", [index] if is_integer(index) else index, self.n_train_)
        never = several[~np.isin(several, self.scoring_)]
        if not len(several) or len(never):
            got = f"{never[0]}, whose scores are all 0" if len(never) else "none"
            raise InvalidInputError(
                f"'index' must name training samples that can score, of which there are "
                f"{len(self.scoring_):,}. Got {got}."
            )
        return several
