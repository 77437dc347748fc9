"""What the explorer solves when it is first asked for: other C or samples, effects, halves, the ranking."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from whence.attribution.explaining import Explaining
from whence.audit import WrongLabels, wrong_labels
from whence.errors import InvalidInputError
from whence.explanation.wording import Question
from whence.features import Usualness, as_float32
from whence.methods import DualDA, Effects, Ensemble
from whence.project import Project
from whence.relevance import Concepts
from whence.surrogate.stability import Stability
from whence.ui.background import Background
from whence.ui.reach import questions

C_STEPS = (1e-2, 1e-1, 1.0, 1e1, 1e2)
"""The values of C on offer, as multiples of the explainer's own."""
_QUEUE = 1000, 10_000  # samples in the audit queue: at least, and at most of a fifth of the training set


class Solved:
    """Surrogates of a project, each solved once. Explanations go on meanwhile: each has a lock of its own."""

    def __init__(self, project: Project, max_seconds: float | None) -> None:
        self.project, self._max_seconds = project, max_seconds
        self._path: dict[float, DualDA] = {}
        self._locks = {name: threading.Lock() for name in ("path", "changed", "stability")}
        self._changed: tuple[Any, DualDA] | None = None
        self.effects: Background[Effects] = Background(self._fit_effects)
        self.usualness: Background[Usualness] = Background(lambda: project.usualness)
        self.wrong_labels: Background[WrongLabels] = Background(self._rank)

    def Cs(self) -> list[float]:
        """The values of C that explanations can be asked for at, ascending; none but of a DualDA."""
        if not isinstance(self.project.attributor, DualDA):
            return []
        C = self.project.attributor.C_
        return [float(f"{C * step:.3g}") if step != 1 else C for step in C_STEPS]

    def at(self, C: float | None) -> DualDA:
        """Return the explainer at another C of ``Cs``."""
        own = self.project.explainer
        if C is None or C == own.C_:
            return own
        if C not in self.Cs():
            known = ", ".join(f"{c:g}" for c in self.Cs())
            raise InvalidInputError(f"'C' must be one of {known}. Got {C:g}.")
        features = as_float32(self.project.train_bank.features)
        with self._locks["path"]:
            if C not in self._path:
                self._path[C] = own.what_if(features, C=C)
            return self._path[C]

    def changed(self, remove: Sequence[int], relabel: Mapping[int, int]) -> DualDA:
        """Return the explainer without some samples and with other labels of others; the last is kept."""
        asked = tuple(sorted(remove)), tuple(sorted(relabel.items()))
        features = as_float32(self.project.train_bank.features)
        with self._locks["changed"]:
            if self._changed is None or self._changed[0] != asked:
                found = self.project.explainer.what_if(features, remove=remove, relabel=relabel)
                self._changed = asked, found
            return self._changed[1]

    def answering(self, question: Question, C: float | None) -> Explaining:
        """Return what answers a question: the explainer at a C, or effects, which have their own."""
        method = self.project.attributor
        if question not in (known := questions(self.project)):
            raise InvalidInputError(f"'question' must be {known[0]!r} of this explainer. Got {question!r}.")
        if question == "made of" and isinstance(method, DualDA):
            return self.at(C)
        if C is not None:
            raise InvalidInputError(
                f"'C' must be left out but where a DualDA tells what a logit is made of. Got {C:g}."
            )
        return method if isinstance(method, Ensemble) else self.effects.result()

    def _fit_effects(self) -> Effects:
        effects: Effects = self.project.with_effects(self._max_seconds).attributor
        return effects

    @functools.cached_property
    def components(self) -> Concepts:
        """The principal components of the support vectors."""
        return Concepts.principal(self.project.explainer.vectors_)

    @functools.cached_property
    def stability(self) -> Stability:
        """Surrogates on halves of the training set."""
        with self._locks["stability"]:
            if "stability" in self.__dict__:
                return self.stability
            return self.project.explainer.stability(self.project.train_bank)

    def _rank(self) -> WrongLabels:
        explainer, (least, most) = self.project.explainer, _QUEUE
        n = max(least, min(explainer.n_train_ // 5, most))
        return wrong_labels(explainer, features=self.project.train_bank, n=n)
