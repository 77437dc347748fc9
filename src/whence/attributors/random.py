"""The attribution method that knows nothing, by which all others are judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from whence.attributors.base import Attributor, Limits
from whence.attributors.classifier import Classifier
from whence.attributors.registry import register
from whence.core.checks import check_count, check_seed
from whence.core.fingerprint import Digest
from whence.data import as_training_set
from whence.model.bound import BoundModel
from whence.model.extractor import Extractor, check_model, class_names, find_head
from whence.model.inputs import take, to_model
from whence.tasks import Classes


@register
class RandomAttributor(Attributor):
    """Attribute predictions at random: standard normal scores, the same ones for the same input and class.

    Parameters
    ----------
    seed
        Of all scores.
    batch_size
        Inputs a forward pass, where the model is asked for its class.
    show_progress
        Show progress bars.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> RandomAttributor().fit(model, (x, y)).attribute(x[:3]).shape
    torch.Size([3, 20])
    """

    name: ClassVar[str] = "random"
    limits: ClassVar[Limits] = Limits(
        needs_checkpoints=False, needs_loss=False, last_layer_only=False, memory="nothing", cost=0.0
    )

    def __init__(self, seed: int = 0, batch_size: int = 256, show_progress: bool = True) -> None:
        self.seed = seed
        self.batch_size = batch_size
        self.show_progress = show_progress

    def fit(
        self,
        model: nn.Module,
        data: Any,
        layer: str | None = None,
        *,
        preprocess: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> Self:
        """Count the training samples and the classes; arguments as for every attributor."""
        self.seed = check_seed(self.seed)
        self.batch_size = check_count("batch_size", self.batch_size)
        started = time.perf_counter()
        model = check_model(model, layer)
        samples = as_training_set(
            data, self.batch_size, names=class_names(model), preprocess=preprocess, collate_fn=collate_fn
        )
        head = find_head(model, to_model(model, samples.take([0])), layer)
        fitted = BoundModel(Extractor(model, head), prepare=samples.prepare)
        self.model_, self.data_ = fitted, samples
        self._classifier = Classifier(fitted, self.batch_size)
        self.n_train_ = len(samples)
        self.task_ = Classes.of(samples.class_names, self._classifier.n_classes)
        self.cache_bytes_ = 0
        self.fit_seconds_ = time.perf_counter() - started
        return self

    def attribute(self, x: Any, target: Any = None) -> Tensor:
        """Scores (test, train) that mean nothing, for any target."""
        classes = self.classes(x, target).tolist()
        rows = [self._row(take(x, slice(i, i + 1)), c) for i, c in enumerate(classes)]
        return torch.from_numpy(np.array(rows, dtype=np.float32))

    def self_influence(self) -> Tensor:
        """Scores (train,) that mean nothing."""
        self.check_fitted()
        scores = np.random.default_rng(self.seed).standard_normal(self.n_train_)
        return torch.from_numpy(scores.astype(np.float32))

    def _row(self, x: Any, target: int) -> Any:
        # Seeded by the input itself, so that its scores do not depend on the batch it comes in.
        digest = Digest()
        digest.add(x)
        seed = [self.seed, int(digest.hexdigest(), 16), target]
        return np.random.default_rng(seed).standard_normal(self.n_train_)

    def classes(self, x: Any, target: Any) -> Tensor:
        """Give the class (B,) that is explained for each input."""
        self.check_fitted()
        # Also where the target is given: inputs that the model cannot take are refused as by every method.
        return self._classifier.classes(self._classifier.features(x), target)
