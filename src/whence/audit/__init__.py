"""Audits of a training set: wrong labels, shortcuts, coresets, values of samples, novel inputs, classes."""

from whence.audit.classes import ClassSummary, ClassView, class_view
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
    "GroupAttribution",
    "NovelInputs",
    "Shortcuts",
    "Values",
    "WrongLabels",
    "class_view",
    "coreset",
    "group_attribution",
    "novel_inputs",
    "shortcuts",
    "values",
    "wrong_labels",
]
