"""Run a model's extractor over a training set, into memory or into a bank that can be resumed and reused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from whence.core import fingerprint
from whence.core.cache import Cache
from whence.core.checks import check_choice, check_count, check_flag, check_word
from whence.core.display import counted
from whence.core.machine import BATCH_SIZE, REMEDY, bfloat16_works
from whence.data import OnError, TrainingSet, as_training_set
from whence.errors import InvalidInputError
from whence.features.bank import FeatureBank
from whence.features.job import Forward, Job, cached
from whence.features.rows import stacked
from whence.model.bound import BoundModel
from whence.model.extractor import Extractor, find_head
from whence.model.inputs import check_device
from whence.model.layers import Asked, Layers, check_layers
from whence.model.modules import check_model
from whence.model.probe import MadeUpRun
from whence.model.tracing import choose_layers
from whence.tasks import Task

DTYPES = ("float32", "float16")
AUTOCASTS = (None, "bfloat16", "float16")


def extract(
    model: nn.Module,
    data: Any,
    *,
    layer: str | None = None,
    layers: Asked | Sequence[str] | Layers | None = "last",
    task: str | type[Task] | Task | None = None,
    batch_size: int = BATCH_SIZE,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_key: str | None = None,
    dtype: str = "float32",
    device: str | torch.device | None = None,
    autocast: str | None = None,
    num_workers: int = 0,
    on_error: OnError = "raise",
    show_progress: bool = True,
) -> FeatureBank:
    """Collect the features and labels of every training sample.

    With a ``cache_dir`` the rows go to a file there as they come, a run that was killed resumes where it
    was, and a later run with the same model, data and options reuses the file, once it has read all samples
    again and compared them with those of then. Without one they are kept in memory, or in a temporary file
    when they would fill more than half of the free memory.

    Parameters
    ----------
    model
        A torch classifier whose last layer is linear.
    data
        Anything ``whence.data.as_training_set`` reads.
    layer
        The last linear layer's name, when the model does something after it.
    layers
        What goes into which layers: "last", the last linear one's; "all", every distinct tensor that a linear
        or convolutional layer reads, but the model's own input; a number, so many of these from the end;
        a list of layers' names; "auto", up to 5 of all; "tangent", gradients of the logits by the weights of
        all linear layers and convolutions next to what goes into them, see
        ``whence.model.tangents.Tangents``; ``Layers``, or None for "last", of another bank, for
        samples that are to be compared with its own.
    task
        What labels are, see ``whence.tasks``; None finds it by the labels.
    batch_size
        Samples per forward pass.
    cache_dir
        Folder for banks, made if it is missing; see ``whence cache ls``.
    cache_key
        A word that stands for the inputs of all samples and for what of the model cannot be read. With it a
        bank is reused without reading the samples again, as long as the word is the same: you vouch for it.
    dtype
        "float32", or "float16" for half the disk and three digits.
    device
        Where the model runs, which is moved there and back; None leaves it where it is.
    autocast
        "bfloat16" or "float16": run the forward passes in mixed precision.
    num_workers
        Processes that read samples.
    on_error
        What to do with a sample that cannot be read: "raise", or "skip" it, which masks its row.
    show_progress
        Show what is needed, a progress bar, and what the cache does.
    """
    check_choice("dtype", dtype, DTYPES)
    check_choice("autocast", autocast, AUTOCASTS)
    num_workers = check_count("num_workers", num_workers, 0)
    cache_key = None if cache_key is None else check_word("cache_key", cache_key)
    check_choice("on_error", on_error, ("raise", "skip"))
    batch_size = check_count("batch_size", batch_size)
    check_flag("show_progress", show_progress)
    check_model(model, layer)
    if not isinstance(layers, Layers):
        layers = check_layers("layers", "last" if layers is None else layers)
    if device is not None:
        device = check_device(device)
    if autocast == "bfloat16":
        _check_bfloat16(model, device)

    def read(samples: TrainingSet, layers: Asked | Layers) -> FeatureBank:
        source = samples.reading(num_workers, on_error)
        first = next((batch for batch in source.batches() if len(batch.indices)), None)
        if first is None:
            raise InvalidInputError("'data' must have a sample that can be read. None of them can.")
        # A head that was found has the output's values; one that was named may only rank the classes.
        exact = True if layer is None or not samples.task.has_classes else None
        extractor = Extractor(model, find_head(model, first.inputs, layer), exact)
        K, d = extractor.head().weight.shape
        task = samples.task.for_head(extractor.layer, d, K)
        extractor.paired = task.paired
        extractor.layers = _choose(extractor, first.inputs, d, layers)
        forward = Forward(extractor, task, np.dtype(dtype), autocast)
        before = fingerprint.structure(extractor.model)
        forward.probe(first)
        task.check_activation(extractor.activation or "", extractor.layer)
        made_of, extractor.notes = fingerprint.settled(before, fingerprint.structure(extractor.model))
        if extractor.layers is not None and extractor.layers is not layers:
            forward.scale(extractor.layers, source.batches())
        job = Job(
            replace(source, task=task), forward, made_of, int(first.indices[0]), cache_key, show_progress
        )
        rows = (*job.uncached(), {}, "", "computed") if cache_dir is None else cached(job, Cache(cache_dir))
        features, labels, parts, checksum, note = rows
        bound = BoundModel(extractor, data=samples, probe=MadeUpRun.of(extractor, first.inputs))
        return FeatureBank(features, labels, extractor.head(), task, bound, samples, parts, checksum, note)

    samples = as_training_set(data, batch_size, task=task)
    with nullcontext() if device is None else _placed(model, device):
        banks = [read(samples.parts[0], layers)]
        banks += [read(part, banks[0].layers or "last") for part in samples.parts[1:]]
    return banks[0] if samples.parts[0] is samples else _joined(samples, banks)


def _joined(samples: TrainingSet, banks: Sequence[FeatureBank]) -> FeatureBank:
    """Put the banks of the parts of a set together; the cache has one for each, so that only new ones run."""
    first, valid = banks[0], np.concatenate([bank.valid for bank in banks])
    of_parts = np.concatenate([bank.labels for bank in banks])
    labels = of_parts if samples.labels is None else samples.labels.copy()
    labels[~valid] = first.task.blank(1)[0]
    features = stacked([bank.features for bank in banks])
    note = first.note
    if len({bank.note for bank in banks}) > 1:
        note = "; ".join(f"{counted(len(bank.labels), 'sample')} {bank.note}" for bank in banks)
    return replace(first, features=features, labels=labels, data=samples, parts={}, checksum="", note=note)


def _choose(extractor: Extractor, inputs: Any, width: int, asked: Asked | Layers) -> Layers | None:
    """Return the layers that features come from, or None for the head alone, which has ``width`` features."""
    if asked == "last":
        return None
    if not isinstance(asked, Layers):
        return choose_layers(extractor.model, inputs, extractor.layer, width, asked)
    if (asked.names[-1], asked.widths[-1]) != (extractor.layer, width):
        raise InvalidInputError(
            f"'layers' must be those of a bank of the same model, whose head {extractor.layer!r} has {width} "
            f"features. Got layers that end with {asked.names[-1]!r} of {asked.widths[-1]}."
        )
    return asked


@contextmanager
def _placed(model: nn.Module, device: str | torch.device) -> Iterator[None]:
    """Move a model to a device, and back afterwards."""
    before = next(model.parameters()).device
    try:
        model.to(device)
        yield
    except torch.OutOfMemoryError as error:
        raise InvalidInputError(
            f"'device' must have room for the model and a batch. {device} is out of memory. Free some of it, "
            "name another device, or use a smaller batch_size."
        ) from error
    finally:
        model.to(before)


def _check_bfloat16(model: nn.Module, device: str | torch.device | None) -> None:
    """Refuse bfloat16 on a CPU that crashes on it."""
    place = next(model.parameters()).device if device is None else torch.device(device)
    if place.type == "cpu" and not bfloat16_works():
        raise InvalidInputError(
            '\'autocast\' must be None or "float16" here. Got "bfloat16", on which this processor traps or '
            f"errs. Set {'='.join(REMEDY)} in the environment before Python starts, or leave autocast out."
        )
