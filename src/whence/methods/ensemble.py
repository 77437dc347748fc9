"""One attribution method over several models of the same training set."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from whence.attribution.base import METHODS, Attributor, Capabilities, register, share_options
from whence.attribution.classifier import Training
from whence.attribution.explaining import Explaining
from whence.attribution.members import MembersExplainer
from whence.attribution.pairs import PairAttributor
from whence.core import contents, store
from whence.core.arrays import Ints
from whence.core.checks import shown
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.features import FeatureBank, Novelty
from whence.gradients.checkpoints import Checkpoints, read_checkpoints
from whence.model.inputs import check_batch
from whence.model.modules import check_model
from whence.relevance.xda import Method


@register
@dataclass(eq=False)
class Ensemble(Explaining):
    """Average the scores of several models, such as trainings from different seeds, and tell their spread.

    The score of training sample i for class c at x is the mean over members m of τ_m(x, i)/σ_m(x), where
    σ_m(x) is the standard deviation of the member's scores over the training samples. So every member has
    the same weight, whatever its scale. The mean is not subtracted: zero is the border between evidence for
    and against, and **positive stays evidence for the target class**. A member whose scores of a test are
    all the same says nothing about it and counts as zero. Self-influence is averaged in the same way, over
    the self-influences of all samples.

    Parameters
    ----------
    members
        The method: its name, its class or a function that makes an attributor, or an attributor, which is
        copied for every model; or a list of attributors, one per model.
    batch_size, show_progress
        Of members that are made here, by name or class.

    Attributes
    ----------
    members_ : list of fitted attributors; ``members_[0].explain(x)`` explains by one of them alone
    n_train_, n_classes_ : int

    Examples
    --------
    >>> import torch, whence
    >>> models = [torch.nn.Linear(4, 2) for _ in range(3)]
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.Ensemble(whence.DualDA(C=1e-2, show_progress=False)).fit(models, (x, y))
    >>> explainer.attribute(x[:3]).shape, explainer.spread(x[:3]).shape
    (torch.Size([3, 20]), torch.Size([3, 20]))
    """

    name: ClassVar[str] = "ensemble"
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory="the sum of its members'",
        cost=0.2,
        tasks=("class", "label", "number"),
        explains=True,
        members=True,
    )

    members: Any = "dualda"

    @share_options
    def fit(
        self,
        model: nn.Module | Sequence[nn.Module] | None = None,
        data: Any = None,
        y: Any = None,
        *,
        layer: str | None = None,
        features: FeatureBank | Sequence[FeatureBank] | None = None,
        checkpoints: Checkpoints | None = None,
        **options: Any,
    ) -> Self:
        """Fit a member to each model, all on the same training set.

        As ``model`` it takes several, with the same classes, and as ``features`` a bank per model.

        Parameters
        ----------
        checkpoints
            State dicts, models, or paths of files with one, for one ``model``: as many members, each with a
            copy of it.
        """
        self._check_parameters()
        several: list[dict[str, Any]]
        if features is None:
            models = _models(model, layer, checkpoints)
            several = [{"model": one, "data": data, "y": y, "layer": layer} for one in models]
        else:
            banks = list(features) if isinstance(features, list | tuple) else [features]
            given = {"model": model, "data": data, "y": y, "layer": layer}
            several = [{**given, "features": bank} for bank in banks]
        pairs = zip(self._unfitted(len(several)), several, strict=True)
        # Here, one after the other: a process would give back copies of the model and the training set.
        self._take([member.fit(**given, **options) for member, given in pairs])
        return self

    def spread(self, x: Any, target: Any = None) -> Tensor:
        """Return the standard deviation (test, train) of the members' scores, in the units of the mean.

        With M members it is √(Σ_m (s_m − s̄)²/(M − 1)); 0 for one member. Of the mean itself it is √M less.

        Parameters
        ----------
        x, target
            As for ``attribute``.
        """
        self.check_fitted()
        classes = self.classes(x, target)
        each = torch.stack(
            [self._standardised(member.attribute(x, classes)).cpu() for member in self.members_]
        )
        return each.std(0, correction=min(1, len(each) - 1))

    @property
    def scoring_(self) -> Ints:
        """Places of the training samples that can have a score by some member, ascending."""
        self.check_fitted()
        each = [one.scoring_ for one in self.members_ if isinstance(one, PairAttributor)]
        found: Ints = np.unique(np.concatenate(each)) if each else np.flatnonzero(self.used_)
        return found

    def explaining(self, k: int, method: Method | None, usualness: Novelty | None = None) -> MembersExplainer:
        """Give what explains one test sample, by means of its members' scores and maps, with their spread."""
        self.check_fitted()
        members = [member for member in self.members_ if isinstance(member, PairAttributor)]
        if len(members) < len(self.members_):
            raise InvalidInputError(
                "'members' must be DualDA or Effects, or derive from them, to be explained. Got "
                f"{type(self.members_[0]).__name__}: use attribute, top_k and spread."
            )
        if usualness is not None:
            raise InvalidInputError(
                "'usualness' must be None for an ensemble, whose members have features of their own. Ask one "
                "of them, members_[0].usualness()."
            )
        return MembersExplainer(members, k, method)

    def classes(self, x: Any, target: Any) -> Tensor:
        """Class (B,) that is explained for each input; for None the one that most members predict."""
        self.check_fitted()
        if target is not None:
            return self.task_.check_target(target, check_batch(x))
        return torch.stack([member.classes(x, None) for member in self.members_]).mode(0).values

    def take_data(self, data: TrainingSet) -> None:
        """Take the training set, for members that explain."""
        for member in self.members_:
            if isinstance(member, PairAttributor):
                member.take_data(data)
        self.data_ = data

    @classmethod
    def restored(cls, arrays: store.Arrays, values: dict[str, Any], model: Any) -> Self:
        """Rebuild an ensemble from what ``save`` wrote; ``model`` are its models in their order, or None."""
        from whence.attribution.saved import EnsembleManifest  # pydantic takes a while to import

        saved = contents.manifest(EnsembleManifest, values).members
        models = model if isinstance(model, list | tuple) else [model] * (1 if model else len(saved))
        if len(models) != len(saved):
            raise InvalidInputError(
                f"'model' must be the {len(saved)} models of the ensemble, in their order. Got {len(models)}."
            )
        members, parts = [], dict[str, dict[str, Any]]()
        for name, array in arrays.items():
            number, _, own = name.partition("/")
            parts.setdefault(number, {})[own] = array
        for place, (each, one) in enumerate(zip(saved, models, strict=True)):
            if each.get("method") not in METHODS or each["method"] == cls.name:
                raise contents.refused(f"the member {place} must be of a known method, and is not")
            members.append(METHODS.get(each["method"]).restored(parts.pop(str(place), {}), each, one))
        if parts:
            raise contents.refused(f"it has arrays of a member {min(parts)!r}, which does not belong there")
        self = cls(members[0].name)
        with contents.restoring():
            self._take(members)
        return self

    def saved(self) -> tuple[store.Arrays, dict[str, Any]]:
        """Return what ``save`` writes: the arrays and the manifests of all members."""
        self.check_fitted()
        each = [member.saved() for member in self.members_]
        arrays = {f"{i}/{name}": array for i, (part, _) in enumerate(each) for name, array in part.items()}
        return arrays, {"method": self.name, "members": [manifest for _, manifest in each]}

    def _take(self, members: list[Attributor]) -> None:
        """Take over fitted members."""
        first = members[0]
        classes = {member.n_classes_ for member in members}
        if len(classes) > 1:
            raise InvalidInputError(
                f"'model' must be models with the same classes. Got numbers of classes {sorted(classes)}."
            )
        if any(member.n_train_ != first.n_train_ for member in members):
            raise InvalidInputError("'features' must be of one training set. Got other numbers of samples.")
        self.members_ = members
        seconds = {part: sum(member.seconds_.get(part, 0.0) for member in members) for part in first.seconds_}
        self._adopt(first.task_, first.labels_, first.head_, first.model_, first.data_, seconds)
        self.origins_, self.reading_ = dict(first.origins_), first.reading_
        self.cache_bytes_ = sum(member.cache_bytes_ for member in members)

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "members": len(self.members_)}

    def _read(self, x: Any, target: Any) -> tuple[Tensor, Tensor]:
        classes = self.classes(x, target)
        return classes.new_empty(len(classes), 0), classes  # of features every member has its own

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        total = self._standardised(self.members_[0].attribute(x, classes))
        for member in self.members_[1:]:
            total += self._standardised(member.attribute(x, classes)).to(total)
        return total.div_(len(self.members_))

    def _for_all(self, scores: Tensor) -> Tensor:
        return scores  # members have scores of all samples

    def _self_influence(self) -> Tensor:
        parts = [self._standardised(member.self_influence()[None])[0].cpu() for member in self.members_]
        return torch.stack(parts).mean(0)

    def _standardised(self, scores: Tensor) -> Tensor:
        """Divide scores (B, N) by their standard deviation in each row; 0 where they are all the same."""
        used = scores[:, torch.as_tensor(self.used_)] if len(self.skipped_) else scores
        deviation = used.std(1, correction=0, keepdim=True)
        same = used.amax(1, keepdim=True) == used.amin(1, keepdim=True)
        return (scores / deviation.where(~same, 1)).masked_fill(same, 0)

    def _learn(self, training: Training, **given: Any) -> Any:
        raise NotImplementedError  # every member has a fit of its own

    def _unfitted(self, n: int) -> list[Attributor]:
        """Return one new attributor per model, or raise."""
        made, given = list[Attributor](), self.members
        if isinstance(given, str):
            given = METHODS.get(given, "members")
        if isinstance(given, type) and issubclass(given, Attributor):
            made = [given(batch_size=self.batch_size, show_progress=self.show_progress) for _ in range(n)]
        elif isinstance(given, Attributor):
            made = [copy.copy(given) for _ in range(n)]
        elif isinstance(given, list | tuple):
            made = [copy.copy(member) for member in given]
        elif callable(given):
            made = [given() for _ in range(n)]
        if not made or not all(isinstance(member, Attributor) for member in made):
            raise InvalidInputError(
                "'members' must be a method's name or class, an attributor, a function that makes one, or a "
                f"list of attributors. Got {shown(self.members)}."
            )
        if len(made) != n:
            raise InvalidInputError(
                f"'model' must have one model for each of the {len(made)} members. Got {n}."
            )
        return made


def _models(model: Any, layer: str | None, checkpoints: Checkpoints | None) -> list[nn.Module]:
    """Return the models that members are fitted to, or raise."""
    given = list(model) if isinstance(model, list | tuple) else [model]
    if not given:
        raise InvalidInputError("'model' must have at least one model. Got none.")
    models = [check_model(one, layer) for one in given]
    if checkpoints is None:
        return models
    if len(models) > 1:
        raise InvalidInputError(
            f"'checkpoints' must be of one model. Got {len(models)} models; leave one of the two out."
        )
    made = []
    for weights in read_checkpoints(models[0], checkpoints):
        made.append(copy.deepcopy(models[0]))
        made[-1].load_state_dict(weights, strict=False)  # tied weights have one name
    return made
