"""What the explorer shows, whoever asks: the state behind the page, live or written to a file."""

from __future__ import annotations

import threading
from typing import Any

import torch

from whence.attribution.explaining import Explaining
from whence.attribution.pairs import PairAttributor
from whence.attribution.usual import usual_of
from whence.errors import InvalidInputError
from whence.explanation import Explanation
from whence.explanation.summary import stability
from whence.explanation.view import Explained, Strip, Usual
from whence.explanation.wording import Question
from whence.methods import Attributor, DualDA
from whence.project import Project
from whence.ui import schema
from whence.ui.reach import compares, note, questions, withheld
from whence.ui.solved import Solved
from whence.ui.tested import Tested
from whence.ui.trained import Trained


class Explorer:
    """A project, and what can be asked of it.

    Attributes
    ----------
    project : the explainer with its model, training set and tests
    solved : what is solved when it is first asked for
    tests, training : the test and the training samples
    task, names : what outputs stand for, and their names
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
        self.solved, self.reading = Solved(project, max_seconds), threading.Lock()
        self.tests, self.training = Tested(project, self.solved), Trained(project, self.solved)

    @property
    def writes(self) -> bool:
        """Whether the model writes, so that it can be asked to go on from a prompt."""
        return self.task.of_documents

    def info(self) -> schema.Info:
        """What was loaded, and what holds for all tests."""
        project, method, tests = self.project, self.project.attributor, self.tests
        model, named, path = method.require_model().extractor, project.configuration, project.path
        return schema.Info(
            title=path.stem,
            model=named.model or type(model.model).__name__,
            n_parameters=sum(
                each.numel()
                for member in project.members
                for each in member.require_model().extractor.model.parameters()
            ),
            head=model.layer,
            data=named.data,
            test=named.test or "",
            kind=tests.kind,
            label_kind=self.task.label_kind,
            classes=list(self.names),
            n_features=tests.features.shape[1],
            normalise=all(member.surrogate_.stored.unit for member in project.members),
            n_train=int(method.used_.sum()),
            n_tests=int(tests.valid.sum()),
            n_support=len(self.solved.answering(self.questions[0], None).scoring_),
            n_wrong=int(tests.wrong.sum()),
            n_differing=int(tests.differs.sum()),
            members=len(project.members),
            questions=list(self.questions),
            compares=compares(project),
            withheld=withheld(project),
            note=note(project),
            writes=self.writes,
            C=_C_of(method),
            Cs=self.solved.Cs(),
            gap=max(member.gap_ for member in project.members),
            accuracy=tests.accuracy,
            agreement=tests.agreement,
            size=path.stat().st_size if path.is_file() else None,
        )

    def explain(
        self,
        index: int,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question | None = None,
    ) -> schema.Explained:
        """Explain a test sample: what its logit is made of, or what would change it."""
        explainer = self.solved.answering(question or self.questions[0], C)
        with self.reading:
            x, truth = self.test(index), self.tests.truths[index].tolist()
            why = explainer.explaining(k, None)(index, x, self.wanted(index, target), truth)
        return self._explained(why, x, index, explainer)

    def explain_own(
        self,
        x: Any,
        k: int = 5,
        target: int | None = None,
        C: float | None = None,
        question: Question | None = None,
    ) -> schema.Explained:
        """Explain an input of the user's own, a batch of one as the model or its preprocessing takes it."""
        explainer = self.solved.answering(question or self.questions[0], C)
        with self.reading:
            several = self.tests.of_numbers and len(self.names) > 1
            why = explainer.explain(x, k, 0 if target is None and several else target)[0]
        return self._explained(why, x, None, explainer)

    def _explained(
        self, why: Explanation, x: Any, test: int | None, explainer: Explaining
    ) -> schema.Explained:
        """Return an explanation with what the other question's answer is for its training samples."""
        own = self.project.attributor
        other: PairAttributor | None = None
        if isinstance(own, DualDA):
            other = self.solved.effects.ready if why.foretold is None else own
        beside = None
        if other is not None:
            found = other.scored_input(x, why.target)
            scores = dict(zip(found.indices.tolist(), found.scores.tolist(), strict=True))
            beside = [scores.get(pair.index, 0.0) for pair in why.pairs]
        return schema.Explained(test=test, C=_C_of(explainer), beside=beside, **dict(Explained.of(why)))

    def usual(self, index: int) -> Usual:
        """How usual a test sample is for the training set, and which training samples are nearest to it."""
        return self._usual(self.tests.features[self.project.read_tests([index])])

    def usual_own(self, x: Any) -> Usual:
        """How usual an input of the user's own is, a batch of one."""
        return self._usual(self.project.pairs.require_model().read(x, 1).features)

    def _usual(self, features: torch.Tensor) -> Usual:
        found = usual_of(self.project.pairs, self.solved.usualness.result(), features)[0]
        return Usual.model_validate(found)

    def doubt(self, index: int, k: int = 5, target: int | None = None) -> schema.Doubt:
        """How stable the strongest training samples of a test are, over halves of the training set."""
        found = self.solved.stability.top_k(
            k=k,
            target=self.wanted(index, target),
            features=self.tests.features[self.project.read_tests([index])],
        )
        sides = zip(found.top[:2], (found.proponents, found.opponents), strict=True)
        pairs = [pair for side, among in sides for pair in zip(side.indices[0], among[0], strict=True)]
        among = {int(i): int(n) for i, n in pairs if i >= 0}
        reason = stability(list(among.values()), found.halves)
        told = {"k": k, "halves": found.halves, "among": among, "reason": reason}
        return schema.Doubt.model_validate(told)

    def concepts(
        self, index: int, pair: int | None = None, target: int | None = None, C: float | None = None
    ) -> Strip:
        """Take the score of a pair apart into the principal components of the support vectors.

        ``pair`` is the training sample; None takes the strongest proponent.
        """
        explaining, components = self.solved.at(C).explaining(1, None), self.solved.components
        with self.reading:
            x = self.test(index)
            why = explaining.concepts(index, x, self.wanted(index, target), pair, components, 3, 9)
        return Strip.of(why)

    def test(self, index: int) -> Any:
        """Return a test sample as the model takes it, or raise."""
        return self.project.tests.take(self.project.read_tests([index]))

    def wanted(self, index: int, target: int | None) -> int:
        """Return the class that is explained: the model's where none is named."""
        return int(self.tests.targets[index]) if target is None else self.check_class("target", target)

    def check_class(self, name: str, c: int) -> int:
        """Return a class, or raise an error that calls it by its name."""
        if not 0 <= c < len(self.names):
            raise InvalidInputError(f"'{name}' must be a class in [0, {len(self.names)}). Got {c}.")
        return c


def _C_of(method: Attributor) -> float | None:
    """The C of a method's surrogate; None of an ensemble, which has several."""
    return method.surrogate_.solution.C if isinstance(method, PairAttributor) else None
