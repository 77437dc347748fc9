"""Scenes: a perturbed training set, the tests, and the model that was trained on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.arrays import Ints, Mask
from whence.core.cache import Cache
from whence.core.fingerprint import key_of
from whence.core.naming import call_with
from whence.errors import InvalidInputError, StoreError
from whence.features import FeatureBank, extract
from whence.gradients.bank import Kind
from whence.methods import Attributor
from whence_studies.resources import Spent, spending
from whence_studies.scenes import datasets, networks
from whence_studies.scenes.encoder import Encoder
from whence_studies.scenes.retrain import retrain
from whence_studies.scenes.training import TrainedNetwork, Trainer, with_statistics
from whence_studies.scenes.views import View, subset, view
from whence_studies.scenes.weights import TrainingFile

if TYPE_CHECKING:
    from whence_studies.suite.protocol import Protocol

PAPER: dict[str, dict[str, Any]] = {"dualda": {"metric": "raw"}}
"""Options of the paper's methods that differ from our defaults; protocols use them unless a row differs."""
_APART = 1_000  # distance between the seeds of explained models


class SharedReading(NamedTuple):
    """Features or gradients of a training set that several methods read, and their cost."""

    made: Any
    spent: Spent


@dataclass(frozen=True, eq=False)
class Scene:
    """A training set, tests and a trained model, on which attribution methods are evaluated.

    Attributes
    ----------
    workshop : the workshop that made it
    train, test : raw samples, with labels in the model's classes
    inputs, tests : (N, …) and (T, …) inputs of the model for both
    held_out : further tests and their true labels, which no attribution sees
    trainer, trained : how networks are trained, and the explained model with its checkpoints
    explained : (T,) the classes that attributions explain: the predicted ones
    facts : numbers about the scene, by name
    made : results that metrics share between methods, by metric
    model : the index of the explained model
    models : the same scene with every explained model so far, by index
    """

    workshop: Workshop
    train: View
    test: View
    inputs: Tensor
    tests: Tensor
    held_out: tuple[Tensor, Ints]
    trainer: Trainer
    trained: TrainedNetwork
    facts: dict[str, float] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    model: int = 0
    models: dict[int, Scene] = field(default_factory=dict)

    @cached_property
    def explained(self) -> Ints:
        """Classes (T,) that the model predicts for the tests."""
        return networks.logits(self.trained.model, self.tests).argmax(1).numpy()

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        """The training set as attribution methods take it."""
        return self.inputs, torch.from_numpy(self.train.labels)

    @property
    def marked(self) -> Mask:
        """Mask (N,) of the training samples to be found: wrong labels, or shortcuts."""
        return self.train.flipped_mask | self.train.poisoned_mask

    @property
    def bank(self) -> FeatureBank:
        """Features of the training set, the inputs of the model's last layer."""
        bank: FeatureBank = self._features.made
        return bank

    @cached_property
    def bank_of_tests(self) -> FeatureBank:
        """Features of the tests."""
        tests = self.tests, torch.from_numpy(self.test.labels)
        return extract(self.trained.model, tests, show_progress=False)

    @cached_property
    def _features(self) -> SharedReading:
        read = partial(extract, self.trained.model, self.data, show_progress=False)
        return SharedReading(*spending(read, lambda bank: bank.features.nbytes))

    @cached_property
    def _gradients(self) -> dict[Kind, SharedReading]:
        """Gradients of the training set that methods requested so far."""
        return {}

    @cached_property
    def checkpoints(self) -> list[dict[str, Tensor]]:
        """Weights during training, each with its own statistics of BatchNorm."""
        return [with_statistics(self.trained.model, state, self.inputs) for state in self.trained.checkpoints]

    @cached_property
    def train_predictions(self) -> Ints:
        """Classes (N,) that the model predicts for the training set."""
        return networks.logits(self.trained.model, self.inputs).argmax(1).numpy()

    def attributor(self, kind: type[Attributor], options: Mapping[str, Any]) -> Attributor:
        """Make an attributor, with the protocol's seed and threads if it takes them.

        DualDA is the paper's unless options name another metric.
        """
        protocol = self.workshop.protocol
        seed = protocol.seed + _APART * self.model
        common = {"seed": seed, "show_progress": False, "n_threads": protocol.threads}
        common |= PAPER.get(kind.name, {})
        made: Attributor = call_with(kind, **{**common, **options})
        return made

    def shared(self, attributor: Attributor) -> dict[str, SharedReading]:
        """Return the features or gradients that an attributor shares with others, as arguments of ``fit``.

        They are read once and count in the cost of every method.
        """
        if getattr(attributor, "layers", "last") != "last":
            return {}
        readings = {"features": self._features}
        kind: Kind | None = getattr(attributor, "kind", None)
        if kind is not None:
            if kind not in self._gradients:
                read = partial(cast(Any, attributor).collect, self.bank)
                self._gradients[kind] = SharedReading(*spending(read, lambda bank: bank.nbytes))
            readings["gradients"] = self._gradients[kind]
        return readings

    def fit(self, attributor: Attributor) -> Attributor:
        """Fit an attributor, with shared features and gradients."""
        more: dict[str, Any] = {name: shared.made for name, shared in self.shared(attributor).items()}
        if not more:
            more = {"model": self.trained.model, "data": self.data}
        if attributor.capabilities.needs_checkpoints:
            more |= {"checkpoints": self.checkpoints, "learning_rates": self.trained.learning_rates}
        return attributor.fit(**more)

    def explaining(self, model: int) -> Scene:
        """Return the scene with another explained model, which differs only by its training seed.

        Training set, tests and shared results of metrics are the same.
        """
        self.models[self.model] = self
        if model not in self.models:
            trained = self.workshop.trained(self.trainer, self.inputs, self.train.labels, model)
            self.models[model] = replace(self, trained=trained, model=model, facts={})
        return self.models[model]

    def retrained(self, parts: list[tuple[Ints, int]]) -> Iterator[nn.Module]:
        """Return models trained on parts of the training set, each with its seed, counted from 0."""
        everything = view(self.data, show_progress=False)
        # The explained model has another seed.
        jobs = [(subset(everything, rows), 1 + seed) for rows, seed in parts]
        runs = retrain(
            self.trainer.on_view,
            jobs,
            self.trainer.build(0),
            self.workshop.cache.folder,
            config=self.trainer.config,
            show_progress=self.workshop.show_progress,
        )
        return (run.model() for run in runs)


