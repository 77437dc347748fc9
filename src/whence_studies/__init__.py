"""Evaluation of attribution methods and relevance maps: metrics, protocols and reports."""

from whence.methods.random import RandomAttributor
from whence.metrics.coreset import FRACTIONS, coreset, coreset_order, performance, pruned, weighted_mean
from whence.metrics.faithfulness import (
    sparsified,
    sparsified_faithfulness,
    support_counts,
    surrogate_faithfulness,
)
from whence.metrics.lds import compare_lds, lds, lds_reliability, random_subsets
from whence.metrics.lists import cancellation, specificity
from whence.metrics.localisation import caught_pairs, localisation
from whence.metrics.scores import (
    fooled,
    identical_class,
    identical_subclass,
    mislabeling_auc,
    mislabeling_curve,
    mislabeling_placements,
    negative_ratio,
    random_scores,
    shortcut_ap,
    sparsity_curve,
)
from whence_studies.flipping import ExplainedPairs, FlippingResult, explain_pairs, pair_flipping
from whence_studies.resources import Resources, measure
from whence_studies.scenes.datasets import Source
from whence_studies.scenes.loops import fixed_steps, predict
from whence_studies.scenes.networks import Network, TextInputs
from whence_studies.scenes.perturb import add_keywords, add_shortcut, flip_labels, group_classes, group_labels
from whence_studies.scenes.retrain import Run, retrain
from whence_studies.scenes.shortcuts import BoxAndFrame, CentreBox, Frame, Word
from whence_studies.scenes.views import View, subset, view
from whence_studies.suite.case import Case
from whence_studies.suite.metric import Column, Curves, Metric, Numbers
from whence_studies.suite.results import Row

__all__ = [
    "FRACTIONS",
    "BoxAndFrame",
    "Case",
    "CentreBox",
    "Column",
    "Curves",
    "ExplainedPairs",
    "FlippingResult",
    "Frame",
    "Metric",
    "Network",
    "Numbers",
    "RandomAttributor",
    "Resources",
    "Row",
    "Run",
    "Source",
    "TextInputs",
    "View",
    "Word",
    "add_keywords",
    "add_shortcut",
    "cancellation",
    "caught_pairs",
    "compare_lds",
    "coreset",
    "coreset_order",
    "explain_pairs",
    "fixed_steps",
    "flip_labels",
    "fooled",
    "group_classes",
    "group_labels",
    "identical_class",
    "identical_subclass",
    "lds",
    "lds_reliability",
    "localisation",
    "measure",
    "mislabeling_auc",
    "mislabeling_curve",
    "mislabeling_placements",
    "negative_ratio",
    "pair_flipping",
    "performance",
    "predict",
    "pruned",
    "random_scores",
    "random_subsets",
    "retrain",
    "shortcut_ap",
    "sparsified",
    "sparsified_faithfulness",
    "sparsity_curve",
    "specificity",
    "subset",
    "support_counts",
    "surrogate_faithfulness",
    "view",
    "weighted_mean",
]
