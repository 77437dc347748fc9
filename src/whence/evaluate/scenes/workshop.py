"""Scenes: a training set as the evaluation perturbs it, the tests, and the model that was trained on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from whence.core import contents, store
from whence.core.fingerprint import Digest
from whence.errors import InvalidInputError, StoreError
from whence.evaluate.metrics.arrays import Ints, Mask
from whence.evaluate.scenes import datasets, encoder, networks
from whence.evaluate.scenes.encoder import Encoder
from whence.evaluate.scenes.kinds import Kind
from whence.evaluate.scenes.networks import Trained
from whence.evaluate.scenes.trainer import Trainer
from whence.evaluate.scenes.views import View, view

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
    """Makes the scenes of a protocol; keeps trained models and texts' features in a folder.

    Parameters
    ----------
    protocol
        What to make.
    folder
        With the data sets.
    out
        Keeps models and features.
    show_progress
        Show progress bars.
    """

    _rest: datasets.Part  # tests that are held out

    def __init__(self, protocol: Protocol, folder: Path, out: Path, show_progress: bool) -> None:
        self.protocol, self.folder, self.out = protocol, folder, out
        self._encoder: Encoder | None = None
        if protocol.model.name in encoder.names():
            name = f"{protocol.model.name}.safetensors"
            self._encoder = Encoder(protocol.model.name, folder, out / "features" / name, show_progress)

    @property
    def seed(self) -> int:
        """Seed of everything that is drawn."""
        return self.protocol.seed

    def scene(self, spec: SceneSpec) -> Scene:
        """Make a scene; its models are read where they were trained before."""
        p = self.protocol
        n_test = None if spec.test is None else spec.test + p.data.held_out
        data = datasets.load(p.data.name, self.folder, spec.train, n_test, p.seed)
        asked = datasets.draw(data.test.labels, len(data.test) - p.data.held_out, p.seed, "test")
        parts = data.train, data.test.take(asked)
        train, test = (
            replace(view((part.inputs, part.labels), show_progress=False), class_names=data.class_names)
            for part in parts
        )
        self._rest = data.test.take(np.setdiff1d(np.arange(len(data.test)), asked))
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
        if self._encoder is not None:
            return self._encoder(read)
        return torch.stack(read)

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
            (self.inputs(view((self._rest.inputs, self._rest.labels))), self._rest.labels),
        )

    def trained(self, trainer: Trainer, inputs: Tensor, labels: Ints) -> Trained:
        """Train a model with its checkpoints, or read it."""
        seed, n = self.seed, trainer.recipe.checkpoints
        digest = Digest()
        digest.add([trainer.config, inputs, labels, trainer.n_classes, seed, n])
        path = self.out / "models" / f"{digest.hexdigest()}.safetensors"
        if path.exists():
            try:
                return _read(path, trainer.build(seed))
            except StoreError:
                pass  # damaged: trained anew
        trained = trainer.train(inputs, torch.from_numpy(labels), seed, n)
        _check_outputs(networks.logits(trained.model, inputs[:2]), trainer)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, trained)
        return trained


def _check_outputs(logits: Tensor, trainer: Trainer) -> None:
    if logits.ndim != 2 or logits.shape[1] != trainer.n_classes:
        raise InvalidInputError(
            f"'model.name' must make a network that gives {trainer.n_classes} logits a sample, one a class. "
            f"{trainer.recipe.name!r} gives {tuple(logits.shape[1:])}."
        )


def _write(path: Path, trained: Trained) -> None:
    states: list[Mapping[str, Tensor]] = [trained.model.state_dict(), *trained.checkpoints]
    arrays = {
        f"{place} {name}": tensor.cpu().numpy()
        for place, state in enumerate(states)
        for name, tensor in state.items()
    }
    store.write(path, arrays, {"learning_rates": trained.learning_rates})


def _read(path: Path, model: torch.nn.Module) -> Trained:
    arrays, manifest = store.read(path)
    rates = contents.manifest(list[float], manifest.get("learning_rates"))
    wanted, states = model.state_dict(), []
    contents.check_names(arrays, {f"{k} {name}" for k in range(len(rates) + 1) for name in wanted})
    for k in range(len(rates) + 1):
        states.append({name: torch.from_numpy(arrays[f"{k} {name}"]) for name in wanted})
        for name, tensor in wanted.items():
            found = states[k][name]
            if found.dtype != tensor.dtype or found.numel() != tensor.numel() or not found.isfinite().all():
                raise contents.refused(f"'{k} {name}' must be finite {tensor.dtype} of {list(tensor.shape)}")
            # Files give a shape to numbers that have none, such as BatchNorm's count of batches.
            states[k][name] = found.reshape(tensor.shape)
    model.load_state_dict(states[0])
    return Trained(model.eval(), states[1:], rates)
