"""The engine for the machines of a Ray cluster, or for this one by Ray."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing.util import Finalize
from typing import Any

from whence.core.checks import check_count, check_is, check_number
from whence.core.naming import optional_import
from whence.engine.base import (
    ENGINES,
    Engine,
    Group,
    Outcome,
    Piece,
    Surroundings,
    answer,
    answered,
    limited,
    sendable,
    unsendable,
)
from whence.errors import InvalidInputError, LostError, WorkerError

RETRIES = 3
"""Retries of a piece whose worker or node was lost; a piece that always ends its worker is given up."""

_AHEAD = 2  # pieces submitted per worker, so that none waits for this process
_FUNCTIONS = 2  # functions that stay in the object store and in workers for another run


@ENGINES.add
class Ray(Engine):
    """Runs pieces as tasks of Ray: on many machines, with their GPUs.

    A function, with the model or the features it holds, goes to Ray's object store once, even if several
    runs in a row are given it, and from there once to each node, whose workers share its numpy arrays,
    read-only. A worker or a node that is lost costs time alone: its pieces run again elsewhere, up to three
    times. Modules and relative paths are looked for where they are here, so the machines must have whence,
    and code and data of one's own at the same place: a cluster sees them on shared storage.

    Whoever can reach a cluster can run code on it, and it on this machine: connect to your own only.

    Parameters
    ----------
    address
        Of a cluster: "auto" for the one that this machine is part of, or host:port. None takes the Ray that
        this process is connected to; without one it begins Ray on this machine, for this machine alone,
        which ends with this object.
    n_shards
        Into how many shards the training samples of one solution are divided; None for one per worker where
        their features do not fit into the memory here, and for none where they do: one machine is then
        faster. At most 65,536.
    gpus
        GPUs per piece; less than 1 lets pieces share one. Move the model there by ``device="cuda"``.

    Examples
    --------
    >>> from whence import engine
    >>> with engine.using("ray"):  # doctest: +SKIP
    ...     engine.results(abs, [-1, 2])
    [1, 2]
    """

    name = "ray"

    def __init__(self, address: str | None = None, n_shards: int | None = None, gpus: float = 0.0) -> None:
        if address is not None:
            check_is("address", address, str, '"auto", host:port of a Ray cluster, or None')
        self.address = address
        self.n_shards = None if n_shards is None else check_count("n_shards", n_shards, most=65_536)
        self.gpus = check_number("gpus", gpus, 0.0)
        with (
            optional_import("The engine 'ray' needs Ray. Run: pip install 'whence[ray]'"),
            _for_this_machine(address),
        ):
            import ray
        self._ray: Any = ray
        self._sent: list[tuple[Piece, Any]] = []

    def run(self, function: Piece, items: list[Any], threads: int | None) -> Generator[Outcome]:
        """Yield every item's outcome as it ends."""
        if not items:
            return
        ray = self._connected()
        workers, cpus = self._workers(threads)
        held = self._held(function)
        options = {"num_cpus": cpus, "num_gpus": self.gpus, "max_retries": RETRIES}
        work = ray.remote(**options, scheduling_strategy="SPREAD")(_work)
        there, window = Surroundings.here(threads), _AHEAD * workers
        pending: dict[Any, int] = {}
        due = 0
        try:
            while pending or due < len(items):
                while due < len(items) and len(pending) < window:
                    pending[work.remote(there, [held], sendable("items", items[due]))] = due
                    due += 1
                (done,), _ = ray.wait(list(pending), num_returns=1)
                yield _outcome(ray, done, pending.pop(done))
        finally:
            for left in pending:
                ray.cancel(left, force=True)

    def shards(self, on_disk: bool) -> int:
        """Return one shard per worker if features do not fit into memory here, or the requested number."""
        if self.n_shards is not None:
            return self.n_shards
        return self._workers(1)[0] if on_disk else 1

    def group(self, make: Callable[[Any], Any], items: list[Any], threads: int | None = None) -> Group:
        """Make every object in its own worker."""
        self._connected()
        return _Actors(self._ray, make, [self._put("items", item) for item in items], threads)

    def _held(self, function: Piece) -> Any:
        """Put a function into the object store, unless it is one of the last few."""
        for known, reference in self._sent:
            if known is function:
                return reference
        reference = self._put("function", function)
        self._sent = [*self._sent, (function, reference)][-_FUNCTIONS:]
        return reference

    def _put(self, name: str, value: Any) -> Any:
        try:
            return self._connected().put(value)
        except TypeError as error:
            raise unsendable(name, error) from error

    def _workers(self, threads: int | None) -> tuple[int, int]:
        """Return how many pieces run at a time, and how many CPUs each requests."""
        nodes = [node["Resources"] for node in self._connected().nodes() if node["Alive"]]
        cores = [int(node.get("CPU", 0)) for node in nodes]
        cpus = min(
            threads or 1, max(cores, default=1) or 1
        )  # a request for more than a node has would never start
        at_a_time = sum(n // cpus for n in cores)
        if self.gpus:
            gpus = sum(node.get("GPU", 0.0) for node in nodes)
            if gpus < self.gpus:
                raise InvalidInputError(
                    f"'gpus' must be at most what the cluster has, {gpus:g}. Got {self.gpus:g}."
                )
            at_a_time = min(at_a_time, int(gpus / self.gpus))
        return max(1, at_a_time), cpus

    def _connected(self) -> Any:
        """Connect to Ray and return it."""
        ray = self._ray
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "address": self.address}
            if self.address is None:
                options |= {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            try:
                with _for_this_machine(self.address):
                    ray.init(**options)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InvalidInputError(
                    f"'address' must be that of a Ray cluster, or None to begin Ray on this machine. Got "
                    f"{self.address!r}: {error}"
                ) from error
            self._sent = []  # references to another Ray are lost
            Finalize(self, ray.shutdown, exitpriority=0)
        return ray


class _Actors(Group):
    """Objects in actors, each made of a ``make`` and an item in the object store."""

    def __init__(self, ray: Any, make: Callable[[Any], Any], items: list[Any], threads: int | None) -> None:
        self._ray, self._items = ray, items
        self._made_by, self._there = ray.put(make), Surroundings.here(threads)
        # Without CPUs of their own: they wait most of the time, and would block tasks.
        self._kind = ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(_Member)
        super().__init__([self._begin(item) for item in items])

    def call(self, method: str, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call every object; objects of lost workers are remade, and named in the error."""
        everyone = [self._ray.put(value) for value in shared]
        calls = [
            member.call.remote(method, *first, *everyone)
            for member, first in zip(self._members, self._firsts(each), strict=True)
        ]
        values, lost, why = [], [], None
        for place, called in enumerate(calls):
            outcome = _outcome(self._ray, called, place)
            if isinstance(outcome.error, WorkerError):
                self._ray.kill(self._members[place])
                self._members[place] = self._begin(self._items[place])
                lost.append(place)
                why = outcome.error
            elif outcome.error is not None:
                outcome.error.add_note(outcome.details or "")
                raise outcome.error
            values.append(outcome.value)
        if lost:
            raise LostError(lost, str(why))
        return values

    def _begin(self, item: Any) -> Any:
        return self._kind.remote(self._there, [self._made_by, item])


class _Member:
    """An object in an actor."""

    def __init__(self, there: Surroundings, held: list[Any]) -> None:
        self._there, self._held = there, held
        self._object: Any = None

    def call(self, method: str, *arguments: Any) -> bytes:
        """Call its method, after making the object in the first call: errors of either are answers."""
        return answer(self._called, (method, arguments))

    def _called(self, asked: tuple[str, tuple[Any, ...]]) -> Any:
        import ray

        method, arguments = asked
        if self._object is None:
            _move_to(self._there)
            make, item = ray.get(self._held)
            self._object = make(item)
        with limited(self._there.threads):
            return getattr(self._object, method)(*arguments)


@lru_cache(maxsize=_FUNCTIONS)
def _function(there: Surroundings, reference: Any) -> Piece:
    """Fetch a function once per worker."""
    import ray

    _move_to(there)
    return ray.get(reference)  # type: ignore[no-any-return]


def _work(there: Surroundings, held: list[Any], sent: bytes) -> bytes:
    """Run a piece in a worker."""

    def piece(sent: bytes) -> Any:
        function = _function(there, held[0])
        with limited(there.threads):
            return function(pickle.loads(sent))

    return answer(piece, sent)


def _move_to(there: Surroundings) -> None:
    """Search modules and files where the program does, in addition to the worker's own places."""
    sys.path[:] = dict.fromkeys([*there.path, *sys.path])
    with suppress(OSError):
        os.chdir(there.folder)
    there.import_torch()


def _outcome(ray: Any, reference: Any, place: int) -> Outcome:
    try:
        return answered(ray.get(reference), place)
    except ray.exceptions.RayTaskError as error:  # raised outside of the piece
        return Outcome(place, error=WorkerError(f"its worker failed: {error}"))
    except ray.exceptions.RayError as error:
        first = str(error).strip().partition("\n")[0]
        return Outcome(place, error=WorkerError(f"its worker was lost ({first})"))


@contextmanager
def _for_this_machine(address: str | None) -> Iterator[None]:
    """Restrict a Ray of our own to this machine, without usage reports.

    Ray reads the first when it is imported; only a Ray that was imported before listens to the network, which
    it does with a token that others lack.
    """
    wanted = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED") if address is None else ()
    added = [name for name in wanted if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "0"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
