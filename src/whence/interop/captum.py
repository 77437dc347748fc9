"""Any attribution method as a ``DataInfluence`` of captum."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from captum.influence import DataInfluence
from torch import Tensor
from torch.utils.data import DataLoader

from whence.core.checks import check_count, check_flag, check_is, check_that
from whence.errors import InvalidInputError
from whence.methods import Attributor


class MostInfluential(NamedTuple):
    """The k strongest training samples per test, with the names of captum's own results.

    Attributes
    ----------
    indices : (B, k) int64, places in the training set, the strongest first
    influence_scores : (B, k) their scores, of either sign
    """

    indices: Tensor
    influence_scores: Tensor


class CaptumInfluence(DataInfluence):  # type: ignore[misc]
    """A fitted attributor as a ``captum.influence.DataInfluence``, called as ``TracInCP`` is.

    **A positive score supports the label**, as in captum, where it lowers the loss. Unlike ``top_k`` of
    whence, the k largest scores are returned whatever their sign.

    Parameters
    ----------
    explainer
        Fitted, with its model.

    Examples
    --------
    >>> import torch, whence
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.DualDA(C=1e-2, show_progress=False).fit(torch.nn.Linear(4, 2), x, y)
    >>> influence = whence.interop.CaptumInfluence(explainer)
    >>> influence.influence((x[:3], y[:3])).shape
    torch.Size([3, 20])
    >>> influence.influence((x[:3], y[:3]), k=5, proponents=False).indices.shape
    torch.Size([3, 5])
    """

    def __init__(self, explainer: Attributor) -> None:
        check_is("explainer", explainer, Attributor, "an attribution method of whence")
        self.explainer = explainer
        self.model, self.train_dataset = explainer.fitted_.require_model().extractor.model, explainer.data_

    def influence(
        self, inputs: Any = None, k: int | None = None, proponents: bool = True, **options: Any
    ) -> Tensor | MostInfluential:
        """Return scores (test, train), or with ``k`` the strongest samples.

        Parameters
        ----------
        inputs
            A tuple of the model's inputs with the labels last, None for the classes that the model predicts;
            or a ``DataLoader`` of such tuples.
        k
            Samples per test; None returns all scores.
        proponents
            The largest scores, or the smallest.
        options
            ``unpack_inputs`` and ``show_progress`` of captum, which are not used here.
        """
        unknown = [name for name in options if name not in ("unpack_inputs", "show_progress")]
        if unknown:
            raise InvalidInputError(
                f"'{unknown[0]}' must be left out: captum's influence has no such option."
            )
        k = None if k is None else check_count("k", k, 1, self.explainer.n_train_)
        largest = check_flag("proponents", proponents)
        scores = map(self._scores, inputs if isinstance(inputs, DataLoader) else [inputs])
        if k is None:
            return torch.cat(list(scores))
        best = [batch.topk(k, dim=1, largest=largest) for batch in scores]  # (test, train) of one at a time
        return MostInfluential(torch.cat([b.indices for b in best]), torch.cat([b.values for b in best]))

    def self_influence(self, inputs: Any = None, show_progress: bool = False) -> Tensor:
        """Return the score (train,) of each training sample for its own label at itself."""
        check_flag("show_progress", show_progress)
        if inputs is not None:
            raise InvalidInputError(
                "'inputs' must be None, for the training set. Got others, which do not influence themselves."
            )
        return self.explainer.self_influence()

    def _scores(self, batch: Any) -> Tensor:
        rule = "be tuples of the model's inputs with the labels last, such as (x, y)"
        check_that(isinstance(batch, tuple | list) and len(batch) >= 2, "inputs", rule, type(batch))
        *parts, labels = batch
        return self.explainer.attribute(parts[0] if len(parts) == 1 else tuple(parts), labels)
