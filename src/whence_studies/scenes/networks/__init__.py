"""The networks of the evaluation; a file that is put here is found."""

from whence.core.registry import import_all
from whence_studies.scenes.networks.base import NETWORKS, Network, TextInputs, find, logits

__all__ = ["NETWORKS", "Network", "TextInputs", "find", "logits"]

import_all(__name__)
