"""Networks of torchvision."""

from __future__ import annotations

from functools import partial

from torch import nn

from whence.core.naming import optional_import
from whence.core.registry import register
from whence_studies.scenes.networks.base import Network


def _make(n_classes: int, *, name: str) -> nn.Module:
    with optional_import(
        f"'model.name' is {name!r}, which is a network of torchvision. Run: pip install torchvision"
    ):
        from torchvision import models  # type: ignore[import-not-found, unused-ignore]
    network: nn.Module = getattr(models, name)(num_classes=n_classes)
    return network


for _name, _seconds in (("resnet50", 3e-1), ("vgg16", 8e-1)):
    register(Network(_name, partial(_make, name=_name), _seconds))
