"""What one prediction comes from, as data, as a figure and as a page."""

from whence.explanation.concepts import ConceptExplanation, ConceptPart
from whence.explanation.contribution import Contribution, Foretold
from whence.explanation.record import Explanation, Explanations
from whence.explanation.usual import Neighbour, Usual
from whence.pages.samples import Picture, Sample

__all__ = [
    "ConceptExplanation",
    "ConceptPart",
    "Contribution",
    "Explanation",
    "Explanations",
    "Foretold",
    "Neighbour",
    "Picture",
    "Sample",
    "Usual",
]
