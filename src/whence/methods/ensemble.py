"""One attribution method over several models of the same training set."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from whence.attribution.base import METHODS, Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.core import contents, store
from whence.core.checks import shown
from whence.errors import InvalidInputError, UnsupportedError
from whence.features.training import Training
from whence.gradients.checkpoints import Checkpoints, read_checkpoints
from whence.model.modules import check_model


@register
@dataclass(eq=False)
class Ensemble(Attributor):
    """Average the scores of several models, such as models of different seeds, and compute their spread.

    The score of training sample i for class c at x is the mean over members m of τ_m(x, i)/σ_m(x), where
    σ_m(x) is the standard deviation of the member's scores over the training samples. All members thus have
    equal weight, independently of their scale. The mean is not subtracted: zero stays the border between
    evidence for and against, and **positive is evidence for the target class**. Constant scores of a member
    get weight 0. Self-influence is averaged in the same way, over the self-influences of all samples.

    Parameters
    ----------
    members
        The method: its name, its class, a function that makes an attributor, or an attributor, which is
        copied for every model; or a list of attributors, one per model.
    batch_size, show_progress
        Options of members that are made by name or class.

    Attributes
    ----------
    members_ : list of fitted attributors; ``members_[0].explain(x)`` explains by one of them
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
    learned: ClassVar[tuple[str, ...]] = (*Attributor.learned, "members")
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory="the sum of its members'",
        cost=0.2,
        tasks=("class", "label", "number"),
        explains=True,
        members=True,
    )

    members: Any = "dualda"

    def fit(
        self,
        model: Any = None,
        data: Any = None,
        y: Any = None,
        *,
        layer: str | None = None,
        features: Any = None,
        checkpoints: Checkpoints | None = None,
        **options: Any,
    ) -> Self:
        """Fit a member to each model, all on the same training set.

        Parameters
        ----------
        model
            Several models with the same classes, or one, with ``checkpoints``.
        features
            One bank per model.
        checkpoints
            State dicts, models, or paths of files with a state dict: one member per checkpoint, each with a
            copy of the one ``model``.
        data, y, layer, options
            As for ``Attributor.fit``, for every member.
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
        # In this process: another one would return copies of the model and the training set.
        members = [member.fit(**given, **options) for member, given in pairs]
        self.fitted_ = _joined(members)
        return self

    def spread(self, x: Any, target: Any = None) -> Tensor:
        """Compute the standard deviation (test, train) of the members' scores, in the units of the mean.

        With M members it is √(Σ_m (s_m − s̄)²/(M − 1)); 0 for one member. The standard error of the mean is
        smaller by √M.

        Parameters
        ----------
        x, target
            As for ``attribute``.
        """
        fitted = self._check_fitted()
        members = torch.stack(
            [scores.cpu() for scores in _standardised(fitted, self._tests(x, target, None))]
        )
        return fitted.for_all(members.std(0, correction=min(1, len(members) - 1)))

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        """Raise: every member has its own fit."""
        raise UnsupportedError("An Ensemble fits its members one by one. Use fit.")

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        """Compute the mean of the members' scores, (B, M)."""
        first, *others = _standardised(fitted, tests)
        for scores in others:
            first += scores.to(first)
        return first.div_(len(fitted.members))

    def score_self(self, fitted: Fitted) -> Tensor:
        """Compute the mean of the members' self-influences, (M,)."""
        parts = [_standardise(m.score_self(m.fitted_)[None])[0].cpu() for m in fitted.members]
        return torch.stack(parts).mean(0)

    @classmethod
    def restored(cls, arrays: store.Arrays, values: dict[str, Any], model: Any) -> Self:
        """Rebuild an ensemble from what ``save`` wrote; ``model`` are its models in their order, or None."""
        from whence.attribution.manifests import EnsembleManifest  # pydantic takes a while to import

        saved = contents.manifest(EnsembleManifest, values).members
        models = model if isinstance(model, list | tuple) else [model] * (1 if model else len(saved))
        if len(models) != len(saved):
            raise InvalidInputError(
                f"'model' must be the {len(saved)} models of the ensemble, in order. Got {len(models)}."
            )
        members, parts = [], dict[str, dict[str, Any]]()
        for name, array in arrays.items():
            number, _, key = name.partition("/")
            parts.setdefault(number, {})[key] = array
        for place, (manifest, one) in enumerate(zip(saved, models, strict=True)):
            if manifest.get("method") not in METHODS or manifest["method"] == cls.name:
                raise contents.refused(f"the member {place} must be of a known method, and is not")
            method = METHODS.get(manifest["method"])
            members.append(method.restored(parts.pop(str(place), {}), manifest, one))
        if parts:
            raise contents.refused(f"it has arrays of a member {min(parts)!r}, which does not belong there")
        self = cls(members[0].name)
        with contents.restoring():
            self.fitted_ = _joined(members)
        return self

    def packed(self, in_bank: bool = False) -> tuple[store.Arrays, dict[str, Any]]:
        """Return what ``save`` writes: the arrays and the manifests of all members."""
        packed = [member.packed(in_bank) for member in self._check_fitted().members]
        arrays = {f"{i}/{name}": array for i, (part, _) in enumerate(packed) for name, array in part.items()}
        return arrays, {"method": self.name, "members": [manifest for _, manifest in packed]}

    def _facts(self, fitted: Fitted) -> dict[str, Any]:
        return {**super()._facts(fitted), "members": len(fitted.members)}

    def _unfitted(self, n: int) -> list[Attributor]:
        """Return one new attributor per model, or raise."""
        given: Any = METHODS.get(self.members, "members") if isinstance(self.members, str) else self.members
        made = list[Attributor]()
        if METHODS.accepts(given):
            made = [given(batch_size=self.batch_size, show_progress=self.show_progress) for _ in range(n)]
        elif METHODS.accepts(type(given)):
            made = [copy.copy(given) for _ in range(n)]
        elif isinstance(given, list | tuple):
            made = [copy.copy(member) for member in given]
        elif callable(given):
            made = [given() for _ in range(n)]
        if not made or not all(METHODS.accepts(type(member)) for member in made):
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
    """Return the models of the members, or raise."""
    given = list(model) if isinstance(model, list | tuple) else [model]
    if not given:
        raise InvalidInputError("'model' must have at least one model. Got none.")
    models = [check_model(one, layer) for one in given]
    if checkpoints is None:
        return models
    if len(models) > 1:
        raise InvalidInputError(
            f"'checkpoints' must be of one model. Got {len(models)} models. Pass checkpoints or models."
        )
    made = []
    for weights in read_checkpoints(models[0], checkpoints):
        made.append(copy.deepcopy(models[0]))
        made[-1].load_state_dict(weights, strict=False)  # tied weights have one name
    return made


