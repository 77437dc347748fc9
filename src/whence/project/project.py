"""A saved explainer together with what it was fitted on: the model, the training set, and test samples."""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from whence.attribution.explaining import check_against, make_explainer
from whence.attribution.fitted import Fitted
from whence.attribution.pairs import Against
from whence.attribution.parameters import MOST_PAIRS
from whence.attribution.saving import attach
from whence.attribution.training_features import all_features
from whence.attribution.typicality import typicality_of
from whence.audit import Duplicates, duplicates
from whence.core.checks import check_count, check_flag, check_is, check_path, check_places
from whence.core.naming import make_named
from whence.core.progress import bar
from whence.data import NewSamples, TrainingSet, as_new, as_training_set
from whence.data.items import split
from whence.errors import InvalidInputError, StoreError, UnsupportedError
from whence.explanation import Explanations, Typicality
from whence.explanation.trace import Bands
from whence.features import FeatureBank, Novelty, as_float32, extract, taken
from whence.methods import Attributor, Effects, TopK, load
from whence.model.inputs import check_batch, to_model
from whence.project.configuration import READING, SUFFIX, Configuration
from whence.project.worklist import WORK, Worklist

if TYPE_CHECKING:
    from whence.attribution.base import Attributor
    from whence.methods import DualDA


