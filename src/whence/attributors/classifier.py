"""What attribution methods share: a trained classifier, its training set, and the frame of a fit."""

from __future__ import annotations

import inspect
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from whence.attributors.base import Attributor
from whence.attributors.dual.surrogate import check_small
from whence.core import contents, store
from whence.core.checks import check_count, check_flag
from whence.core.contents import Layout
from whence.data import TrainingSet, as_training_set
from whence.errors import InvalidInputError, StoreError
from whence.features import extract
from whence.model.bound import BoundModel
from whence.model.extractor import Extractor, check_model, class_names
from whence.model.inputs import check_batch, take, to_model
from whence.tasks import Classes, Task

Function = Callable[[Any], Any]


class Classifier:
    """A trained classifier as it was when fitted: features, and a last linear layer W f(x) + b.

    Attributes
    ----------
    fitted : the model itself, guarded against changes
    weight : (K, d) float32 on the model's device, W
    bias : (K,) float32 or None, b
    batch_size : inputs a forward pass
    """

    def __init__(self, fitted: BoundModel, batch_size: int) -> None:
        head = fitted.extractor.head()
        self.fitted, self.batch_size = fitted, batch_size
        self.weight = torch.as_tensor(head.weight, device=fitted.device)
        self.bias = None if head.bias is None else torch.as_tensor(head.bias, device=fitted.device)

    @property
    def extractor(self) -> Extractor:
        """The model, split at its last linear layer."""
        return self.fitted.extractor

    @property
    def model(self) -> nn.Module:
        """The model itself, inside ``DataParallel`` and ``torch.compile``."""
        return self.fitted.extractor.model

    @property
    def n_classes(self) -> int:
        """The number K of classes."""
        return len(self.weight)

    def features(self, x: Any) -> Tensor:
        """Features (B, d) of new inputs, float32."""
        features = self.fitted.read(x, self.batch_size).features.to(self.weight)
        finite = features.isfinite()
        if not finite.all():
            row, column = (~finite).nonzero()[0].tolist()
            raise InvalidInputError(
                f"The model's features must be finite. Got {features[row, column].item()} for test {row} of "
                f"'x', feature {column}."
            )
        check_small(features)
        return features

    def logits(self, features: Tensor) -> Tensor:
        """Logits (B, K) of features (B, d)."""
        product = features @ self.weight.T
        return product if self.bias is None else product + self.bias

    def classes(self, features: Tensor, target: Any) -> Tensor:
        """Class (B,) to explain for each test, int64 on the CPU: the model's own where ``target`` is None."""
        return Classes(self.n_classes).explained(self.logits(features), target)


@dataclass(frozen=True)
class Training:
    """The training set beside a classifier, in the user's sample order.

    Attributes
    ----------
    samples : gives batches of inputs, labels and indices
    features : (N, d) float32 on the model's device
    labels : (N,) int64 on the model's device
    """

    samples: TrainingSet
    features: Tensor
    labels: Tensor

    def batches(self, model: nn.Module) -> Iterator[tuple[Any, Tensor]]:
        """Give (inputs, labels (B,)) as ``model`` takes them, from the first sample to the last."""
        for batch in self.samples:
            inputs = to_model(model, batch.inputs)
            yield inputs, torch.as_tensor(batch.labels, device=self.labels.device)


def read(
    model: nn.Module,
    data: Any,
    layer: str | None,
    *,
    preprocess: Function | None = None,
    collate_fn: Function | None = None,
    batch_size: int,
    show_progress: bool,
) -> tuple[Classifier, Training]:
    """Find the model's head and read the training set once: its features, and its labels, which are checked.

    The model stays on its device, runs in eval mode, and is left as it was.
    """
    samples = as_training_set(
        data, batch_size, names=class_names(model), preprocess=preprocess, collate_fn=collate_fn
    )
    bank = extract(model, samples, layer=layer, batch_size=batch_size, show_progress=show_progress)
    classifier = Classifier(BoundModel(bank.extractor, prepare=samples.prepare), batch_size)
    # A large bank is a read-only map of a temporary file, which torch would warn of.
    rows = bank.features if bank.features.flags.writeable else np.array(bank.features)
    device = classifier.fitted.device
    labels = torch.as_tensor(bank.labels, device=device)
    return classifier, Training(samples, torch.as_tensor(rows, device=device), labels)


