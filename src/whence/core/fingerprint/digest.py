"""A digest of nested values: numbers, texts, tensors, containers, functions, and objects by their state."""

from __future__ import annotations

import enum
import functools
import hashlib
import marshal
import os
import types
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.fingerprint import code

_BLOCK = 1 << 24  # bytes hashed at a time
_LONG = 1 << 12  # entries of a container above which it is hashed at once
_NODES = 200_000  # maximum number of values; beyond it only types count
_PLAIN = (str, int, float, complex, bool, type(None))
_NAMED = (enum.Enum, torch.dtype, torch.device, torch.layout, range, slice)


class Digest:
    """SHA-256 of nested values, equal in every process.

    Parameters
    ----------
    largest
        Bytes of an array from which on only a part of its rows is hashed; None hashes all of them.
    """

    def __init__(self, largest: int | None = None) -> None:
        self._hash = hashlib.sha256()
        self._largest = largest
        self._within: set[int] = set()  # objects in progress, to stop at cycles
        self._known: dict[int, tuple[Any, str]] = {}  # the objects too, so that their ids are not reused
        self._left = [_NODES]

    def add(self, value: Any) -> None:
        """Add a value, with its type and shape, so that different values differ."""
        self._left[0] -= 1
        if isinstance(value, str):
            self._say(f"str {len(value)} {value}")
        elif isinstance(value, _PLAIN):
            self._text(value)
        elif self._left[0] < 0:
            self._say(full_name(type(value)))
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._array(value)
        elif isinstance(value, bytes | bytearray):
            self._say(f"bytes {len(value)}")
            self._hash.update(value)
        elif isinstance(value, _NAMED):
            self._text(value)
        elif isinstance(value, os.PathLike):
            self._path(value)
        else:
            self._say(self._part(value))

    def call(self, value: Any, name: str) -> None:
        """Represent an object by a name, because it is digested elsewhere."""
        self._known[id(value)] = value, name

    def hexdigest(self) -> str:
        """Return the digest of all added values, in order."""
        return self._hash.hexdigest()[:32]

    def of(self, value: Any) -> str:
        """Return the digest of one value; digests of its parts are reused."""
        part = self._fresh()
        part.add(value)
        return part.hexdigest()

    def _fresh(self) -> Digest:
        part = Digest(self._largest)
        part._within, part._known, part._left = self._within, self._known, self._left
        return part

    def _part(self, value: Any) -> str:
        """Digest a container, a function, a class or an object."""
        if id(value) in self._within:
            return f"cycle {full_name(type(value))}"
        if id(value) not in self._known:
            self._within.add(id(value))
            try:
                part = self._fresh()
                part._compound(value)
                self._known[id(value)] = value, part.hexdigest()
            finally:
                self._within.discard(id(value))
        return self._known[id(value)][1]

    def _compound(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self.add(["objects", value.shape, value.tolist()])
        elif isinstance(value, Mapping):
            self._say(f"mapping {len(value)}")
            # Items of other mappings need not have a length.
            if not (isinstance(value, dict) and self._whole(value.items())):
                for key in sorted(value, key=str):
                    self.add(str(key))
                    self.add(value[key])
        elif isinstance(value, list | tuple):
            self._say(f"sequence {len(value)}")
            if not self._whole(value):
                for part in value:
                    self.add(part)
        elif isinstance(value, Set):
            self.add(["set", sorted(self.of(member) for member in value)])
        elif isinstance(value, types.ModuleType):
            self._say(f"module {value.__name__}")
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.CodeType):
            self._say(code.of(value))
        elif isinstance(value, functools.partial):
            self.add(["partial", value.func, value.args, value.keywords])
        elif isinstance(value, types.FunctionType):
            inside = value.__code__, code.around(value), dict(vars(value)), code.uses(value)
            self.add(["function", full_name(value), *inside])
        elif isinstance(value, types.MethodType):
            self.add(["method", value.__func__, value.__self__])
        elif hasattr(type(value), "tobytes") and hasattr(type(value), "size"):  # images and numpy scalars
            self._say(f"{type(value).__name__} {getattr(value, 'mode', '')} {value.size}")
            self._hash.update(value.tobytes())
        else:
            self._object(value)

    def _whole(self, values: Collection[Any]) -> bool:
        """Hash a long container of plain values at once, a hundred times faster; return whether it is one."""
        if len(values) <= _LONG:
            return False
        try:
            # In the version that does not depend on identities.
            self._hash.update(marshal.dumps(list(values), 2))
        except ValueError:
            return False
        return True

    def _class(self, kind: type) -> None:
        self._say(f"class {full_name(kind)}")
        if code.is_own(kind):
            methods = code.methods(kind)
            used = [[code.around(method), code.uses(method)] for method in methods if code.is_own(method)]
            self.add([[method.__code__ for method in methods], code.constants(kind), used])

    def _object(self, value: Any) -> None:
        kind = type(value)
        # Attributes are read without running code of the object.
        inside = getattr(value, "__dict__", {})
        wrapped = inside.get("__wrapped__") or inside.get("py_func")
        if isinstance(wrapped, types.FunctionType):  # functools.cache and numba
            self.add([full_name(kind), wrapped])
        elif is_dataclass(value):
            self.add([kind, {field.name: getattr(value, field.name) for field in fields(value)}])
        elif isinstance(value, nn.Module):
            self.add([kind, {**state(value), "weights": dict(value.state_dict(keep_vars=True))}])
        elif isinstance(value, Iterator) or not _has_state(value):
            self._text(value)
        elif hasattr(kind, "columns") and hasattr(kind, "to_numpy"):  # a pandas table
            self.add([[str(name), value[name].to_numpy()] for name in value.columns])
        else:
            self.add([kind, state(value)])

    def _tensor(self, value: Tensor) -> None:
        # Some dtypes have no counterpart in numpy, but bytes suffice.
        self._say(f"tensor {value.dtype} {tuple(value.shape)}")
        if value.layout != torch.strided or value.is_meta or value.is_quantized:
            self._say(f"{value.layout} {value.device.type}")
            return
        flat = value.detach().cpu().reshape(-1)
        flat, width = flat[:: self._step(value.nbytes)], _BLOCK // value.element_size()
        for start in range(0, len(flat), width):
            block = flat[start : start + width].contiguous()
            self._hash.update(block.view(torch.uint8).numpy().data)

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        self._say(f"array {value.dtype.str} {value.shape}")
        rows = value.reshape(1) if value.ndim == 0 else value[:: self._step(value.nbytes)]
        width = max(1, _BLOCK // max(1, rows.itemsize * int(np.prod(rows.shape[1:]))))
        for start in range(0, len(rows), width):
            block = np.ascontiguousarray(rows[start : start + width])
            self._hash.update(block.reshape(-1).view(np.uint8).data)

    def _step(self, size: int) -> int:
        """The stride of the hashed rows or numbers."""
        return 1 if self._largest is None else max(1, size // self._largest)

    def _path(self, value: os.PathLike[Any]) -> None:
        """Add a path, and of a file its size and its date: nearly all that changes a file changes these."""
        self._say(f"path {os.fspath(value)}")
        try:
            about = os.stat(value)
        except OSError:
            return
        if not os.path.isdir(value):
            self._say(f"{about.st_size} {about.st_mtime_ns}")

    def _text(self, value: Any) -> None:
        """Add what a value prints, without the address that Python prints for objects without words."""
        text = repr(value)
        text = type(value).__qualname__ if " at 0x" in text else text
        self._say(f"{type(value).__name__} {len(text)} {text}")

    def _say(self, text: str) -> None:
        self._hash.update(f"{text}\n".encode(errors="surrogatepass"))


def state(value: Any) -> dict[str, Any]:
    """Return an object's attributes; of a torch module those that are neither weights, children nor hooks."""
    attributes = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                attributes[name] = getattr(value, name)
    if isinstance(value, nn.Module):
        return {
            name: part for name, part in attributes.items() if name not in _INNER and "_hooks" not in name
        }
    return {name: part for name, part in attributes.items() if name not in _BY_PROCESS}


_BY_PROCESS = {"_original_object_hash"}  # of transformers' GenerationConfig: another in every process
_INNER = {
    *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"),
    *("_compiled_call_impl", "_is_full_backward_hook", "call_super_init"),
}


def _has_state(value: Any) -> bool:
    """Whether an object's attributes say what it is: not those of Python's own locks, loggers and files."""
    plain = isinstance(value, types.SimpleNamespace | Namespace)
    return plain or (not code.is_standard(type(value)) and bool(state(value)))


def full_name(thing: Any) -> str:
    """Name a class or function with its module."""
    return f"{thing.__module__}.{thing.__qualname__}"
