"""A fitted explainer with its model, its data and its tests."""

from whence.project.configuration import NAMES, READING, SUFFIX, Configuration
from whence.project.export import export_changes
from whence.project.project import Project
from whence.project.work_records import ACTIONS, MARKS, Action, Decision, Marks, Slice
from whence.project.worklist import Worklist

__all__ = [
    "ACTIONS",
    "MARKS",
    "NAMES",
    "READING",
    "SUFFIX",
    "Action",
    "Configuration",
    "Decision",
    "Marks",
    "Project",
    "Slice",
    "Worklist",
    "export_changes",
]
