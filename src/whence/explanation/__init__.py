"""What one prediction comes from, as data, as a figure and as a page."""

from whence.explanation.bands import Band, Bands
from whence.explanation.concepts import ConceptExplanation, ConceptPart
from whence.explanation.contribution import Contribution, Foretold
from whence.explanation.record import Explanation, Explanations
from whence.explanation.trace import Changed, Passage, Source, Token, Trace, Without
from whence.explanation.usual import Neighbour, Usual
from whence.pages.samples import Picture, Sample

__all__ = [
    "Band",
    "Bands",
    "Changed",
    "ConceptExplanation",
    "ConceptPart",
    "Contribution",
    "Explanation",
    "Explanations",
    "Foretold",
    "Neighbour",
    "Passage",
    "Picture",
    "Sample",
    "Source",
    "Token",
    "Trace",
    "Usual",
    "Without",
]
