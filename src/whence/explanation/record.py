"""What one prediction comes from: the training samples that support and contradict it, and their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from whence.core.checks import check_that, is_integer
from whence.core.display import counted, line
from whence.explanation.evidence import Contribution, EffectOf, Summary, Typicality, facts, summarize
from whence.explanation.wording import MADE_OF, Question, Words, of_members, would_change
from whence.pages.pictures import as_html
from whence.pages.samples import Array, Sample
from whence.pages.style import drawn, scale
from whence.tasks import LabelKind, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Scores = npt.NDArray[np.float64]
COMPUTED = ("question", "total", "evidence_for", "evidence_against", "share_for", "share_against", "sums")
"""Properties of an explanation that are written with its fields."""
_POINTS = 60  # of a curve
_SHOWN = 3  # explanations in a cell of a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Where one prediction comes from, or what would change it.

    Attributes
    ----------
    effect : the output that scores are effects on, and the surrogate that predicts them; None where scores
        say what the logit is made of
    label_kind : which words it uses: of a class, of one of many labels, or of a number
    sample : the test sample
    predicted, probability : the model's class for it, and its probability; of many labels, the one that is
        explained unless another is named, and its probability; of numbers the output, and None
    verdict : what the model and the surrogate predict, and what is true, in words
    surrogate_class : the class that the surrogate predicts; where it differs from the model's, do not trust
        the explanation. Where there are no classes, the target
    truth : its true class or label, or None where it is not known
    target : the class, or the output, that the scores are about
    class_names : one name per class
    scores : of all training samples that have one, in their order
    logit : the surrogate's logit of the target, or its prediction of a number; what it is made of sums to it,
        less the base, effects do not
    base : the output without any score: 0, and of a regression the mean of the training targets
    bias : the part of the logit that comes from the bias, that no feature of an input accounts for
    proponents, opponents : the strongest samples of either sign, strongest first
    logit_map : relevance of the surrogate's logit on the test sample; the test maps of all training samples
        sum to it where scores are what it is made of
    method : how relevance is propagated to the inputs
    n_train, n_support : training samples, and how many of them can have a score: the support vectors, or
        those that change some surrogate
    gap : relative duality gap of the surrogate, the certificate of its scores
    input : the name of the input that samples and maps are of, where the model has several; else empty
    typicality : how typical the test is of the training set, and its nearest training samples; None where
        that was not asked for
    members : of an ensemble, the explanation of the same pairs by each member; scores and maps here are means
        of theirs, each in units of the standard deviation of the member's own scores
    others : the same explanation on each of the model's further inputs
    """

    effect: EffectOf | None
    label_kind: LabelKind
    sample: Sample
    predicted: int
    verdict: Verdict
    probability: float | None
    surrogate_class: int
    truth: Any
    target: int
    class_names: tuple[str, ...]
    scores: Scores
    logit: float
    base: float
    bias: float
    proponents: tuple[Contribution, ...]
    opponents: tuple[Contribution, ...]
    logit_map: Array
    method: str
    n_train: int
    n_support: int
    gap: float
    input: str = ""
    typicality: Typicality | None = None
    members: tuple[Explanation, ...] = ()
    others: tuple[Explanation, ...] = ()

    @property
    def inputs(self) -> dict[str, Explanation]:
        """The explanation on each of the model's inputs, by their names; scores are the same on all."""
        return {why.input: why for why in (self, *self.others)}

    @property
    def n_members(self) -> int:
        """How many models the scores are means over: the members of an ensemble, 0 elsewhere."""
        return len(self.members)

    @property
    def evidence_for(self) -> float:
        """The sum of all positive scores."""
        return float(self.scores.clip(min=0).sum())

    @property
    def evidence_against(self) -> float:
        """The sum of all negative scores."""
        return float(self.scores.clip(max=0).sum())

    @property
    def question(self) -> Question:
        """What the scores answer: what the logit is "made of", or what "would change" without a sample."""
        return "made of" if self.effect is None else "would change"

    @property
    def words(self) -> Words:
        """What the scores mean, in words."""
        words = MADE_OF[self.label_kind]
        if self.effect is not None:
            words = would_change(self.effect.output, self.label_kind)
        return of_members(words, len(self.members)) if self.members else words

    @property
    def summary(self) -> Summary:
        """What it comes to: the evidence for the prediction, that against it, and how far to trust it."""
        return summarize(self)

    @property
    def about(self) -> str:
        """What is explained, in words: the class, the label, or the number."""
        name = self.class_names[self.target]
        if self.label_kind != "number":
            return name
        return self.verdict.predicted if len(self.class_names) == 1 else f"{name}: {self.verdict.predicted}"

    @property
    def total(self) -> float:
        """The sum of all scores: the logit, less its base, where they are what it is made of."""
        return self.evidence_for + self.evidence_against

    @property
    def share_for(self) -> float:
        """The part of ``evidence_for`` that the shown proponents hold, in [0, 1]."""
        return sum(pair.share for pair in self.proponents)

    @property
    def share_against(self) -> float:
        """The part of ``evidence_against`` that the shown opponents hold, in [0, 1]."""
        return sum(pair.share for pair in self.opponents)

    @property
    def pairs(self) -> tuple[Contribution, ...]:
        """Proponents, then opponents."""
        return self.proponents + self.opponents

    @property
    def maps(self) -> dict[str, Any]:
        """Relevance as arrays: ``logit``, ``test`` (pair, …), and ``train``, an array per pair.

        Pairs are in the order of ``pairs``. Images' maps have the input's shape, texts' one value per token.
        """
        shape = (len(self.pairs), *self.logit_map.shape)
        test = np.array([pair.test_map for pair in self.pairs], dtype=np.float32).reshape(shape)
        return {"logit": self.logit_map, "test": test, "train": [pair.train_map for pair in self.pairs]}

    @property
    def full(self) -> dict[str, float]:
        """The relevance of the full colour in the maps of each kind, ``logit``, ``test`` and ``train``."""
        return {
            "logit": scale([drawn(self.sample, self.logit_map)]),
            "test": scale(drawn(self.sample, pair.test_map) for pair in self.pairs),
            "train": scale(drawn(pair.sample, pair.train_map) for pair in self.pairs),
        }

    @property
    def waterfall(self) -> list[tuple[int, float]]:
        """How scores add up from the strongest to the weakest, whatever their sign: (samples, sum so far).

        It ends at ``total``, and has no more points than an eye can see.
        """
        return _running(self.scores, self.scores)

    @property
    def sparsity(self) -> list[tuple[int, float]]:
        """The share of all absolute scores that the strongest samples hold: (samples, share)."""
        sums = _running(self.scores, np.abs(self.scores))
        return [(n, part / (sums[-1][1] or 1.0)) for n, part in sums]

    @property
    def sums(self) -> dict[str, float]:
        """What the maps sum to, next to what they are of.

        ``logit`` = ``base`` + ``features`` + ``bias``; ``features`` is what the logit's map starts from and
        ``logit_map`` what arrives at the input: biases and stabilisers inside the model take the rest.
        ``total`` is the sum of all scores, ``shown`` that of the shown pairs', ``shown_maps`` that of their
        test maps, and ``likeness`` the cosine between the sum of their test maps and the logit's map.
        """
        shown = self.maps["test"].sum(axis=0) if self.pairs else np.zeros_like(self.logit_map)
        lengths = float(np.linalg.norm(shown) * np.linalg.norm(self.logit_map))
        return {
            "logit": self.logit,
            "base": self.base,
            "features": self.logit - self.base - self.bias,
            "bias": self.bias,
            "logit_map": float(self.logit_map.sum()),
            "total": self.total,
            "shown": sum(pair.score for pair in self.pairs),
            "shown_maps": float(shown.sum()),
            "likeness": float(np.vdot(shown, self.logit_map)) / lengths if lengths else 0.0,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all that is shown but pixels, in plain types of JSON; of texts also tokens and maps."""
        return {
            **facts(self),
            "verdict": self.verdict._asdict(),
            "summary": self.summary.sentence,
            "effect": None if self.effect is None else asdict(self.effect),
            "typicality": None if self.typicality is None else self.typicality.to_dict(),
            "members": [why.to_dict() for why in self.members],
            **{name: getattr(self, name) for name in COMPUTED},
            "proponents": [self._plain(pair) for pair in self.proponents],
            "opponents": [self._plain(pair) for pair in self.opponents],
            **_text(self, "logit_map"),
            "others": [why.to_dict() for why in self.others],
        }

    def _plain(self, pair: Contribution) -> dict[str, Any]:
        return {
            **facts(pair),
            **({"class": pair.label_text} if self.label_kind == "class" else {}),
            "test_map_sum": float(pair.test_map.sum()),
            "train_map_sum": float(pair.train_map.sum()),
            **_text(pair, "test_map", "train_map"),
        }

    def __repr__(self) -> str:
        sides = {"proponents": len(self.proponents), "opponents": len(self.opponents)}
        facts = {"predicted": self.verdict.predicted, "about": self.about, "logit": self.logit, **sides}
        return line("Explanation", facts)

    def _repr_html_(self) -> str:
        return as_html([(why.summary.sentence, why.plot()) for why in self.inputs.values()])

    def plot(self, input: str | None = None) -> Figure:
        """Draw the test sample with its map, its proponents and opponents, and the maps of each pair.

        Parameters
        ----------
        input
            The input to draw, of a model with several; None for the first.

        Returns
        -------
        matplotlib Figure; ``figure.savefig("why.pdf")`` writes it. No global matplotlib state is touched.
        """
        from whence.explanation.figures.pairs import draw

        rule = f"be one of the model's inputs, {', '.join(map(repr, self.inputs))}"
        check_that(input is None or input in self.inputs, "input", rule, input)
        return draw(self if input is None else self.inputs[input])


def _text(one: Contribution | Explanation, *maps: str) -> dict[str, Any]:
    """Return the tokens of a text with their relevance; nothing of other samples."""
    if one.sample.tokens is None:
        return {}
    return {"tokens": list(one.sample.tokens)} | {name: getattr(one, name).tolist() for name in maps}


def _running(scores: Scores, values: Scores) -> list[tuple[int, float]]:
    """Add up values in the order of their scores, from the strongest to the weakest, at a few points."""
    order = np.flatnonzero(scores)[np.argsort(-np.abs(scores[scores != 0]), kind="stable")]
    sums = np.concatenate([[0.0], np.cumsum(values[order])])
    places = np.round(np.geomspace(1, len(order), _POINTS)) if len(order) else np.array([])
    return [(n, float(sums[n])) for n in (0, *np.unique(places).astype(int).tolist())]


class Explanations(Sequence[Explanation]):
    """Where the predictions of a batch come from: one ``Explanation`` per test sample."""

    def __init__(self, explanations: Sequence[Explanation]) -> None:
        self._all = tuple(explanations)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, test: int) -> Explanation: ...
    @overload
    def __getitem__(self, test: slice) -> Explanations: ...
    def __getitem__(self, test: int | slice) -> Explanation | Explanations:
        return Explanations(self._all[test]) if isinstance(test, slice) else self._all[test]

    def __repr__(self) -> str:
        return f"Explanations of {counted(len(self), 'prediction')}"

    def _repr_html_(self) -> str:
        left = len(self) - _SHOWN
        note = f"{counted(left, 'more explanation')}: plot(test) draws one, to_html(path) writes all"
        shown = [(why.summary.sentence, why.plot()) for why in self[:_SHOWN]]
        return as_html(shown, note if left > 0 else "")

    @property
    def maps(self) -> list[dict[str, Any]]:
        """The relevance maps of each test sample, see ``Explanation.maps``."""
        return [why.maps for why in self]

    def plot(self, test: int = 0, input: str | None = None) -> Figure:
        """Draw the explanation of one test sample, the first if none is named, on one of its inputs."""
        holds = is_integer(test) and -len(self) <= test < len(self)
        check_that(holds, "test", f"be one of the {len(self)} test samples", test)
        return self[test].plot(input)

    def to_dict(self) -> list[dict[str, Any]]:
        """Each explanation in plain types that JSON takes."""
        return [why.to_dict() for why in self]

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Write all explanations as one page that needs no network and no scripts.

        Parameters
        ----------
        path
            Where to write it; None only returns it.

        Returns
        -------
        The page. Texts and names are escaped.
        """
        from whence.explanation.page import write_explanations

        return write_explanations(self._all, path)