class Project:
    """A saved explainer, ready to explain: with its model, its training set and, if named, test samples.

    Attributes
    ----------
    path : of the explainer's file
    configuration : what it was fitted on
    attributor : the fitted method
    labelled : whether the true labels of the tests are known
    from_training : whether the tests are training samples, for lack of others
    """

    def __init__(
        self,
        path: Path,
        configuration: Configuration,
        attributor: Attributor,
        tests: TrainingSet | None,
        *,
        labelled: bool = True,
        from_training: bool = False,
    ) -> None:
        self.from_training = from_training
        self.path, self.configuration, self.labelled = path, configuration, labelled
        self.attributor: Any = attributor
        self._tests = tests
        self._train_bank: FeatureBank | None = None
        self._reading, self._opening = threading.Lock(), threading.Lock()
        self._work: Worklist | None = None

    @classmethod
    def open(
        cls, path: Path, *, trust: bool = False, show_progress: bool = True, **names: str | None
    ) -> Self:
        """Open an explainer's file by the configuration next to it.

        Parameters
        ----------
        path : the file that ``whence fit`` wrote
        trust : whether code that only the configuration names may be imported and run. Without it everything
            must be given as ``names``, and the configuration's cache is not used
        show_progress : whether long steps show their progress
        names : ``NAMES`` instead of those of the configuration
        """
        path, show_progress = check_path("path", path), check_flag("show_progress", show_progress)
        if not os.path.isfile(path):
            raise StoreError(f"There is no explainer at '{path}'. 'whence fit' writes one.")
        file = path.with_name(path.name + SUFFIX)
        if file.exists() or not (names.get("model") and names.get("data")):
            configuration = Configuration.trusted(file, names, trust=trust)
        else:
            configuration = Configuration(model="", data="").with_names(**names)
        folder = path.resolve().parent
        model = configuration.network(folder)
        configuration.attributor()  # registers a method of the user's own, by whose name the file goes
        configuration.chosen_task()
        attributor: Any = load(path, model, cache_dir=configuration.reading.get("cache_dir"))
        attributor.show_progress = show_progress
        attributor.fitted_ = replace(attributor.fitted_, reading=configuration.reading)
        if attributor.capabilities.explains:  # others do not use it after the fit
            attributor.fitted_ = attach(attributor, configuration.training(model, folder, attributor.task_))
        tests = None
        if configuration.test is not None:
            raw = make_named("test", configuration.test, folder)
            tests = configuration.samples(raw, model, attributor.batch_size, attributor.task_)
        return cls(path, configuration, attributor, tests)

    @classmethod
    def of(cls, attributor: Attributor, tests: Any = None, most: int = 1_000) -> Self:
        """Put a fitted explainer together with tests, without any file.

        Parameters
        ----------
        attributor : with its model and its training set
        tests : samples with labels, in any form that ``fit`` takes, or inputs alone, as for ``explain``; None
            takes training samples
        most : training samples that are taken, evenly spread over the training set
        """
        check_is("attributor", attributor, Attributor, "a fitted attribution method")
        check_count("most", most)
        fitted, supported = attributor.fitted_, attributor.capabilities
        if not (supported.explains or supported.members):
            raise UnsupportedError(
                f"{fitted.method} has no explanations that the explorer could show. Use DualDA or Effects, "
                "or top_k here."
            )
        fitted.require_model()
        samples, labelled = _some_training(fitted, most) if tests is None else None, True
        if tests is not None:
            samples, labelled = _read_tests(attributor, tests)
        path = Path(type(attributor).__name__)
        nowhere = Configuration(model="", data="")
        return cls(path, nowhere, attributor, samples, labelled=labelled, from_training=tests is None)

    def with_tests(self, most: int = 1_000) -> Project:
        """Return the project with training samples as tests where its configuration names none."""
        check_count("most", most)
        if self.has_tests:
            return self
        tests = _some_training(self.attributor.fitted_, most)
        return Project(self.path, self.configuration, self.attributor, tests, from_training=True)

    def _unsupported(self, needed: str) -> UnsupportedError:
        method = self.attributor
        name = f"a {type(method).__name__}"
        if method.capabilities.members:
            name = f"an Ensemble of {type(method.members_[0]).__name__}"
        return UnsupportedError(
            f"'{self.path}' must hold {needed}. It holds {name}: 'whence attribute' names its training "
            "samples."
        )

    @property
    def explainer(self) -> DualDA:
        """The fitted method if it has a dual solution, as audits and what-if need, or raise."""
        if not self.attributor.capabilities.dual:
            raise self._unsupported("a DualDA, or a method that derives from it, for this")
        return cast("DualDA", self.attributor)

    @property
    def members(self) -> list[Attributor]:
        """The fitted method, or the members of an ensemble, if their pairs can be explained, or raise."""
        several = self.attributor.capabilities.members
        members = list(self.attributor.members_) if several else [self.attributor]
        if not all(member.capabilities.explains for member in members):
            raise self._unsupported(
                "a DualDA or Effects, a method that derives from them, or an ensemble of these, to be "
                "explained"
            )
        return members

    @property
    def pairs(self) -> Attributor:
        """The fitted method if its pairs can be explained and its features compared, or raise."""
        if self.attributor.capabilities.members:
            raise UnsupportedError(
                f"'{self.path}' must hold a DualDA or Effects, or a method that derives from them, for this: "
                "the members of an ensemble have features of their own. Save one of them by itself."
            )
        return self.members[0]

    def with_effects(self, max_seconds: float | None = None) -> Project:
        """Return the project with effects instead of its method, fitted on its model and training set.

        The features that they need are in the cache of the fit, if it had one.

        Parameters
        ----------
        max_seconds : limit of the solver
        """
        method = self.attributor
        if method.capabilities.effects:
            return self
        effects = Effects(
            batch_size=method.batch_size,
            seed=getattr(method, "seed", 0),
            max_seconds=max_seconds,
            show_progress=method.show_progress,
        )
        extractor, reading = method.fitted_.require_model().extractor, self._reading_of_fit
        data = method.data_  # only methods that explain hold it
        if data is None:
            data = self.configuration.training(extractor.model, self.path.resolve().parent, method.task_)
        effects.fit(extractor.model, data, layer=extractor.layer, class_names=method.class_names_, **reading)
        return Project(self.path, self.configuration, effects, self._tests, labelled=self.labelled)

    @property
    def work(self) -> Worklist:
        """The change list and the slices: saved next to the explainer's file, or in memory without one."""
        with self._opening:
            if self._work is None:
                n_tests = 0 if self._tests is None else len(self._tests)
                saved = self.path.with_name(self.path.name + WORK) if self.path.is_file() else None
                self._work = Worklist(self.attributor, saved, n_tests)
            return self._work

    @property
    def train_bank(self) -> FeatureBank:
        """Features of the whole training set, which the explainer keeps or has in its cache; read once."""
        with self._reading:
            if self._train_bank is None:
                fitted = self.pairs.fitted_
                self._train_bank = FeatureBank(
                    all_features(fitted, argument="data"), fitted.labels, fitted.head, fitted.task,
                    fitted.model, fitted.require_data(), {}, "", "known",
                )  # fmt: skip
            return self._train_bank

    @property
    def _reading_of_fit(self) -> dict[str, Any]:
        """How the fit read its samples, such as its cache."""
        reading = self.attributor.fitted_.reading
        return {name: reading[name] for name in READING if name in reading}

    @functools.cached_property
    def novelty(self) -> Novelty:
        """What compares tests with the training set."""
        k = min(5, int(self.pairs.used_.sum()) - 1)
        novelty: Novelty = self.pairs.novelty(self.train_bank, k=k)
        return novelty

    @functools.cached_property
    def duplicates(self) -> Duplicates:
        """Near-duplicates within the training set and, if there are any, between it and the tests."""
        if not self.has_tests or self.from_training:
            return duplicates(self.pairs, features=self.train_bank)
        tests = self.test_bank
        places = np.flatnonzero(tests.valid)
        found = duplicates(
            self.pairs,
            test_features=taken(as_float32(tests.features), tests.valid),
            test_labels=tests.labels[places] if self.labelled else None,
            features=self.train_bank,
        )
        indices = found.indices.copy()
        indices[found.tests] = places[indices[found.tests]]
        return replace(found, indices=indices)

    @functools.cached_property
    def test_bank(self) -> FeatureBank:
        """Features and labels of the test samples."""
        return self.bank_of(self.tests)

    @property
    def tests(self) -> TrainingSet:
        """The test samples, or raise where the configuration names none."""
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

    def test_features(self, indices: list[int]) -> Tensor:
        """Return features (n, d) of some tests."""
        return torch.from_numpy(as_float32(self.test_bank.features)[self.read_tests(indices)])

    def model_inputs(self, indices: list[int]) -> Any:
        """Return some tests as the model takes them, on its device."""
        model = self.attributor.fitted_.require_model().extractor.model
        return to_model(model, self.tests.take(self.read_tests(indices)))

    def top_k(self, indices: list[int], k: int, target: int | None) -> tuple[TopK, list[str]]:
        """Return the strongest training samples of some tests, and the model's predictions in words."""
        method, task = self.attributor, self.attributor.task_
        if method.capabilities.dual:
            features = self.test_features(indices)
            logits = method.surrogate_.model_logits(features)
            top = method.top_k(features=features, k=k, target=target)
        else:
            x = self.tests.take(self.read_tests(indices))
            logits = method.fitted_.require_model().read(x, method.batch_size).logits
            top = method.top_k(x, k, target)
        return top, list(map(task.label_text, task.predict(logits).cpu().numpy()))

    def spread(self, indices: list[int], target: int | None) -> Tensor | None:
        """Return the spread (test, train) of the scores of some tests over the members of an ensemble."""
        if not self.attributor.capabilities.members:
            return None
        spread: Tensor = self.attributor.spread(self.tests.take(self.read_tests(indices)), target)
        return spread

    def typicality(self, indices: list[int]) -> list[Typicality] | None:
        """Return whether some tests resemble the training set; None if the method compares no features."""
        method = self.attributor
        if method.capabilities.members or not method.capabilities.explains:
            return None
        return typicality_of(
            method.fitted_, self.novelty, self.test_features(indices), self.model_inputs(indices)
        )

    def explain(
        self,
        indices: list[int],
        k: int = 5,
        target: int | None = None,
        method: str | None = None,
        against: Against = None,
    ) -> Explanations:
        """Explain some test samples."""
        tests, chosen = self.tests, self.read_tests(indices)
        novelty = None if self.attributor.capabilities.members else self.novelty
        fitted = self.attributor.fitted_
        explaining: Any = make_explainer(fitted, check_count("k", k, most=MOST_PAIRS), method, novelty)
        if target is not None:
            target = int(fitted.task.check_target(target, 1)[0])
        rivals = check_against(fitted, against, len(chosen))
        truths = self.test_bank.labels[chosen].tolist() if self.labelled else [None] * len(chosen)
        n, show = len(chosen), self.attributor.show_progress
        rows = bar("Explaining", n, "tests", parts=chosen, show=show, leave=n >= 4)
        return Explanations(
            [
                explaining(i, tests.take([i]), target, y, None, rival)
                for i, y, rival in zip(rows, truths, rivals, strict=True)
            ]
        )

    @functools.cached_property
    def bands(self) -> Bands:
        """How often the surrogate names the token that a language model generates; on the tests, if any."""
        return self.explainer.faithfulness_by_frequency(None if self._tests is None else self._tests.source)

    def bank_of(self, samples: TrainingSet, member: Attributor | None = None) -> FeatureBank:
        """Return features of samples, read as in the fit; for an ensemble by its first member, or another."""
        extractor = (member or self.attributor).fitted_.require_model().extractor
        return extract(
            extractor.model,
            samples,
            layer=extractor.layer,
            layers=extractor.layers,
            batch_size=self.attributor.batch_size,
            show_progress=self.attributor.show_progress,
            **self._reading_of_fit,
        )


