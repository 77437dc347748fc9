"""Loops over a data set: a fixed number of batches, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.checks import check_count, check_seed
from whence.data import as_training_set
from whence.errors import ModelError
from whence.model.inputs import run, running_on, to_model
from whence.model.modules import check_model, evaluating
from whence.model.passes import logits_in
from whence_studies.scenes.views import view

MOST_BATCH = 1_000_000


def fixed_steps(
    data: Any,
    steps: int,
    batch_size: int,
    seed: int = 0,
    *,
    preprocess: Callable[[Any], Any] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> Iterator[tuple[Any, Tensor]]:
    """Yield a fixed number of full batches (inputs, labels), whatever the size of the data.

    Subsets of different sizes are then trained equally long; with epochs, a tenth of the data would get a
    tenth of the training. Samples are shuffled again for each pass, and a batch may continue into the next
    pass, so that the counts of all samples differ by at most one.

    Parameters
    ----------
    data
        As for ``view``.
    steps, batch_size
        Number of batches, and samples in each, at most 1,000,000.
    seed
        Seed of the order.
    preprocess, collate_fn
        As for ``whence.data.as_training_set``.

    Examples
    --------
    >>> import torch
    >>> data = (torch.arange(6.0)[:, None], torch.arange(6) % 2)
    >>> [inputs.shape for inputs, labels in fixed_steps(data, 3, 4)]
    [torch.Size([4, 1]), torch.Size([4, 1]), torch.Size([4, 1])]
    """
    steps = check_count("steps", steps)
    batch_size = check_count("batch_size", batch_size, most=MOST_BATCH)
    seen = view(data)
    samples = as_training_set(seen, batch_size, preprocess=preprocess, collate_fn=collate_fn)
    rng = np.random.default_rng(check_seed(seed))
    ahead = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        passes = -(-max(0, batch_size - len(ahead)) // len(seen))
        ahead = np.concatenate([ahead, *(rng.permutation(len(seen)) for _ in range(passes))])
        rows, ahead = ahead[:batch_size], ahead[batch_size:]
        yield samples.take(rows.tolist()), torch.from_numpy(seen.labels[rows])


def predict(
    model: nn.Module,
    data: Any,
    batch_size: int = 256,
    *,
    preprocess: Callable[[Any], Any] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> Tensor:
    """Return a model's logits (test, class) on a data set, float32 on the CPU; the model stays unchanged."""
    batch_size = check_count("batch_size", batch_size)
    check_model(model)
    samples = as_training_set(data, batch_size, preprocess=preprocess, collate_fn=collate_fn)
    parts = []
    with evaluating(model), torch.no_grad():
        for batch in samples.batches():
            inputs = to_model(model, batch.inputs)
            with running_on(inputs):
                output = run(model, inputs)
            parts.append(logits_in(output, len(batch.indices))[0].float().cpu())
    logits = torch.cat(parts)
    if not logits.isfinite().all():
        row = int((~logits.isfinite()).any(1).int().argmax())
        raise ModelError(f"The model's output must be finite. Got {logits[row].tolist()} for sample {row}.")
    return logits
