"""Attribution methods and their registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import nn

from whence.attribution.base import METHODS, Attributor, Capabilities, get, names
from whence.core.naming import lazy_names
from whence.core.ranking import Ranked, TopK

if TYPE_CHECKING:
    from whence.attribution.what_if import WhatIf
    from whence.gradients.bank import GradientBank
    from whence.methods.arnoldi import Arnoldi
    from whence.methods.dualda import DualDA
    from whence.methods.effects import Effects
    from whence.methods.ekfac import EKFAC
    from whence.methods.ensemble import Ensemble
    from whence.methods.graddot import GradCos, GradDot
    from whence.methods.hingerp import HingeRP
    from whence.methods.influence import Influence
    from whence.methods.lissa import LiSSA
    from whence.methods.one_class import OneClass
    from whence.methods.random import RandomAttributor
    from whence.methods.representer import Representer
    from whence.methods.similarity import Similarity
    from whence.methods.tracin import TracIn
    from whence.methods.trak import TRAK

__all__ = [
    "EKFAC",
    "TRAK",
    "Arnoldi",
    "Attributor",
    "Capabilities",
    "DualDA",
    "Effects",
    "Ensemble",
    "GradCos",
    "GradDot",
    "GradientBank",
    "HingeRP",
    "Influence",
    "LiSSA",
    "OneClass",
    "RandomAttributor",
    "Ranked",
    "Representer",
    "Similarity",
    "TopK",
    "TracIn",
    "WhatIf",
    "get",
    "load",
    "names",
]

__getattr__, __dir__ = lazy_names(__name__)


def load(
    path: str | PathLike[str],
    model: nn.Module | Sequence[nn.Module] | None = None,
    data: Any = None,
    *,
    preprocess: Callable[[Any], Any] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    tokenizer: Any = None,
    feature_names: Sequence[str] | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> Attributor:
    """Read a saved attributor.

    Parameters
    ----------
    path
        The file that ``save`` wrote.
    model
        The model it was fitted on, or the estimator of scikit-learn, needed to attribute inputs; features can
        be attributed without it.
        A model with other weights is refused with StoreError, which says what differs. Of an ensemble, its
        models in their order.
    data, preprocess, collate_fn, tokenizer, feature_names
        The training set as it was given to ``fit``, needed to explain: a file does not hold it. A few of its
        samples are compared with those that were fitted, and again all that are shown: another set is
        refused with InvalidInputError, which says what differs.
    cache_dir
        The folder with the features, of a file that was saved with ``features="bank"``. All rows of the bank
        are compared with their checksum, which reads it once; a bank that is missing or changed is refused
        with StoreError. Then rows are read on demand.
    """
    from whence.attribution import saving

    def find(name: str) -> type[Attributor] | None:
        return METHODS.get(name) if name in METHODS else None

    form = {
        "preprocess": preprocess,
        "collate_fn": collate_fn,
        "tokenizer": tokenizer,
        "feature_names": feature_names,
    }
    return saving.load(find, path, model, data, form, cache_dir)
