"""The embedded sample: a part of Fashion-MNIST and a small network that learns it in seconds."""

from whence.sample.dataset import CLASS_NAMES, EmbeddedData, load
from whence.sample.network import SmallCNN, accuracy, train

__all__ = ["CLASS_NAMES", "EmbeddedData", "SmallCNN", "accuracy", "load", "train"]
