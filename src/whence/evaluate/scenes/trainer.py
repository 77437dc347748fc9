"""Makes and trains the network of a protocol, one of ours or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from whence.core.fingerprint import Digest, source, structure
from whence.core.naming import called, named
from whence.errors import InvalidInputError
from whence.evaluate.scenes import networks
from whence.evaluate.scenes.blocks import LastBlock, TextClassifier
from whence.evaluate.scenes.encoder import Encoder
from whence.evaluate.scenes.recipe import Recipe, Trained, train
from whence.evaluate.scenes.retrain import code_fingerprint
from whence.evaluate.scenes.views import View, view

_MODULES = ("blocks", "loops", "networks", "recipe", "texts", "trainer", "views")
"""Whose code a trained network depends on."""


@dataclass(frozen=True, eq=False)
class Trainer:
    """Makes networks and trains them.

    Attributes
    ----------
    recipe : how; its name is one of ours, or ``module:name`` of a function that makes an untrained network
    inputs : (N, …) of the training set that networks are made for
    n_classes : outputs of the network
    encoder : of texts, where the network's inputs are made of these
    """

    recipe: Recipe
    inputs: Tensor
    n_classes: int
    encoder: Encoder | None = None

    def build(self, seed: int, inputs: Tensor | None = None) -> nn.Module:
        """Make an untrained network for inputs (N, …); torch's own random state is left as it was."""
        given = self.inputs if inputs is None else inputs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = networks.find(self.recipe.name).build(given, self.n_classes, self.encoder)
        return network.to(self.recipe.device)

    def train(self, inputs: Tensor, labels: Tensor, seed: int, n_checkpoints: int = 0) -> Trained:
        """Train on inputs (N, …) and labels (N,) from a seed, which sets first weights and the order."""
        if self.recipe.train is None:
            return train(self.recipe, self.build(seed, inputs), inputs, labels, seed, n_checkpoints)
        return Trained(self._train_own(view((inputs, labels), show_progress=False), seed))

    def on_view(self, samples: View, seed: int) -> nn.Module:
        """Train on a view, as ``retrain`` asks."""
        inputs = torch.stack([samples[i][0] for i in range(len(samples))])
        return self.train(inputs, torch.from_numpy(samples.labels), seed).model

    def whole(self, model: nn.Module) -> nn.Module | None:
        """Give the model from what a user sees, images or tokens, to logits; None where there is no such."""
        if self.encoder is None:
            return model
        return TextClassifier(self.encoder.backbone, model) if isinstance(model, LastBlock) else None

    @cached_property
    def config(self) -> dict[str, Any]:
        """What a training depends on beside its data and its seed, for the names of saved models."""
        start = Digest()
        model = self.build(0)
        start.add([structure(model), dict(model.state_dict())])
        own = self.recipe.train
        return {
            "recipe": self.recipe.model_dump(exclude={"checkpoints"}),
            "network": start.hexdigest(),
            "train": None if own is None else code_fingerprint(named("model.train", own)),
            "code": source(*(f"whence.evaluate.scenes.{module}" for module in _MODULES)),
        }

    def _train_own(self, samples: View, seed: int) -> nn.Module:
        name = self.recipe.train
        assert name is not None
        train_fn = named("model.train", name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = called(train_fn, samples, seed, steps=self.recipe.steps)
        if not isinstance(model, nn.Module):
            raise InvalidInputError(
                f"'model.train' must give a trained torch module. Got {type(model).__name__} from {name!r}."
            )
        ours, theirs = (_shapes(network) for network in (self.build(0), model))
        if ours != theirs:
            raise InvalidInputError(
                "'model.train' must give a network with the weights that 'model.name' has. Got others from "
                f"{name!r}: {_difference(ours, theirs)}."
            )
        return model.eval()


def _shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weights.shape) for name, weights in network.state_dict().items()}


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Say the first weight in which two networks differ."""
    name = next(key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key))
    return f"{name!r} is {theirs.get(name, 'missing')} and not {ours.get(name, 'there')}"
