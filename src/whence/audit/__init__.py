"""Rankings of a training set: wrong labels, shared evidence, what to keep, and the classes at a glance."""

from whence.audit.classes import ClassSummary, ClassView, class_view
from whence.audit.groups import Coreset, GroupAttribution, coreset, group_attribution
from whence.audit.labels import WrongLabels, wrong_labels
from whence.audit.rankings import RANKINGS
from whence.audit.shortcuts import Direction, SharedEvidence, shared_evidence
from whence.audit.strange import StrangeSamples, strange
from whence.audit.values import Values, values

__all__ = [
    "RANKINGS",
    "ClassSummary",
    "ClassView",
    "Coreset",
    "Direction",
    "GroupAttribution",
    "SharedEvidence",
    "StrangeSamples",
    "Values",
    "WrongLabels",
    "class_view",
    "coreset",
    "group_attribution",
    "shared_evidence",
    "strange",
    "values",
    "wrong_labels",
]
