"""The features of a training set: extracted in batches, kept in memory or in a cache of banks on disk."""

from whence.features.bank import FeatureBank
from whence.features.extraction import extract
from whence.features.job import teller
from whence.features.rows import as_float32, taken
from whence.features.usualness import Nearness, Usualness

__all__ = ["FeatureBank", "Nearness", "Usualness", "as_float32", "extract", "taken", "teller"]
