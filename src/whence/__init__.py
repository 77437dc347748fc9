"""Whence: which training samples a prediction comes from, and which of their features."""

__version__ = "0.1.0"
