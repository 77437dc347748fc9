"""Run a model's extractor over a training set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn
from tqdm.auto import tqdm

from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence.model import Extractor, find_head


@dataclass(frozen=True)
class FeatureBank:
    """The features of a training set, in the user's sample order.

    Attributes
    ----------
    features : (N, d) float32, inputs of the model's last linear layer
    labels : (N,) int64
    extractor : what made them; it also gives the head and the features of new inputs
    """

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    extractor: Extractor


def extract(
    model: nn.Module,
    data: Any,
    *,
    layer: str | None = None,
    batch_size: int = 256,
    show_progress: bool = True,
) -> FeatureBank:
    """Collect the features and labels of every training sample.

    Parameters
    ----------
    model
        A torch classifier whose last layer is linear.
    data
        Anything ``whence.data.as_training_set`` reads.
    layer
        The last linear layer's name, when the model does something after it.
    batch_size
        Samples a forward pass.
    show_progress
        Show a progress bar.
    """
    samples = as_training_set(data, batch_size)
    n = len(samples)
    extractor: Extractor | None = None
    features = np.empty((0, 0), dtype=np.float32)
    labels = np.empty(n, dtype=np.int64)
    done = 0
    with tqdm(total=n, desc="Features", unit="sample", disable=not show_progress) as bar:
        for batch in samples:
            if extractor is None:
                extractor = Extractor(model, find_head(model, batch.inputs, layer))
            rows = extractor(batch.inputs).float().cpu().numpy()
            if len(rows) != len(batch.labels):
                raise InvalidInputError(
                    f"'data' must give one label an input. Got {len(batch.labels)} for {len(rows)} inputs."
                )
            if features.shape[1] == 0:
                features = np.empty((n, rows.shape[1]), dtype=np.float32)
            features[batch.indices] = rows
            labels[batch.indices] = batch.labels
            done += len(rows)
            bar.update(len(rows))
    if extractor is None or done != n:
        raise InvalidInputError(f"'data' says it has {n} samples but gave {done}. Check its __len__.")
    return FeatureBank(features, labels, extractor)
