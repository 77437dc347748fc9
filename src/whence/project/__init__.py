"""A fitted explainer with its model, its data and its tests."""

from whence.project.configuration import NAMES, READING, SUFFIX, Configuration
from whence.project.project import Project

__all__ = ["NAMES", "READING", "SUFFIX", "Configuration", "Project"]
