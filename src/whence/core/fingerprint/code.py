"""Digests of functions and classes: their compiled code, and what they use from outside."""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import sys
import sysconfig
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

_BYTES = 32
_codes: dict[int, tuple[types.CodeType, str]] = {}  # the code too, so that its id is not reused
_PATHS = sysconfig.get_paths()
_STANDARD = tuple(_PATHS[name] for name in ("stdlib", "platstdlib"))
# Includes this package, in any place: ``source`` represents its code.
_INSTALLED = (*(_PATHS[name] for name in ("purelib", "platlib")), str(Path(__file__).parents[2]))
# Paths of another Python or of the system, which a virtual environment may share.
_PACKAGES = {"site-packages", "dist-packages"}
# Through these, code reaches what nobody can see in it.
_BLIND = (
    open,
    eval,
    exec,
    compile,
    globals,
    __import__,
    input,
    importlib.import_module,
    os.getenv,
    os.environ,
)


def of(code: types.CodeType) -> str:
    """Digest compiled code, independently of its place and comments."""
    if id(code) not in _codes:
        digest = hashlib.sha256(code.co_code + b"\n" + code.co_exceptiontable)
        counts = code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        for names in (counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            digest.update(repr(names).encode())
        for value in code.co_consts:
            digest.update(_constant(value).encode(errors="surrogatepass"))
        _codes[id(code)] = code, digest.hexdigest()[:_BYTES]
    return _codes[id(code)][1]


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return of(value)
    if isinstance(value, frozenset):
        return f"set {sorted(map(repr, value))}"
    return f"{type(value).__name__} {value!r}"


@functools.cache
def source(*names: str) -> str:
    """Digest the code of modules and packages, without comments and docstrings.

    Results are cached under this digest, so that other code computes them again.
    """
    digest = hashlib.sha256()
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        main = Path(spec.origin)
        inside = spec.submodule_search_locations is not None
        for path in sorted(main.parent.rglob("*.py")) if inside else [main]:
            compiled = compile(path.read_bytes(), path.name, "exec", optimize=2, dont_inherit=True)
            digest.update(f"{name} {path.relative_to(main.parent)} {of(compiled)}\n".encode())
    return digest.hexdigest()[:_BYTES]


# Classes


def methods(kind: type) -> dict[str, list[types.FunctionType]]:
    """Return the functions of a class and its base classes by name, including those of properties.

    Of classes of packages these are only the functions that the user put there.
    """
    functions: dict[str, list[types.FunctionType]] = {}
    for base in kind.__mro__[:-1]:
        own = is_own(base)
        for name, value in sorted(vars(base).items(), key=lambda item: item[0]):
            for part in _functions(value):
                if isinstance(part, types.FunctionType) and (own or is_own(part)):
                    functions.setdefault(name, []).append(part)
    return functions


def _functions(value: Any) -> list[Any]:
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, functools.cached_property):
        return [value.func]
    return [value]


def constants(kind: type) -> dict[str, Any]:
    """Return the attributes of the user's own classes besides functions, by name; descriptors too."""
    values: dict[str, Any] = {}
    known = (property, staticmethod, classmethod, functools.cached_property, types.FunctionType)
    slots = (types.MemberDescriptorType, types.GetSetDescriptorType)
    for base in reversed(kind.__mro__[:-1]):
        if is_own(base):
            values |= {
                name: value
                for name, value in vars(base).items()
                if not (name.startswith("__") and name.endswith("__"))
                and not isinstance(value, (*known, *slots))
                and not name.startswith("_abc_")
            }
    return values


# Functions


