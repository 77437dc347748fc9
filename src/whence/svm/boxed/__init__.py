"""Problems whose λ each lie in an interval of their own."""

from whence.svm.boxed.cases import EpsilonInsensitive, Hinges, OneClass, Tube
from whence.svm.boxed.problem import Boxed

__all__ = ["Boxed", "EpsilonInsensitive", "Hinges", "OneClass", "Tube"]
