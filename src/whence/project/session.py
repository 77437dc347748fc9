"""A saved explainer together with what it was fitted on: the model, the training set, and test samples."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn
from tqdm.auto import tqdm

from whence.attributors import DualDA, load
from whence.core import contents, store
from whence.core.naming import find, named, origin
from whence.data import TrainingSet, as_training_set
from whence.errors import InvalidInputError, StoreError
from whence.explanation import Explanations
from whence.features import FeatureBank, as_float32, extract
from whence.model.extractor import class_names

SUFFIX = ".json"
"""What the name of a configuration has beyond that of the explainer that it lies beside."""


_OPTIONS = set(inspect.signature(DualDA).parameters)
_READING = {"cache_dir", "dtype", "autocast", "num_workers", "on_error"}
_OWN = {f"whence.app.demo:{name}" for name in ("network", "train", "test")}


@dataclass(frozen=True)
class Configuration:
    """What a fit was made from, as it was named on the command line.

    Attributes
    ----------
    model, data, test : ``module:name`` each, of a thing or of a function that makes it. A function with a
        parameter ``folder`` is given the folder of the explainer's file.
    preprocess : ``module:name`` of what makes the model's inputs of a batch of inputs
    layer, device : the head's name, and where the model runs
    options, reading : of ``DualDA`` itself, and of its ``fit``
    version : of whence
    """

    model: str
    data: str
    test: str | None = None
    preprocess: str | None = None
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
            extra = (found.options.keys() - _OPTIONS) | (found.reading.keys() - _READING)
            if extra:
                raise ValueError(f"it has {sorted(extra)[0]!r}, which is no option of the fit")
        except FileNotFoundError as error:
            raise StoreError(
                f"There is no configuration at '{path}'. 'whence fit' writes one beside the explainer; "
                "name the model and the data yourself with --model and --data."
            ) from error
        except (OSError, ValueError, TypeError, RecursionError, StoreError) as error:
            raise StoreError(f"'{path}' is no configuration of 'whence fit': {error}.") from error
        return found

    def foreign(self) -> dict[str, str]:
        """Names of code that opening would run, by argument, without those of whence's own demo."""
        names = {"model": self.model, "data": self.data, "test": self.test, "preprocess": self.preprocess}
        return {key: name for key, name in names.items() if name is not None and name not in _OWN}

    def with_names(self, **names: str | None) -> Self:
        """Give the same configuration with other names where they are not None."""
        given: dict[str, Any] = {key: name for key, name in names.items() if name is not None}
        return dataclasses.replace(self, **given)

    def network(self, folder: Path) -> nn.Module:
        """Make the model, on its device."""
        model = find("model", self.model, folder)
        if not isinstance(model, nn.Module):
            raise InvalidInputError(
                f"'model' must name a torch module or a function that makes one. Got {type(model).__name__} "
                f"from {self.model!r}."
            )
        return _placed(model, self.device)

    def prepare(self) -> Any:
        """Import what makes the model's inputs; None where nothing is named."""
        if self.preprocess is None:
            return None
        found = named("preprocess", self.preprocess)
        if not callable(found):
            raise InvalidInputError(
                f"'preprocess' must be a function of a batch of inputs. Got {type(found).__name__} from "
                f"{self.preprocess!r}."
            )
        return found


