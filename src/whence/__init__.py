"""Whence: which training samples a prediction comes from, and which of their features."""

from whence.attributors import DualDA, load
from whence.errors import (
    AgreementWarning,
    ConvergenceWarning,
    DataWarning,
    InvalidInputError,
    ModelError,
    NotFittedError,
    StoreError,
    WhenceError,
)

__version__ = "0.1.0"

__all__ = [
    "AgreementWarning",
    "ConvergenceWarning",
    "DataWarning",
    "DualDA",
    "InvalidInputError",
    "ModelError",
    "NotFittedError",
    "StoreError",
    "WhenceError",
    "__version__",
    "load",
]
