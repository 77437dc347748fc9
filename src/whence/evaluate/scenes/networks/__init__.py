"""The networks of the evaluation, one file each; a file that is put here is found."""

import pkgutil
from importlib import import_module

from whence.evaluate.scenes.networks.base import NETWORKS, Network, TextInputs, find, logits

__all__ = ["NETWORKS", "Network", "TextInputs", "find", "logits"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
