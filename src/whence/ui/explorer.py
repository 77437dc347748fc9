"""What the explorer shows, whoever asks: the state behind the page, live or written to a file."""

from __future__ import annotations

import threading
from typing import Any

import torch

from whence.attribution.base import Attributor
from whence.attribution.concepts import explain_pair
from whence.attribution.explaining import make_explainer
from whence.attribution.pairs import PairExplainer
from whence.attribution.typicality import typicality_of
from whence.core.checks import check_that
from whence.explanation import Explanation
from whence.explanation.evidence import stability
from whence.explanation.page import concepts_data, explanation_data, typicality_data
from whence.explanation.wording import Question
from whence.project import Project
from whence.ui.requests import Answer
from whence.ui.solved import Surrogates, compares, note, questions, withheld
from whence.ui.tested import Tested
from whence.ui.trained import Trained


class Explorer:
    """A project, and the questions that can be asked of it.

    Attributes
    ----------
    project : the explainer with its model, training set and tests
    solved : surrogates that are solved when they are first asked for
    tests, training : the test and the training samples
    task, names : of the outputs
    questions : those that explanations can answer, the first where none is named
    reading : held while the model reads samples: one at a time does

    Parameters
    ----------
    max_seconds : limit of the solver of effects
    """

    def __init__(self, project: Project, max_seconds: float | None = None) -> None:
        self.project = project
        self.task, self.names = project.attributor.task_, project.attributor.task_.output_names
        self.questions = questions(project)
        self.solved, self.reading = Surrogates(project, max_seconds), threading.Lock()
        self.tests, self.training = Tested(project, self.solved), Trained(project, self.solved)

    @property
    def writes(self) -> bool:
        """Whether it is a generative language model, which can be prompted."""
        return bool(self.task.of_documents)

    def info(self) -> Answer:
        """Return what was loaded, and what holds for all tests.

        ``size`` is that of the explainer's file in bytes. For an ensemble of several ``members``, ``C`` is
        None, and the head and the number of features are the first member's. ``withheld`` and ``note`` say
        what the method does not support.
        """
        project, tests, members = self.project, self.tests, self.project.members
        model, path = project.attributor.fitted_.require_model().extractor, project.path
        named = project.configuration
        extractors = [member.fitted_.require_model().extractor for member in members]
        return {
            "title": path.stem,
            "model": named.model or type(model.model).__name__,
            "n_parameters": sum(part.numel() for one in extractors for part in one.model.parameters()),
            "head": model.layer,
            "data": named.data,
            "test": named.test or "",
            "kind": tests.kind,
            "label_kind": self.task.label_kind,
            "classes": list(self.names),
            "n_features": tests.features.shape[1],
            "normalise": all(member.surrogate_.stored.unit for member in members),
            "n_train": int(project.attributor.used_.sum()),
            "n_tests": int(tests.valid.sum()),
            "n_support": len(self.solved.answering(self.questions[0], None).scoring_),
            "n_wrong": int(tests.wrong.sum()),
            "n_differing": int(tests.differs.sum()),
            "members": len(members),
            "questions": list(self.questions),
            "compares": compares(project),
            "withheld": withheld(project),
            "note": note(project),
            "writes": self.writes,
            "C": self._C_of(project.attributor),
            "Cs": self.solved.Cs(),
            "gap": max(member.gap_ for member in members),
            "accuracy": tests.accuracy,
            "agreement": tests.agreement,
            "size": path.stat().st_size if path.is_file() else None,
        }

    def explain(
        self,
        index: int,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question | None = None,
    ) -> Answer:
        """Explain a test sample: what its logit is made of, or what would change it."""
        explainer = self.solved.answering(question or self.questions[0], C)
        with self.reading:
            x, truth = self.test(index), self.tests.truths[index].tolist()
            why = make_explainer(explainer.fitted_, k)(index, x, self.wanted(index, target), truth)
        return self._answer(why, x, index, explainer)

    def explain_own(
        self,
        x: Any,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question | None = None,
    ) -> Answer:
        """Explain an input of the user's own, a batch of one as the model or its preprocessing takes it."""
        explainer = self.solved.answering(question or self.questions[0], C)
        with self.reading:
            several = self.tests.is_numeric and len(self.names) > 1
            why = explainer.explain(x, k, 0 if target is None and several else target)[0]
        return self._answer(why, x, None, explainer)

    def _answer(self, why: Explanation, x: Any, test: int | None, explainer: Attributor) -> Answer:
        """Return an explanation as data.

        ``other_scores`` are the other question's answer for each of ``pairs``: effects next to τ, or τ next
        to effects; None where effects are not fitted yet.
        """
        others = None
        if self.project.attributor.capabilities.dual:
            other: Attributor | None = self.project.explainer
            if why.effect is None:
                other = self.solved.effects.ready
            if other is not None:
                if test is None:
                    features = other.fitted_.read(x, why.target).features
                else:
                    features = self.solved.test_features(other, test)
                scored = other.fitted_.scorer.scored(features, why.target)
                scores = dict(zip(scored.indices.tolist(), scored.scores.tolist(), strict=True))
                others = [scores.get(pair.index, 0.0) for pair in why.pairs]
        return {"test": test, "C": self._C_of(explainer), "other_scores": others, **explanation_data(why)}

    def _C_of(self, method: Any) -> float | None:
        """Return the C of a method's surrogate; None of an ensemble, which has several."""
        return None if method.capabilities.members else method.surrogate_.solution.C

    def typicality(self, index: int) -> Answer:
        """Return how typical a test sample is of the training set, and its nearest training samples."""
        return self._typicality(self.tests.features[self.project.read_tests([index])])

    def typicality_own(self, x: Any) -> Answer:
        """Return how typical an input of the user's own is, a batch of one."""
        return self._typicality(self.project.pairs.fitted_.require_model().read(x, 1).features)

    def _typicality(self, features: torch.Tensor) -> Answer:
        novelty = self.solved.novelty.result()
        return typicality_data(typicality_of(self.project.pairs.fitted_, novelty, features)[0])

    def doubt(self, index: int, k: int = 5, target: int | None = None) -> Answer:
        """Return how stable the strongest training samples of a test are, over halves of the training set.

        ``among`` has the number of halves, of all ``halves`` that hold the sample, in which it is among the
        ``k`` strongest of its sign, by its place; ``reason`` is what that means for the whole explanation.
        """
        features = self.tests.features[self.project.read_tests([index])]
        stable = self.solved.stability.top_k(features=features, k=k, target=self.wanted(index, target))
        sides = zip(stable.top[:2], (stable.proponents, stable.opponents), strict=True)
        pairs = [pair for side, among in sides for pair in zip(side.indices[0], among[0], strict=True)]
        among = {int(i): int(n) for i, n in pairs if i >= 0}
        reason = stability(list(among.values()), stable.halves)
        return {"k": k, "halves": stable.halves, "among": among, "reason": reason and reason._asdict()}

    def concepts(
        self, index: int, pair: int | None = None, target: int | None = None, C: float | None = None
    ) -> Answer:
        """Split the score of a pair into the principal components of the support vectors.

        ``pair`` is the training sample; None takes the strongest proponent.
        """
        explainer, components = PairExplainer(self.solved.at(C).fitted_, 1, None), self.solved.components
        with self.reading:
            x, wanted = self.test(index), self.wanted(index, target)
            why = explain_pair(explainer, index, x, wanted, pair, components, 3, 9)
        return concepts_data(why)

    def test(self, index: int) -> Any:
        """Return a test sample as the model takes it, or raise."""
        return self.project.tests.take(self.project.read_tests([index]))

    def wanted(self, index: int, target: int | None) -> int:
        """Return the class that is explained: the model's where none is named."""
        return int(self.tests.targets[index]) if target is None else self.check_class("target", target)

    def check_class(self, name: str, c: int) -> int:
        """Return a class, or raise an error with the name of the argument."""
        check_that(0 <= c < len(self.names), name, f"be a class in [0, {len(self.names)})", c)
        return c
