"""What a network of the evaluation is, and the registry of all."""

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

_BATCH = 500  # inputs per forward pass when a model is only read


@dataclass(frozen=True)
class TextInputs:
    """How a network's inputs are made of texts, by a frozen language model.

    Attributes
    ----------
    model : the language model's folder among the data, as Hugging Face publishes it
    last : whether a text is seen by its last token, as Llama's kind has it, or by the mean over its tokens
    states : whether the network takes the states that enter the last block, or features of whole texts
    seconds : CPU-seconds of reading a text, roughly
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
    name : in protocols
    make : gives an untrained network, with weights from torch's random state; of the arguments ``inputs``
        (N, …) of the training set, ``n_classes`` and ``encoder`` of texts it gets those that it takes
    seconds : CPU-seconds per sample and step of training, on one thread, roughly
    slower : how many times as long methods take with it as with the narrow CNN, roughly
    texts : how its inputs are made of texts; None where it takes inputs as they are

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
        check_callable("make", self.make, "a function that gives an untrained network")

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
    """Logits (N, K) of a model in evaluation mode, on the CPU."""
    device = next(model.parameters()).device
    found = [model(part.to(device)) for part in torch.split(inputs, _BATCH)]
    return torch.cat([getattr(output, "logits", output).cpu() for output in found])
