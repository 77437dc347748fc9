"""The calls of engines, and of parts that users add to evaluations, each with arguments that are right."""

from __future__ import annotations

from typing import Any

from torch import nn

import whence_studies as studies
from tests.fuzz import kinds, things, world
from tests.fuzz.calling import Arg, Call, need
from whence import engine

WHERE = kinds.choice([None, "local"])
THREADS = kinds.without(kinds.count(none=True), "large", "huge")
WORK = {
    # A piece that fails where it runs is the user's own error, of whatever type.
    "function": need(kinds.without(things.FUNCTION, "too_few") + kinds.NONE, lambda: str),
    "items": need(
        kinds.may(kinds.JUNK, "text", "mapping", "octets")
        + kinds.NONE
        + kinds.wrong(number=lambda v: 3)
        + kinds.odd(none_at_all=lambda v: [], generator=lambda v: (each for each in v)),
        lambda: [1, 2, 3],
    ),
    "engine": Arg(WHERE, lambda: "local"),
    "threads": Arg(THREADS, lambda: 1),
}
MAKES = need(things.FUNCTION + kinds.NONE, lambda: linear)


def linear(inputs: Any, n_classes: int) -> nn.Module:
    """A network, as protocols want it."""
    return nn.Linear(inputs.shape[1], n_classes)


def _within(manager: Any) -> Any:
    def entered(**given: Any) -> Any:
        with manager(**given):
            return engine.results(abs, [-1])

    return entered


def _each(result: Any, args: dict[str, Any]) -> bool:
    return not isinstance(args["items"], list) or len(result) == len(args["items"])


ENGINE = [
    Call("engine.run", lambda: lambda **given: list(engine.run(**given)), WORK, _each),
    Call("engine.ordered", lambda: lambda **given: list(engine.ordered(**given)), WORK, _each),
    Call("engine.results", lambda: engine.results, WORK, _each),
    Call("engine.using", lambda: _within(engine.using), {"engine": need(WHERE, lambda: "local")}),
    Call("engine.limited", lambda: _within(engine.limited), {"n": need(THREADS, lambda: 1)}),
    Call("engine.names", lambda: engine.names, {}, lambda result, args: "local" in result),
    Call("Processes", lambda: engine.Processes, {"n": Arg(kinds.count(none=True), lambda: 2)}),
]
PARTS = [
    Call("Source", lambda: lambda read: studies.Source("own", read), {"read": MAKES}),
    Call("Network", lambda: lambda make: studies.Network("own", make), {"make": MAKES}),
    Call(
        "Network.build",
        lambda: lambda make: studies.Network("own", make).build(world.X(), world.K),
        {"make": MAKES},
        lambda result, args: isinstance(result, nn.Module),
    ),
]
ENGINES = [*ENGINE, *PARTS]
