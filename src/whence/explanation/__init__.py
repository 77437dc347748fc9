"""What one prediction comes from, as data, as a figure and as a page."""

from whence.explanation.concepts import ConceptExplanation, ConceptPart
from whence.explanation.record import Contribution, Explanation, Explanations
from whence.pages.samples import Picture, Sample

__all__ = [
    "ConceptExplanation",
    "ConceptPart",
    "Contribution",
    "Explanation",
    "Explanations",
    "Picture",
    "Sample",
]
