"""What one prediction comes from, as data and as a figure."""

from whence.explanation.record import Contribution, Explanation, Picture, explain

__all__ = ["Contribution", "Explanation", "Picture", "explain"]
