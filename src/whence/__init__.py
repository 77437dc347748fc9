"""Whence: which training samples a prediction comes from, and which of their features."""

from whence.attributors import DualDA, load
from whence.errors import (
    ConvergenceWarning,
    InvalidInputError,
    ModelError,
    NotFittedError,
    StoreError,
    WhenceError,
)

__version__ = "0.1.0"

__all__ = [
    "ConvergenceWarning",
    "DualDA",
    "InvalidInputError",
    "ModelError",
    "NotFittedError",
    "StoreError",
    "WhenceError",
    "__version__",
    "load",
]
