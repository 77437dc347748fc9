"""Saved attributors: one file with what was learned, and what must be true of it when it comes back."""

from __future__ import annotations

import dataclasses
from os import PathLike
from typing import Any, ClassVar, Self

import torch

from whence.attribution.classifier import Classifier
from whence.attribution.frame import Frame
from whence.core import contents, store
from whence.core.checks import check_path
from whence.core.contents import Layout
from whence.data import TrainingSet
from whence.errors import InvalidInputError, StoreError
from whence.model.bound import BoundModel
from whence.model.heads import Head

_LATER = {"layers", "normalise", "targets"}  # parameters that files of version 0.1 do not have


class Saveable(Frame):
    """A method that can be saved: its parameters, its cache, and the fingerprint of its model."""

    name: ClassVar[str]
    """The method's name in the registry and in saved files."""

    _manifest: ClassVar[str] = "Manifest"
    """Which kind of manifest it has."""

    _doubles: ClassVar[tuple[str, ...]] = ()
    """What of the cache has double precision, whatever the model's."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted attributor to one file, which ``whence.load`` reads."""
        store.write(check_path("path", path), *self.saved())

    def saved(self) -> tuple[store.Arrays, dict[str, Any]]:
        """Return what ``save`` writes: arrays, and the manifest."""
        self.check_fitted()
        if why := self._not_saved():
            raise StoreError(f"{why}. Fit it again where it is needed.")
        return self._described(*self._state())

    def _described(self, arrays: store.Arrays, facts: dict[str, Any]) -> tuple[store.Arrays, dict[str, Any]]:
        """Return arrays with the whole manifest, by what of it is the method's own."""
        manifest = {
            "method": self.name,
            "parameters": {name: getattr(self, name) for name in self._parameters()},
            "class_names": self.class_names_,
            "fingerprint": None if self.model_ is None else self.model_.fingerprint,
        }
        layers = None if self.model_ is None else self.model_.extractor.layers
        if layers is not None:
            manifest["layers"] = dataclasses.asdict(layers)
        return arrays, manifest | self.task_.saved | facts

    @classmethod
    def restored(cls, arrays: store.Arrays, values: dict[str, Any], model: Any) -> Self:
        """Rebuild an attributor from what ``save`` wrote, or raise StoreError for another model."""
        from whence.attribution import saved  # pydantic takes a while to import

        manifest = contents.manifest(getattr(saved, cls._manifest), values)
        known = set(cls._parameters())
        contents.check_names(manifest.parameters, known - _LATER, known & _LATER)
        with contents.restoring():
            self = cls(**manifest.parameters)
            self._check_parameters()
        if why := self._not_saved():
            raise contents.refused(why)
        if manifest.layers is not None and manifest.layers.asked != self.layers:
            raise contents.refused("'layers' must be those of its parameters, and are not")
        bound = None if model is None else BoundModel.match(model, manifest.fingerprint, manifest.layers)
        if bound is not None:
            bound.extractor.paired = manifest.paired
        self._restore(arrays, manifest, bound)
        return self

    def take_data(self, data: TrainingSet) -> None:
        """Take the training set, which a saved attributor is without."""
        raise InvalidInputError(f"{type(self).__name__} has no use for 'data' after fitting. Leave it out.")

    @classmethod
    def _parameters(cls) -> list[str]:
        """Name what the constructor takes, less the device: it names a part of the machine that saved."""
        return [name for name in cls._parameter_names() if name != "device"]

    def _not_saved(self) -> str:
        """Say why a fit with these parameters is not saved, without a full stop; empty where it is."""
        return ""

    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        """Return what ``save`` writes: arrays, and what the manifest has beside what all have in it."""
        if not self._cache:
            raise StoreError(
                f"{type(self).__name__} keeps no cache that is worth saving. Fit it again where it is needed."
            )
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._cache.items()}
        odd = [name for name, array in arrays.items() if array.dtype.kind != "f"]
        if odd and self._layout(self._head()) is not None:
            raise StoreError(
                f"{type(self).__name__} must keep floats where its _layout says their shapes. Got {odd[0]!r} "
                f"of dtype {arrays[odd[0]].dtype}. Leave _layout out, or keep floats."
            )
        if self.model_ is None and self.head_ is not None:
            parts = {"head_weight": self.head_.weight, "head_bias": self.head_.bias}
            arrays |= {name: array for name, array in parts.items() if array is not None}
        return {**arrays, "labels_": self.labels_}, {}

    def _layout(self, classifier: Classifier) -> Layout | None:
        """Shapes of what ``_learn`` keeps for N samples, K classes and d features; with the bias's 1, e.

        None for what a file is not asked for: whole numbers, flags, or finite numbers of either precision.
        """
        return None

    def _restore(self, arrays: store.Arrays, manifest: Any, bound: BoundModel | None) -> None:
        """Take over what ``_state`` gave."""
        arrays = dict(arrays)
        given = arrays.pop("head_weight", None), arrays.pop("head_bias", None)
        if bound is None and (given[0] is None or manifest.fingerprint is not None):
            raise StoreError(f"{type(self).__name__} needs its model. Pass it to whence.load as 'model'.")
        head = self._restored_head(*given) if bound is None else bound.extractor.head()
        classifier = Classifier(head, bound, self.batch_size)
        K, d = classifier.weight.shape
        with contents.restoring():
            asked = self._layout(classifier)
        contents.check_names(arrays, {*(asked or arrays), "labels_"})
        labels = arrays.pop("labels_")
        layout = asked or {n: a.shape for n, a in arrays.items() if a.dtype.kind not in "biu"}
        task = manifest.task_of(K)
        task.check_saved("labels_", labels)
        used = int(task.known(labels).sum())
        sizes = {"K": K, "d": d, "e": d + (classifier.bias is not None), "N": used}
        # Gradients have the precision of the model's weights.
        double = bound and any(p.dtype == torch.float64 for p in classifier.model.parameters())
        wide = double or asked is None
        dtypes = {n: contents.FLOATS if wide or n in self._doubles else ("float32",) for n in layout}
        contents.check_floats(arrays, layout, sizes, dtypes)
        self._adopt(task, labels, head, bound, None, {})
        device = classifier.weight.device
        self._keep({name: torch.as_tensor(array, device=device) for name, array in arrays.items()})

    @staticmethod
    def _restored_head(weight: Any, bias: Any) -> Head:
        arrays = {"head_weight": weight} | ({} if bias is None else {"head_bias": bias})
        layout: Layout = {"head_weight": ("K", "d"), "head_bias": ("K",)}
        kept = {name: layout[name] for name in arrays}
        contents.check_floats(arrays, kept, {}, dict.fromkeys(arrays, contents.FLOATS))
        return Head(weight, bias)
