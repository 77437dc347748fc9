"""The exceptions and warnings that whence raises on purpose."""


class WhenceError(Exception):
    """Base of every error that whence raises on purpose."""


class InvalidInputError(WhenceError, ValueError):
    """An argument breaks a rule; the message names the argument, the rule, the value and the remedy."""


class NotFittedError(WhenceError, AttributeError):
    """A method that needs a fitted explainer was called before ``fit``."""


class ModelError(WhenceError):
    """The model has no part that whence needs, such as a last linear layer."""


class StoreError(WhenceError):
    """A saved file is truncated, altered, of another version, or belongs to another model."""


class ConvergenceWarning(UserWarning):
    """The solver stopped before it reached the duality gap that was asked for."""
