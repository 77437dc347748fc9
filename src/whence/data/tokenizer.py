"""The tokeniser inside of what makes a model's inputs: by it tokens are shown as the text they stand for."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

from whence.core.fingerprint import code

_DEEP = 4  # steps from a function to the tokeniser: what it calls, what that encloses, and so on
_WIDE = 500  # things that are looked at


def is_tokenizer(thing: Any) -> bool:
    """Whether a thing is a tokeniser of transformers, by what is asked of one here."""
    return not isinstance(thing, type) and callable(getattr(thing, "convert_ids_to_tokens", None))


def find_tokenizer(*things: Any) -> Any:
    """Find a tokeniser among things or inside them; None where there is none.

    Looked into are attributes, partial functions, methods, what functions enclose, take as defaults and use
    of their module, and what a function that keeps its one result has already made. No code of the user's is
    run.
    """
    seen: set[int] = set()
    nearest = [thing for thing in things if thing is not None]
    for _ in range(_DEEP + 1):
        further: list[Any] = []
        for thing in nearest:
            if is_tokenizer(thing):
                return thing
            if id(thing) not in seen and len(seen) < _WIDE:
                seen.add(id(thing))
                further += _inside(thing)
        nearest = further
    return None


def _inside(thing: Any) -> Iterator[Any]:
    """Return what a thing is made of, as far as a tokeniser may be in it."""
    if isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, types.MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, types.FunctionType):
        yield from code.enclosed(thing).values()
        yield from (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        yield from code.uses(thing).values()
    elif _is_kept(thing):
        yield thing()
    elif isinstance(thing, Mapping):
        yield from thing.values()
    elif isinstance(thing, list | tuple):
        yield from thing
    elif not isinstance(thing, type | types.ModuleType):
        yield from getattr(thing, "__dict__", {}).values()
        yield inspect.getattr_static(type(thing), "__call__", None)
    yield getattr(thing, "__wrapped__", None)


def _is_kept(thing: Any) -> bool:
    """Whether a thing is a cached function without arguments that has its result: to call it runs nothing."""
    kept = getattr(thing, "cache_info", None)
    return callable(kept) and kept().currsize == 1 and not inspect.signature(thing).parameters
