"""Every form of user data as one training set, in the user's sample order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from whence.core.checks import check_callable, check_count, check_names, check_that
from whence.core.fingerprint import Digest
from whence.core.machine import BATCH_SIZE
from whence.data.corpus import Corpus
from whence.data.items import Prepare, is_array, split
from whence.data.reading import Workers
from whence.data.sources import as_source
from whence.data.tables import column_names, is_numeric, is_table, labelled_table
from whence.data.text import is_tokenizer
from whence.data.training_set import TrainingSet
from whence.errors import DataWarning, InvalidInputError, WhenceError, warn
from whence.tasks import Task, as_task

MOST = 2**31 - 1  # samples per batch
_CHECKED = 8  # samples that are read twice, enough to catch a coin toss 255 times in 256


def as_training_set(
    data: Any,
    batch_size: int = BATCH_SIZE,
    *,
    task: str | type[Task] | Task | None = None,
    names: Sequence[str] | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    tokenizer: Any = None,
    feature_names: Sequence[str] | None = None,
) -> TrainingSet:
    """Read ``data`` as a training set whose sample i is always the user's sample i.

    Parameters
    ----------
    data
        - a map-style ``Dataset``, a list, or a ``datasets.Dataset``;
        - an ``IterableDataset`` or another iterable that can be read again, whose samples count in its order;
        - a ``DataLoader`` over one of these, with its batch size and ``collate_fn``. Shuffling and
          ``drop_last`` are left out, so that index i means ``loader.dataset[i]`` and every sample counts;
        - a tuple ``(X, y)``, X an array, tensor or memory map, a mapping of these, a list, or a table;
        - a table with a column of labels, whose name is one of ``label``, ``labels``, ``target`` …;
        - the path of a folder with a subfolder of images per class;
        - a training set, which is returned unchanged.

        Samples are pairs (input, label), or mappings or dataclasses with a label, which is one of 0 … K−1 or
        a class's name.
    batch_size
        Samples per batch; a ``DataLoader`` keeps its own, and a ``Corpus`` has at least a text's length.
    task
        What labels are, see ``whence.tasks``: a task, its class or its name; None finds it by the labels.
    names
        The model's names of the classes, in order.
    preprocess
        Makes the model's inputs of a batch of inputs: an image processor, or any function.
    collate_fn
        Makes a batch of a list of samples, as in a ``DataLoader``.
    tokenizer
        Of transformers: makes the model's inputs of texts, and shows tokens as text. None looks for the one
        that ``preprocess`` or ``collate_fn`` uses, to show tokens.
    feature_names
        One name per feature of samples that are rows of numbers, for display; None takes the columns of a
        table.

    Warns
    -----
    DataWarning
        When the same sample is not the same twice, or model and data name the classes differently.
    """
    if isinstance(data, TrainingSet):
        options = {
            "task": task,
            "preprocess": preprocess,
            "collate_fn": collate_fn,
            "tokenizer": tokenizer,
            "feature_names": feature_names,
        }
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidInputError(
                f"'{given[0]}' must be given where the samples are first read. Got it with a TrainingSet, "
                "which has its own. Pass it to as_training_set."
            )
        return data
    batch_size = check_count("batch_size", batch_size, 1, MOST)
    if names is not None:
        names = check_names("names", names)
    for name, function in {"preprocess": preprocess, "collate_fn": collate_fn}.items():
        if function is not None:
            check_callable(name, function, "None or a function of a batch")
            fix = "Pass it as 'tokenizer'."
            check_that(
                not is_tokenizer(function), name, "be a function of a batch, no tokenizer", function, fix
            )
    check_tokenizer(tokenizer)
    workers = Workers()
    if isinstance(data, DataLoader):
        workers = Workers(data.num_workers, data.worker_init_fn, data.multiprocessing_context)
        loader, (data, default) = data, of_loader(data)
        collate_fn = collate_fn or default
        assert loader.batch_size is not None
        batch_size = loader.batch_size
    if isinstance(data, Corpus):
        batch_size = max(batch_size, data.length)  # places of one text share a run
    data = labelled_table(data) if is_table(data) else data
    columns = column_names(data)
    known = columns if is_numeric(data) else None
    known = known if feature_names is None else check_names("feature_names", feature_names)
    prepare = Prepare(collate_fn, preprocess, tokenizer, columns, known)
    samples = TrainingSet.of(data, batch_size, prepare, names, workers, as_task(task))
    if feature_names is not None and preprocess is None:
        check_feature_names(known, samples.example)
    _warn_if_random(samples)
    return samples


def check_feature_names(names: Sequence[str] | None, example: Any) -> None:
    """Raise unless there is one name per value of a sample that is a row of numbers."""
    width = example.shape[1] if is_array(example) and example.ndim == 2 else None
    if names is not None and len(names) != width:
        got = f"rows of {width} values" if width else "samples that are not rows of numbers"
        raise InvalidInputError(
            f"'feature_names' must be one name per value of a sample. Got {len(names)} for {got}."
        )


def check_tokenizer(tokenizer: Any) -> Any:
    """Return a tokenizer, or None, or raise where something else is given."""
    rule = "be None or a tokenizer of transformers, which has 'convert_ids_to_tokens'"
    check_that(tokenizer is None or is_tokenizer(tokenizer), "tokenizer", rule, tokenizer)
    return tokenizer


def of_loader(
    loader: DataLoader[Any], argument: str = "data"
) -> tuple[Any, Callable[[list[Any]], Any] | None]:
    """Return a loader's dataset, and its way to make batches where that is its own.

    Raises where its samples are not those of the dataset, once each.
    """
    _check_order(loader, argument)
    return loader.dataset, None if loader.collate_fn is default_collate else loader.collate_fn


def _check_order(loader: DataLoader[Any], argument: str) -> None:
    if loader.batch_size is not None and isinstance(loader.dataset, IterableDataset):
        return
    sampler = loader.sampler
    whole = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )
    # Other samplers leave samples out or repeat them, and those left out must not be attributed.
    if loader.batch_size is None or not whole:
        cause = type(loader.batch_sampler if loader.batch_size is None else sampler).__name__
        raise InvalidInputError(
            f"'{argument}' is a DataLoader with its own sampler ({cause}), so the order of its samples is "
            "unknown. Pass the dataset itself, or torch.utils.data.Subset(dataset, indices)."
        )


def _warn_if_random(samples: TrainingSet) -> None:
    """Read a few samples twice and warn if they differ."""
    n = len(samples)
    # A stream is read from its start: its last sample would cost a whole pass.
    spread = range(min(n, _CHECKED)) if samples.is_stream else np.linspace(0, n - 1, _CHECKED)
    indices = sorted({int(i) for i in spread})

    def read(index: int) -> str | None:
        try:
            return Digest().of(samples.take([index]))
        except Exception:  # whoever reads the sample in earnest reports it
            return None

    first, second = ([read(i) for i in indices] for _ in range(2))
    pairs = zip(indices, first, second, strict=True)
    differ = [i for i, a, b in pairs if a is not None and b is not None and a != b]
    if differ:
        warn(
            f"'data' gives different inputs for the same sample, such as {differ[0]}: random augmentation? "
            "Features then change from run to run. Pass the set with the transform that is used for testing.",
            DataWarning,
        )


@dataclass(frozen=True, eq=False)
class NewSamples:
    """Samples of a data set in its own order, read when they are asked for; their labels are left aside."""

    source: Any  # gives samples by index
    places: range  # of the samples there
    collate_fn: Callable[[list[Any]], Any] | None = None  # None leaves it to whoever takes them

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: slice) -> Self:
        """Return the samples of these rows."""
        return replace(self, places=self.places[rows])

    def inputs(self, prepare: Prepare) -> Any:
        """Read the samples, and make the model's inputs of them."""
        return replace(prepare, collate_fn=self.collate_fn or prepare.collate_fn).of_new(self._items())

    def labels(self) -> list[Any]:
        """Read the labels, as the data set has them, or raise where it has none."""
        return [split(item)[1] for item in self._items()]

    def _items(self) -> list[Any]:
        items = []
        for place in self.places:
            try:
                items.append(self.source[place])
            except WhenceError:
                raise
            except Exception as error:  # whatever a user's data set raises
                raise InvalidInputError(
                    f"'x' must give every sample. Sample {place} cannot be read: {type(error).__name__}: "
                    f"{error}. Repair or remove it."
                ) from error
        return items


def as_new(x: Any) -> Any:
    """Return a data set or loader as new samples; a batch of inputs stays unchanged.

    Sample i is the data set's own, whatever a loader shuffles or drops.
    """
    if isinstance(x, NewSamples):
        return x
    collate_fn = None
    if isinstance(x, DataLoader):
        x, collate_fn = of_loader(x, "x")
    elif not isinstance(x, Dataset) and not isinstance(getattr(x, "column_names", None), list):
        return x
    source = as_source(x)
    return NewSamples(source, range(len(source)), collate_fn)
