"""What a project's method supports, and the surrogates that the explorer solves on demand."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from whence.attribution.base import Attributor
from whence.audit import WrongLabels, wrong_labels
from whence.core.arrays import Doubles
from whence.errors import InvalidInputError
from whence.explanation.wording import Question
from whence.features import Novelty, as_float32
from whence.methods import DualDA, Effects
from whence.project import Project
from whence.relevance import Concepts
from whence.surrogate.stability import Stability
from whence.ui.background import Background

View = Literal["audit", "map", "duplicates", "classes", "concepts", "whatif"]

C_STEPS = (1e-2, 1e-1, 1.0, 1e1, 1e2)
"""The offered values of C, as multiples of the explainer's own."""
_QUEUE = 1000, 10_000  # bounds of the samples in the audit queue, a fifth of the training set
_NEEDS: dict[View, str] = {
    "audit": "The label audit needs the surrogate of a DualDA.",
    "map": "The map needs the features and the surrogate of a DualDA.",
    "duplicates": "Near-duplicates are found by the features of a DualDA.",
    "classes": "Comparing classes needs the coefficients of a DualDA.",
    "concepts": "Concepts need the features of a DualDA.",
    "whatif": "What if re-solves the surrogate of a DualDA.",
}
_MEMBER = "Save one member with explainer.members_[0].save(path), and serve it."
_SINGLE = "Fit a DualDA with whence fit --method dualda, and serve it."


def questions(project: Project) -> tuple[Question, ...]:
    """Return the questions that the method answers."""
    method = project.attributor
    if project.members[0].capabilities.effects:
        return ("would change",)
    both = method.capabilities.dual and method.task_.label_kind in Effects.capabilities.tasks
    return ("made of", "would change") if both else ("made of",)


def compares(project: Project) -> bool:
    """Return whether tests can be compared with the training set; ensemble members share no features."""
    return not project.attributor.capabilities.members


def withheld(project: Project) -> dict[View, str]:
    """Return the views that the method does not support, with the reason and what to do."""
    method = project.attributor
    if method.capabilities.dual:
        return {}
    reason = f"This explainer is {type(method).__name__}, which has another surrogate. {_SINGLE}"
    if method.capabilities.members:
        reason = f"This explainer is an ensemble of {len(project.members)} models. {_MEMBER}"
    return {view: f"{needs} {reason}" for view, needs in _NEEDS.items()}


def note(project: Project) -> str:
    """Return what the explorer does not show for this method; empty for a DualDA."""
    supported = project.attributor.capabilities
    if supported.members:
        return (
            f"An ensemble of {len(project.members)} models: scores and maps are means over them, ± is the "
            "standard deviation over them. Another C, what if, the typicality of a test and the stability of "
            f"its samples need a single model. {_MEMBER}"
        )
    if supported.effects:
        return (
            "Effects only: what would change without a training sample. What a logit is made of, another C "
            f"and what if need a DualDA. {_SINGLE}"
        )
    return ""


class Surrogates:
    """Surrogates of a project. Each is solved once, with its own lock, so that explanations continue."""

    def __init__(self, project: Project, max_seconds: float | None) -> None:
        self.project = project
        self._path: dict[float, DualDA] = {}
        self._locks = {name: threading.Lock() for name in ("path", "changed", "stability")}
        self._changed: tuple[Any, DualDA] | None = None
        self._max_seconds = max_seconds
        self.effects: Background[Effects] = Background(self._fit_effects)
        self._effects_project: Project | None = None
        self._effects_tests: tuple[Tensor, Doubles] | None = None
        self.novelty: Background[Novelty] = Background(lambda: project.novelty)
        self.wrong_labels: Background[WrongLabels] = Background(self._rank)

    def _fit_effects(self) -> Effects:
        project = self.project.with_effects(self._max_seconds)
        effects: Effects = project.attributor
        _ = effects.fitted_.scorer.response  # here and below: made now, so that no click waits for it
        if project.has_tests:
            features = torch.from_numpy(np.array(as_float32(project.test_bank.features)))
            self._effects_tests = features, effects.surrogate_.logits(features).cpu().numpy()
        self._effects_project = project
        return effects

    @property
    def effects_tests(self) -> tuple[Tensor, Doubles] | None:
        """Features (M, d) of all tests for effects, and their surrogate's logits (M, K); None until ready."""
        return self._effects_tests

    def test_features(self, method: Attributor, index: int) -> Tensor:
        """Return the features (1, d) of a test for a method: the explainer, or its effects."""
        project = self._effects_project if method.capabilities.effects else self.project
        assert project is not None  # effects that are ready have one
        return project.test_features([index])

    def Cs(self) -> list[float]:
        """Return the offered values of C, ascending; empty unless the method is a DualDA."""
        if not self.project.attributor.capabilities.dual:
            return []
        C = self.project.explainer.C_
        return [float(f"{C * step:.3g}") if step != 1 else C for step in C_STEPS]

    def at(self, C: float | None) -> DualDA:
        """Return the explainer at one of ``Cs``; None is its own C."""
        explainer = self.project.explainer
        if C is None or C == explainer.C_:
            return explainer
        if C not in self.Cs():
            known = ", ".join(f"{c:g}" for c in self.Cs())
            raise InvalidInputError(f"'C' must be one of {known}. Got {C:g}.")
        features = as_float32(self.project.train_bank.features)
        with self._locks["path"]:
            if C not in self._path:
                self._path[C] = explainer.what_if(C=C, training_features=features).explainer
            return self._path[C]

    def changed(self, remove: Sequence[int], relabel: Mapping[int, int]) -> DualDA:
        """Return the explainer without some samples and with other labels; the last result is cached."""
        asked = tuple(sorted(remove)), tuple(sorted(relabel.items()))
        features = as_float32(self.project.train_bank.features)
        with self._locks["changed"]:
            if self._changed is None or self._changed[0] != asked:
                answer = self.project.explainer.what_if(
                    remove=remove, relabel=relabel, training_features=features
                )
                self._changed = asked, answer.explainer
            return self._changed[1]

    def answering(self, question: Question, C: float | None) -> Attributor:
        """Return the attributor that answers a question: the explainer at a C, or effects."""
        method, supported = self.project.attributor, self.project.attributor.capabilities
        if question not in (known := questions(self.project)):
            raise InvalidInputError(f"'question' must be {known[0]!r} for this explainer. Got {question!r}.")
        if question == "made of" and supported.dual:
            return self.at(C)
        if C is not None:
            raise InvalidInputError(
                f"'C' must be None except for the question 'made of' to a DualDA. Got {C:g}."
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
