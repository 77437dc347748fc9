"""A trained model: its inputs, its head, and what lies between."""

from whence.model.extractor import Extractor, Outputs, find_head
from whence.model.language import token_losses
from whence.model.modules import class_names

__all__ = ["Extractor", "Outputs", "class_names", "find_head", "token_losses"]
