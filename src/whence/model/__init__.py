"""A trained model: its inputs, its head, and what lies between."""

from whence.model.extractor import Extractor, find_head
from whence.model.language import token_losses
from whence.model.modules import class_names
from whence.model.passes import Pass

__all__ = ["Extractor", "Pass", "class_names", "find_head", "token_losses"]
