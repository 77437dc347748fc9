"""The multiclass support vector machine of Crammer and Singer."""

from whence.svm.crammer_singer.problem import CrammerSinger

__all__ = ["CrammerSinger"]