class Session:
    """A saved explainer, ready to explain: with its model, its training set and, if named, test samples.

    Attributes
    ----------
    path : of the explainer's file
    configuration : what it was fitted on
    explainer : the explainer itself
    tests : the test samples, or None
    show_progress : whether long steps show their progress
    """

    def __init__(
        self, path: Path, configuration: Configuration, explainer: DualDA, tests: TrainingSet | None
    ) -> None:
        self.path, self.configuration = path, configuration
        self.explainer, self.tests = explainer, tests
        self._train_bank: FeatureBank | None = None
        self._reading = threading.Lock()

    @classmethod
    def open(
        cls, path: Path, *, trust: bool = False, show_progress: bool = True, **names: str | None
    ) -> Self:
        """Open an explainer's file by the configuration beside it.

        Parameters
        ----------
        path
            The file that ``whence fit`` wrote.
        trust
            Whether code that only the configuration names may be imported and run. Without it everything
            must be given as ``names``, and the configuration's cache is left alone.
        show_progress
            Whether long steps show their progress.
        names
            ``model``, ``data``, ``test`` and ``preprocess`` in the place of those of the configuration.
        """
        path = Path(path)
        if not path.is_file():
            raise StoreError(f"There is no explainer at '{path}'. 'whence fit' writes one.")
        beside = path.with_name(path.name + SUFFIX)
        if beside.exists() or not (names.get("model") and names.get("data")):
            configuration = Configuration.read(beside)
            if not trust:
                configuration = as_named(configuration, beside, names)
            configuration = configuration.with_names(**names)
        else:
            configuration = Configuration(model="", data="").with_names(**names)
        folder = path.resolve().parent
        model, prepare = configuration.network(folder), configuration.prepare()
        data = find("data", configuration.data, folder)
        explainer = load(path, model, data, preprocess=prepare)
        if not isinstance(explainer, DualDA):
            raise StoreError(f"'{path}' holds a {type(explainer).__name__}, which has no explanations.")
        explainer.show_progress = show_progress
        tests = None
        if configuration.test is not None:
            raw = find("test", configuration.test, folder)
            tests = as_training_set(raw, explainer.batch_size, names=class_names(model), preprocess=prepare)
        return cls(path, configuration, explainer, tests)

    @property
    def train_bank(self) -> FeatureBank:
        """Features of the whole training set, from the cache of the fit where it kept one; read once."""
        with self._reading:
            if self._train_bank is None:
                bank, surrogate = self._bank(self.explainer.require_data()), self.explainer.surrogate_
                surrogate.check_labels(bank.labels, "data")
                surrogate.check_training(bank.features, argument="data")
                self._train_bank = bank
            return self._train_bank

    @functools.cached_property
    def test_bank(self) -> FeatureBank:
        """Features and labels of the test samples."""
        return self._bank(self._tests())

    def _tests(self) -> TrainingSet:
        if self.tests is None:
            raise InvalidInputError(
                "'test' must name samples to explain, as module:name. The configuration has none; "
                "pass --test, or fit with it."
            )
        return self.tests

    def check_tests(self, indices: list[int]) -> list[int]:
        """Return places of test samples, or raise."""
        n = len(self._tests())
        wrong = [i for i in indices if not 0 <= i < n]
        if wrong:
            raise InvalidInputError(f"'tests' must be in [0, {n}), the test samples. Got {wrong[0]}.")
        return indices

    def read_tests(self, indices: list[int]) -> list[int]:
        """Return places of test samples that could be read, or raise."""
        chosen, valid = self.check_tests(indices), self.test_bank.valid
        wrong = [i for i in chosen if not valid[i]]
        if wrong:
            raise InvalidInputError(
                f"'tests' must name samples that can be read. Test {wrong[0]} cannot, and was skipped."
            )
        return chosen

    def features(self, indices: list[int]) -> torch.Tensor:
        """Features (B, d) of some test samples."""
        return torch.from_numpy(as_float32(self.test_bank.features)[self.read_tests(indices)].copy())

    def explain(
        self,
        indices: list[int],
        k: int = 5,
        target: int | None = None,
        method: str | None = None,
        explainer: DualDA | None = None,
    ) -> Explanations:
        """Explain some test samples, by another explainer of the same model and data if one is given."""
        tests, chosen = self._tests(), self.read_tests(indices)
        explaining = (explainer or self.explainer).explaining(k, method)
        truths = self.test_bank.labels[chosen].tolist()
        rows = tqdm(chosen, "explaining", disable=not self.explainer.show_progress or len(chosen) < 4)
        found = [explaining(i, tests.take([i]), target, y) for i, y in zip(rows, truths, strict=True)]
        return Explanations(found)

    def _bank(self, samples: TrainingSet) -> FeatureBank:
        fitted = self.explainer.require_model()
        reading = {"dtype": "float32", **self.configuration.reading}
        cache_dir = reading.pop("cache_dir", None)
        return extract(
            fitted.extractor.model,
            samples,
            layer=fitted.extractor.layer,
            batch_size=self.explainer.batch_size,
            cache_dir=cache_dir,
            show_progress=self.explainer.show_progress,
            **reading,
        )


def as_named(configuration: Configuration, source: Path, names: Mapping[str, str | None]) -> Configuration:
    """Give a configuration of which nothing runs or is written to but what the user has named, or raise."""
    foreign = {key: name for key, name in configuration.foreign().items() if not names.get(key)}
    if foreign:
        told = ", ".join(f"{key} {name} ({origin(name)})" for key, name in foreign.items())
        wanted = " ".join(f"--{key} {shlex.quote(name)}" for key, name in foreign.items())
        raise InvalidInputError(
            f"'{source}' names code that would be imported and run: {told}. Pass --trust if the file is "
            f"yours or of someone you trust, or name the code yourself: {wanted}"
        )
    if not configuration.foreign():
        return configuration  # whence's own
    reading = {key: value for key, value in configuration.reading.items() if key != "cache_dir"}
    return dataclasses.replace(configuration, reading=reading)


def _placed(model: nn.Module, device: str | None) -> nn.Module:
    if device is None:
        return model
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(
            f"'device' must be one that torch has here, such as cpu or cuda. Got {device!r} ({error})."
        ) from error
