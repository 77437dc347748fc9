"""The features of a training set: extracted in batches, kept in memory or in a cache of banks on disk."""

from whence.features.extraction import FeatureBank, OnError, as_float32, extract, taken, teller

__all__ = ["FeatureBank", "OnError", "as_float32", "extract", "taken", "teller"]
