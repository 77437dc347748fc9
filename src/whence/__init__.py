"""Whence: which training samples a prediction comes from, and which of their features."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from whence.core.registry import register
from whence.errors import (
    AgreementWarning,
    ChoiceWarning,
    ConvergenceWarning,
    DataWarning,
    InvalidInputError,
    ModelError,
    NotFittedError,
    StoreError,
    UnsupportedError,
    WhenceError,
)

if TYPE_CHECKING:
    from whence.attribution.halves import train_halves
    from whence.explanation import Explanations
    from whence.methods import DualDA, Effects, Ensemble, OneClass, load
    from whence.ui.view import view

__version__ = "0.2.0"

__all__ = [
    "AgreementWarning",
    "ChoiceWarning",
    "ConvergenceWarning",
    "DataWarning",
    "DualDA",
    "Effects",
    "Ensemble",
    "InvalidInputError",
    "ModelError",
    "NotFittedError",
    "OneClass",
    "StoreError",
    "UnsupportedError",
    "WhenceError",
    "__version__",
    "explain",
    "load",
    "register",
    "train_halves",
    "view",
]


_PACKAGES = (
    "audit", "data", "engine", "errors", "explanation", "features", "interop", "methods", "metrics",
    "relevance", "svm", "tasks",
)  # fmt: skip


def explain(
    model: Any,
    train: Any,
    x: Any,
    *,
    k: int = 5,
    target: Any = None,
    against: Any = None,
    **options: Any,
) -> Explanations:
    """Explain predictions of a model by its training samples: fit ``DualDA``, then explain ``x``.

    To ask more than once, keep ``explainer`` of what this returns: fitting takes most of the time.

    Parameters
    ----------
    model
        A trained torch classifier, or what else ``DualDA.fit`` takes.
    train
        Its training set with labels, in any form that ``DualDA.fit`` takes.
    x
        A batch of inputs to explain.
    k
        Training samples that support the prediction, and as many that contradict it.
    target
        The class to explain: None (the predicted one), a number or name, or one per input.
    against
        Another class, or "runner-up": explain the evidence for the target over it.
    options
        Hyper-parameters of ``DualDA`` and arguments of its ``fit``, by name, such as ``C`` or
        ``preprocess``.

    Returns
    -------
    Explanations, one per input: ``print``, ``plot()``, ``to_html(path)``, ``show()``, ``serve()``, and
    ``explainer``.

    Examples
    --------
    >>> import torch, whence
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> why = whence.explain(torch.nn.Linear(4, 2), (x, y), x[:2], C=1e-2, show_progress=False)
    >>> len(why), why.explainer.n_train_
    (2, 20)
    """
    from whence.methods import DualDA

    own = {name: value for name, value in options.items() if name in signature(DualDA).parameters}
    of_fit = {name: value for name, value in options.items() if name not in own}
    known = [
        name for name in signature(DualDA.fit).parameters if name not in ("self", "model", "data", "given")
    ]
    for name in of_fit:
        if name not in known:
            raise InvalidInputError(
                "Options of whence.explain must be hyper-parameters of DualDA, "
                f"{', '.join(signature(DualDA).parameters)}, or arguments of fit, {', '.join(known)}. "
                f"Got {name!r}."
            )
    explainer = DualDA(**own).fit(model, train, **of_fit)
    return explainer.explain(x, k, target, against=against)


def __dir__() -> list[str]:
    """List the public names, packages too, which are imported when they are first used."""
    return sorted({*__all__, *_PACKAGES})


def __getattr__(name: str) -> Any:
    """Import what takes time when it is first used: the command line answers, and can be stopped, before."""
    if name in ("DualDA", "Effects", "Ensemble", "OneClass", "load"):
        return getattr(import_module("whence.methods"), name)
    if name == "view":
        return import_module("whence.ui.view").view
    if name == "train_halves":
        return import_module("whence.attribution.halves").train_halves
    if not name.startswith("_"):
        try:
            return import_module(f"whence.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"whence.{name}":
                raise
    raise AttributeError(f"module 'whence' has no attribute {name!r}")
