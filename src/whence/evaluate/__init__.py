"""Measures of how good attributions and their relevance maps are."""

from whence.evaluate.coreset import FRACTIONS, coreset, coreset_order, performance, pruned, weighted_mean
from whence.evaluate.faithfulness import (
    sparsified,
    sparsified_faithfulness,
    support_counts,
    surrogate_faithfulness,
)
from whence.evaluate.flipping import ExplainedPairs, explain_pairs, pair_flipping
from whence.evaluate.grouping import group_classes
from whence.evaluate.lds import compare_lds, lds, lds_reliability, random_subsets
from whence.evaluate.metrics import (
    fooled,
    identical_class,
    identical_subclass,
    mislabeling_auc,
    mislabeling_curve,
    random_scores,
    shortcut_ap,
)
from whence.evaluate.result import FlippingResult
from whence.evaluate.sparsity import sparsity_curve

__all__ = [
    "FRACTIONS",
    "ExplainedPairs",
    "FlippingResult",
    "compare_lds",
    "coreset",
    "coreset_order",
    "explain_pairs",
    "fooled",
    "group_classes",
    "identical_class",
    "identical_subclass",
    "lds",
    "lds_reliability",
    "mislabeling_auc",
    "mislabeling_curve",
    "pair_flipping",
    "performance",
    "pruned",
    "random_scores",
    "random_subsets",
    "shortcut_ap",
    "sparsified",
    "sparsified_faithfulness",
    "sparsity_curve",
    "support_counts",
    "surrogate_faithfulness",
    "weighted_mean",
]
