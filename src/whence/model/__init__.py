"""A trained model: its inputs, its head, and what lies between."""

from whence.model.extractor import Extractor, Outputs, class_names, find_head

__all__ = ["Extractor", "Outputs", "class_names", "find_head"]
