"""What can be asked of a project's method, and what is solved for it when it is first asked."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from torch import Tensor

from whence.attribution.base import Attributor
from whence.audit import WrongLabels, wrong_labels
from whence.errors import InvalidInputError
from whence.explanation.wording import Question
from whence.features import Novelty, as_float32
from whence.methods import DualDA, Effects
from whence.project import Project
from whence.relevance import Concepts
from whence.surrogate.stability import Stability
from whence.ui.background import Background

View = Literal["audit", "classes", "concepts", "whatif"]

C_STEPS = (1e-2, 1e-1, 1.0, 1e1, 1e2)
"""The values of C on offer, as multiples of the explainer's own."""
_QUEUE = 1000, 10_000  # samples in the audit queue: at least, and at most of a fifth of the training set
_NEEDS: dict[View, str] = {
    "audit": "Labels are ranked by the surrogate of a DualDA.",
    "classes": "Classes are compared by the coefficients of a DualDA.",
    "concepts": "Concepts are directions of the features of a DualDA.",
    "whatif": "What if solves the surrogate of a DualDA again.",
}
_MEMBER = "To ask that, save a member by itself, explainer.members_[0].save(path), and serve it."
_SINGLE = "To ask that, fit DualDA, whence fit --method dualda, and serve it."


def questions(project: Project) -> tuple[Question, ...]:
    """Return the questions that the training samples of a test can answer."""
    method = project.attributor
    if project.members[0].capabilities.effects:
        return ("would change",)
    both = method.capabilities.dual and method.task_.label_kind in Effects.capabilities.tasks
    return ("made of", "would change") if both else ("made of",)


def compares(project: Project) -> bool:
    """Return whether tests are compared with the training set: members of an ensemble share no features."""
    return not project.attributor.capabilities.members


def withheld(project: Project) -> dict[View, str]:
    """Return the views that the method does not support, with why, and what to do."""
    method = project.attributor
    if method.capabilities.dual:
        return {}
    reason = f"This is {type(method).__name__}, which has another surrogate. {_SINGLE}"
    if method.capabilities.members:
        reason = f"This is an ensemble of {len(project.members)} models, each with its own. {_MEMBER}"
    return {view: f"{needs} {reason}" for view, needs in _NEEDS.items()}


def note(project: Project) -> str:
    """Return what predictions do not show by this method; empty for a DualDA."""
    supported = project.attributor.capabilities
    if supported.members:
        return (
            f"An ensemble of {len(project.members)} models: scores and maps are means over them, ± is the "
            "standard deviation over them. Another C, what if, how typical a test is and how stable its "
            f"samples are can be asked of one model only. {_MEMBER}"
        )
    if supported.effects:
        return (
            "Effects only: what would change without a training sample. What a logit is made of, another C "
            f"and what if are asked of a DualDA. {_SINGLE}"
        )
    return ""


class Surrogates:
    """Surrogates of a project, solved once each, with a lock of their own: explanations go on meanwhile."""

    def __init__(self, project: Project, max_seconds: float | None) -> None:
        self.project = project
        self._path: dict[float, DualDA] = {}
        self._locks = {name: threading.Lock() for name in ("path", "changed", "stability")}
        self._changed: tuple[Any, DualDA] | None = None
        self._max_seconds = max_seconds
        self.effects: Background[Effects] = Background(self._fit_effects)
        self._effects_project: Project | None = None
        self.novelty: Background[Novelty] = Background(lambda: project.novelty)
        self.wrong_labels: Background[WrongLabels] = Background(self._rank)

    def _fit_effects(self) -> Effects:
        project = self.project.with_effects(self._max_seconds)
        if project.has_tests:
            _ = project.test_bank  # read here, so that no click runs the model for it
        self._effects_project = project
        effects: Effects = project.attributor
        return effects

    def test_features(self, method: Attributor, index: int) -> Tensor:
        """Return features (1, d) of a test as a method reads them: the explainer, or its effects."""
        project = self._effects_project if method.capabilities.effects else self.project
        assert project is not None  # effects that are ready have one
        return project.test_features([index])

    def Cs(self) -> list[float]:
        """Return the values of C that explanations can be asked for at, ascending; only of a DualDA."""
        if not self.project.attributor.capabilities.dual:
            return []
        C = self.project.explainer.C_
        return [float(f"{C * step:.3g}") if step != 1 else C for step in C_STEPS]

    def at(self, C: float | None) -> DualDA:
        """Return the explainer at another C of ``Cs``."""
        explainer = self.project.explainer
        if C is None or C == explainer.C_:
            return explainer
        if C not in self.Cs():
            known = ", ".join(f"{c:g}" for c in self.Cs())
            raise InvalidInputError(f"'C' must be one of {known}. Got {C:g}.")
        features = as_float32(self.project.train_bank.features)
        with self._locks["path"]:
            if C not in self._path:
                self._path[C] = explainer.what_if(features, C=C)
            return self._path[C]

    def changed(self, remove: Sequence[int], relabel: Mapping[int, int]) -> DualDA:
        """Return the explainer without some samples and with other labels of others; the last is cached."""
        asked = tuple(sorted(remove)), tuple(sorted(relabel.items()))
        features = as_float32(self.project.train_bank.features)
        with self._locks["changed"]:
            if self._changed is None or self._changed[0] != asked:
                explainer = self.project.explainer.what_if(features, remove=remove, relabel=relabel)
                self._changed = asked, explainer
            return self._changed[1]

    def answering(self, question: Question, C: float | None) -> Attributor:
        """Return what answers a question: the explainer at a C, or effects, which have their own."""
        method, supported = self.project.attributor, self.project.attributor.capabilities
        if question not in (known := questions(self.project)):
            raise InvalidInputError(f"'question' must be {known[0]!r} of this explainer. Got {question!r}.")
        if question == "made of" and supported.dual:
            return self.at(C)
        if C is not None:
            raise InvalidInputError(
                f"'C' must be left out except for what a logit is made of by a DualDA. Got {C:g}."
            )
        return cast(Attributor, method) if supported.members else self.effects.result()

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
