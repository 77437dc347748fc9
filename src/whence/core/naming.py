"""Objects that a user names as ``module:name``, imported on demand."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from whence.errors import InvalidInputError, WhenceError


def make_named(argument: str, name: str, folder: Path | None = None, **offered: Any) -> Any:
    """Import ``module:name``; call it if it is a function, with the offered arguments that it takes."""
    thing = import_named(argument, name)
    # Only functions are called: a torch model is callable too, but used unchanged.
    if isinstance(thing, type):
        return thing()
    if not (isinstance(thing, functools.partial) or inspect.isroutine(thing)):
        return thing
    offered["folder"] = folder
    needed = _needed(thing) - offered.keys()
    if needed:
        raise InvalidInputError(
            f"'{argument}' must name a function that needs no arguments other than {', '.join(offered)}. "
            f"Got {name!r}, which needs {', '.join(sorted(needed))}."
        )
    return call_with(thing, **offered)


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports its names lazily.

    The names are those imported for type checkers, below ``if TYPE_CHECKING:``.
    """
    tree = ast.parse(inspect.getsource(sys.modules[package]))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names if node.level == 0}

    def load(name: str) -> Any:
        if not homes.get(name, "").startswith("whence."):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *homes})


@contextmanager
def optional_import(message: str) -> Iterator[None]:
    """Raise InvalidInputError with a message if an import inside fails."""
    try:
        yield
    except ImportError as error:
        raise InvalidInputError(message) from error


def app_import(what: str) -> AbstractContextManager[None]:
    """Raise InvalidInputError, naming the extra ``app``, if an import inside fails."""
    return optional_import(f"{what} needs packages that are not installed. Run: pip install 'whence[app]'")


@contextmanager
def name_errors(what: str) -> Iterator[None]:
    """Add a description to an error of the user's code; errors of whence stay unchanged."""
    try:
        yield
    except WhenceError:
        raise
    except Exception as error:
        raise InvalidInputError(f"{what} failed: {type(error).__name__}: {error}.") from error


def call_with(function: Any, *given: Any, **offered: Any) -> Any:
    """Call a user's function with those of the offered arguments that it takes by name."""
    try:
        taken = inspect.signature(function).parameters
    except ValueError:  # some functions are not written in Python
        return function(*given)
    return function(*given, **{name: value for name, value in offered.items() if name in taken})


def _needed(function: Any) -> set[str]:
    """The arguments without which a function cannot be called."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions are not written in Python
        return set()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {one.name for one in parameters if one.default is one.empty and one.kind not in several}


def find_origin(name: str) -> str:
    """Return where ``module:name`` would be imported from, without importing it."""
    top = name.partition(":")[0].partition(".")[0]
    # By the top package only: Python would import it to find a module inside it.
    spec = PathFinder.find_spec(top, ["", *sys.path]) if top.isidentifier() else None
    place = None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return "found nowhere" if place is None else f"from {place}"


def import_named(argument: str, name: str) -> Any:
    """Import ``module:name``, also from the working folder."""
    module, _, attribute = name.partition(":")
    if not module or not attribute or module.startswith("."):
        raise InvalidInputError(f"'{argument}' must be given as module:name. Got {name!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the module exists, but one of its imports does not
        raise InvalidInputError(
            f"'{argument}' must name a module that can be imported from here or from the environment. "
            f"Got {name!r} ({error})."
        ) from error
    try:
        return getattr(imported, attribute)
    except AttributeError as error:
        raise InvalidInputError(f"'{argument}': the module {module!r} has no {attribute!r}.") from error
