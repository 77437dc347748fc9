"""What an explainer was fitted on, as its user named it: a JSON file next to the explainer's."""

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
from whence.core.checks import (
    check_callable,
    check_choice,
    check_flag,
    check_is,
    check_path,
    check_text,
)
from whence.core.machine import BATCH_SIZE
from whence.core.naming import find_origin, import_named, make_named
from whence.data import Corpus, TrainingSet, as_training_set
from whence.errors import InvalidInputError, StoreError
from whence.features import extract
from whence.methods import Attributor
from whence.model.inputs import check_device
from whence.model.modules import class_names
from whence.tasks import TASKS, Task, Tokens

SUFFIX = ".json"
"""What the name of a configuration has in addition to that of the explainer."""

NAMES = ("model", "data", "test", "preprocess", "tokenizer", "method", "task")
"""What a fit is given as the names of code."""

_DEMO = tuple(f"whence.sample.demo:{name}" for name in ("network", "train", "test"))  # needs no trust


@dataclass(frozen=True)
class Configuration:
    """What a fit was made from, as it was named on the command line.

    Attributes
    ----------
    model, data, test : names ``module:name`` of an object or of a function that returns it. A function with a
        parameter ``folder`` gets the folder of the explainer's file. Several training sets are joined by +,
        which ``whence update`` adds to; so are the models of an ensemble
    preprocess : ``module:name`` of what turns a batch of raw inputs into the model's
    tokenizer : ``module:name`` of the tokenizer that shows tokens as text, or of a function that returns it;
        None looks for it in ``preprocess``. For a language model, whose task is "tokens", it reads the
        documents
    method : the attribution method, by its registered name or as ``module:name``
    task : what labels and outputs stand for, likewise; None finds it by the labels
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

    def __post_init__(self) -> None:
        for name in (*NAMES, "layer"):
            value = getattr(self, name)
            if value is not None or name in ("model", "data", "method"):
                check_text(name, value)

    def write(self, explainer: Path) -> Path:
        """Write the configuration next to an explainer's file."""
        explainer = check_path("explainer", explainer)
        path = explainer.with_name(explainer.name + SUFFIX)
        store.write_text(path, json.dumps(dataclasses.asdict(self), indent=2, default=str) + "\n")
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a configuration, or raise StoreError."""
        path = check_path("path", path)
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            self = cls(**values)
            contents.manifest(cls, values)
            extra = self.reading.keys() - set(READING)
            if ":" not in self.method:  # the options of another are known when it may be imported
                extra |= self.options.keys() - inspect.signature(self.attributor()).parameters.keys()
            if extra:
                raise ValueError(f"it has {sorted(extra)[0]!r}, which is not an option of the fit")
        except FileNotFoundError as error:
            raise StoreError(
                f"There is no configuration at '{path}', where 'whence fit' would have written one: pass "
                "--model MODULE:NAME and --data MODULE:NAME, functions that return the model and the "
                "training set, and --test MODULE:NAME for tests."
            ) from error
        except (OSError, ValueError, TypeError, RecursionError, StoreError) as error:
            reason = str(error).rstrip(".")
            raise StoreError(f"'{path}' is not a configuration of 'whence fit': {reason}.") from error
        return self

    @classmethod
    def trusted(cls, path: Path, names: Mapping[str, str | None], *, trust: bool) -> Self:
        """Read a configuration that may run code: what the user has named, and the rest if it is trusted.

        Parameters
        ----------
        path : the configuration's file
        names : ``NAMES`` instead of the file's, where not None
        trust : whether code that only the file names may be imported and run. Without it everything must be
            given as ``names``, and the file's cache is not used
        """
        self, trust = cls.read(path), check_flag("trust", trust)
        check_is("names", names, Mapping, f"a mapping of {', '.join(NAMES)} to names")
        foreign = {key: name for key, name in self.names().items() if name not in _DEMO}
        unnamed = {key: name for key, name in foreign.items() if not names.get(key)}
        if unnamed and not trust:
            origins = ", ".join(
                f"{key} {part} ({find_origin(part)})"
                for key, name in unnamed.items()
                for part in name.split("+")
            )
            wanted = " ".join(f"--{key} {shlex.quote(name)}" for key, name in unnamed.items())
            raise InvalidInputError(
                f"'{path}' names code that would be imported and run: {origins}. Pass --trust if the file is "
                f"yours or of someone you trust, or name the code yourself: {wanted}"
            )
        if foreign and not trust:
            reading = {key: value for key, value in self.reading.items() if key != "cache_dir"}
            self = dataclasses.replace(self, reading=reading)
        return self.with_names(**names)

    def names(self) -> dict[str, str]:
        """Return the names of the code that the configuration imports, by argument."""
        names = {key: getattr(self, key) for key in NAMES}
        registered = ("method", "task")  # whence's own have names without a module
        return {key: name for key, name in names.items() if name and (key not in registered or ":" in name)}

    def with_names(self, **names: str | None) -> Self:
        """Return the same configuration with other names where they are not None."""
        for key in names:
            check_choice("names", key, [field.name for field in dataclasses.fields(self)])
        given: dict[str, Any] = {key: name for key, name in names.items() if name is not None}
        return dataclasses.replace(self, **given)

    def attributor(self) -> type[Attributor]:
        """Import the method, and register it: files know methods by their names."""
        return METHODS.add(METHODS.get(self.method, "method"))

    def chosen_task(self) -> Task | None:
        """Import the task, and register it: files know tasks by their names. None where none is named."""
        return None if self.task is None else TASKS.add(TASKS.get(self.task, "task"))()

    def network(self, folder: Path) -> nn.Module | list[nn.Module]:
        """Load the model, or several, on their device."""
        models = [self._network(name, folder) for name in self.model.split("+")]
        return models[0] if len(models) == 1 else models

    def _network(self, name: str, folder: Path) -> nn.Module:
        model = make_named("model", name, folder)
        if not isinstance(model, nn.Module):
            raise InvalidInputError(
                f"'model' must name a torch module or a function that returns one. Got "
                f"{type(model).__name__} from {name!r}."
            )
        return model if self.device is None else model.to(check_device(self.device))

    def load_preprocess(self) -> Any:
        """Import what turns raw inputs into the model's; None where nothing is named."""
        if self.preprocess is None:
            return None
        function = import_named("preprocess", self.preprocess)
        return check_callable("preprocess", function, "a function of a batch of inputs")

    def load_tokenizer(self) -> Any:
        """Import or make the tokenizer that shows tokens as text; None where none is named."""
        return None if self.tokenizer is None else make_named("tokenizer", self.tokenizer)

    def corpus(self, data: Any) -> Corpus:
        """Return documents as a corpus, by the tokenizer, or raise where none is named."""
        if not isinstance(data, Corpus) and self.tokenizer is None:
            raise InvalidInputError(
                "'tokenizer' must name the model's, as module:name, where data are documents of a language "
                "model. Got none; pass --tokenizer, or a whence.data.Corpus as data."
            )
        return data if isinstance(data, Corpus) else Corpus(data, self.load_tokenizer())

    def training(self, network: Any, folder: Path, task: Task | None = None) -> TrainingSet:
        """Read the training set, or several as one."""
        name, *names = self.data.split("+")
        first = self.samples(make_named("data", name, folder), network, task=task)
        others = [self.added(first, make_named("data", name, folder), network, task=task) for name in names]
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
        data = data if before.corpus is None else before.corpus.more(data)
        return self.samples(data, network, batch_size, task)

    def samples(
        self, data: Any, network: Any, batch_size: int = BATCH_SIZE, task: Task | None = None
    ) -> TrainingSet:
        """Read data by the task, the model's names of the classes and the preprocessing.

        Where no task is given, it is the one that is named, or the one of the labels. For a language model
        data are documents, and every token of them is a sample.
        """
        task = task or self.chosen_task()
        if isinstance(data, Corpus) or (task is not None and task.of_documents):
            corpus = self.corpus(data)
            documents = task if task is not None and task.of_documents else Tokens()
            return as_training_set(corpus, batch_size, task=documents, preprocess=corpus.prompts)
        first = network[0] if isinstance(network, list) else network
        return as_training_set(
            data,
            batch_size,
            task=task,
            names=class_names(first),
            preprocess=self.load_preprocess(),
            tokenizer=self.load_tokenizer(),
        )


READING = tuple(
    name
    for name in inspect.signature(Attributor.fit).parameters
    if name in inspect.signature(extract).parameters and name not in Configuration.__dataclass_fields__
)
"""Options of ``fit`` that say how features are read, such as ``cache_dir``: those that ``extract`` has."""
