"""Networks of the evaluation, and their registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from whence.core.checks import check_callable
from whence.core.naming import call_with, import_named
from whence.core.registry import Registry
from whence.errors import InvalidInputError

if TYPE_CHECKING:
    from whence_studies.scenes.encoder import Encoder

_BATCH = 500  # inputs per forward pass


@dataclass(frozen=True)
class TextInputs:
    """How texts are converted to a network's inputs, by a frozen language model.

    Attributes
    ----------
    model : the language model's folder among the data, as published on Hugging Face
    last : whether a text's feature is that of its last token, as in Llama, or the mean over its tokens
    states : whether the network takes the states that enter the last block, or features of texts
    seconds : approximate CPU-seconds per text
    """

    model: str
    last: bool = False
    states: bool = False
    seconds: float = 0.1


@dataclass(frozen=True)
class Network:
    """A network that can be retrained.

    Attributes
    ----------
    name : its name in protocols
    make : function that returns an untrained network, initialised from torch's random state. It is called
        with those of the arguments ``inputs`` (N, …) of the training set, ``n_classes`` and ``encoder`` that
        it takes
    seconds : approximate CPU-seconds per sample and training step, on one thread
    slower : approximate slowdown of methods compared with the narrow CNN
    texts : how its inputs are made of texts; None if it takes inputs unchanged

    Examples
    --------
    >>> import whence
    >>> from torch import nn
    >>> from whence_studies import Network
    >>> def linear(inputs, n_classes):
    ...     return nn.Linear(inputs.shape[1], n_classes)
    >>> whence.register(Network("linear", linear)).name
    'linear'
    """

    name: str
    make: Callable[..., nn.Module]
    seconds: float = 1e-3
    slower: float = 1.0
    texts: TextInputs | None = None

    def __post_init__(self) -> None:
        check_callable("make", self.make, "a function that returns an untrained network")

    def build(self, inputs: Tensor, n_classes: int, encoder: Encoder | None = None) -> nn.Module:
        """Make an untrained network for inputs (N, …)."""
        network = call_with(self.make, inputs=inputs, n_classes=n_classes, encoder=encoder)
        if not isinstance(network, nn.Module):
            raise InvalidInputError(
                f"'model.name' must make a torch module. Got {type(network).__name__} from {self.name!r}."
            )
        return network


NETWORKS: Registry[Network] = Registry(
    "network", lambda thing: isinstance(thing, Network), stands_for=lambda network: network.make
)


def find(name: str) -> Network:
    """Return a network by its name, or by ``module:name`` of one, or of a function that makes one."""
    if name in NETWORKS:
        return NETWORKS.get(name)
    make = import_named("model.name", name)
    if isinstance(make, Network):
        return make
    if not callable(make) or isinstance(make, nn.Module):
        raise InvalidInputError(
            f"'model.name' must be a function or a class that makes an untrained network. "
            f"Got {type(make).__name__} from {name!r}."
        )
    return Network(name, make)


@torch.inference_mode()
def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """Compute the logits (N, K) of a model in eval mode; they are on the CPU."""
    device = next(model.parameters()).device
    found = [model(part.to(device)) for part in torch.split(inputs, _BATCH)]
    return torch.cat([getattr(output, "logits", output).cpu() for output in found])
