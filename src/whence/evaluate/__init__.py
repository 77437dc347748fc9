"""Measures of how good attributions and their relevance maps are."""

from whence.evaluate.chance import RandomAttributor
from whence.evaluate.coreset import FRACTIONS, coreset, coreset_order, performance, pruned, weighted_mean
from whence.evaluate.faithfulness import (
    sparsified,
    sparsified_faithfulness,
    support_counts,
    surrogate_faithfulness,
)
from whence.evaluate.flipped import FlippingResult
from whence.evaluate.flipping import ExplainedPairs, explain_pairs, pair_flipping
from whence.evaluate.grouping import group_classes
from whence.evaluate.lds import compare_lds, lds, lds_reliability, random_subsets
from whence.evaluate.localisation import caught_pairs, localisation
from whence.evaluate.metrics import (
    fooled,
    identical_class,
    identical_subclass,
    mislabeling_auc,
    mislabeling_curve,
    mislabeling_placements,
    random_scores,
    shortcut_ap,
)
from whence.evaluate.perturb import add_keywords, add_shortcut, flip_labels, group_labels
from whence.evaluate.resources import Resources, measure
from whence.evaluate.retrain import Run, retrain
from whence.evaluate.shortcuts import CentreBox, Frame, Word
from whence.evaluate.sparsity import sparsity_curve
from whence.evaluate.training import fixed_steps, predict
from whence.evaluate.views import View, subset, view

__all__ = [
    "FRACTIONS",
    "CentreBox",
    "ExplainedPairs",
    "FlippingResult",
    "Frame",
    "RandomAttributor",
    "Resources",
    "Run",
    "View",
    "Word",
    "add_keywords",
    "add_shortcut",
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
    "subset",
    "support_counts",
    "surrogate_faithfulness",
    "view",
    "weighted_mean",
]
