"""Which features of an input a prediction, or a pair of samples, comes from."""

from whence.relevance.captum import Captum
from whence.relevance.concepts import Concepts
from whence.relevance.lrp import Flow, lrp, trace
from whence.relevance.presets import Rules

__all__ = ["Captum", "Concepts", "Flow", "Rules", "lrp", "trace"]
