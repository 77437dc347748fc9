"""Feature attribution of predictions and of pairs of samples: relevance propagation, captum, concepts."""

from whence.model.passes import Pass
from whence.relevance.captum import Captum
from whence.relevance.concepts import Concepts
from whence.relevance.lrp import lrp, trace
from whence.relevance.presets import Rules
from whence.relevance.rules import LayerRule, OperationRule, SharingRule, SpreadingRule

__all__ = [
    "Captum",
    "Concepts",
    "LayerRule",
    "OperationRule",
    "Pass",
    "Rules",
    "SharingRule",
    "SpreadingRule",
    "lrp",
    "trace",
]
