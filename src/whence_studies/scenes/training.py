"""Training of networks: by a recipe with a fixed number of steps, or by the user's function."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR
from torch.optim.swa_utils import update_bn

from whence.core import contents, store
from whence.core.fingerprint import key_of, source, structure
from whence.core.naming import call_with, import_named
from whence.core.progress import bar
from whence.errors import InvalidInputError
from whence_studies.scenes import networks
from whence_studies.scenes.encoder import Encoder
from whence_studies.scenes.retrain import code_fingerprint
from whence_studies.scenes.texts import LastBlock, TextClassifier
from whence_studies.scenes.views import View, view
from whence_studies.scenes.weights import TrainingFile, load_weights, save_weights
from whence_studies.tables import Count, Table, ours

_MODULES = ("loops", "networks", "texts", "training", "views")
"""Modules whose code a trained network depends on."""
_READ, _MOST = 256, 10_000  # samples per batch for BatchNorm's statistics, and in all


class Recipe(Table):
    """A training recipe: by steps, not epochs, so that smaller sets are trained as long.

    Attributes
    ----------
    name : name of the network, or ``module:name`` of a user's function that makes an untrained one
    steps, batch_size : gradient steps, and samples per step
    optimizer : "adamw", "sgd" with Nesterov momentum, or "constant_sgd", the same at a constant rate
    learning_rate : the maximum of one cycle up and down to zero, or the constant rate
    weight_decay : weight decay of the optimizer
    smoothing : label smoothing
    augment : mirror half of the images, and shift each batch by up to a sixteenth; "each" shifts every image
        separately, by up to an eighth
    device : device of the training
    checkpoints : number of checkpoints, for methods that need them
    train : ``module:name`` of the user's ``train_fn(dataset, seed)`` that returns a trained model; None
        trains by the options above
    """

    name: Annotated[str, ours("model.name", networks.NETWORKS)]
    steps: Count
    batch_size: Count = 64
    optimizer: Literal["adamw", "sgd", "constant_sgd"] = "adamw"
    learning_rate: float = 0.01
    weight_decay: float = 1e-2
    smoothing: float = Field(default=0.0, ge=0, lt=1)
    augment: bool | Literal["each"] = False
    device: str = "cpu"
    checkpoints: int = 5
    train: Annotated[str, ours("model.train")] | None = None


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained model, its checkpoints, and the learning rate at each."""

    model: nn.Module
    checkpoints: list[dict[str, Tensor]] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write all weights to files."""
        states = [self.model.state_dict(), *self.checkpoints]
        for place, (state, rate) in enumerate(zip(states, [0.0, *self.learning_rates], strict=True)):
            save_weights(folder / f"{place}.safetensors", state, {"learning_rate": rate})

    @classmethod
    def read(cls, folder: Path, model: nn.Module) -> TrainedNetwork:
        """Read what ``write`` wrote, or raise StoreError; ``model`` has the same architecture."""
        paths = [folder / f"{place}.safetensors" for place in range(len(list(folder.glob("*.safetensors"))))]
        first, *others = (load_weights(path, model) for path in paths or [folder / "0.safetensors"])
        rates = [contents.manifest(float, store.read(path)[1].get("learning_rate")) for path in paths[1:]]
        return cls(first, [dict(one.state_dict()) for one in others], rates)


@dataclass(frozen=True, eq=False)
class Trainer:
    """Makes networks and trains them.

    Attributes
    ----------
    recipe : the training recipe
    inputs : (N, …) inputs of the training set
    n_classes : number of outputs
    encoder : encoder of texts; None if inputs are not made of texts
    """

    recipe: Recipe
    inputs: Tensor
    n_classes: int
    encoder: Encoder | None = None

    def build(self, seed: int, inputs: Tensor | None = None) -> nn.Module:
        """Make an untrained network for inputs (N, …); torch's random state stays unchanged."""
        given = self.inputs if inputs is None else inputs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = networks.find(self.recipe.name).build(given, self.n_classes, self.encoder)
        return network.to(self.recipe.device)

    def train(
        self,
        inputs: Tensor,
        labels: Tensor,
        seed: int,
        n_checkpoints: int = 0,
        file: TrainingFile | None = None,
    ) -> TrainedNetwork:
        """Train on inputs (N, …) and labels (N,); the seed sets initial weights and the order of samples.

        ``file`` stores the state of the training, to resume it after a stop.
        """
        if self.recipe.train is None:
            model = self.build(seed, inputs)
            return train(self.recipe, model, inputs, labels, seed, n_checkpoints, file)
        name, samples = self.recipe.train, view((inputs, labels), show_progress=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = call_with(import_named("model.train", name), samples, seed, steps=self.recipe.steps)
        if not isinstance(model, nn.Module):
            raise InvalidInputError(
                f"'model.train' must return a trained torch module. Got {type(model).__name__} from {name!r}."
            )
        try:
            self.build(0).load_state_dict(model.state_dict())
        except RuntimeError as error:
            raise InvalidInputError(
                "'model.train' must return a network with the weights of 'model.name'. Got others from "
                f"{name!r}: {error}"
            ) from error
        return TrainedNetwork(model.eval())

    def on_view(self, samples: View, seed: int) -> nn.Module:
        """Train on a view, as ``retrain`` requires."""
        inputs = torch.stack([samples[i][0] for i in range(len(samples))])
        return self.train(inputs, torch.from_numpy(samples.labels), seed).model

    def whole(self, model: nn.Module) -> nn.Module | None:
        """Return the model from images or tokens to logits, or None."""
        if self.encoder is None:
            return model
        return TextClassifier(self.encoder.backbone, model) if isinstance(model, LastBlock) else None

    @cached_property
    def config(self) -> dict[str, Any]:
        """What a training depends on besides its data and its seed, for the cache key."""
        model, function = self.build(0), self.recipe.train
        return {
            "recipe": self.recipe.model_dump(exclude={"checkpoints"}),
            "network": key_of([structure(model), dict(model.state_dict())]),
            "train": None if function is None else code_fingerprint(import_named("model.train", function)),
            "code": source(*(f"whence_studies.scenes.{module}" for module in _MODULES)),
        }


def train(
    recipe: Recipe,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    seed: int,
    n_checkpoints: int = 0,
    file: TrainingFile | None = None,
) -> TrainedNetwork:
    """Train a network from its current weights.

    Parameters
    ----------
    recipe
        The training recipe.
    model
        The network to train, in place.
    inputs, labels
        The training set, (N, …) and (N,) int64.
    seed
        Seed of the order of the samples. Equal seeds lead to equal weights on one machine and thread count.
    n_checkpoints
        Number of checkpoints at equal distances, the last step included.
    file
        Stores the state of the training now and then, to resume it; None stores nothing.
    """
    images = inputs.ndim == 4
    if images:  # channels-last halves the time of small convolutions on a CPU
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer, schedule = _optimizer(recipe, model)
    generator = torch.Generator().manual_seed(seed)
    due = {round(recipe.steps * (k + 1) / n_checkpoints) for k in range(n_checkpoints)}
    step, kept = (0, []) if file is None else file.resume(model, optimizer, generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer's steps were made before
        for _ in range(step):
            schedule.step()
    show = file is not None and file.show_progress
    shown = bar("Training", recipe.steps, "steps", initial=step, show=show, delay=2)
    model.train()
    while step < recipe.steps:
        if file is not None:
            file.write(step, model, optimizer, generator, kept)
        for rows in _batches(len(inputs), recipe.batch_size, generator)[: recipe.steps - step]:
            batch = augment(recipe, inputs[rows], generator) if images else inputs[rows]
            output = model(batch.to(recipe.device))
            loss = cross_entropy(
                getattr(output, "logits", output),
                labels[rows].to(recipe.device),
                label_smoothing=recipe.smoothing,
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            rate = float(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
            step += 1
            shown.update(1)
            if step in due:
                kept.append((copy.deepcopy(model.state_dict()), rate))
    shown.close()
    if file is not None:
        file.done()
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    model.requires_grad_(True).eval()
    states = [{name: t.contiguous() for name, t in state.items()} for state, _ in kept]
    return TrainedNetwork(model, states, [rate for _, rate in kept])


def _optimizer(recipe: Recipe, model: nn.Module) -> tuple[Optimizer, LRScheduler]:
    """Make the optimizer, and the schedule of its learning rate."""
    rate, decay = recipe.learning_rate, recipe.weight_decay
    optimizer: Optimizer
    if recipe.optimizer in ("sgd", "constant_sgd"):
        optimizer = SGD(model.parameters(), rate, momentum=0.9, weight_decay=decay, nesterov=True)
    else:
        optimizer = AdamW(model.parameters(), rate, weight_decay=decay)
    if recipe.optimizer == "constant_sgd":
        return optimizer, LambdaLR(optimizer, lambda step: 1.0)
    cycled = recipe.optimizer == "adamw"
    steps = recipe.steps + 1
    up = min(1.0, max(0.2, 2 / steps))  # at least one step: torch divides by it
    return optimizer, OneCycleLR(optimizer, rate, total_steps=steps, pct_start=up, cycle_momentum=cycled)


def _batches(n: int, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """Draw batches of indices from a permutation; a last part below half a batch is left out."""
    parts = torch.split(torch.randperm(n, generator=generator), batch_size)
    return [rows for rows in parts if 2 * len(rows) >= min(batch_size, n)]


def augment(recipe: Recipe, images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of a batch and shift it, according to the recipe."""
    if not recipe.augment:
        return images
    flip = torch.rand(len(images), generator=generator) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(3), images)
    side = images.shape[-1]
    if recipe.augment == "each":
        return _shifted(images, side // 8, generator)
    by = side // 16
    down, right = torch.randint(0, 2 * by + 1, (2,), generator=generator).tolist()
    return pad(images, (by, by, by, by))[:, :, down : down + side, right : right + side]


def _shifted(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Shift every image separately by up to ``most`` pixels in each direction, with zero padding."""
    n, channels, height, width = images.shape
    down, right = torch.randint(0, 2 * most + 1, (2, n), generator=generator)
    rows = down[:, None] + torch.arange(height)
    columns = right[:, None] + torch.arange(width)
    padded = pad(images, (most, most, most, most))
    return padded[
        torch.arange(n)[:, None, None, None],
        torch.arange(channels)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def with_statistics(model: nn.Module, state: Mapping[str, Tensor], inputs: Tensor) -> dict[str, Tensor]:
    """Return the weights of a checkpoint with BatchNorm statistics recomputed on inputs.

    BatchNorm stores running means over the last steps. While weights change fast, these lag behind, and the
    evaluated network differs from the trained one.

    Parameters
    ----------
    model
        A model of the same architecture, which stays unchanged.
    state
        Weights and statistics at a checkpoint; returned unchanged without BatchNorm.
    inputs
        The training set, (N, …); samples are drawn from a large one.
    """
    network = copy.deepcopy(model)
    network.load_state_dict(state)
    with torch.random.fork_rng(devices=[]):  # dropout is active, as in training
        torch.manual_seed(0)
        # Drawn at random: a batch of a set that is sorted by class would have one class's statistics.
        rows = torch.randperm(len(inputs))[:_MOST]
        parts = torch.tensor_split(rows, math.ceil(len(rows) / _READ))
        update_bn((inputs[part] for part in parts), network, next(network.parameters()).device)
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}
