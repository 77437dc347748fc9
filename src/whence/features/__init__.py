"""The features of a training set: extracted in batches, kept in memory or in a cache of banks on disk."""

from whence.features.bank import FeatureBank
from whence.features.extraction import extract
from whence.features.job import teller
from whence.features.novelty import Nearness, Novelty
from whence.features.rows import as_float32, taken

__all__ = ["FeatureBank", "Nearness", "Novelty", "as_float32", "extract", "taken", "teller"]
