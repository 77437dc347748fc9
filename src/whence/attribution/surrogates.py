"""What methods with a surrogate of the model's last layer share, as functions of what was fitted."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from whence.attribution.base import Attributor
from whence.attribution.explaining import check_against
from whence.attribution.fitted import Fitted, Tests
from whence.core.checks import check_flag
from whence.data import NewSamples, as_new
from whence.errors import InvalidInputError
from whence.features.metric import LearnsMap, MetricName
from whence.surrogate.agreement import Faithfulness
from whence.surrogate.scores import Contrast
from whence.surrogate.solving import SolverOptions
from whence.svm.inputs import check_C
from whence.svm.solver import check_options


class SurrogateMethod(Protocol):
    """The hyper-parameters of a method that solves a surrogate."""

    C: float | Literal["auto"]
    bias: bool
    tol: float
    seed: int
    n_threads: int | None
    max_seconds: float | None
    show_progress: bool
    metric: MetricName | LearnsMap


LEARNED = (
    *Attributor.learned, "lam", "coef", "metric", "support", "vectors", "gap", "constant", "C", "kappa",
    "C_path", "agreement", "history",
)  # fmt: skip
"""What is read of a fit of a method with a surrogate."""


def check_solving(method: SurrogateMethod) -> None:
    """Check the hyper-parameters of the solver; the solver itself would do so after features are computed."""
    if isinstance(method.C, str) and method.C != "auto":
        raise InvalidInputError(f"'C' must be \"auto\" or a number above 0. Got {method.C!r}.")
    if not isinstance(method.C, str):
        check_C(method.C)
    method.bias = check_flag("bias", method.bias)
    check_options(method.tol, method.max_seconds, method.n_threads, method.seed)


def solver_options(method: SurrogateMethod) -> SolverOptions:
    """Return the hyper-parameters of a method that its solver needs."""
    return SolverOptions(
        bias=method.bias,
        tol=method.tol,
        seed=method.seed,
        n_threads=method.n_threads,
        max_seconds=method.max_seconds,
        show_progress=method.show_progress,
        metric=method.metric,
    )


def rivals(fitted: Fitted, tests: Tests, against: Any) -> Tensor | None:
    """Return the class (B,) over which evidence for the target of each test is scored, or None."""
    chosen = check_against(fitted, against, len(tests))
    if against is None:
        return None
    if chosen[:1] == ["runner-up"]:
        others = tests.logits.clone()
        others.scatter_(1, tests.targets[:, None].to(others.device), -torch.inf)
        return others.argmax(1).cpu()
    other = torch.tensor(chosen, dtype=torch.int64)
    same = (other == tests.targets).nonzero()
    if len(same):
        i = int(same[0])
        name = fitted.task.output_names[int(other[i])]
        raise InvalidInputError(
            f"'against' must be another class than the target. Got {name!r} for test {i}."
        )
    return other


def base_values(fitted: Fitted, tests: Tests, rivals: Tensor | None) -> Tensor:
    """Return what the relative scores of each test start from, (B,), in float64."""
    surrogate = fitted.require_surrogate()
    others = [None] * len(tests) if rivals is None else rivals.tolist()
    values = [
        surrogate.base_value(Contrast(target, other, relative=True))
        for target, other in zip(tests.targets.tolist(), others, strict=True)
    ]
    return torch.tensor(values, dtype=torch.float64)


def outputs(fitted: Fitted, x: Any, features: Any) -> Tensor:
    """Compute the surrogate's outputs (B, K) for inputs, or for features instead."""
    return fitted.require_surrogate().logits(read_features(fitted, x, features)[0])


def decision(fitted: Fitted, x: Any, features: Any) -> Tensor:
    """Compute the surrogate's outputs as scikit-learn shapes them: of two classes (B,), second less first."""
    logits = outputs(fitted, x, features)
    two = fitted.task.has_classes and logits.shape[1] == 2
    return logits[:, 1] - logits[:, 0] if two else logits


def accuracy(fitted: Fitted, x: Any, y: Any) -> float:
    """Compute the share of right labels on labelled inputs; for regression R²."""
    inputs = as_new(x)
    if y is None and not isinstance(inputs, NewSamples):
        raise InvalidInputError("'y' must be the true labels. Got None; only a data set has its own.")
    labels = fitted.task.encode(inputs.labels() if y is None else y)
    predicted = fitted.task.predict(outputs(fitted, inputs, None)).cpu().numpy()
    if labels.shape != predicted.shape:
        raise InvalidInputError(
            f"'y' must be {fitted.task.labels} for each of {len(predicted)} inputs. Got shape {labels.shape}."
        )
    return fitted.task.score(predicted, labels)


def faithfulness(fitted: Fitted, x: Any, features: Any) -> Faithfulness:
    """Compare the surrogate with the model on inputs, or with the head on features instead."""
    return fitted.require_surrogate().faithfulness(*read_features(fitted, x, features))


def facts(fitted: Fitted) -> dict[str, Any]:
    """Return what a fit found in a few words."""
    surrogate = fitted.require_surrogate()
    return {
        "samples": fitted.n_train,
        "features": surrogate.stored.shape[1],
        fitted.task.outputs: fitted.n_classes,
        "support_vectors": len(surrogate.support),
        "C": surrogate.C,
        "agreement": surrogate.agreement,
        "gap": surrogate.gap,
    }


def read_features(fitted: Fitted, x: Any, features: Any) -> tuple[Tensor, Tensor | None]:
    """Return features (B, d) and the model's own outputs, where it was run."""
    if (x is None) == (features is None):
        raise InvalidInputError(
            f"Either 'x' or 'features' must be given. Got {'neither' if x is None else 'both'}."
        )
    if features is not None:
        return fitted.check_features(features), None
    read = fitted.require_model().read(x, fitted.batch_size)
    return fitted.check_features(read.features, "x"), read.logits
