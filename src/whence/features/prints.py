"""Fingerprints of what features depend on beside the weights: the model's code and settings, and the data."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.features.bank import blocks

_PLAIN = (int, float, str, bool, type(None))


def settings(model: nn.Module) -> dict[str, str]:
    """Describe every module of a model: its class, its printed form, its plain attributes and its code.

    Weights say nothing of a stride, a flag that ``forward`` reads, or an edited ``forward``.
    """
    lines = {}
    kinds: set[type[nn.Module]] = set()
    known: set[int] = set()
    for name, module in model.named_modules():
        lines[f"module {name}".rstrip()] = _module(module, known)
        kinds.add(type(module))
    for kind in kinds:
        # The version of torch stands for the code of its own modules.
        if not kind.__module__.startswith("torch."):
            lines[f"code {kind.__module__}.{kind.__qualname__}"] = f"source {_code(kind)}"
    return lines


def callable_name(function: Callable[..., Any]) -> str:
    """Name a function with a digest of its code, as far as both can be told."""
    if isinstance(function, functools.partial):
        digest = Digest()
        digest.add([function.args, function.keywords])
        return f"partial {digest.hexdigest()} of {callable_name(function.func)}"
    target = function if hasattr(function, "__qualname__") else type(function)
    return f"{target.__module__}.{target.__qualname__} {_code(target)}"


class Digest:
    """SHA-256 of nested values: tensors, arrays, images, texts, numbers, and containers of these."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, value: Any) -> None:
        """Add a value, with its type and shape, so that different values cannot look the same."""
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            # numpy lacks some of torch's types, whose bytes serve as well.
            self._say(f"tensor {value.dtype} {tuple(value.shape)}")
            for block in value.reshape(-1).split(1 << 22):
                self._hash.update(block.contiguous().view(torch.uint8).numpy().data)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._say(f"array {value.dtype.str} {value.shape}")
            for block in blocks(value.reshape(1) if value.ndim == 0 else value):
                self._hash.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
        elif isinstance(value, np.ndarray):
            self.add(value.tolist())
        elif isinstance(value, Mapping):
            self._say(f"mapping {len(value)}")
            for key in sorted(value, key=str):
                self.add(str(key))
                self.add(value[key])
        elif isinstance(value, list | tuple):
            self._say(f"sequence {len(value)}")
            for part in value:
                self.add(part)
        elif isinstance(value, bytes | bytearray):
            self._say(f"bytes {len(value)}")
            self._hash.update(value)
        elif is_dataclass(value) and not isinstance(value, type):
            self.add({field.name: getattr(value, field.name) for field in fields(value)})
        elif hasattr(value, "tobytes") and hasattr(value, "size"):  # images and numpy's numbers
            self._say(f"{type(value).__name__} {getattr(value, 'mode', '')} {value.size}")
            self._hash.update(value.tobytes())
        else:
            text = value if isinstance(value, str) else _stable(value)
            self._say(f"{type(value).__name__} {len(text)} {text}")

    def hexdigest(self) -> str:
        """Give the digest of all that was added, in order."""
        return self._hash.hexdigest()[:32]

    def _say(self, text: str) -> None:
        self._hash.update(f"{text}\n".encode())


def _module(module: nn.Module, known: set[int]) -> str:
    """Describe one module without its children and its weights, and without objects ``known`` from others."""
    plain: dict[str, Any] = {}
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or name == "training":
            continue
        if _is_plain(value):
            plain[name] = value
        elif callable(getattr(value, "to_dict", None)) and id(value) not in known:
            known.add(id(value))  # the whole model shares one configuration
            plain[name] = value.to_dict()
    text = json.dumps(plain, default=_stable, sort_keys=True)
    return f"{type(module).__qualname__}({module.extra_repr()}) {text}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(part, _PLAIN) for part in value)
    return isinstance(value, _PLAIN)


def _code(target: Any) -> str:
    """Digest a class's or function's source, or its compiled form where the source is not to be had."""
    try:
        text = inspect.getsource(target)
    except (OSError, TypeError):
        code = getattr(getattr(target, "forward", target), "__code__", None)
        text = (
            ""
            if code is None
            else f"{code.co_code!r} {code.co_names} {[c for c in code.co_consts if isinstance(c, _PLAIN)]}"
        )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stable(value: Any) -> str:
    """Print a value, without the address that Python prints for objects that say nothing of themselves."""
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text
