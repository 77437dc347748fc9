"""Effects: what would change without a sample, foretold by solving the surrogate again on random halves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whence.attributors.base import Limits, register
from whence.attributors.classifier import Training
from whence.attributors.dual.attributor import SurrogateAttributor
from whence.attributors.dual.surrogate import Surrogate
from whence.attributors.effects.groups import GroupEffect, group_effect
from whence.attributors.effects.halves import CHUNK, Halves, weight_of
from whence.attributors.effects.outputs import Output, sharpness_of
from whence.attributors.effects.reliability import out_of_bag, reliability
from whence.attributors.effects.shift import Solved
from whence.attributors.effects.shifts import Shifts, checked
from whence.attributors.explainer import Parts, Scored
from whence.attributors.parameters import one_of, parameter
from whence.core import store
from whence.core.arrays import Floats
from whence.core.checks import check_count
from whence.errors import ConvergenceWarning, InvalidInputError, warn
from whence.explanation import Foretold
from whence.features import as_float32, taken
from whence.model.bound import BoundModel
from whence.model.layers import Asked, check_layers
from whence.svm.inputs import squared_norms
from whence.svm.linearised import Linearised

Method = Literal["halves", "first_order"]

KAPPA = 1000.0
"""C·Σ_i‖f_i‖² of the surrogates where C is "auto"."""

_MOST = 128  # halves that "auto" solves at most
_GAIN = 0.03  # of the reliability by twice as many halves, below which they are enough
_CALIBRATING = 4  # halves that tell how sharp probabilities are


class _Learned(NamedTuple):
    surrogate: Surrogate
    shifts: Shifts
    sharpness: float
    reliability: float | None


@register
@dataclass(eq=False)
class Effects(SurrogateAttributor):
    """Foretell what would change if a training sample were gone and the model trained again.

    The score of sample i for class c at x is what its presence adds to the output for c: **positive when
    the sample raises the output of the target class**. τ of ``DualDA`` says what a logit is made of; an
    effect says what would be missing, which others may make up for.

    - ``"halves"``: the surrogate is solved on random halves of the training set, and in each one the change
      by every sample, leaving it or entering it, is computed to first order from the optimality conditions
      (``whence.svm.linearised``). The score is the mean over the halves, the sample's Banzhaf value to first
      order.
    - ``"first_order"``: the same at the surrogate of the whole training set, for samples that leave it.
      Samples that are no support vectors have 0.

    Features of several layers foretell best: the last layer's alone leaves out how those before it learn.

    Parameters
    ----------
    C
        Weight of the loss in ½‖W‖² + C Σ_i loss_i, the same in every half; "auto" is 1000/Σ_i‖f_i‖².
    bias
        Append a constant to the features, as ``DualDA`` does.
    layers
        Which layers features come from, as for ``DualDA``; "auto" takes up to 5 of all.
    tol
        Relative duality gap of the surrogate of the whole training set; halves are solved to 1e-6.
    seed
        Draws the halves.
    n_threads
        Threads of the solver; None leaves it to the solver.
    max_seconds
        Budget of the halves, after which no further ones are begun, and limit of the solver.
    device
        Where the features and scores are computed; None is the model's device, or the CPU for features.
    method
        "halves" or "first_order".
    output
        What is foretold of the target class: "logit", its logit; "margin", that less the largest other;
        "log_prob", the logarithm of its probability, the surrogate's logits being made as sharp as suits
        the labels of samples outside the halves best.
    solves
        Halves to solve; "auto" doubles them from 16 until that gains less than 0.03 of ``reliability_``, to
        at most 128.
    batch_size, show_progress
        As for every method, see ``Attributor``.

    Attributes
    ----------
    reliability_ : float or None, how well the effects of one part of the halves foretell the outputs of the
        surrogates of the other part: their correlation over halves, at training samples outside them
    solves_ : int, halves that were solved
    sharpness_ : float, what logits are multiplied by before they become probabilities

    Also what ``DualDA`` has of its surrogate, here of the one of the whole training set.

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.Effects(solves=8, show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "effects"
    classes_only = True
    _manifest: ClassVar[str] = "EffectsManifest"
    limits: ClassVar[Limits] = Limits(
        last_layer_only=False,
        memory="N × d, and the square of the samples on the margin for every half",
        cost=3.0,
        new_layer=True,
    )

    layers: Asked | list[str] = parameter("auto", check_layers)
    method: Method = parameter("halves", one_of(Method))
    output: Output = parameter("logit", one_of(Output))
    solves: int | Literal["auto"] = "auto"

    def standard_error(self, x: Any, target: Any = None) -> Tensor:
        """Standard errors (test, train) of the scores, from their spread over the halves."""
        return self._for_all(self._errors(*self._read(x, target)))

    def standard_error_features(self, features: Any, target: Any = None) -> Tensor:
        """``standard_error`` of features (B, d)."""
        return self._for_all(self._errors(*self._given(features, target)))

    def effect_of(
        self,
        x: Any,
        target: Any = None,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
    ) -> GroupEffect:
        """Foretell what becomes of a batch of inputs without a set of samples, or with other labels.

        Of the surrogate of the whole training set, whatever ``method`` is: to first order, W changes by
        −(I − P) Σ_i λ_i ⊗ f_i, P projecting onto the constraints that hold at all other samples; exactly, it
        is solved again from there. **Negative where the samples raise the target's output.** First order
        holds while the others keep their active set, so for few samples or such as hardly matter; print the
        record to see.

        Parameters
        ----------
        x, target
            As for ``attribute``.
        remove
            Training samples to leave out.
        relabel
            New labels of training samples. To first order, they leave and enter again with their new label.
        training_features
            Features (train, d) of all training samples, an array or a FeatureBank; None computes them again.
        """
        asked = remove, relabel, training_features, (self.output, self.sharpness_)
        return group_effect(self, self._read(x, target), *asked)

    def effect_of_features(
        self,
        features: Any,
        target: Any = None,
        *,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        training_features: Any = None,
    ) -> GroupEffect:
        """``effect_of`` of features (B, d)."""
        asked = remove, relabel, training_features, (self.output, self.sharpness_)
        return group_effect(self, self._given(features, target), *asked)

    def _errors(self, features: Tensor, classes: Tensor) -> Tensor:
        n = len(self.shifts_.each)
        if n < 2:
            raise InvalidInputError(
                "'solves' must be at least 2 for standard errors. There is one surrogate only: use "
                'method="halves".'
            )
        out = features.new_zeros(len(features), len(self._labels))
        tests = self._extended(features)
        for rows, _, variance in self.shifts_.moments(tests, classes, self.output, self.sharpness_):
            out[rows, self._places] = (variance / n).sqrt()
        return out

    @property
    def foretold_(self) -> Foretold:
        """What the effects are on, of how many halves they are means, and how reliable they are."""
        return Foretold(self.output, self.solves_, self.reliability_)

    @property
    def n_scoring_(self) -> int:
        """The number of training samples that change some surrogate."""
        return len(self.shifts_.rows)

    def scored(self, features: Tensor, target: int) -> Scored:
        """Effects of the samples that can have one on one test with features (1, d)."""
        test, classes = self._extended(features), torch.tensor([target])
        ((_, mean, variance),) = self.shifts_.moments(test, classes, self.output, self.sharpness_)
        n = len(self.shifts_.each)
        errors = (variance[0] / n).sqrt().double().cpu().numpy() if n > 1 else None
        return Scored(self._scoring, mean[0].double().cpu().numpy(), errors)

    def parts(self, features: Tensor, target: int, indices: Sequence[int]) -> Parts:
        """Give what effects are at the features: e_i on the test; on the training sample what is common."""
        test, classes = self._extended(features), torch.tensor([target])
        rows = torch.as_tensor(np.searchsorted(self._scoring, indices), device=self._places.device)
        e = self.shifts_.directions(test, classes, self.output, self.sharpness_, rows)
        d = features.shape[1]
        vectors, along = self.shifts_.vectors[rows][:, :d], e[:, :d]
        f = vectors.double()
        on_train = (along * f).sum(1) / (f * f).sum(1).clamp(min=torch.finfo(torch.float64).tiny)
        return Parts(vectors, along, on_train, self.constant_ * e[:, d:].sum(1))

    def _scores(self, features: Tensor, classes: Tensor, x: Any) -> Tensor:
        tests, n = self._extended(features), len(self._labels)
        return self.shifts_.scores(tests, classes, self.output, self.sharpness_, n)

    def _self_influence(self) -> Tensor:
        out = self.surrogate_.vectors.new_zeros(len(self._labels))
        out[self._places] = self.shifts_.own(self._labels[self._places], self.output, self.sharpness_)
        return out

    def _extended(self, features: Tensor) -> Tensor:
        """Give features (B, D) with the constant that carries the bias."""
        if not self.constant_:
            return features
        return torch.cat([features, features.new_full((len(features), 1), self.constant_)], dim=1)

    def _weight_of_loss(self, features: Floats) -> float:
        return KAPPA / (float(squared_norms(features).sum()) or 1.0) if self.C == "auto" else self.C

    def _learn(self, training: Training, **given: Any) -> _Learned:
        bank, started = training.bank, time.perf_counter()
        surrogate = self._surrogate(training)
        solution = surrogate.solution
        some = bank.valid
        halves = Halves(
            np.ascontiguousarray(taken(as_float32(bank.features), some)),
            bank.labels[some],
            training.task.n_outputs,
            solution.C,
            surrogate.constant,
            solution.lam[some],
            self.seed,
            {**bank.parts, "data features": bank.checksum} if bank.checksum else {},
            training.cache_dir,
            self.show_progress,
        )
        deadline = np.inf if self.max_seconds is None else started + self.max_seconds
        if self.method == "halves":
            solved, score = self._solve_halves(halves, deadline)
        else:
            features, y = halves.extended, halves.labels
            everyone = np.ones(len(y), dtype=bool)
            change = Linearised.of(features, y, halves.lam, halves.C, everyone, entering=False)
            solved, score = [Solved(weight_of(halves.lam, features), change)], None
        sharpness = 1.0
        if self.output == "log_prob":
            calibrating = solved if self.method == "halves" else halves.solved(0, _CALIBRATING)
            sharpness = sharpness_of(*out_of_bag(halves, calibrating[:CHUNK]))
        return _Learned(
            surrogate, Shifts.of(solved, halves.extended, surrogate.vectors.device), sharpness, score
        )

    def _solve_halves(self, halves: Halves, deadline: float) -> tuple[list[Solved], float | None]:
        """Solve as many halves as asked for, or as it takes; and tell how reliable their effects are."""
        most = _MOST if self.solves == "auto" else self.solves
        solved: list[Solved] = []
        before = score = None
        while len(solved) < most:
            wanted = min(most, max(CHUNK, 2 * len(solved)) if self.solves == "auto" else most)
            while len(solved) < wanted:
                solved += halves.solved(len(solved) // CHUNK, min(CHUNK, wanted - len(solved)))
                if time.perf_counter() > deadline and len(solved) < most:
                    warn(
                        f"The budget of max_seconds = {self.max_seconds:g} was spent after {len(solved)} "
                        "halves; the scores are means over these. Allow more time, or see standard_error.",
                        ConvergenceWarning,
                    )
                    return solved, reliability(halves, solved)
            before, score = score, reliability(halves, solved)
            enough = before is not None and score is not None and score - before < _GAIN
            if self.solves == "auto" and enough:
                break
        return solved, score

    def _keep(self, learned: _Learned) -> None:
        self._take(learned.surrogate)
        self.shifts_, self.sharpness_, self.reliability_ = learned[1:]
        self.solves_ = len(self.shifts_.each) if self.method == "halves" else 0
        self._places = torch.as_tensor(self.shifts_.rows, device=learned.surrogate.vectors.device)
        self._scoring = np.flatnonzero(self.used_)[self.shifts_.rows]
        self.cache_bytes_ += sum(array.nbytes for array in self.shifts_.arrays().values())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.solves != "auto":
            self.solves = check_count("solves", self.solves, 1, None, ', or "auto"')

    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        arrays, facts = super()._state()
        more = {"sharpness": self.sharpness_, "reliability": self.reliability_}
        return {**arrays, **self.shifts_.arrays()}, {**facts, **more}

    def _restore(self, arrays: store.Arrays, manifest: Any, bound: BoundModel | None) -> None:
        ours = {name: array for name, array in arrays.items() if name.startswith("shift_")}
        theirs = {name: array for name, array in arrays.items() if name not in ours}
        surrogate = self._restore_surrogate(theirs, manifest, bound)
        checked(ours, int(self.used_.sum()), surrogate.coef.shape)
        shifts = Shifts.from_arrays(ours, self.n_classes_, surrogate.vectors.device)
        self._keep(_Learned(surrogate, shifts, manifest.sharpness, manifest.reliability))
