"""A saved explainer together with what it was fitted on: the model, the training set, and test samples."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from whence.attribution.explaining import Explains
from whence.attribution.pairs import PairAttributor
from whence.attribution.usual import usual_of
from whence.core.checks import check_places
from whence.core.naming import make_named
from whence.core.progress import bar
from whence.data import TrainingSet
from whence.errors import InvalidInputError, StoreError
from whence.explanation import Explanations, Typicality
from whence.explanation.trace import Bands, Trace
from whence.features import FeatureBank, Novelty, as_float32, extract
from whence.methods import Attributor, DualDA, Effects, Ensemble, TopK, load
from whence.project.configuration import SUFFIX, Configuration


class Project:
    """A saved explainer, ready to explain: with its model, its training set and, if named, test samples.

    Attributes
    ----------
    path : of the explainer's file
    configuration : what it was fitted on
    attributor : the fitted method
    """

    def __init__(
        self, path: Path, configuration: Configuration, attributor: Attributor, tests: TrainingSet | None
    ) -> None:
        self.path, self.configuration = path, configuration
        self.attributor, self._tests = attributor, tests
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
            ``NAMES`` instead of those of the configuration.
        """
        path = Path(path)
        if not path.is_file():
            raise StoreError(f"There is no explainer at '{path}'. 'whence fit' writes one.")
        beside = path.with_name(path.name + SUFFIX)
        if beside.exists() or not (names.get("model") and names.get("data")):
            configuration = Configuration.trusted(beside, names, trust=trust)
        else:
            configuration = Configuration(model="", data="").with_names(**names)
        folder = path.resolve().parent
        model = configuration.network(folder)
        configuration.attributor()  # registers a method of the user's own, by whose name the file goes
        configuration.chosen_task()
        attributor = load(path, model, cache_dir=configuration.reading.get("cache_dir"))
        attributor.show_progress = show_progress
        if isinstance(attributor, PairAttributor | Ensemble):  # others have no use for it after the fit
            attributor.take_data(configuration.training(model, folder, attributor.task_))
        tests = None
        if configuration.test is not None:
            raw = make_named("test", configuration.test, folder)
            tests = configuration.samples(raw, model, attributor.batch_size, attributor.task_)
        return cls(path, configuration, attributor, tests)

    @property
    def explainer(self) -> DualDA:
        """The fitted method where it is DualDA, which audits and what if need; else an error."""
        if not isinstance(self.attributor, DualDA):
            raise InvalidInputError(
                f"'{self.path}' must hold a DualDA, or a method that derives from it, for this. It holds "
                f"{_named(self.attributor)}: 'whence attribute' names its training samples."
            )
        return self.attributor

    @property
    def members(self) -> list[PairAttributor]:
        """The fitted method where its pairs can be explained, of an ensemble its members; else an error."""
        method = self.attributor
        several = method.members_ if isinstance(method, Ensemble) else [method]
        found = [one for one in several if isinstance(one, PairAttributor)]
        if len(found) < len(several):
            raise InvalidInputError(
                f"'{self.path}' must hold a DualDA or Effects, a method that derives from them, or an "
                f"ensemble of these, to be explained. It holds {_named(method)}: 'whence attribute' names "
                "its training samples."
            )
        return found

    @property
    def pairs(self) -> PairAttributor:
        """The fitted method where its pairs can be explained and its features compared; else an error."""
        if isinstance(self.attributor, Ensemble):
            raise InvalidInputError(
                f"'{self.path}' must hold a DualDA or Effects, or a method that derives from them, for this: "
                "the members of an ensemble have features of their own. Save one of them by itself."
            )
        return self.members[0]

    @property
    def effects(self) -> Effects:
        """The fitted method where it is Effects; else an error."""
        if not isinstance(self.attributor, Effects):
            raise InvalidInputError(f"'{self.path}' must hold Effects. It holds {_named(self.attributor)}.")
        return self.attributor

    def with_effects(self, max_seconds: float | None = None) -> Project:
        """Return the project with effects instead of its method, fitted on its model and training set.

        The features that they need lie in the cache of the fit, where it kept one.

        Parameters
        ----------
        max_seconds
            Limit of the solver.
        """
        if isinstance(self.attributor, Effects):
            return self
        made = Effects(
            batch_size=self.attributor.batch_size,
            seed=getattr(self.attributor, "seed", 0),
            max_seconds=max_seconds,
            show_progress=self.attributor.show_progress,
        )
        bound, names = self.attributor.require_model(), self.attributor.class_names_
        layer, reading = bound.extractor.layer, self.configuration.reading
        made.fit(bound.extractor.model, self._data(), layer=layer, class_names=names, **reading)
        return Project(self.path, self.configuration, made, self._tests)

    def _data(self) -> TrainingSet:
        """Return the training set, which methods without pairs do not hold."""
        if self.attributor.data_ is not None:
            return self.attributor.data_
        model = self.attributor.require_model().extractor.model
        return self.configuration.training(model, self.path.resolve().parent, self.attributor.task_)

    @property
    def train_bank(self) -> FeatureBank:
        """Features of the whole training set, from the cache of the fit where it kept one; read once."""
        with self._reading:
            if self._train_bank is None:
                bank, surrogate = self.bank_of(self.pairs.require_data()), self.pairs.surrogate_
                surrogate.check_labels(bank.labels, "data")
                surrogate.check_training(bank.features, argument="data")
                self._train_bank = bank
            return self._train_bank

    @functools.cached_property
    def usualness(self) -> Novelty:
        """What tells how usual tests are for the training set."""
        return self.pairs.usualness(self.train_bank, k=min(5, int(self.pairs.used_.sum()) - 1))

    @functools.cached_property
    def test_bank(self) -> FeatureBank:
        """Features and labels of the test samples."""
        return self.bank_of(self.tests)

    @property
    def tests(self) -> TrainingSet:
        """The test samples; an error where the configuration names none."""
        if self._tests is None:
            raise InvalidInputError(
                "'test' must name samples to explain, as module:name. The configuration has none; "
                "pass --test, or fit with it."
            )
        return self._tests

    @property
    def has_tests(self) -> bool:
        """Whether the configuration names samples to explain."""
        return self._tests is not None

    def check_tests(self, indices: list[int]) -> list[int]:
        """Return places of test samples, or raise."""
        places: list[int] = check_places("tests", indices, len(self.tests)).tolist()
        return places

    def read_tests(self, indices: list[int]) -> list[int]:
        """Return places of test samples that could be read, or raise."""
        chosen, valid = self.check_tests(indices), self.test_bank.valid
        wrong = [i for i in chosen if not valid[i]]
        if wrong:
            raise InvalidInputError(
                f"'tests' must name samples that can be read. Test {wrong[0]} cannot, and was skipped."
            )
        return chosen

    def top_k(self, indices: list[int], k: int, target: int | None) -> tuple[TopK, list[str]]:
        """Find the strongest training samples of some tests, and what the model says of each, in words."""
        task = self.attributor.task_
        if isinstance(self.attributor, DualDA):
            rows = as_float32(self.test_bank.features)[self.read_tests(indices)]
            features = torch.from_numpy(rows)
            said = task.predict(self.attributor.surrogate_.model_logits(features))
            return self.attributor.top_k_features(features, k, target), list(
                map(task.label_text, said.cpu().numpy())
            )
        x = self.tests.take(self.read_tests(indices))
        said = task.predict(self.attributor.require_model().read(x, self.attributor.batch_size).logits)
        return self.attributor.top_k(x, k, target), list(map(task.label_text, said.cpu().numpy()))

    def spread(self, indices: list[int], target: int | None) -> Tensor | None:
        """Return the spread (test, train) of the scores of some tests over the members of an ensemble."""
        if not isinstance(self.attributor, Ensemble):
            return None
        return self.attributor.spread(self.tests.take(self.read_tests(indices)), target)

    def typicality(self, indices: list[int]) -> list[Typicality] | None:
        """Return how typical tests are of the training set; None for methods that compare no features."""
        if not isinstance(self.attributor, PairAttributor):
            return None
        rows = as_float32(self.test_bank.features)[self.read_tests(indices)]
        return usual_of(self.attributor, self.usualness, torch.from_numpy(rows))

    def explain(
        self, indices: list[int], k: int = 5, target: int | None = None, method: str | None = None
    ) -> Explanations:
        """Explain some test samples."""
        tests, chosen = self.tests, self.read_tests(indices)
        explaining: Explains
        if isinstance(self.attributor, Ensemble):
            explaining = self.attributor.explaining(k, method)
        else:
            explaining = self.pairs.explaining(k, method, self.usualness)
        truths = self.test_bank.labels[chosen].tolist()
        show = self.attributor.show_progress and len(chosen) >= 4
        rows = bar("Explaining", len(chosen), "tests", parts=chosen, show=show)
        found = [explaining(i, tests.take([i]), target, y) for i, y in zip(rows, truths, strict=True)]
        return Explanations(found)

    @functools.cached_property
    def bands(self) -> Bands:
        """How often the surrogate names the token that a language model would write; of the tests, if any."""
        return self.explainer.faithfulness_by_frequency(None if self._tests is None else self._tests.source)

    def trace(
        self, prompt: str, continuation: str | None = None, k: int = 5, max_new_tokens: int = 20
    ) -> Trace:
        """Trace what a language model writes to the passages of its corpus."""
        options = {"k": k, "max_new_tokens": max_new_tokens}
        return self.explainer.trace(prompt, continuation, **options, bands=self.bands)

    def bank_of(self, samples: TrainingSet, member: Attributor | None = None) -> FeatureBank:
        """Features of samples, read as in the fit; of an ensemble by its first member, or another."""
        fitted = (member or self.attributor).require_model()
        return extract(
            fitted.extractor.model,
            samples,
            layer=fitted.extractor.layer,
            layers=fitted.extractor.layers,
            batch_size=self.attributor.batch_size,
            show_progress=self.attributor.show_progress,
            **self.configuration.reading,
        )


def _named(method: Attributor) -> str:
    """Name a method, of an ensemble with what it is made of."""
    if isinstance(method, Ensemble):
        return f"an Ensemble of {type(method.members_[0]).__name__}"
    return f"a {type(method).__name__}"
