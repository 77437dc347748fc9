"""Regression: one or several numbers per sample, and outputs that predict them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from whence.core.arrays import Array, Doubles, Mask
from whence.core.checks import check_positive, real_array
from whence.errors import InvalidInputError
from whence.svm.likeness import NUMBERS, explained, rank_correlation
from whence.tasks.task import TASKS, Task, label_array, refuse_sample

if TYPE_CHECKING:
    from whence.svm import CChoice, Tube

_EPSILONS = (0.05, 0.1, 0.2, 0.4)  # of the targets' standard deviation; half of all errors are beyond 0.67
_DEFAULT = 0.1


@TASKS.add
@dataclass(frozen=True)
class Regression(Task):
    """A number per output: targets (N,) for one output, (B,) or (B, 1); (N, K) for several.

    The surrogate is a support vector regression of every output less its mean and in units of its standard
    deviation, so that C and ε mean the same for any targets. Its predictions are in the user's units again,
    mean + Σ_i τ(x, i): positive scores pull the prediction up from the mean, negative ones down. Samples
    that are predicted to within ε have no score.

    Attributes
    ----------
    epsilon : half the width of the tube in which errors cost nothing, in standard deviations of the targets;
        "auto" chooses it together with C, and is 0.1 where C is given
    centre, scale : the targets' mean and standard deviation per output, taken from the training set
    """

    name: ClassVar[str] = "regression"
    loss = "squared"
    measures: ClassVar[tuple[str, str]] = NUMBERS

    epsilon: float | Literal["auto"] = "auto"
    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        if not isinstance(self.epsilon, str) or self.epsilon != "auto":
            check_positive("epsilon", self.epsilon, ', or "auto"')
        for name in ("centre", "scale"):
            values = real_array(name, getattr(self, name)).astype(np.float64)
            K = len(values) if values.ndim == 1 else -1
            if not np.isfinite(values).all() or K not in (0, self.n_outputs or K, len(self.centre)):
                raise InvalidInputError(f"'{name}' must be a number per output. Leave it to fit.")
            object.__setattr__(self, name, tuple(values.tolist()))
        if len(self.centre) != len(self.scale) or not all(s > 0 for s in self.scale):
            raise InvalidInputError("'scale' must be a number above 0 per output. Leave it to fit.")

    @property
    def labels(self) -> str:
        """Numbers."""
        return "numbers" if self.n_outputs < 2 else f"{self.n_outputs} numbers"

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs; one output without a name is the prediction."""
        return self.names or (("prediction",) if self.n_outputs == 1 else super().output_names)

    @property
    def problem(self) -> Tube:
        """A support vector regression."""
        from whence.svm import Tube

        epsilon = _DEFAULT if self.epsilon == "auto" else self.epsilon
        return Tube(float(epsilon), self.centre, self.scale)

    @property
    def problems(self) -> tuple[Tube, ...]:
        """One for every ε to choose from."""
        if self.epsilon != "auto":
            return (self.problem,)
        return tuple(replace(self.problem, epsilon=epsilon) for epsilon in _EPSILONS)

    @property
    def base(self) -> Doubles:
        """The means."""
        return np.array(self.centre)

    def with_labels(self, labels: Array) -> Self:
        """Return the task with mean and standard deviation of known labels (N, …) per output."""
        rows = labels.reshape(len(labels), -1).astype(np.float64)
        scale = rows.std(axis=0)
        return replace(self, centre=tuple(rows.mean(axis=0)), scale=tuple(np.where(scale > 0, scale, 1.0)))

    def with_choice(self, choice: CChoice | None) -> Self:
        """Return the task with the ε that was chosen with C, or the default."""
        if self.epsilon != "auto":
            return self
        chosen = None if choice is None else choice.epsilon
        return replace(self, epsilon=_DEFAULT if chosen is None else chosen)

    def encode(self, labels: Any, indices: Sequence[int] | None = None) -> Doubles:
        """Return finite numbers as float64 (N,) of one output, (N, K) of several."""
        array = label_array(labels)
        if array.dtype.kind not in "biuf" or array.ndim not in (1, 2) or array.shape[1:] == (0,):
            raise InvalidInputError(
                f"'data' must give numbers as labels, one per output. Got dtype {array.dtype} of shape "
                f"{array.shape}."
            )
        if array.shape[1:] == (1,):
            array = array[:, 0]
        refuse_sample(
            np.asarray(~np.isfinite(array.reshape(len(array), -1)).all(axis=1)),
            indices,
            lambda i: f"its label must be finite; it is {array[i]}",
            "Fix it, or leave the sample out.",
        )
        return array.astype(np.float64)

    def blank(self, n: int) -> Doubles:
        """Return NaN."""
        return np.full((n,) if self.n_outputs < 2 else (n, self.n_outputs), np.nan)

    def known(self, labels: Array) -> Mask:
        """Return where labels are numbers."""
        return np.asarray(~np.isnan(labels.reshape(len(labels), -1)).any(axis=1))

    def label_warning(self, labels: Array) -> str | None:
        """Return that all targets are the same."""
        rows = labels[self.known(labels)].reshape(-1, max(self.n_outputs, 1))
        if len(rows) and (rows == rows[0]).all(axis=0).any():
            return "All training samples have the same target, so nothing pulls up or down"
        return None

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the outputs themselves, (B,) of one, (B, K) of several."""
        return outputs[:, 0] if self.n_outputs == 1 else outputs

    def outputs_agree(self, ours: Doubles, theirs: Doubles) -> Mask:
        """Return where both are within half a standard deviation of the targets."""
        return np.asarray(np.abs(ours - theirs) <= 0.5 * np.array(self.scale))

    def score(self, predicted: Array, labels: Array) -> float:
        """Return R², the mean over outputs."""
        from sklearn.metrics import r2_score  # scikit-learn takes a while to import

        return float(r2_score(labels, predicted))

    def compare_outputs(self, ours: Doubles, theirs: Doubles) -> tuple[float, float]:
        """Return R² and rank correlation, means over outputs."""
        return explained(ours, theirs), rank_correlation(ours, theirs)
