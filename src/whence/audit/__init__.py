"""Audits of a training set: wrong labels, near-duplicates, shortcuts, values of samples, novel inputs."""

from whence.audit.classes import ClassSummary, ClassView, class_view
from whence.audit.duplicates import Duplicates, duplicates
from whence.audit.groups import Coreset, GroupAttribution, Values, coreset, group_attribution, values
from whence.audit.labels import WrongLabels, wrong_labels
from whence.audit.novelty import NovelInputs, novel_inputs
from whence.audit.rankings import RANKINGS
from whence.audit.shared import Direction, Shortcuts, shortcuts

__all__ = [
    "RANKINGS",
    "ClassSummary",
    "ClassView",
    "Coreset",
    "Direction",
    "Duplicates",
    "GroupAttribution",
    "NovelInputs",
    "Shortcuts",
    "Values",
    "WrongLabels",
    "class_view",
    "coreset",
    "duplicates",
    "group_attribution",
    "novel_inputs",
    "shortcuts",
    "values",
    "wrong_labels",
]
