"""One case: a call with some arguments changed, run within a time limit, and judged by what it gave."""

from __future__ import annotations

import dataclasses
import faulthandler
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import issparse

from tests.fuzz.calling import EVERY, Call
from tests.fuzz.kinds import Mutation
from tests.fuzz.world import UserError, quiet
from whence.errors import WhenceError

SECONDS = 10.0
"""Of the processor that a case may take."""

GOOD = frozenset({"right", "refused", "the user's own error", "too few arguments"})
"""Outcomes that are as they should be."""

_OURS = ("whence.errors", "whence_studies.scenes.retrain")
"""Where the warnings are from that whence gives on purpose."""


class HangError(BaseException):
    """A case took too long; no ``except Exception`` on its way may take it."""


class Outcome(NamedTuple):
    """How a case ended: in a word, with the call, what was changed about it, the error, and the seconds."""

    word: str
    call: str
    changed: tuple[str, ...]
    error: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.word}: {self.call}({', '.join(self.changed)}) {self.seconds:.1f} s\n{self.error}"


def run(seed: int, case: int) -> Outcome:
    """Run one case, which seed and number alone decide."""
    rng = np.random.default_rng([seed, case])
    call = EVERY[rng.integers(len(EVERY))]
    args, changed, wrong, left_out = _arguments(call, rng)
    started = time.perf_counter()
    word, error = _judged(call, args, wrong, left_out)
    if word == "refused" and not changed and not call.refuses:
        word = "a right call refused"
    return Outcome(word, call.name, tuple(changed), error, time.perf_counter() - started)


def single() -> Iterator[tuple[Call, str, Mutation]]:
    """Every mutation of every argument of every call."""
    for call in EVERY:
        for name, arg in call.args.items():
            for mutation in arg.kind:
                yield call, name, mutation


def run_single(call: Call, name: str, mutation: Mutation) -> Outcome:
    """Run a right call with one argument replaced."""
    args = {other: arg.make() for other, arg in call.args.items() if arg.needed or other == name}
    with quiet():
        args[name] = mutation.change(args[name])
    started = time.perf_counter()
    word, error = _judged(call, args, mutation.wrong, False)
    return Outcome(word, call.name, (f"{name}: {mutation.name}",), error, time.perf_counter() - started)


def run_right(call: Call, *, whole: bool) -> Outcome:
    """Run a call with right arguments: those that must be there, or all."""
    args = {name: arg.make() for name, arg in call.args.items() if arg.needed or whole}
    started = time.perf_counter()
    word, error = _judged(call, args, False, False)
    if word == "refused" and not call.refuses:
        word = "a right call refused"
    return Outcome(word, call.name, (), error, time.perf_counter() - started)


def _arguments(call: Call, rng: np.random.Generator) -> tuple[dict[str, Any], list[str], bool, bool]:
    """Choose what is given, and what of it is changed."""
    can = [name for name, arg in call.args.items() if arg.kind]
    count = int(rng.choice([0, 1, 2], p=[0.05, 0.8, 0.15]))
    chosen = set(rng.permutation(can)[:count].tolist())
    left_out = bool(rng.random() < 0.01)
    args, changed, wrong = {}, [], False
    for name, arg in call.args.items():
        if name in chosen:
            mutation = arg.kind[rng.integers(len(arg.kind))]
            with quiet():
                args[name] = mutation.change(arg.make())
            changed.append(f"{name}: {mutation.name}")
            wrong |= mutation.wrong
        elif arg.needed or rng.random() < 0.3:
            args[name] = arg.make()
    needed = [name for name, arg in call.args.items() if arg.needed and name not in chosen]
    left_out = left_out and bool(needed)
    if left_out:
        del args[needed[0]]
        changed.append(f"{needed[0]}: left out")
    return args, changed, wrong, left_out


def _judged(call: Call, args: dict[str, Any], wrong: bool, left_out: bool) -> tuple[str, str]:
    with quiet():
        function = call.function()  # which may fit something first
    try:
        with limited(SECONDS), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(**args)
    except WhenceError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except UserError as error:
        return "the user's own error", str(error)
    except HangError:
        return "hang", traceback.format_exc(limit=-6)
    except Exception as error:
        if left_out and isinstance(error, TypeError) and "missing" in str(error):
            return "too few arguments", str(error)
        return "raw error", "".join(traceback.format_exception(error, limit=-6))
    foreign = [each for each in caught if each.category.__module__ not in _OURS]
    if wrong:
        return "nonsense taken", f"gave {type(result).__name__}: {str(result)[:300]}"
    if not call.nan and (place := not_finite(result)):
        return "not finite", place
    if not call.check(result, args):
        return "other shape than documented", f"gave {type(result).__name__}: {str(result)[:300]}"
    if foreign:
        first = foreign[0]
        return (
            "foreign warning",
            f"{first.category.__name__}: {first.message} ({first.filename}:{first.lineno})",
        )
    return "right", ""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise HangError in what takes longer; where even that is not heard, write all stacks and exit."""

    def ring(*_: Any) -> None:
        raise HangError

    # Of this process, so that a busy machine makes nothing hang; the other clock hears what only waits.
    faulthandler.dump_traceback_later(12 * seconds, exit=True)
    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        faulthandler.cancel_dump_traceback_later()


def not_finite(value: Any, place: str = "result", depth: int = 0) -> str:
    """Name the first place of a result that is NaN or infinite; empty where all is finite."""
    if isinstance(value, torch.Tensor):
        value = (
            value.detach().to_dense().float().numpy()
            if value.is_floating_point() and not value.is_meta
            else None
        )
    elif issparse(value):
        value = value.data
    if isinstance(value, np.ndarray | float | np.floating):
        kind = np.asarray(value).dtype.kind
        return "" if kind not in "fc" or np.isfinite(value).all() else f"{place}: {str(value)[:200]}"
    if depth > 5:
        return ""
    parts: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        parts = {str(key): part for key, part in value.items()}
    elif isinstance(value, tuple | list) or type(value).__name__ == "Explanations":
        parts = {str(i): part for i, part in enumerate(value)}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        known = {field.name for field in dataclasses.fields(value)}  # which a method may compute when asked
        parts = {name: part for name, part in vars(value).items() if name in known}
    found = (not_finite(part, f"{place}.{name}", depth + 1) for name, part in parts.items())
    return next((each for each in found if each), "")
