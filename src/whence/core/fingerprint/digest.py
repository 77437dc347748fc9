"""A digest of nested values by all that they hold. What cannot be read completely is named."""

from __future__ import annotations

import hashlib
import marshal
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whence.core.fingerprint import code

_BLOCK = 1 << 24  # bytes hashed at a time
_LONG = 1 << 12  # entries of a container above which it is hashed at once
_PLAIN = (str, int, float, complex, bool, type(None), type(...), type(NotImplemented))
_MARSHALLED = {str, int, float, complex, bool, type(None)}
_BYTES = (bytes, bytearray, memoryview)
_CONTAINERS = (dict, list, tuple, set, frozenset)
_EMPTY = (type(threading.Lock()), type(threading.RLock()))  # without contents
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


class Digest:
    """SHA-256 of nested values, equal in every process and different where anything in them is.

    Attributes
    ----------
    unread : what could not be read completely, by its type or name. A digest with such parts says nothing:
        nothing may be reused because of it
    packages : installed packages whose versions represent the code of what was digested
    names : the attributes that the user's code takes of anything, by name; "*" where it makes names up
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._within: set[int] = set()  # objects in progress, to stop at cycles
        self._known: dict[int, tuple[Any, str]] = {}  # the objects too, so that their ids are not reused
        self.unread: list[str] = []
        self.packages: set[str] = set()
        self.names: set[str] = set()

    def add(self, value: Any) -> None:
        """Add a value, with its type and shape, so that different values differ."""
        kind = type(value)
        if kind is str:
            self._say(f"str {len(value)} {value}")
        elif kind in _PLAIN:
            self._say(f"{kind.__name__} {value!r}")
        elif kind in _BYTES:
            raw = memoryview(value)
            self._say(f"{kind.__name__} {raw.format} {raw.shape}")
            self._hash.update(raw.tobytes())
        elif kind in (Tensor, nn.Parameter, nn.Buffer):
            self._tensor(value)
        elif kind in (np.ndarray, np.memmap) and not value.dtype.hasobject:
            self._array(value)
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
        part = Digest()
        part._within, part._known = self._within, self._known
        part.unread, part.packages, part.names = self.unread, self.packages, self.names
        return part

    def _part(self, value: Any) -> str:
        """Digest a container, a function, a class or an object."""
        if id(value) in self._within:
            return f"cycle {full_name(type(value))}"
        if id(value) not in self._known:
            self._within.add(id(value))
            try:
                part = self._fresh()
                with part._naming(value):
                    part._compound(value)
                self._known[id(value)] = value, part.hexdigest()
            finally:
                self._within.discard(id(value))
        return self._known[id(value)][1]

    @contextmanager
    def _naming(self, value: Any) -> Iterator[None]:
        """Note a value whose reading fails, for whatever reason: it runs code of the value's type."""
        try:
            yield
        except Exception:
            self._miss(full_name(type(value)))

    def _miss(self, what: str) -> None:
        self._say(f"unread {what}")
        if what not in self.unread:
            self.unread.append(what)

    def _compound(self, value: Any) -> None:
        kind = type(value)
        if code.is_blind(value):
            self._miss(getattr(value, "__name__", "os.environ"))
        elif isinstance(value, code.Missing):
            self._miss(value.name)
        elif kind in (list, tuple):
            self._sequence(value)
        elif kind is dict:
            self._mapping(value)
        elif kind in (set, frozenset):
            self._say(f"{kind.__name__} {sorted(map(self.of, value))}")
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.CodeType):
            self._say(f"code {code.of(value)}")
            self.names |= code.attributes(value) | ({"*"} if code.is_dynamic(value) else set())
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.BuiltinFunctionType):
            self._say(f"builtin {value.__module__}.{value.__qualname__}")
            self.add(None if isinstance(value.__self__, types.ModuleType | type) else value.__self__)
        elif isinstance(value, types.MethodType):
            self.add(["method", value.__func__, value.__self__])
        elif isinstance(value, types.MappingProxyType):
            self.add(["view", dict(value)])
        elif isinstance(value, weakref.ref):
            self.add(["reference", value()])
        elif isinstance(value, nn.Module):
            self.add([kind, state(value), value.training])
        elif not isinstance(value, _EMPTY):
            self._object(value)

    def _sequence(self, value: Collection[Any]) -> None:
        self._say(f"{type(value).__name__} {len(value)}")
        if not self._whole(value):
            for part in value:
                self.add(part)

    def _mapping(self, value: Mapping[Any, Any]) -> None:
        self._say(f"mapping {len(value)}")
        if not (self._whole(value.keys()) and self._whole(value.values())):
            for key, part in value.items():
                self.add(key)
                self.add(part)

    def _whole(self, values: Collection[Any]) -> bool:
        """Hash a long container of plain values at once, a hundred times faster; return whether it is one."""
        if len(values) <= _LONG or not set(map(type, values)) <= _MARSHALLED:
            return False
        self._hash.update(marshal.dumps(list(values), 2))  # which does not depend on identities
        return True

    def _module(self, value: types.ModuleType) -> None:
        """Add a module as a value: the user's own with everything in it."""
        self._say(f"module {value.__name__}")
        if self._is_own(value):
            inside = vars(value).items()
            self.add({name: part for name, part in inside if not name.startswith("__")})

    def _function(self, value: types.FunctionType) -> None:
        self._say(f"function {full_name(value)}")
        self.add(code.around(value))
        if self._is_own(value):
            self.add([value.__code__, code.uses(value)])

    def _class(self, kind: type) -> None:
        self._say(f"class {full_name(kind)}")
        methods, values = code.methods(kind), code.constants(kind)
        if self._is_own(kind) or methods or values:
            self.add([[base.__qualname__ for base in kind.__mro__], methods, values])
        if code.is_own(type(kind)):
            self.add(type(kind))

    def _object(self, value: Any) -> None:
        kind = type(value)
        self.add(kind)
        wrapped = _attributes(value).get("__wrapped__")
        if isinstance(wrapped, types.FunctionType) and not code.is_own(kind):  # functools.cache and numba
            self.add(wrapped)
        elif code.is_own(kind) and isinstance(value, _CONTAINERS):
            # As the container itself reads it, whatever the class makes of that.
            base: Any = next(base for base in kind.__mro__ if not code.is_own(base))
            self.add(
                [list(base.items(value) if isinstance(value, dict) else base.__iter__(value)), state(value)]
            )
        elif code.is_own(kind) and _is_python(kind):
            self.add(state(value))
        else:
            self._reduced(value)

    def _reduced(self, value: Any) -> None:
        """Add an object by what its type keeps of it: that is all there is, or it refuses."""
        made = value.__reduce_ex__(4)
        if isinstance(made, str):
            self._say(f"name {made}")
            return
        parts = [part if i < 3 or part is None else list(part) for i, part in enumerate(made)]
        if len(parts) > 2 and isinstance(parts[2], dict):
            parts[2] = {name: part for name, part in parts[2].items() if name not in _BY_PROCESS}
        self.add(parts)
        if code.is_own(type(value)):
            self.add(state(value))

    def _tensor(self, value: Tensor) -> None:
        self._say(f"tensor {value.dtype} {tuple(value.shape)}")
        if value.layout in _SPARSE:
            self._say(str(value.layout))
            for name in _SPARSE[value.layout]:
                self._tensor(getattr(value.detach(), name)())
            return
        if value.layout != torch.strided or value.is_meta or value.is_quantized or value.is_nested:
            self._miss(f"torch.Tensor ({'quantised' if value.is_quantized else value.layout})")
            return
        # Some dtypes have no counterpart in numpy, but bytes suffice.
        flat = value.detach().resolve_conj().resolve_neg().cpu().reshape(-1)
        width = _BLOCK // value.element_size()
        for start in range(0, len(flat), width):
            block = flat[start : start + width].contiguous()
            self._hash.update(block.view(torch.uint8).numpy().data)

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        self._say(f"array {value.dtype.descr} {value.shape}")
        rows = value.reshape(1) if value.ndim == 0 else value
        width = max(1, _BLOCK // max(1, rows.itemsize * int(np.prod(rows.shape[1:]))))
        for start in range(0, len(rows), width):
            block = np.ascontiguousarray(rows[start : start + width])
            self._hash.update(block.reshape(-1).view(np.uint8).data)

    def _is_own(self, thing: Any) -> bool:
        """Whether code is the user's own; the version of its package represents any other."""
        if code.is_own(thing):
            return True
        if isinstance(thing, types.FunctionType):  # whose __module__ may be that of another, which it wraps
            name = thing.__globals__.get("__name__")
        else:
            name = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
        package = name.partition(".")[0] if isinstance(name, str) else "builtins"
        # Types that cython makes name a module that no file is behind, with its version.
        if getattr(sys.modules.get(package), "__spec__", None) is not None:
            self.packages.add(package)
        return False

    def _say(self, text: str) -> None:
        self._hash.update(f"{text}\n".encode(errors="surrogatepass"))


def key_of(value: Any) -> str:
    """Return the digest of a value; of one that cannot be read completely, a word that nothing else has."""
    digest = Digest()
    digest.add(value)
    return uuid.uuid4().hex if digest.unread else digest.hexdigest()


def state(value: Any) -> dict[str, Any]:
    """Return an object's attributes without running its code; of a torch module what outputs depend on."""
    attributes: dict[str, Any] = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and not name.startswith("__"):
                try:
                    attributes[name] = member.__get__(value)
                except AttributeError:  # not set
                    continue
    attributes |= _attributes(value)
    if isinstance(value, nn.Module):
        hooks = {name: list(attributes[name].values()) for name in _HOOKS if attributes.get(name)}
        return {k: v for k, v in attributes.items() if k not in _INERT and "_hooks" not in k} | hooks
    return {name: part for name, part in attributes.items() if name not in _BY_PROCESS}


def _attributes(value: Any) -> dict[str, Any]:
    try:
        inside: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return inside


_HOOKS = ("_forward_pre_hooks", "_forward_hooks")  # by the number of the hook, which differs from run to run
_BY_PROCESS = {"_original_object_hash"}  # of transformers' GenerationConfig: another in every process
_INERT = {
    *("_non_persistent_buffers_set", "training", "_compiled_call_impl", "_is_full_backward_hook"),
    *("call_super_init",),
}


def _is_python(kind: type) -> bool:
    """Whether all that instances hold is in their attributes: no class of theirs makes them in C."""
    for base in kind.__mro__[:-1]:
        new = vars(base).get("__new__")
        if isinstance(new, types.BuiltinFunctionType) and new.__self__ is base:
            return False
    return True


def full_name(thing: Any) -> str:
    """Name a class or function with its module."""
    return f"{thing.__module__}.{thing.__qualname__}"
