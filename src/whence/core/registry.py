"""Registries of named objects, those of whence and those of users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from pkgutil import walk_packages
from typing import Any, Generic, TypeVar

from whence.core.naming import import_named
from whence.errors import InvalidInputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named objects of one kind, with case-insensitive names. Users register theirs, or name ``module:name``.

    Parameters
    ----------
    kind : what the things are, in the singular and in words, such as "attribution method"
    accepts : returns whether something is of the kind
    name_of : returns the name of a thing
    stands_for : returns the class or function that a thing stands for, and is known by when it is redefined
    package : its modules register whence's own things, and are imported when a name is first looked up
    """

    def __init__(
        self,
        kind: str,
        accepts: Callable[[Any], bool],
        name_of: Callable[[T], str] = attrgetter("name"),
        stands_for: Callable[[T], Any] = lambda thing: thing,
        package: str = "",
    ) -> None:
        self.kind, self.accepts, self.name_of, self.stands_for = kind, accepts, name_of, stands_for
        self._package = package
        self._things: dict[str, T] = {}
        _ALL.append(self)

    def add(self, thing: T) -> T:
        """Register an object under its name, which must be new unless the same object is redefined."""
        name = self.name_of(thing)
        if not self.stands_for(thing).__module__.startswith(f"{self._package}."):
            self._load()
        before = self._things.get(name.casefold())
        if before is not None:
            old, new = self.stands_for(before), self.stands_for(thing)
            if not _same(old, new):
                raise InvalidInputError(
                    f"The name of the {self.kind} {_place(new)} must be new. Got {name!r}, "
                    f"which {_place(old)} has."
                )
        self._things[name.casefold()] = thing
        return thing

    def names(self) -> list[str]:
        """Return all registered names, sorted."""
        self._load()
        return sorted(map(self.name_of, self._things.values()))

    def __iter__(self) -> Iterator[T]:
        """Iterate over all registered objects, in the order of registration."""
        self._load()
        return iter(list(self._things.values()))

    def __contains__(self, name: object) -> bool:
        """Return whether a name is registered."""
        self._load()
        return isinstance(name, str) and name.casefold() in self._things

    def get(self, name: Any, argument: str = "name") -> T:
        """Return the object of a name, or of ``module:name``, also from the working folder.

        ``argument`` is what the error calls it.
        """
        if name in self:
            return self._things[name.casefold()]
        if isinstance(name, str) and all(name.partition(":")):
            thing = import_named(argument, name)
            if not self.accepts(thing):
                raise InvalidInputError(
                    f"'{argument}' must name a{'n' * (self.kind[:1] in 'aeiou')} {self.kind}. "
                    f"Got {name!r}, a {type(thing).__name__}."
                )
            return thing  # type: ignore[no-any-return]
        raise InvalidInputError(
            f"'{argument}' must be one of {', '.join(self.names())}, or module:name of your own. "
            f"Got {name!r}."
        )

    def _load(self) -> None:
        """Import the package, once."""
        package, self._package = self._package, ""
        if package:
            import_all(package)


_ALL: list[Registry[Any]] = []


def register(thing: T) -> T:
    """Register your own method, task, metric, relevance rule, data source, network or engine.

    A class decorator, or a function of an object; the first registry that accepts it takes it.

    Examples
    --------
    >>> import whence
    >>> @whence.register
    ... class Nearest(whence.methods.Similarity):
    ...     name = "nearest"
    >>> "nearest" in whence.methods.names()
    True
    """
    for registry in _ALL:
        if registry.accepts(thing):
            registry.add(thing)
            return thing
    kinds = ", ".join(registry.kind for registry in _ALL)
    raise InvalidInputError(f"What is registered must be one of: {kinds}. Got {thing!r}.")


def import_all(package: str) -> None:
    """Import every module of a package, so that they register themselves: adding a file is enough."""
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        import_module(module.name)


def _same(before: Any, thing: Any) -> bool:
    """Return whether an object is a redefinition of another; two instances are compared by equality."""
    return _place(before) == _place(thing) and (hasattr(thing, "__qualname__") or bool(before == thing))


def _place(thing: Any) -> str:
    kind = thing if isinstance(thing, type) or hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"
