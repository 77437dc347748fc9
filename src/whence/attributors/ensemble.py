"""One attribution method over several models of the same training set."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from whence.attributors.base import Attributor, Limits
from whence.attributors.classifier import Training
from whence.core import store
from whence.core.checks import shown
from whence.errors import InvalidInputError, StoreError
from whence.model.inputs import check_batch
from whence.model.modules import check_model


class Ensemble(Attributor):
    """Average the scores of several models, such as trainings from different seeds.

    The score of training sample i for class c at x is the mean over members m of τ_m(x, i)/σ_m(x), where
    σ_m(x) is the standard deviation of the member's scores over the training samples. So every member has
    the same weight, whatever its scale. The mean is not subtracted: zero is the border between evidence for
    and against, and **positive stays evidence for the target class**. A member whose scores of a test are
    all the same says nothing about it and counts as zero.

    Parameters
    ----------
    members
        A function that makes an attributor, such as a class, for as many models as ``fit`` is given; or a
        list of attributors, one per model.

    Attributes
    ----------
    members_ : list of fitted attributors
    n_train_, n_classes_ : int

    Examples
    --------
    >>> import torch, whence
    >>> from whence.attributors.ensemble import Ensemble
    >>> models = [torch.nn.Linear(4, 2) for _ in range(3)]
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = Ensemble(lambda: whence.DualDA(C=1e-2, show_progress=False)).fit(models, (x, y))
    >>> explainer.attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "ensemble"
    limits: ClassVar[Limits] = Limits(
        memory="the sum of its members'",
    )

    def __init__(self, members: Callable[[], Attributor] | Sequence[Attributor]) -> None:
        self.members = members

    def fit(
        self,
        model: nn.Module | Sequence[nn.Module] | None = None,
        data: Any = None,
        layer: str | None = None,
        **options: Any,
    ) -> Self:
        """Fit a member to each model, all on the same training set.

        Parameters
        ----------
        model
            The models, with the same classes.
        data, layer, options
            As for every method, see ``Attributor.fit``.
        """
        given = model if isinstance(model, list | tuple) else [model]
        models = [check_model(one, layer) for one in given]
        pairs = zip(self._unfitted(len(models)), models, strict=True)
        # Here, one after the other: a process would give back copies of the model and the training set.
        members = [member.fit(one, data, layer, **options) for member, one in pairs]
        classes = {member.n_classes_ for member in members}
        if len(classes) > 1:
            raise InvalidInputError(
                f"'model' must be models with the same classes. Got numbers of classes {sorted(classes)}."
            )
        first = members[0]
        self.members_ = members
        seconds = {"solution": sum(member.fit_seconds_ for member in members)}
        self._adopt(first.task_, first.labels_, None, None, first.data_, seconds)
        self.cache_bytes_ = sum(member.cache_bytes_ for member in members)
        return self

    def classes(self, x: Any, target: Any) -> Tensor:
        """Class (B,) that is explained for each input; for None the one that most members predict."""
        if target is not None:
            return self.task_.check_target(target, check_batch(x))
        return torch.stack([member.classes(x, None) for member in self.members_]).mode(0).values

    def _read(self, x: Any, target: Any) -> tuple[Tensor, Tensor]:
        classes = self.classes(x, target)
        return classes.new_empty(len(classes), 0), classes  # of features every member has its own

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        total = _standardised(self.members_[0].attribute(x, classes))
        for member in self.members_[1:]:
            total += _standardised(member.attribute(x, classes)).to(total)
        return total.div_(len(self.members_))

    def _for_all(self, scores: Tensor) -> Tensor:
        return scores  # members have scores of all samples

    def _self_influence(self) -> Tensor:
        parts = [_standardised(member.self_influence()[None])[0].cpu() for member in self.members_]
        return torch.stack(parts).mean(0)

    def _learn(self, training: Training, **given: Any) -> Any:
        raise NotImplementedError  # every member has a fit of its own

    def _unfitted(self, n: int) -> list[Attributor]:
        """Give one new attributor per model, or raise."""
        if n == 0:
            raise InvalidInputError("'model' must have at least one model. Got none.")
        made: list[Attributor] = []
        if callable(self.members):
            made = [self.members() for _ in range(n)]
        elif isinstance(self.members, list | tuple):
            made = [copy.copy(member) for member in self.members]
        if not made or not all(isinstance(member, Attributor) for member in made):
            raise InvalidInputError(
                "'members' must be a function that makes an attributor, or a list of attributors. "
                f"Got {shown(self.members)}."
            )
        if len(made) != n:
            raise InvalidInputError(
                f"'model' must have one model for each of the {len(made)} members. Got {n}."
            )
        return made

    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        raise StoreError("An Ensemble is not saved as one. Save each of its members_.")


def _standardised(scores: Tensor) -> Tensor:
    """Scores (B, N) divided by their standard deviation in each row; zero where they are all the same."""
    deviation = scores.std(1, correction=0, keepdim=True)
    same = scores.amax(1, keepdim=True) == scores.amin(1, keepdim=True)
    return (scores / deviation.where(~same, 1)).masked_fill(same, 0)
