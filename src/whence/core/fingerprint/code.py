"""Digests of functions and classes: their compiled code, and what they use from outside."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

_BYTES = 32
_codes: dict[int, tuple[types.CodeType, str]] = {}  # the code too, so that its id is not reused
_PATHS = sysconfig.get_paths()
_STANDARD = tuple(_PATHS[name] for name in ("stdlib", "platstdlib"))
# Includes this package, in any place: ``source`` represents its code.
_INSTALLED = (*(_PATHS[name] for name in ("purelib", "platlib")), str(Path(__file__).parents[2]))
# Paths of another Python or of the system, which a virtual environment may share.
_PACKAGES = {"site-packages", "dist-packages"}


def of(code: types.CodeType) -> str:
    """Digest compiled code, independently of its place and comments."""
    if id(code) not in _codes:
        digest = hashlib.sha256(code.co_code)
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            digest.update(repr(names).encode())
        for value in code.co_consts:
            digest.update(_constant(value).encode())
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


def methods(kind: type) -> list[types.FunctionType]:
    """Return the functions of a class and its base classes, including those of properties.

    Those of torch's base class are left out: packages change them when they are imported.
    """
    functions = []
    for base in kind.__mro__[:-1]:
        if base.__module__ == "torch.nn.modules.module":
            continue
        for _, value in sorted(vars(base).items(), key=lambda item: item[0]):
            functions += [part for part in _functions(value) if isinstance(part, types.FunctionType)]
    return functions


def _functions(value: Any) -> list[Any]:
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, functools.cached_property):
        return [value.func]
    return [inspect.unwrap(value), value] if hasattr(value, "__wrapped__") else [value]


def constants(kind: type) -> dict[str, Any]:
    """Return the attributes of the user's own classes besides functions, by name."""
    values: dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        if is_own(base):
            values |= {
                name: value
                for name, value in vars(base).items()
                if not (name.startswith("__") and name.endswith("__"))
                and not hasattr(value, "__get__")
                and not name.startswith("_abc_")
            }
    return values


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
    """Return what a function depends on besides its code: defaults, and enclosed values."""
    return [function.__defaults__, function.__kwdefaults__, enclosed(function)]


def uses(function: types.FunctionType) -> dict[str, Any]:
    """Return what a user's function uses from its module, and from other modules of theirs.

    Objects of installed packages count by name: their versions represent their code.
    """
    if not is_own(function):
        return {}
    names = _names(function.__code__)
    values: dict[str, Any] = {}
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        if not isinstance(value, types.ModuleType):
            values[f"{function.__module__}.{name}"] = _named(value)
        elif is_own(value):
            inside = {other: vars(value)[other] for other in names if other in vars(value)}
            values |= {f"{value.__name__}.{other}": _named(part) for other, part in inside.items()}
    return values


def _named(value: Any) -> Any:
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and not is_own(value):
        return f"{value.__module__}.{value.__qualname__}"
    return value


def _names(code: types.CodeType) -> list[str]:
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _names(part)]
    return sorted({*code.co_names, *inner})


def is_own(thing: Any) -> bool:
    """Return whether a function, class or module is the user's own, not from Python or a package."""
    file = _file(thing)
    return file is not None and not file.startswith((*_STANDARD, "<frozen")) and not _is_installed(file)


def is_standard(kind: type) -> bool:
    """Return whether a class is part of Python."""
    file = _file(kind)
    return file is None or (file.startswith(_STANDARD) and not _is_installed(file))


def _is_installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or not _PACKAGES.isdisjoint(Path(file).parts)


def _file(thing: Any) -> str | None:
    if isinstance(thing, types.FunctionType):
        return thing.__code__.co_filename
    name = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)
    module = sys.modules.get(name or "")
    if name == "__main__":
        return getattr(module, "__file__", None) or "__main__"
    return getattr(module, "__file__", None)
