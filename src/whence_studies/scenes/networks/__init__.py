"""The networks of the evaluation; every file in this folder is imported."""

from whence.core.registry import import_all
from whence_studies.scenes.networks.base import NETWORKS, Network, TextInputs, find, logits

__all__ = ["NETWORKS", "Network", "TextInputs", "find", "logits"]

import_all(__name__)
