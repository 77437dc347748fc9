"""The state behind the explorer's page, live or written to a file."""

from __future__ import annotations

import threading
from typing import Any, Literal

import torch

from whence.attribution.base import Attributor
from whence.attribution.concepts import explain_pair
from whence.attribution.explaining import check_against, has_parts, make_explainer
from whence.attribution.pairs import Against, PairExplainer
from whence.attribution.typicality import typicality_of
from whence.core.checks import check_that
from whence.explanation import Explanation
from whence.explanation.evidence import stability
from whence.explanation.page import check_data, concepts_data, explanation_data, typicality_data
from whence.explanation.wording import Question
from whence.project import Project
from whence.surrogate.scores import Contrast
from whence.ui.compared import Compared
from whence.ui.requests import Answer
from whence.ui.solved import Surrogates, compares, note, questions, withheld
from whence.ui.tested import Tested
from whence.ui.trained import Trained


class Explorer:
    """A project and the answers to the page's requests.

    Attributes
    ----------
    project : the explainer with its model, training set and tests
    solved : surrogates that are solved on first use
    tests, training : the test and the training samples
    task, names : the task, and the names of its outputs
    questions : the questions that explanations can answer; the first is the default
    other, compared : another explorer of the same tests, and both side by side, or None
    model_lock : held while the model runs

    Parameters
    ----------
    max_seconds : time limit of the solver of effects
    compare : another explorer of the same tests, shown side by side
    """

    scores_only: Literal[False] = False

    def __init__(
        self, project: Project, max_seconds: float | None = None, compare: Explorer | None = None
    ) -> None:
        self.project = project
        self.task, self.names = project.attributor.task_, project.attributor.task_.output_names
        self.questions = questions(project)
        self.solved, self.model_lock = Surrogates(project, max_seconds), threading.Lock()
        self.tests, self.training = Tested(project, self.solved), Trained(project, self.solved)
        self.other, self.compared = compare, None if compare is None else Compared(self.tests, compare.tests)
        if compare is not None:
            compare.model_lock = self.model_lock  # both may explain the same model

    @property
    def writes(self) -> bool:
        """Whether the model is a generative language model, which can be prompted."""
        return bool(self.task.of_documents)

    @property
    def contrasts(self) -> bool:
        """Whether explanations can show evidence for one class over another."""
        return self.task.has_classes and has_parts(self.project.attributor.fitted_)

    def info(self) -> Answer:
        """Return what was loaded, and statistics over all tests.

        ``size`` is the size of the explainer's file in bytes. For an ensemble, ``C`` is None, and the head
        and the number of features are those of the first member. ``withheld`` and ``note`` name what the
        method does not support.
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
            "metric": members[0].surrogate_.metric.description,
            "n_train": int(project.attributor.used_.sum()),
            "n_tests": int(tests.valid.sum()),
            "n_support": len(self.solved.answering(self.questions[0], None).scoring_),
            "n_wrong": int(tests.wrong.sum()),
            "n_differing": int(tests.differs.sum()),
            "members": len(members),
            "questions": list(self.questions),
            "compares": compares(project),
            "contrasts": self.contrasts,
            "withheld": withheld(project),
            "note": note(project),
            "writes": self.writes,
            "C": self._C_of(project.attributor),
            "Cs": self.solved.Cs(),
            "gap": max(member.gap_ for member in members),
            "accuracy": tests.accuracy,
            "agreement": tests.agreement,
            "size": path.stat().st_size if path.is_file() else None,
            "scores": None,
            "compare": None if self.compared is None else self.compared.info(),
        }

    def explain(
        self,
        index: int,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question | None = None,
        against: Against = None,
    ) -> Answer:
        """Explain a test sample: what its logit is made of, or what would change it.

        ``against`` is another class: the explanation is then of the evidence for the target over that class.
        """
        explainer = self.solved.answering(question or self.questions[0], C)
        with self.model_lock:
            x, truth = self.test(index), self.tests.truth(index)
            wanted, rival = self.wanted(index, target), check_against(explainer.fitted_, against, 1)[0]
            why = make_explainer(explainer.fitted_, k)(index, x, wanted, truth, None, rival)
        return self._answer(why, x, index, explainer)

    def explain_own(
        self,
        x: Any,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question | None = None,
        against: Against = None,
    ) -> Answer:
        """Explain a user's own input, a batch of one as the model or its preprocessing takes it."""
        explainer = self.solved.answering(question or self.questions[0], C)
        with self.model_lock:
            several = self.tests.is_numeric and len(self.names) > 1
            why = explainer.explain(
                x, k, 0 if target is None and several else target, novelty=False, against=against
            )[0]
        return self._answer(why, x, None, explainer)

    def _answer(self, why: Explanation, x: Any, test: int | None, explainer: Attributor) -> Answer:
        """Return an explanation as data.

        ``other_scores`` answer the other question for each of ``pairs``: effects next to scores, or scores
        next to effects; None if effects are not fitted yet, and for a contrast of two classes.
        """
        others = None
        if self.project.attributor.capabilities.dual and why.against is None:
            other: Attributor | None = self.project.explainer
            if why.effect is None:
                other = self.solved.effects.ready
            if other is not None:
                if test is None:
                    features = other.fitted_.read(x, why.target).features
                else:
                    features = self.solved.test_features(other, test)
                contrast = Contrast(why.target, relative=has_parts(other.fitted_))
                scored = other.fitted_.scorer.scored(features, contrast)
                scores = dict(zip(scored.indices.tolist(), scored.scores.tolist(), strict=True))
                others = [scores.get(pair.index, 0.0) for pair in why.pairs]
        return {"test": test, "C": self._C_of(explainer), "other_scores": others, **explanation_data(why)}

    def _C_of(self, method: Any) -> float | None:
        """Return the C of a method's surrogate; None for an ensemble, which has several."""
        return None if method.capabilities.members else method.surrogate_.solution.C

    def typicality(self, index: int) -> Answer:
        """Return whether a test sample resembles the training set, and its nearest training samples."""
        with self.model_lock:
            inputs = self.project.model_inputs([index])
        return self._typicality(self.tests.features[self.project.read_tests([index])], inputs)

    def typicality_own(self, x: Any) -> Answer:
        """Return the same for a user's own input, a batch of one."""
        bound = self.project.pairs.fitted_.require_model()
        test = next(bound.reads(x, 1))
        return self._typicality(test.features, test.inputs)

    def _typicality(self, features: torch.Tensor, inputs: Any) -> Answer:
        novelty = self.solved.novelty.result()
        return typicality_data(typicality_of(self.project.pairs.fitted_, novelty, features, inputs)[0])

    def stability(self, index: int, k: int = 5, target: int | None = None) -> Answer:
        """Return how stable the strongest training samples of a test are, over halves of the training set.

        ``among`` maps a sample's index to the number of halves, of the ``halves`` that hold the sample, in
        which it is among the ``k`` strongest of its sign; ``check`` summarises all of them.
        """
        features = self.tests.features[self.project.read_tests([index])]
        stable = self.solved.stability.top_k(features=features, k=k, target=self.wanted(index, target))
        sides = zip(stable.top[:2], (stable.proponents, stable.opponents), strict=True)
        pairs = [pair for side, among in sides for pair in zip(side.indices[0], among[0], strict=True)]
        among = {int(i): int(n) for i, n in pairs if i >= 0}
        check = stability(list(among.values()), stable.halves, k)
        return {"k": k, "halves": stable.halves, "among": among, "check": check and check_data(check)}

    def concepts(
        self, index: int, pair: int | None = None, target: int | None = None, C: float | None = None
    ) -> Answer:
        """Split the score of a pair into the principal components of the support vectors.

        ``pair`` is the training sample; None uses the strongest proponent.
        """
        explainer, components = PairExplainer(self.solved.at(C).fitted_, 1, None), self.solved.components
        with self.model_lock:
            x, wanted = self.test(index), self.wanted(index, target)
            why = explain_pair(explainer, index, x, wanted, pair, components, 3, 9)
        return concepts_data(why)

    def test(self, index: int) -> Any:
        """Return a test sample as the model takes it, or raise."""
        return self.project.tests.take(self.project.read_tests([index]))

    def wanted(self, index: int, target: int | None) -> int:
        """Return the class to explain: the predicted one if ``target`` is None."""
        return int(self.tests.targets[index]) if target is None else self.check_class("target", target)

    def check_class(self, name: str, c: int) -> int:
        """Return a class, or raise an error with the name of the argument."""
        check_that(0 <= c < len(self.names), name, f"be a class in [0, {len(self.names)})", c)
        return c
