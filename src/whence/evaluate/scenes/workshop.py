"""Scenes: a training set as the evaluation perturbs it, the tests, and the model that was trained on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Ints, Mask
from whence.core.cache import Cache
from whence.core.fingerprint import Digest
from whence.errors import InvalidInputError, StoreError
from whence.evaluate.scenes import datasets, networks
from whence.evaluate.scenes.encoder import Encoder
from whence.evaluate.scenes.kinds import Kind
from whence.evaluate.scenes.training import Trained, Trainer
from whence.evaluate.scenes.views import View

if TYPE_CHECKING:
    from whence.evaluate.suite.protocol import Protocol


@dataclass(frozen=True)
class SceneSpec:
    """What a scene is made of: its kind, sizes, and steps of training."""

    kind: Kind
    train: int | None
    test: int | None
    steps: int

    @classmethod
    def of(cls, protocol: Protocol, metric: str) -> SceneSpec:
        """Find the scene that a metric of a protocol is measured in."""
        one = protocol.metrics[metric]
        return cls(
            one.kind(),
            one.train or protocol.data.train,
            one.test or protocol.data.test,
            one.steps or protocol.model.steps,
        )


@dataclass(frozen=True, eq=False)
class Scene:
    """A training set, tests and a trained model.

    Attributes
    ----------
    spec : what it is made of
    inputs, labels : the training set, (N, …) and (N,), as the model saw it
    tests, test_labels : (T, …) and (T,); labels in the model's classes
    class_names : of the model's classes
    views : the training set and the tests as they were before a network's inputs were made of them
    trained : the model and its checkpoints
    trainer : made it, and makes others like it
    explained : (T,) the class that attributions explain: the one the model predicts
    subclasses : true classes of the training set and of the tests, before any grouping
    marked : (N,) True for the training samples to be found: wrong labels, or shortcuts
    held_out : further tests and their true labels, which no attribution sees
    facts : what a reader must know about the scene, by name
    """

    spec: SceneSpec
    inputs: Tensor
    labels: Ints
    tests: Tensor
    test_labels: Ints
    class_names: tuple[str, ...]
    views: tuple[View, View]
    trained: Trained
    trainer: Trainer
    subclasses: tuple[Ints, Ints]
    marked: Mask
    held_out: tuple[Tensor, Ints]
    facts: dict[str, float] = field(default_factory=dict)

    @cached_property
    def explained(self) -> Ints:
        """Classes (T,) that the model predicts for the tests."""
        return networks.logits(self.trained.model, self.tests).argmax(1).numpy()

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        """The training set as attribution methods take it."""
        return self.inputs, torch.from_numpy(self.labels)


class Workshop:
    """Makes the scenes of a protocol; keeps trained models and what was read of texts.

    Parameters
    ----------
    protocol
        What to make.
    folder
        With the data sets.
    cache
        Keeps trained models, and what language models read.
    show_progress
        Show progress bars.
    """

    _rest: View  # tests that are held out

    def __init__(self, protocol: Protocol, folder: Path, cache: Cache, show_progress: bool) -> None:
        self.protocol, self.folder, self.cache, self.seed = protocol, folder, cache, protocol.seed
        texts = networks.find(protocol.model.name).texts
        self._encoder = None if texts is None else Encoder(texts, folder, cache, show_progress)

    def scene(self, spec: SceneSpec) -> Scene:
        """Make a scene; its models are read where they were trained before."""
        p = self.protocol
        n_test = None if spec.test is None else spec.test + p.data.held_out
        train, tests = datasets.load(p.data.name, self.folder, spec.train, n_test, p.seed)
        asked = datasets.draw(tests.labels, len(tests) - p.data.held_out, p.seed, "test")
        rest = np.setdiff1d(np.arange(len(tests)), asked)
        test, self._rest = (datasets.taken(tests, places, tests.class_names) for places in (asked, rest))
        scene = spec.kind.make(self, spec, train, test)
        known = networks.logits(scene.trained.model, scene.inputs).argmax(1).numpy()
        scene.facts.update(train_accuracy=float((known == scene.labels).mean()), n_train=len(scene.labels))
        if spec.kind.judged:
            right = float((scene.explained == scene.test_labels).mean())
            scene.facts.update(test_accuracy=right, n_test=len(scene.tests))
        return scene

    def inputs(self, samples: View) -> Tensor:
        """Read a view's inputs as the model takes them, (N, …)."""
        read = [samples[i][0] for i in range(len(samples))]
        return torch.stack(read) if self._encoder is None else self._encoder(read)

    def plain(self, spec: SceneSpec, train: View, test: View) -> Scene:
        """Train a model on a view, as it is."""
        recipe = self.protocol.model.model_copy(update={"steps": spec.steps})
        inputs = self.inputs(train)
        trainer = Trainer(recipe, inputs, train.n_classes, self._encoder)
        return Scene(
            spec,
            inputs,
            train.labels,
            self.inputs(test),
            test.labels,
            tuple(train.class_names or ()),
            (train, test),
            self.trained(trainer, inputs, train.labels),
            trainer,
            (train.true_labels, test.true_labels),
            train.flipped_mask | train.poisoned_mask,
            (self.inputs(self._rest), self._rest.labels),
        )

    def trained(self, trainer: Trainer, inputs: Tensor, labels: Ints) -> Trained:
        """Train a model with its checkpoints, or read it."""
        seed, n = self.seed, trainer.recipe.checkpoints
        parts = {
            "training": json.dumps(trainer.config, sort_keys=True),
            "data": Digest().of([inputs, labels]),
            "n_classes": str(trainer.n_classes),
            "seed": str(seed),
            "checkpoints": str(n),
        }
        slot = self.cache.slot("model", parts)
        with slot.locked():
            if slot.complete:
                try:
                    return Trained.read(slot.path, trainer.build(seed))
                except StoreError:
                    pass  # damaged: trained anew
            trained = trainer.train(inputs, torch.from_numpy(labels), seed, n)
            _check_outputs(networks.logits(trained.model, inputs[:2]), trainer)
            with slot.filling(f"{trainer.recipe.name} on {len(labels):,} samples, explained") as folder:
                trained.write(folder, trainer.build(seed))
            return trained


def _check_outputs(logits: Tensor, trainer: Trainer) -> None:
    if logits.ndim != 2 or logits.shape[1] != trainer.n_classes:
        raise InvalidInputError(
            f"'model.name' must make a network that gives {trainer.n_classes} logits per sample, one per "
            f"class. {trainer.recipe.name!r} gives {tuple(logits.shape[1:])}."
        )
