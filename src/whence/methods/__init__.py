"""Attribution methods and their registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

from torch import nn

from whence.attribution.base import METHODS, Attributor, Capabilities, get, names
from whence.attribution.ranking import Ranked, TopK
from whence.core import contents, store
from whence.core.registry import import_all
from whence.data import Corpus, as_training_set
from whence.errors import InvalidInputError, StoreError
from whence.features.folder import BankPlace
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
from whence.model.language import as_language_model
from whence.model.modules import class_names
from whence.tasks import Tokens

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
    "get",
    "load",
    "names",
]

# Every method is one file, found by its registration; the manifests need pydantic, which takes a while.
import_all(__name__)


def load(
    path: str | PathLike[str],
    model: nn.Module | Sequence[nn.Module] | None = None,
    data: Any = None,
    *,
    preprocess: Callable[[Any], Any] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    tokenizer: Any = None,
    cache_dir: str | PathLike[str] | None = None,
) -> Attributor:
    """Read a saved attributor.

    Parameters
    ----------
    path
        The file that ``save`` wrote.
    model
        The model it was fitted on, needed to attribute inputs; features can be attributed without it.
        A model with other weights is refused with StoreError, which says what differs. Of an ensemble, its
        models in their order.
    data, preprocess, collate_fn, tokenizer
        The training set as it was given to ``fit``, needed to explain: a file does not hold it. A few of its
        samples are compared with those that were fitted, and again all that are shown: another set is
        refused with InvalidInputError, which says what differs.
    cache_dir
        The folder with the features, of a file that was saved with ``features="bank"``. All rows of the bank
        are compared with their checksum, which reads it once; a bank that is missing or changed is refused
        with StoreError. Then rows are read as they are needed.
    """
    arrays, manifest = store.read(path)
    if manifest.get("bank") is not None:
        if "vectors" in arrays:
            raise contents.refused("it has 'vectors' and names a bank of them")
        arrays = {**arrays, "vectors": contents.manifest(BankPlace, manifest["bank"]).open(cache_dir)}
    method = manifest.get("method")
    if method not in METHODS:
        raise StoreError(
            f"{path} was saved by the method {method!r}, which is not registered. Import the module that "
            "registers it with whence.register, or use the version of whence that has it."
        )
    if manifest.get("task") == Tokens().saved["task"]:
        model = None if model is None else as_language_model(model)
        if tokenizer is not None and data is not None and not isinstance(data, Corpus):
            data, tokenizer = Corpus(data, tokenizer), None
        preprocess = data.prompts if isinstance(data, Corpus) else preprocess
    attributor = METHODS.get(method).restored(arrays, manifest, model)
    if data is not None:
        if model is None:
            raise InvalidInputError("'data' must come with 'model', which reads it. Got data alone.")
        samples = as_training_set(
            data,
            task=attributor.task_,
            names=class_names(model if isinstance(model, nn.Module) else model[0]),
            preprocess=preprocess,
            collate_fn=collate_fn,
            tokenizer=tokenizer,
        )
        attributor.take_data(samples)
    return attributor
