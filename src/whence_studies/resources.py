"""The cost of a method: time, cache and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from whence import engine
from whence.attribution.base import Attributor
from whence.core.checks import check_callable, check_that
from whence.core.display import displayed
from whence.model.inputs import check_batch

Thing = TypeVar("Thing")

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@displayed()
@dataclass(frozen=True)
class Resources:
    """The cost of fitting a method and explaining some tests.

    Attributes
    ----------
    fit_seconds : seconds of ``fit``, the paper's caching time
    explain_seconds : seconds of attributing all tests
    cpu_seconds : CPU seconds of both, which other jobs on the machine do not lengthen
    n_tests : number of tests
    cache_bytes : size of what ``fit`` keeps
    peak_bytes : by how much the process's memory rose above its value before ``fit``; None if the system does
        not report it. Memory kept by an earlier step hides part of it: compare methods in separate processes.
    peak_device_bytes : the largest amount allocated on the GPU; None without one
    """

    fit_seconds: float
    explain_seconds: float
    cpu_seconds: float
    n_tests: int
    cache_bytes: int
    peak_bytes: int | None
    peak_device_bytes: int | None

    def after(self, *before: Spent) -> Resources:
        """Return the cost including what the method reused from others, listed in ``before``."""
        peaks = self.peak_bytes, self.peak_device_bytes
        for one in reversed(before):
            peaks = one.peak_before(*peaks)
        return replace(
            self,
            fit_seconds=self.fit_seconds + sum(one.seconds for one in before),
            cpu_seconds=self.cpu_seconds + sum(one.cpu_seconds for one in before),
            peak_bytes=peaks[0],
            peak_device_bytes=peaks[1],
        )


@displayed()
@dataclass(frozen=True)
class Spent:
    """The cost of something that several methods reuse.

    Attributes
    ----------
    seconds, cpu_seconds : wall-clock and CPU seconds
    kept_bytes : its size
    peak_bytes, peak_device_bytes : by how much memory rose meanwhile; None as in ``Resources``
    """

    seconds: float
    cpu_seconds: float
    kept_bytes: int
    peak_bytes: int | None
    peak_device_bytes: int | None

    def peak_before(self, host: int | None, device: int | None) -> tuple[int | None, int | None]:
        """Return by how much memory rises in all, if the next step raises it by ``host`` and ``device``."""
        rise = None if host is None else max(self.peak_bytes or 0, self.kept_bytes + host)
        # The device counts what was allocated before.
        return rise, None if device is None else max(self.peak_device_bytes or 0, device)


@displayed()
class Measured(NamedTuple):
    """A fitted attributor, its scores (test, train), and the cost of both."""

    attributor: Attributor
    scores: Tensor
    resources: Resources


def spending(make: Callable[[], Thing], size: Callable[[Thing], int]) -> tuple[Thing, Spent]:
    """Call ``make`` in this process and record its cost; ``size`` returns the bytes of the result."""
    started, began = time.perf_counter(), time.process_time()
    with engine.using("local"), _peak() as peak:
        made = make()
    seconds, cpu = time.perf_counter() - started, time.process_time() - began
    return made, Spent(seconds, cpu, size(made), peak.get("host"), peak.get("device"))


def measure(fit: Callable[[], Attributor], x: Any, target: Any = None) -> Measured:
    """Fit a method and explain tests with it in this process, and record the cost.

    Parameters
    ----------
    fit
        Function that makes and fits the attributor: ``lambda: DualDA().fit(model, data)``.
    x, target
        The tests, as for ``Attributor.attribute``.
    """
    check_callable("fit", fit, "a function that makes and fits an attributor")
    n, began = check_batch(x), time.process_time()
    with engine.using("local"), _peak() as peak:  # other processes cannot be measured
        attributor = fit()
        check_that(isinstance(attributor, Attributor), "fit", "return a fitted attributor", attributor)
        started = time.perf_counter()
        scores = attributor.attribute(x, target)
        if scores.is_cuda:
            torch.cuda.synchronize(scores.device)
        seconds = time.perf_counter() - started
    resources = Resources(
        fit_seconds=attributor.fit_seconds_,
        explain_seconds=seconds,
        cpu_seconds=time.process_time() - began,
        n_tests=n,
        cache_bytes=attributor.cache_bytes_,
        peak_bytes=peak.get("host"),
        peak_device_bytes=peak.get("device"),
    )
    return Measured(attributor, scores, resources)


@contextmanager
def _peak() -> Iterator[dict[str, int]]:
    """Yield a record that holds, after the block, by how many bytes memory rose."""
    rises: dict[str, int] = {}
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    before = None
    with suppress(OSError):  # reset the peak where Linux allows it
        _CLEAR.write_text("5", encoding="ascii")
        before = _kilobytes("VmRSS")
    yield rises
    if before is not None:
        rises["host"] = max(0, _kilobytes("VmHWM") - before) * 1024
    if gpu:
        rises["device"] = torch.cuda.max_memory_allocated()


def _kilobytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
