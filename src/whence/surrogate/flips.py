"""The smallest set of training samples whose removal changes a prediction of the surrogate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Doubles, Floats, Ints
from whence.core.display import counted, displayed
from whence.core.progress import bar
from whence.surrogate.agreement import new_logits
from whence.surrogate.changes import changed_labels
from whence.surrogate.effects import EffectScorer
from whence.surrogate.solving import SurrogateSolver

_RIVALS = 3  # classes nearest to the predicted one for which a set is looked for
_GROWTH = 1.5  # of a set that did not suffice
_LISTED = 10  # samples that are named


@displayed()
@dataclass(frozen=True)
class Flip:
    """A small set of training samples without which the surrogate predicts another class. ``print`` it.

    The set is confirmed by re-solving the surrogate without it, and needs every sample in it. A search by
    effects found it, so that a smaller one may exist.

    Attributes
    ----------
    before : the predicted class
    after : the predicted class without the samples; None if no set within the limit was found
    removed : the samples, the strongest first; empty if no set was found
    limit : the maximum size of a set
    """

    before: str
    after: str | None
    removed: tuple[int, ...]
    limit: int

    @property
    def found(self) -> bool:
        """Whether a set was found."""
        return self.after is not None

    def __str__(self) -> str:
        """Say it in a sentence."""
        if not self.found:
            most = counted(self.limit, "training sample")
            return f"No set of up to {most} was found that changes the prediction {self.before}."
        shown = ", ".join(str(sample) for sample in self.removed[:_LISTED])
        more = len(self.removed) - _LISTED
        n, change = len(self.removed), f"changes the prediction from {self.before} to {self.after}"
        if n == 1:
            return f"Removing training sample {shown} {change}."
        return f"Removing these {n:,} training samples {change}: {shown}{f' and {more:,} more' * (more > 0)}."


def find_flips(
    scorer: EffectScorer,
    solver: SurrogateSolver,
    features: Tensor,
    training: Floats,
    limit: int,
    show_progress: bool,
) -> list[Flip]:
    """Find a small set for each of the tests with features (B, d).

    Samples are ordered by their effect on the margin over a rival. The shortest beginning of that order that
    changes the prediction is found by re-solving, and then every sample that is not needed is put back. The
    rivals are the classes with the largest logits besides the predicted one.
    """
    quiet = replace(solver, options=replace(solver.options, show_progress=False))
    flips = []
    with bar("Searching for flips", len(features), "tests", show=show_progress) as shown:
        for row in features:
            flips.append(_FlipSearch(scorer, quiet, row[None], training).run(limit))
            shown.update()
    return flips


class _FlipSearch:
    """The search for one test."""

    def __init__(
        self, scorer: EffectScorer, solver: SurrogateSolver, features: Tensor, training: Floats
    ) -> None:
        self._scorer, self._solver, self._training = scorer, solver, training
        self._read = scorer.surrogate.stored.transform(features)
        self._logits: Doubles = scorer.surrogate.read_logits(self._read)[0].cpu().numpy()
        self._class = int(self._logits.argmax())

    def run(self, limit: int) -> Flip:
        """Find the smallest of the sets for each rival."""
        best: Ints = np.zeros(0, np.int64)
        others = np.argsort(-self._logits, kind="stable")
        for rival in others[others != self._class][:_RIVALS].tolist():
            chosen = self._against(rival, len(best) - 1 if len(best) else limit)
            best = best if chosen is None else chosen
        names = self._scorer.surrogate.task.output_names
        after = names[self._predicted(best)] if len(best) else None
        return Flip(names[self._class], after, tuple(best.tolist()), limit)

    def _against(self, rival: int, limit: int) -> Ints | None:
        """Find a set of at most ``limit`` samples by effects on the margin over a rival."""
        effects = self._scorer.effects_on(self._read, self._class, rival)
        order = np.argsort(-effects, kind="stable")
        order = order[: min(limit, int((effects > 0).sum()), self._scorer.surrogate.lam.shape[0] - 1)]
        margin = self._logits[self._class] - self._logits[rival]
        enough = int((np.cumsum(effects[order]) < margin).sum()) + 1
        low, high = 0, min(enough, len(order))  # the first ``low`` do not suffice
        while low < high and not self._flips(order[:high]):
            low, high = high, min(len(order), max(high + 1, int(_GROWTH * high)))
        if low >= high:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._flips(order[:middle]) else (middle, high)
        chosen = order[:high]
        for sample in chosen[::-1]:  # the weakest first
            rest = chosen[chosen != sample]
            if len(rest) and self._flips(rest):
                chosen = rest
        return chosen

    def _flips(self, removed: Ints) -> bool:
        return self._predicted(removed) != self._class

    def _predicted(self, removed: Ints) -> int:
        """Return the class that the surrogate predicts without some samples, by re-solving."""
        surrogate = self._scorer.surrogate
        gone = removed.tolist()
        labels = changed_labels(surrogate.task, surrogate.labels, len(self._training), gone, {})
        again = self._solver.again(
            self._training, labels, surrogate.lam, surrogate.C, surrogate.constant, surrogate.metric
        )
        base = torch.as_tensor(surrogate.task.base, device=self._read.device)
        return int((new_logits(again.weight, self._read) + base)[0].argmax())
