"""What one prediction comes from, as data, as a figure and as a page."""

from whence.explanation.concepts import ConceptExplanation, ConceptPart
from whence.explanation.evidence import Contribution, EffectOf, Neighbour, Typicality
from whence.explanation.record import Explanation, Explanations
from whence.explanation.trace import Band, Bands, Changed, Passage, ScoredDocument, Token, Trace, Without
from whence.pages.samples import Picture, Sample

__all__ = [
    "Band",
    "Bands",
    "Changed",
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
    "Token",
    "Trace",
    "Typicality",
    "Without",
]
