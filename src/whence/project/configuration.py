"""What an explainer was fitted on, as its user named it: a JSON file beside the explainer's."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from torch import nn

from whence.attribution.base import METHODS
from whence.core import contents, store
from whence.core.checks import check_callable
from whence.core.machine import BATCH_SIZE
from whence.core.naming import find_origin, import_named, make_named
from whence.data import Corpus, TrainingSet, as_training_set
from whence.errors import InvalidInputError, StoreError
from whence.methods import Attributor
from whence.model.inputs import check_device
from whence.model.modules import class_names
from whence.tasks import TASKS, Task, Tokens

SUFFIX = ".json"
"""What the name of a configuration has beyond that of the explainer that it lies beside."""

NAMES = ("model", "data", "test", "preprocess", "tokenizer", "method", "task")
"""What a fit is given as the names of code."""
READING = ("cache_dir", "dtype", "autocast", "num_workers", "on_error")
"""Options of how the samples are read."""
# The demo's code is whence's own. It has moved since the first configurations of it were written.
_MOVED = {f"whence.demo:{name}": f"whence.sample.demo:{name}" for name in ("network", "train", "test")}


@dataclass(frozen=True)
class Configuration:
    """What a fit was made from, as it was named on the command line.

    Attributes
    ----------
    model, data, test : ``module:name`` each, of a thing or of a function that makes it. A function with a
        parameter ``folder`` is given the folder of the explainer's file. Several training sets, one after the
        other, have a + between them, which ``whence update`` adds to; so have the models of an ensemble
    preprocess : ``module:name`` of what makes the model's inputs of a batch of inputs
    tokenizer : ``module:name`` of the tokeniser that tokens are shown by, or of what makes it; None looks for
        it in ``preprocess``. Of a language model, whose task is "tokens", it reads the documents
    method : the attribution method, by its registered name or as ``module:name``
    task : what labels and outputs stand for, likewise; None where the labels tell
    layer, device : the head's name, and where the model runs
    options, reading : of the method itself, and of its ``fit``
    version : of whence
    """

    model: str
    data: str
    test: str | None = None
    preprocess: str | None = None
    tokenizer: str | None = None
    method: str = "dualda"
    task: str | None = None
    layer: str | None = None
    device: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)
    version: str = ""

    def write(self, explainer: Path) -> Path:
        """Write the configuration beside an explainer's file."""
        path = explainer.with_name(explainer.name + SUFFIX)
        store.write_text(path, json.dumps(dataclasses.asdict(self), indent=2, default=str) + "\n")
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a configuration, or raise StoreError."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            found = cls(**values)
            contents.manifest(cls, values)
            extra = found.reading.keys() - set(READING)
            if ":" not in found.method:  # another's options are known when it may be imported
                extra |= found.options.keys() - found.known_options()
            if extra:
                raise ValueError(f"it has {sorted(extra)[0]!r}, which is no option of the fit")
        except FileNotFoundError as error:
            raise StoreError(
                f"There is no configuration at '{path}'. 'whence fit' writes one beside the explainer; "
                "name the model and the data yourself with --model and --data."
            ) from error
        except (OSError, ValueError, TypeError, RecursionError, StoreError) as error:
            raise StoreError(f"'{path}' is no configuration of 'whence fit': {error}.") from error
        return found.with_names(**{key: _MOVED.get(name, name) for key, name in found.names().items()})

    @classmethod
    def trusted(cls, path: Path, names: Mapping[str, str | None], *, trust: bool) -> Self:
        """Read a configuration that may run code: what the user has named, and the rest if it is trusted.

        Parameters
        ----------
        path
            The configuration's file.
        names
            ``NAMES`` instead of the file's, where not None.
        trust
            Whether code that only the file names may be imported and run. Without it everything must be
            given as ``names``, and the file's cache is left alone.
        """
        found = cls.read(path)
        foreign = {key: name for key, name in found.names().items() if name not in _MOVED.values()}
        unnamed = {key: name for key, name in foreign.items() if not names.get(key)}
        if unnamed and not trust:
            told = ", ".join(
                f"{key} {part} ({find_origin(part)})"
                for key, name in unnamed.items()
                for part in name.split("+")
            )
            wanted = " ".join(f"--{key} {shlex.quote(name)}" for key, name in unnamed.items())
            raise InvalidInputError(
                f"'{path}' names code that would be imported and run: {told}. Pass --trust if the file is "
                f"yours or of someone you trust, or name the code yourself: {wanted}"
            )
        if foreign and not trust:
            reading = {key: value for key, value in found.reading.items() if key != "cache_dir"}
            found = dataclasses.replace(found, reading=reading)
        return found.with_names(**names)

    def names(self) -> dict[str, str]:
        """Names of the code that the configuration imports, by argument."""
        names = {key: getattr(self, key) for key in NAMES}
        own = ("method", "task")  # whence's have names without a module
        return {key: name for key, name in names.items() if name and (key not in own or ":" in name)}

    def with_names(self, **names: str | None) -> Self:
        """Return the same configuration with other names where they are not None."""
        given: dict[str, Any] = {key: name for key, name in names.items() if name is not None}
        return dataclasses.replace(self, **given)

    def attributor(self) -> type[Attributor]:
        """Import the method, and register it: files know methods by their names."""
        return METHODS.add(METHODS.get(self.method, "method"))

    def chosen_task(self) -> Task | None:
        """Import the task, and register it: files know tasks by their names. None where none is named."""
        return None if self.task is None else TASKS.add(TASKS.get(self.task, "task"))()

    def known_options(self) -> set[str]:
        """Names of the options that the method has."""
        return set(inspect.signature(self.attributor()).parameters)

    def network(self, folder: Path) -> nn.Module | list[nn.Module]:
        """Make the model, or several, on their device."""
        models = [self._network(name, folder) for name in self.model.split("+")]
        return models[0] if len(models) == 1 else models

    def _network(self, name: str, folder: Path) -> nn.Module:
        model = make_named("model", name, folder)
        if not isinstance(model, nn.Module):
            raise InvalidInputError(
                f"'model' must name a torch module or a function that makes one. Got {type(model).__name__} "
                f"from {name!r}."
            )
        return model if self.device is None else model.to(check_device(self.device))

    def prepare(self) -> Any:
        """Import what makes the model's inputs; None where nothing is named."""
        if self.preprocess is None:
            return None
        found = import_named("preprocess", self.preprocess)
        return check_callable("preprocess", found, "a function of a batch of inputs")

    def spelling(self) -> Any:
        """Import or make the tokeniser that tokens are shown by; None where none is named."""
        return None if self.tokenizer is None else make_named("tokenizer", self.tokenizer)

    def corpus(self, data: Any) -> Corpus:
        """Return documents that were found as a corpus, by the tokeniser, or raise where none is named."""
        if not isinstance(data, Corpus) and self.tokenizer is None:
            raise InvalidInputError(
                "'tokenizer' must name the model's, as module:name, where data are documents of a language "
                "model. Got none; pass --tokenizer, or a whence.data.Corpus as data."
            )
        return data if isinstance(data, Corpus) else Corpus(data, self.spelling())

    def training(self, network: Any, folder: Path, task: Task | None = None) -> TrainingSet:
        """Read the training set, or several as one."""
        name, *names = self.data.split("+")
        first = self.samples(make_named("data", name, folder), network, task=task)
        others = [self.added(first, make_named("data", each, folder), network, task=task) for each in names]
        return first.changed(None, *others) if others else first

    def added(
        self,
        before: TrainingSet,
        data: Any,
        network: Any,
        batch_size: int = BATCH_SIZE,
        task: Task | None = None,
    ) -> TrainingSet:
        """Read data that come after others; documents as those before them are read."""
        found = data if before.corpus is None else before.corpus.more(data)
        return self.samples(found, network, batch_size, task)

    def samples(
        self, data: Any, network: Any, batch_size: int = BATCH_SIZE, task: Task | None = None
    ) -> TrainingSet:
        """Read data that were found, by the task, the model's names of the classes and the preprocessing.

        Where no task is given, it is the one that is named, or that the labels tell. Of a language model they
        are documents, and every token of them a sample.
        """
        task = task or self.chosen_task()
        if isinstance(data, Corpus) or (task is not None and task.of_documents):
            corpus = self.corpus(data)
            task = task if task is not None and task.of_documents else Tokens()
            return as_training_set(corpus, batch_size, task=task, preprocess=corpus.prompts)
        first = network[0] if isinstance(network, list) else network
        return as_training_set(
            data,
            batch_size,
            task=task,
            names=class_names(first),
            preprocess=self.prepare(),
            tokenizer=self.spelling(),
        )