class Workshop:
    """Makes the scenes of a protocol; caches trained models and encoded texts.

    Parameters
    ----------
    protocol
        The protocol.
    folder
        Folder with the data sets.
    cache
        Cache for trained models and encoded texts.
    show_progress
        Show progress bars.
    """

    def __init__(self, protocol: Protocol, folder: Path, cache: Cache, show_progress: bool) -> None:
        self.protocol, self.folder, self.seed = protocol, folder, protocol.seed
        self.cache, self.show_progress = cache, show_progress
        texts = networks.find(protocol.model.name).texts
        self.encoder = None if texts is None else Encoder(texts, folder, cache, show_progress)

    def scene(self, metric: str) -> Scene:
        """Make the scene of a metric; models are loaded if they were trained before."""
        data, spec = self.protocol.data, self.protocol.scene(metric)
        n_test = None if spec.test is None else spec.test + data.held_out
        train, tests = datasets.load(data.name, self.folder, spec.train, n_test, self.seed)
        asked = datasets.draw(tests.labels, len(tests) - data.held_out, self.seed, "test")
        rest = np.setdiff1d(np.arange(len(tests)), asked)
        test, held_out = (datasets.taken(tests, places, tests.class_names) for places in (asked, rest))
        materials = Materials(self, train, test, held_out, spec.steps)
        scene = self.protocol.metrics[metric].stage(materials)
        plain = not scene.facts  # a metric that changes the tests adds its own facts
        labels = scene.train.labels
        scene.facts.update(
            train_accuracy=float((scene.train_predictions == labels).mean()), n_train=len(labels)
        )
        if plain:
            right = float((scene.explained == scene.test.labels).mean())
            scene.facts.update(test_accuracy=right, n_test=len(scene.tests))
        return scene

    def inputs(self, samples: View) -> Tensor:
        """Return the model's inputs (N, …) for a view."""
        read = [samples[i][0] for i in range(len(samples))]
        return torch.stack(read) if self.encoder is None else self.encoder(read)

    def trained(self, trainer: Trainer, inputs: Tensor, labels: Ints, model: int = 0) -> TrainedNetwork:
        """Train a model with its checkpoints, or load it; ``model`` is its index for the training set."""
        # Far from the seeds of retrained models, which are counted from 1.
        seed, n = self.seed + _APART * model, trainer.recipe.checkpoints
        parts = {
            "training": json.dumps(trainer.config, sort_keys=True),
            "data": key_of([inputs, labels]),
            "n_classes": str(trainer.n_classes),
            "seed": str(seed),
            "checkpoints": str(n),
        }
        slot = self.cache.slot("model", parts)
        with slot.locked():
            if slot.complete:
                try:
                    return TrainedNetwork.read(slot.path, trainer.build(seed))
                except StoreError:
                    pass  # damaged: retrained
            title = f"{trainer.recipe.name} on {len(labels):,} samples"
            file = TrainingFile(self.cache.slot("training", parts), title, self.show_progress)
            trained = trainer.train(inputs, torch.from_numpy(labels), seed, n, file)
            _check_outputs(networks.logits(trained.model, inputs[:2]), trainer)
            with slot.filling(f"{title}, explained") as folder:
                trained.write(folder)
            return trained


@dataclass(frozen=True, eq=False)
class Materials:
    """The data from which a metric makes its scene.

    Attributes
    ----------
    workshop : the workshop
    train, test : the unchanged data
    held_out : further tests, which no attribution sees
    steps : number of training steps
    """

    workshop: Workshop
    train: View
    test: View
    held_out: View
    steps: int

    def scene(self, train: View, test: View) -> Scene:
        """Train a model on a training set, usually a perturbed one, and return the scene."""
        shop = self.workshop
        inputs, tests, others = map(shop.inputs, (train, test, self.held_out))
        recipe = shop.protocol.model.model_copy(update={"steps": self.steps})
        trainer = Trainer(recipe, inputs, train.n_classes, shop.encoder)
        trained = shop.trained(trainer, inputs, train.labels)
        return Scene(shop, train, test, inputs, tests, (others, self.held_out.labels), trainer, trained)


def _check_outputs(logits: Tensor, trainer: Trainer) -> None:
    if logits.ndim != 2 or logits.shape[1] != trainer.n_classes:
        raise InvalidInputError(
            f"'model.name' must make a network with {trainer.n_classes} logits per sample, one per class. "
            f"Got {tuple(logits.shape[1:])} from {trainer.recipe.name!r}."
        )
