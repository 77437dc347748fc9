"""Descriptions of models, one line per part, to show how two of them differ."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from whence.core.fingerprint import code
from whence.core.fingerprint.digest import Digest, full_name, state

_PLAIN = int | float | str | bool | None
_SHOWN = {int, float, str, bool, type(None)}
_SHORT = 200  # maximum length of a value shown in full
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_PARTS = {"_parameters", "_buffers", "_modules", *_HOOKS}  # described on lines of their own
_BASES: set[Any] = {nn.Module, Generic, ABC, object}  # which call forward and no other method of the user's
_OFFLINE = {
    "__init__",
    "__new__",
    "__repr__",
    "__str__",
    "__del__",
    "__getstate__",
    "__setstate__",
    "__reduce__",
}

Lines = dict[str, str]


class Description(NamedTuple):
    """What a model's outputs depend on besides its weights, one line per part.

    ``unread`` names, line by line, what cannot be read completely. Where there is any, two equal descriptions
    do not mean equal models.
    """

    lines: Lines
    unread: Lines

    @property
    def doubts(self) -> str:
        """What cannot be read, in words; empty if all of it was."""
        named = [f"the {title} ({what})" for title, what in sorted(self.unread.items())]
        return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def structure(model: nn.Module) -> Description:
    """Describe what a model's outputs depend on besides its weights and buffers.

    That is every module's class and children, its attributes, private ones and those in containers too,
    the code that its forward pass can reach along all its classes, what this uses of other modules, and
    forward hooks. It takes milliseconds, since registered weights are not read, and is the same in every
    process.

    Attributes that the model writes whenever it runs, such as a counter, differ from run to run:
    ``settled`` finds them.
    """
    description = _Description()
    kinds = {type(module): None for module in model.modules()}
    for base in {base: None for kind in kinds for base in kind.__mro__}:
        description.digest.call(base, f"class {full_name(base)}")
    for name, module in model.named_modules():
        description.digest.call(module, f"module {name}")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        description.digest.call(tensor, f"tensor {name}")
    for name, module in model.named_modules():
        description.module(name, module)
    description.hooks("all modules", vars(torch_modules), "_global")
    description.classes(kinds)
    description.add("setting of torch default dtype", torch.get_default_dtype())
    description.versions()
    return Description(description.lines, description.unread)


def blueprint(model: nn.Module) -> Lines:
    """Describe the parts of a model that are independent of folders, files and library versions.

    That is the name of every module's class, and the settings of each: numbers, and of torch's own modules
    and the user's also flags, words and arrays. Two blueprints are compared by ``comparable``.
    """
    lines: Lines = {}
    digest = Digest()
    for name, module in model.named_modules():
        kind = type(module)
        lines[_title("class of", name)] = kind.__qualname__
        known = kind.__module__.startswith("torch.") or code.is_own(kind)
        for key, value in state(module).items():
            title = f"setting {name}.{key}".replace(" .", " ")
            if isinstance(value, int | float) and (known or not isinstance(value, bool)):
                lines[title] = repr(value)
            elif known and isinstance(value, _PLAIN | tuple | list) and "name_or_path" not in key:
                lines[title] = repr(value)[:_SHORT]
            elif known and isinstance(value, torch.Tensor | np.ndarray):
                lines[title] = f"{type(value).__qualname__} #{digest.of(value)}"
    return lines


def comparable(saved: Mapping[str, str], now: Mapping[str, str]) -> tuple[Lines, Lines]:
    """Return two fingerprints without settings that only one of them has, as after library updates."""
    only = {key for key in saved.keys() ^ now.keys() if key.startswith("setting ")}
    return without(saved, only), without(now, only)


def settled(before: Description, after: Description) -> tuple[Description, frozenset[str]]:
    """Return a description after a run without the lines that the run changed, and the names of these.

    A whole number that changed is a counter. Anything else, such as a tensor that the model keeps, may be
    a part of the model, and is noted as unread.
    """
    changed = {title for title, _ in before.lines.items() ^ after.lines.items()}
    lines = (before.lines, after.lines)
    counters = {title for title in changed if all(is_counter(line.get(title, "")) for line in lines)}
    doubtful = dict.fromkeys(changed - counters, "which changes whenever the model runs")
    kept = Description(without(after.lines, changed), after.unread | doubtful)
    return kept, frozenset(changed)


def is_counter(line: str) -> bool:
    """Whether a line is a whole number."""
    return line.lstrip("-").isdigit()


def without(lines: Mapping[str, str], names: Collection[str]) -> Lines:
    """Return the lines except those with some names."""
    return {key: line for key, line in lines.items() if key not in names}


class _Description:
    """Lines that describe a model, and the digest that they share."""

    def __init__(self) -> None:
        self.lines: Lines = {}
        self.unread: Lines = {}
        self.digest = Digest()

    def add(self, title: str, value: Any) -> None:
        """Add a line, and what in its value could not be read."""
        with self._reading(title):
            self.lines[title] = self.describe(value)

    @contextmanager
    def _reading(self, title: str) -> Iterator[None]:
        before = len(self.digest.unread)
        yield
        if len(self.digest.unread) > before:
            self.unread[title] = ", ".join(self.digest.unread[before:])

    def module(self, name: str, module: nn.Module) -> None:
        children = ", ".join(module._modules)
        attributes = {key: value for key, value in state(module).items() if key not in _PARTS}
        title = _title("module", name)
        self.lines[title] = f"{full_name(type(module))} [{children}]"
        if type(module).__module__.startswith("torch."):  # these have no attributes of their own
            with self._reading(title):
                inside = ", ".join(
                    f"{key}={self.describe(value)}" for key, value in sorted(attributes.items())
                )
            self.lines[title] = f"{type(module).__qualname__}({inside}) [{children}]"
        else:
            for key, value in attributes.items():
                self.add(f"attribute {name}.{key}".replace(" .", " "), value)
        self.hooks(name, vars(module))

    def hooks(self, name: str, where: Mapping[str, Any], prefix: str = "") -> None:
        for kind in _HOOKS:
            hooks = where.get(prefix + kind)
            if hooks:
                self.add(_title(f"hooks {name}", kind), list(hooks.values()))

    def classes(self, kinds: Collection[type]) -> None:
        """Describe the code that a forward pass through modules of some classes can reach.

        A method is reached if its name is taken of anything in code that was reached before. A class that
        derives from one of a package may be called from there, and code may make names up: then all are.
        """
        for kind in kinds:
            full = full_name(kind)
            installed = [base.__module__ for base in kind.__mro__ if not code.is_own(base)]
            self.digest.packages |= {module.partition(".")[0] for module in installed}
            for key, value in code.constants(kind).items():
                self.add(f"attribute {full}.{key}", value)
        left = {(kind, name): method for kind in kinds for name, method in code.methods(kind).items()}
        while reached := [key for key in left if self._is_reached(*key)]:
            for kind, name in reached:
                functions = left.pop((kind, name))
                inside = [[function.__code__, code.around(function)] for function in functions]
                self.add(f"code {full_name(kind)}.{name}", inside)
                for used, value in (item for f in functions for item in code.uses(f).items()):
                    if f"use of {used}" not in self.lines:
                        self.add(f"use of {used}", value)

    def _is_reached(self, kind: type, name: str) -> bool:
        if name == "forward" or not self.digest.names.isdisjoint({name, "*"}):
            return True
        special = name.startswith("__") and name.endswith("__") and name not in _OFFLINE
        return special or any(not code.is_own(base) and base not in _BASES for base in kind.__mro__)

    def versions(self) -> None:
        for package in sorted(self.digest.packages):
            version = code.version(package)
            self.lines[f"version of {package}"] = str(version)
            if version is None:
                self.unread[f"version of {package}"] = "it has none"

    def describe(self, value: Any) -> str:
        """Format a plain value; other values by type and digest."""
        # No subclasses, which may hold more than they show.
        kinds = {type(part) for part in value} if type(value) in (tuple, list) else {type(value)}
        if kinds <= _SHOWN and (type(value) not in (tuple, list) or len(value) < 9):
            text = repr(value)
            if len(text) <= _SHORT:
                return text
        if isinstance(value, torch.dtype | torch.device):
            return str(value)
        return f"{type(value).__qualname__} #{self.digest.of(value)}"


def _title(kind: str, name: str) -> str:
    return f"{kind} {name}".rstrip()
