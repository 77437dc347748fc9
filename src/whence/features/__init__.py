"""The features of a training set: extracted in batches, kept in memory or in a cache of banks on disk."""

from whence.features.bank import FeatureBank
from whence.features.extraction import extract
from whence.features.inputs import InputViews
from whence.features.job import make_printer
from whence.features.metric import METRICS, FeatureMap, Metric
from whence.features.novelty import Nearness, Novelty, reference
from whence.features.projection2d import MapPlane, project_2d
from whence.features.rows import as_float32, taken

__all__ = [
    "METRICS",
    "FeatureBank",
    "FeatureMap",
    "InputViews",
    "MapPlane",
    "Metric",
    "Nearness",
    "Novelty",
    "as_float32",
    "extract",
    "make_printer",
    "project_2d",
    "reference",
    "taken",
]
