"""Problems whose λ each lie in an interval of their own."""

from whence.svm.boxed.hinges import Hinges
from whence.svm.boxed.one_class import OneClass
from whence.svm.boxed.problem import Boxed
from whence.svm.boxed.tube import EpsilonInsensitive, Tube

__all__ = ["Boxed", "EpsilonInsensitive", "Hinges", "OneClass", "Tube"]