def enclosed(function: types.FunctionType) -> dict[str, Any]:
    """Return the enclosed values of a function, by name."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not set yet
            values[name] = "empty"
    return values


def around(function: types.FunctionType) -> list[Any]:
    """Return what a function depends on besides its code: defaults, enclosed values and its attributes."""
    return [function.__defaults__, function.__kwdefaults__, enclosed(function), dict(vars(function))]


@dataclass(frozen=True)
class Missing:
    """What code names and nobody can look at: a module not yet imported, an attribute made on request."""

    name: str


def uses(function: types.FunctionType) -> dict[str, Any]:
    """Return what a user's function uses from outside, by full name: from its module and from others.

    Only names that the code looks up as globals or imports count, not those of attributes: ``self.fc``
    has nothing to do with a global called ``fc``. A chain such as ``pkg.part.RATE`` is followed to its end.
    """
    if not is_own(function):
        return {}
    values: dict[str, Any] = {}
    outside = _outside(function.__code__)
    for first, *rest in sorted(outside.chains):
        value = function.__globals__.get(first, vars(builtins).get(first))
        if first in function.__globals__:
            values |= [_followed(f"{function.__module__}.{first}", value, rest)]
        elif first in vars(builtins) and (is_blind(value) or not _is_builtin(value)):
            values[f"builtins.{first}"] = value
    package = function.__globals__.get("__package__") or ""
    for module, names in sorted(outside.imports):
        full = importlib.util.resolve_name(module, package) if package else module
        value = sys.modules.get(full)
        if value is None:
            values[full] = Missing(full) if _may_be_own(full) else full
        elif names:
            values |= [_followed(full, value, (name,)) for name in names]
        else:
            values |= [_followed(full, value, ())]
    return values


def is_blind(value: Any) -> bool:
    """Whether code reaches through a value what nobody can see in it: files, the environment, other code."""
    return any(value is one for one in _BLIND)


def _is_builtin(value: Any) -> bool:
    return isinstance(value, type | types.BuiltinFunctionType) and value.__module__ == "builtins"


def _followed(name: str, value: Any, rest: Sequence[str]) -> tuple[str, Any]:
    """Follow attributes as long as they lead through modules; return where they end."""
    for attribute in rest:
        if not isinstance(value, types.ModuleType):
            break
        name = f"{value.__name__}.{attribute}"
        if attribute in vars(value):
            value = vars(value)[attribute]
        elif name in sys.modules:
            value = sys.modules[name]
        else:
            return name, Missing(name) if is_own(value) else name
    return name, value


def _may_be_own(name: str) -> bool:
    """Whether a module that is not imported yet may be the user's own."""
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return True
    return spec is None or spec.origin is None or _is_own_file(spec.origin)


def is_dynamic(code: types.CodeType) -> bool:
    """Whether code takes attributes whose names it does not write out."""
    outside = _outside(code)
    return bool(
        {"getattr", "vars", "eval", "exec", "operator"} & {chain[0] for chain in outside.chains}
    ) or bool({"__dict__", "__getattribute__"} & outside.attributes)


def attributes(code: types.CodeType) -> frozenset[str]:
    """Return the names of all attributes that code takes of anything."""
    return _outside(code).attributes


class _Outside(NamedTuple):
    """What code names: globals with the attributes taken of them, imports, and all attributes."""

    chains: frozenset[tuple[str, ...]]
    imports: frozenset[tuple[str, tuple[str, ...]]]
    attributes: frozenset[str]


_outsides: dict[int, tuple[types.CodeType, _Outside]] = {}  # the code too, so that its id is not reused
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_SILENT = {"CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL"}


def _outside(code: types.CodeType) -> _Outside:
    if id(code) not in _outsides:
        chains, imports, taken = set(), set(), set()
        steps = [step for step in dis.get_instructions(code) if step.opname not in _SILENT]
        for i, step in enumerate(steps):
            if step.opname in _GLOBAL:
                rest = itertools.takewhile(lambda later: later.opname in _ATTRIBUTE, steps[i + 1 :])
                chains.add((step.argval, *(later.argval for later in rest)))
            elif step.opname in _ATTRIBUTE:
                taken.add(step.argval)
            elif step.opname == "IMPORT_NAME":
                level, names = steps[i - 2].argval, steps[i - 1].argval
                imports.add(("." * level + step.argval, tuple(names or ())))
        for part in code.co_consts:
            if isinstance(part, types.CodeType):
                inner = _outside(part)
                chains |= inner.chains
                imports |= inner.imports
                taken |= inner.attributes
        _outsides[id(code)] = code, _Outside(frozenset(chains), frozenset(imports), frozenset(taken))
    return _outsides[id(code)][1]


# Whose code it is


def is_own(thing: Any) -> bool:
    """Return whether a function, class or module is the user's own, not from Python or a package."""
    file = _file(thing)
    return file is not None and _is_own_file(file)


def _is_own_file(file: str) -> bool:
    return not file.startswith((*_STANDARD, "<frozen")) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or not _PACKAGES.isdisjoint(Path(file).parts)


def _file(thing: Any) -> str | None:
    if isinstance(thing, types.FunctionType):
        return thing.__code__.co_filename
    if not isinstance(thing, types.ModuleType | type | types.BuiltinFunctionType):
        return None
    name = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)
    if not isinstance(name, str):
        return None
    package = name.partition(".")[0]
    for module in (name, package):
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is not None:
            return str(file)
    if package in sys.stdlib_module_names and package != "__main__":
        return None
    # A class that was made in text of the user's, not one that a library made in C.
    made = not isinstance(thing, type) or any(isinstance(v, types.FunctionType) for v in vars(thing).values())
    return "unknown" if made else None


@functools.cache
def version(package: str) -> str | None:
    """Return the version of an installed package, which represents its code; None if it has none."""
    if package in sys.stdlib_module_names or package == "builtins":
        return sys.version.split()[0]
    known = getattr(sys.modules.get(package), "__version__", None)
    if known is None:
        try:
            known = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None
    return str(known)
