"""The exceptions and warnings that whence raises on purpose."""

from __future__ import annotations

import inspect
import warnings
from typing import Any


class WhenceError(Exception):
    """Base of every error that whence raises on purpose. Pickles with its attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[WhenceError], args: tuple[Any, ...], state: dict[str, Any]) -> WhenceError:
    """Return an error with its message and its parts, whatever its class is made of."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


class InvalidInputError(WhenceError, ValueError):
    """An argument breaks a rule; the message names the argument, the rule, the value and the fix."""


class UnsupportedError(InvalidInputError):
    """A method or task does not support what is asked; the message names an alternative."""


class SampleError(InvalidInputError):
    """A training sample cannot be used; ``index`` is its place, and ``reason`` says what is wrong with it."""

    def __init__(self, index: int, reason: str, remedy: str = "Repair or remove it.") -> None:
        super().__init__(f"'data' must give every sample. Sample {index} cannot be used: {reason}. {remedy}")
        self.index = index
        self.reason = reason


class NotFittedError(WhenceError, AttributeError):
    """A method that needs a fitted explainer was called before ``fit``."""


class ModelError(WhenceError):
    """The model has no part that whence needs, such as a last linear layer."""


class HeadError(ModelError):
    """The model's output for a sample is not its last linear layer's; ``row`` is its row in the batch."""

    def __init__(self, row: int, layer: str, what: str, sample: str | None = None) -> None:
        super().__init__(
            f"The model's output must be that of its layer {layer!r} for every sample, since that layer is "
            f"what is explained. For {sample or f'row {row} of the batch'} {what}. Give the model without "
            "what it does after the layer, or name another one by 'layer'."
        )
        self.row, self.layer, self.what = row, layer, what

    def about(self, sample: str) -> HeadError:
        """Return the same error with the sample's own name."""
        return HeadError(self.row, self.layer, self.what, sample)


class StoreError(WhenceError):
    """A saved file is truncated, altered, of another version, or belongs to another model."""


class MissingFileError(StoreError, FileNotFoundError):
    """There is no saved file at a path."""


class WorkerError(WhenceError):
    """A process ended before the piece of work that it was given was done."""


class LostError(WorkerError):
    """Some of the objects that an engine held were lost, and made again without their state."""

    def __init__(self, places: list[int], why: str) -> None:
        super().__init__(why)
        self.places = places


class DataWarning(UserWarning):
    """The training set looks wrong: samples change, classes have other names, tokens no text."""


class AgreementWarning(UserWarning):
    """The surrogate often predicts another class than the model."""


class ChoiceWarning(UserWarning):
    """The choice of C ended at an edge of the values that were tried, and the surrogate agrees poorly."""


class ConvergenceWarning(UserWarning):
    """The solver stopped before it reached the duality gap that was asked for."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn, and name the line outside of whence that led here."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("whence."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
