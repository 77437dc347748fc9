"""The features of a training set: extracted in batches, kept in memory or in a cache of banks on disk."""

from whence.features.extraction import OnError, as_float32, extract, taken, teller
from whence.features.feature_bank import FeatureBank

__all__ = ["FeatureBank", "OnError", "as_float32", "extract", "taken", "teller"]
