"""Descriptions of models, data sets and functions, one line per part, to show how two of them differ."""

from __future__ import annotations

import sys
import types
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from whence.core.fingerprint import code
from whence.core.fingerprint.digest import Digest, full_name, state

_LARGEST = 1 << 26  # bytes of an array above which it is sampled
_PLAIN = int | float | str | bool | None
_SHORT = 200  # maximum length of a value shown in full
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")

Lines = dict[str, str]


def structure(model: nn.Module) -> Lines:
    """Describe what a model's outputs depend on besides its weights and buffers.

    That is every module's class and children, its attributes, private ones and those in containers too,
    the code of its methods along all its classes, what they use of their modules, and forward hooks. It
    takes milliseconds, since weights are not read, and is the same in every process.

    Attributes that the model writes whenever it runs, such as a counter, differ from run to run:
    ``notes`` names them.
    """
    description = _Description()
    for name, module in model.named_modules():
        description.digest.call(module, f"module {name}")
    for name, module in model.named_modules():
        description.module(name, module)
    description.hooks("all modules", vars(torch_modules), "_global")
    description.classes(type(module) for module in model.modules())
    return description.lines


def blueprint(model: nn.Module) -> Lines:
    """Describe the parts of a model that are independent of folders, files and library versions.

    That is the name of every module's class, and the settings of each: numbers, and of torch's own modules
    and the user's also flags, words and arrays. Two blueprints are compared by ``comparable``.
    """
    lines: Lines = {}
    digest = Digest(_LARGEST)
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


def anatomy(thing: Any, name: str) -> Lines:
    """Describe an object or a function in the same way; ``name`` is its name in the lines."""
    description = _Description()
    description.thing(thing, name)
    return description.lines


def notes(before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[str]:
    """Return the names of lines that a run has changed, such as counters."""
    return frozenset(key for key, _ in before.items() ^ after.items())


def without(lines: Mapping[str, str], names: Collection[str]) -> Lines:
    """Return the lines except those with some names."""
    return {key: line for key, line in lines.items() if key not in names}


class _Description:
    """Lines that describe an object, and the digest that they share."""

    def __init__(self) -> None:
        self.lines: Lines = {}
        self.digest = Digest(_LARGEST)

    def module(self, name: str, module: nn.Module) -> None:
        children = ", ".join(module._modules)
        title, attributes = _title("module", name), state(module)
        if type(module).__module__.startswith("torch."):  # these have no attributes of their own
            inside = ", ".join(f"{key}={self.describe(value)}" for key, value in sorted(attributes.items()))
            self.lines[title] = f"{type(module).__qualname__}({inside}) [{children}]"
        else:
            self.lines[title] = f"{full_name(type(module))} [{children}]"
            self.attributes(name, attributes)
        self.hooks(name, vars(module))

    def hooks(self, name: str, where: Mapping[str, Any], prefix: str = "") -> None:
        for kind in _HOOKS:
            hooks = where.get(prefix + kind)
            if hooks:
                self.lines[_title(f"hooks {name}", kind)] = self.describe(list(hooks.values()))

    def thing(self, thing: Any, name: str) -> None:
        self.digest.call(thing, name)
        if isinstance(thing, types.FunctionType):
            inside = [code.of(thing.__code__), thing.__defaults__, thing.__kwdefaults__]
            self.lines[f"code {name}"] = self.describe(inside)
            self.attributes(name, {**code.enclosed(thing), **vars(thing)})
            self.uses([thing])
            return
        if isinstance(thing, type):
            self.lines[_title("class", name)] = full_name(thing)
            self.classes([thing])
            return
        self.lines[_title("object", name)] = full_name(type(thing))
        self.attributes(name, state(thing))
        if code.is_own(type(thing)):
            self.classes([type(thing)])

    def attributes(self, name: str, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self.lines[f"attribute {name}.{key}".replace(" .", " ")] = self.describe(value)

    def classes(self, kinds: Any) -> None:
        packages = {"torch"}
        for kind in dict.fromkeys(kinds):
            full = full_name(kind)
            # Installed packages count by version: they patch each other's classes when imported.
            methods = [method for method in code.methods(kind) if code.is_own(method)]
            if methods:
                parts = [code.of(method.__code__) for method in methods]
                self.lines[f"code {full}"] = self.describe(["".join(parts), list(map(code.around, methods))])
            self.attributes(full, code.constants(kind))
            self.uses(methods)
            packages.update(base.__module__.partition(".")[0] for base in kind.__mro__[:-1])
        for package in packages:
            version = getattr(sys.modules.get(package), "__version__", None)
            if version is not None:
                self.lines[f"version of {package}"] = str(version)

    def uses(self, functions: list[types.FunctionType]) -> None:
        for function in functions:
            for name, value in code.uses(function).items():
                self.lines.setdefault(f"use of {name}", self.describe(value))

    def describe(self, value: Any) -> str:
        """Format a plain value; other values by type and digest."""
        if isinstance(value, _PLAIN) or (
            isinstance(value, tuple | list) and len(value) < 9 and all(isinstance(v, _PLAIN) for v in value)
        ):
            text = repr(value)
            if len(text) <= _SHORT:
                return text
        if isinstance(value, torch.dtype | torch.device):
            return str(value)
        return f"{type(value).__qualname__} #{self.digest.of(value)}"


def _title(kind: str, name: str) -> str:
    return f"{kind} {name}".rstrip()