def _joined(members: list[Attributor]) -> Fitted:
    """Return the joint record of several fits on one training set, or raise if training sets differ."""
    records = [member.fitted_ for member in members]
    classes = {fitted.n_classes for fitted in records}
    if len(classes) > 1:
        raise InvalidInputError(
            f"'model' must be models with the same classes. Got models with {sorted(classes)} classes."
        )
    first = records[0]
    if any(fitted.n_train != first.n_train for fitted in records):
        raise InvalidInputError("'features' must be of one training set. Got different numbers of samples.")
    seconds = {part: sum(fitted.seconds.get(part, 0.0) for fitted in records) for part in first.seconds}
    return replace(
        first,
        method="Ensemble",
        arrays={},
        surrogate=None,
        scorer=None,
        members=tuple(members),
        seconds=seconds,
        needs_inputs=True,
    )


def _standardised(fitted: Fitted, tests: Tests) -> list[Tensor]:
    """Compute the standardised scores (B, M) of each member."""
    pairs = zip(fitted.members, tests.members, strict=True)
    return [_standardise(member.score_tests(member.fitted_, each)) for member, each in pairs]


def _standardise(scores: Tensor) -> Tensor:
    """Divide each row of scores (B, M) by its standard deviation; constant rows become 0."""
    deviation = scores.std(1, correction=0, keepdim=True)
    same = scores.amax(1, keepdim=True) == scores.amin(1, keepdim=True)
    return (scores / deviation.where(~same, 1)).masked_fill(same, 0)
