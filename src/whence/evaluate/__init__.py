"""Measures of how good attributions and their relevance maps are."""

from whence.evaluate.flipping import ExplainedPairs, explain_pairs, pair_flipping
from whence.evaluate.result import FlippingResult

__all__ = ["ExplainedPairs", "FlippingResult", "explain_pairs", "pair_flipping"]
