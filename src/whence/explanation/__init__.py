"""What one prediction comes from, as data, as a figure and as a page."""

from whence.explanation.concepts import ConceptExplanation, ConceptPart
from whence.explanation.evidence import Check, Contribution, EffectOf, Neighbour, Summary, Typicality
from whence.explanation.record import Explanation, Explanations
from whence.explanation.trace import Band, Bands, Changed, Passage, ScoredDocument, Token, Trace, Without
from whence.explanation.tree import TreeNode
from whence.pages.samples import Picture, Sample

__all__ = [
    "Band",
    "Bands",
    "Changed",
    "Check",
    "ConceptExplanation",
    "ConceptPart",
    "Contribution",
    "EffectOf",
    "Explanation",
    "Explanations",
    "Neighbour",
    "Passage",
    "Picture",
    "Sample",
    "ScoredDocument",
    "Summary",
    "Token",
    "Trace",
    "TreeNode",
    "Typicality",
    "Without",
]