class ModelAttributor(Attributor):
    """An attribution method that is fitted on a model: the frame of its fit, and of saving.

    A method writes ``_learn``, ``_layout``, ``attribute`` and ``self_influence``, and stores ``batch_size``
    and ``show_progress`` among its parameters. What ``_learn`` returns is kept as ``_cache``, measured as
    ``cache_bytes_``, and is all that ``save`` writes; a method whose cache is not worth saving takes
    ``_state`` from ``Attributor``.
    """

    batch_size: int
    show_progress: bool
    _doubles: ClassVar[tuple[str, ...]] = ()
    """What of the cache has double precision, whatever the model's."""

    def fit(
        self,
        model: nn.Module,
        data: Any,
        layer: str | None = None,
        *,
        preprocess: Function | None = None,
        collate_fn: Function | None = None,
    ) -> Self:
        """Fit to a trained classifier and its training set.

        Parameters
        ----------
        model
            A torch classifier that maps a batch to logits (B, K) by a last linear layer. It is run in eval
            mode and left as it was.
        data
            A Dataset, map-style or iterable, a DataLoader, a datasets.Dataset, a tuple (X, y) of arrays or
            tensors, or the path of a folder with a subfolder of images a class.
        layer
            Name of the last linear layer, when the model does something after it, such as a softmax.
        preprocess
            Makes the model's inputs of a batch of inputs: a tokeniser, an image processor, or any function.
        collate_fn
            Makes a batch of a list of samples, as in a DataLoader.
        """
        return self._fit(model, data, layer, preprocess, collate_fn)

    @abstractmethod
    def _layout(self, classifier: Classifier) -> Layout:
        """Shapes of what ``_learn`` keeps for N samples, K classes and d features; with the bias's 1, e."""

    @abstractmethod
    def _learn(self, classifier: Classifier, training: Training) -> dict[str, Tensor]:
        """Give what is kept for attributing; a method's own attributes are set last, when all went well."""

    def _check_parameters(self) -> None:
        """Raise where a hyper-parameter is wrong, before any work is done."""
        self.batch_size = check_count("batch_size", self.batch_size)
        self.show_progress = check_flag("show_progress", self.show_progress)

    def _fit(
        self,
        model: nn.Module,
        data: Any,
        layer: str | None,
        preprocess: Function | None,
        collate_fn: Function | None,
        **given: Any,
    ) -> Self:
        """Read model and data, learn from them and from what else was ``given``, and take over the result."""
        self._check_parameters()
        check_model(model, layer)
        started = time.perf_counter()
        classifier, training = read(
            model,
            data,
            layer,
            preprocess=preprocess,
            collate_fn=collate_fn,
            batch_size=self.batch_size,
            show_progress=self.show_progress,
        )
        cache = self._learn(classifier, training, **given)
        task = Classes.of(training.samples.class_names, classifier.n_classes)
        self._adopt(classifier, cache, training.labels, task, training.samples)
        self.fit_seconds_ = time.perf_counter() - started
        return self

    def _adopt(
        self,
        classifier: Classifier,
        cache: dict[str, Tensor],
        labels: Tensor,
        task: Task,
        data: TrainingSet | None,
    ) -> None:
        self._classifier, self._cache = classifier, cache
        self.model_, self.data_ = classifier.fitted, data
        self.labels_, self.task_, self.n_train_ = labels, task, len(labels)
        self.cache_bytes_ = sum(tensor.nbytes for tensor in cache.values())

    def classes(self, x: Any, target: Any) -> Tensor:
        """Give the class (B,) that is explained for each input."""
        self.check_fitted()
        if target is not None:
            classes = self.task_.check_target(target, check_batch(x))
            self._classifier.features(
                take(x, slice(1))
            )  # says what is wrong with x, which gradients would not
            return classes
        return self._classifier.classes(self._classifier.features(x), None)

    def _state(self) -> tuple[store.Arrays, dict[str, Any]]:
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._cache.items()}
        manifest = {
            "parameters": {name: getattr(self, name) for name in inspect.signature(type(self)).parameters},
            "class_names": self.class_names_,
            "fingerprint": self._classifier.fitted.fingerprint,
        }
        return {**arrays, "labels_": self.labels_.cpu().numpy()}, manifest

    @classmethod
    def restored(cls, arrays: store.Arrays, values: dict[str, Any], model: nn.Module | None) -> Self:
        """Rebuild the attributor from its state."""
        from whence.attributors.saved import ClassifierManifest  # pydantic takes a while to import

        if model is None:
            raise StoreError(f"{cls.__name__} needs its model. Pass it to whence.load as 'model'.")
        manifest = contents.manifest(ClassifierManifest, values)
        contents.check_names(manifest.parameters, set(inspect.signature(cls).parameters))
        with contents.restoring():
            self = cls(**manifest.parameters)
            self._check_parameters()
        classifier = Classifier(BoundModel.match(model, manifest.fingerprint), self.batch_size)
        K, d = classifier.weight.shape
        with contents.restoring():
            layout = self._layout(classifier)
        contents.check_names(arrays, {*layout, "labels_"})
        sizes = {"K": K, "d": d, "e": d + (classifier.bias is not None)}
        contents.check_integers("labels_", arrays["labels_"], ("N",), sizes, 0, K - 1)
        # Gradients have the precision of the model's weights.
        double = any(p.dtype == torch.float64 for p in classifier.model.parameters())
        dtypes = {n: contents.FLOATS if double or n in self._doubles else ("float32",) for n in layout}
        contents.check_floats(arrays, layout, sizes, dtypes)
        device = classifier.fitted.device
        cache = {name: torch.as_tensor(array, device=device) for name, array in arrays.items()}
        self._adopt(classifier, cache, cache.pop("labels_"), Classes(K, manifest.names(K)), None)
        return self
