"""Networks of torchvision."""

from __future__ import annotations

from functools import partial

from torch import nn

from whence.core.registry import register
from whence.errors import InvalidInputError
from whence.evaluate.scenes.networks.base import Network


def _make(n_classes: int, *, name: str) -> nn.Module:
    try:
        from torchvision import models  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise InvalidInputError(
            f"'model.name' is {name!r}, which is a network of torchvision. Run: pip install torchvision"
        ) from error
    network: nn.Module = getattr(models, name)(num_classes=n_classes)
    return network


for _name, _seconds in (("resnet50", 3e-1), ("vgg16", 8e-1)):
    register(Network(_name, partial(_make, name=_name), _seconds))
