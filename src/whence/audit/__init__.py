"""Checks of a training set: wrong labels, shortcuts, what to keep, novel inputs, the classes at a glance."""

from whence.audit.classes import ClassSummary, ClassView, class_view
from whence.audit.groups import Coreset, GroupAttribution, Values, coreset, group_attribution, values
from whence.audit.labels import WrongLabels, wrong_labels
from whence.audit.novelty import NovelInputs, novel_inputs
from whence.audit.rankings import RANKINGS
from whence.audit.shortcuts import Direction, SharedEvidence, shared_evidence

__all__ = [
    "RANKINGS",
    "ClassSummary",
    "ClassView",
    "Coreset",
    "Direction",
    "GroupAttribution",
    "NovelInputs",
    "SharedEvidence",
    "Values",
    "WrongLabels",
    "class_view",
    "coreset",
    "group_attribution",
    "novel_inputs",
    "shared_evidence",
    "values",
    "wrong_labels",
]