def _some_training(fitted: Fitted, most: int) -> TrainingSet | None:
    """Return training samples, evenly spread; None of documents, which are asked about by prompts."""
    if fitted.task.of_documents:
        return None
    used = np.flatnonzero(fitted.used)
    places = np.linspace(0, len(used) - 1, min(most, len(used))).round().astype(np.int64)
    return fitted.require_data().subset(used[places])


def _read_tests(attributor: Attributor, tests: Any) -> tuple[TrainingSet, bool]:
    """Read tests as the training set was read; say whether they have labels."""
    if isinstance(tests, TrainingSet):
        return tests, True
    fitted, new = attributor.fitted_, as_new(tests)
    ready = fitted.require_model().prepare
    collate_fn, places = ready.collate_fn, None
    folder = isinstance(tests, str | PathLike) and Path(tests).is_dir()
    labelled = folder or (isinstance(tests, tuple) and len(tests) == 2)
    if isinstance(new, NewSamples):
        tests, places, collate_fn = new.source, np.array(new.places), new.collate_fn or collate_fn
        labelled = _has_label(tests[new.places[0]])
        if not labelled:
            tests, places = [tests[place] for place in new.places], None
    elif isinstance(tests, list) and tests:
        labelled = _has_label(tests[0])
    if not labelled:  # a label stands where one must be, and is not shown
        label = fitted.labels[fitted.used][:1]
        tests = tests, np.repeat(label, check_batch(tests, "tests"), axis=0)
    samples = as_training_set(
        tests, attributor.batch_size, task=fitted.task, names=fitted.class_names,
        preprocess=ready.preprocess, collate_fn=collate_fn, tokenizer=ready.tokenizer,
    )  # fmt: skip
    return samples if places is None else samples.subset(places), labelled


def _has_label(sample: Any) -> bool:
    """Whether a sample comes with its label."""
    try:
        split(sample)
    except InvalidInputError:
        return False
    return True
