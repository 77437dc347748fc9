"""How far an evaluation is: of the planned CPU-seconds, those that are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from tqdm.auto import tqdm

from whence.core.progress import listening
from whence_studies.scenes.retrain import MODELS
from whence_studies.suite.costs import plan
from whence_studies.suite.protocol import Protocol


class Meter:
    """Counts planned seconds as done while parts of a plan go on; most of them go into training models.

    Parameters
    ----------
    protocol
        What is run.
    show
        Whether a bar is shown. Without it a line is said for every tenth.
    say
        Takes these lines.
    """

    def __init__(self, protocol: Protocol, show: bool, say: Callable[[str], Any]) -> None:
        self.done, self.total = 0.0, sum(item.seconds for item in plan(protocol))
        self._say = None if show else say
        self._bar = tqdm(
            total=self.total,
            desc=protocol.name,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left",
            disable=not show,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    @property
    def share(self) -> float:
        """What part of the work is done."""
        return self.done / self.total

    @contextmanager
    def part(self, seconds: float) -> Iterator[None]:
        """Do a part of the plan: at its end as many seconds are done, whatever was heard of it before."""
        end = self.done + seconds
        yield
        self._advance(end - self.done)

    @contextmanager
    def training(self, seconds: float) -> Iterator[None]:
        """Count so many seconds for every model that is trained inside, or read since it was before."""
        before = 0

        def hear(what: str, done: int, total: int) -> None:
            nonlocal before
            if what == MODELS:
                self._advance((done - before) * seconds if done else 0.0)
                before = done

        with listening(hear):
            yield

    def _advance(self, seconds: float) -> None:
        seconds = max(0.0, min(seconds, self.total - self.done))
        tenths = int(10 * self.share)
        self.done += seconds
        self._bar.update(seconds)
        if self._say is not None and tenths < int(10 * self.share) < 10:
            self._say(f"{self.share:.0%} of the work is done")
