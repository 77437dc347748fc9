"""A fitted explainer with its model, its data and its tests."""

from whence.project.configuration import SUFFIX, Configuration
from whence.project.project import Project

__all__ = ["SUFFIX", "Configuration", "Project"]
