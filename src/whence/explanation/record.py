"""What one prediction comes from: the training samples that support and contradict it, and their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
from torch import Tensor

from whence.core.checks import check_that, is_integer
from whence.core.display import Columns, counted, decimals, line, text_table
from whence.core.naming import app_import
from whence.errors import UnsupportedError
from whence.explanation.evidence import Contribution, EffectOf, Summary, Typicality, facts, summarize
from whence.explanation.tree import TreeNode
from whence.explanation.wording import Question, Sides, Words, made_of, of_members, would_change
from whence.model.inputs import take
from whence.pages.pictures import as_html, can_draw
from whence.pages.render import show
from whence.pages.samples import Array, Sample
from whence.pages.style import drawn, ends, one_line, scale
from whence.tasks import LabelKind, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Scores = npt.NDArray[np.float64]
COMPUTED = (
    "question",
    "equation",
    "total",
    "evidence_for",
    "evidence_against",
    "share_for",
    "share_against",
    "sums",
)
"""Properties of an explanation that are written with its fields."""
_POINTS = 60  # of a curve
_SHOWN = 3  # explanations in a cell of a notebook
_PRINTED = 10


class Asked(NamedTuple):
    """Which explainer was asked for explanations, and of which inputs, a batch."""

    explainer: Any
    x: Any


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
    surrogate_class : the class that the surrogate predicts; where it differs from the model's, the scores do
        not lead to the model's prediction. Where there are no classes, the target
    truth : its true class or label, or None where it is not known
    target : the class, or the output, that the scores are about
    against : another class, over which evidence for the target is explained; None for the target alone
    relative : whether scores say what sets the sample apart from the mean of the training set, or of class
        ``against``; else they start from nothing, as in the paper
    class_names : one name per class
    scores : of all training samples that have one, in their order
    logit : the surrogate's logit of the target, less that of ``against``, or its prediction of a number.
        base + Σ scores = logit, but for effects
    base : the base value, the output without any score: where scores are relative, the logit of the mean
        training sample; else 0, and of a regression the mean of the training targets
    bias : the part of the logit that is neither in the base nor linear in the features of the sample
    proponents, opponents : the strongest samples of either sign, strongest first
    logit_map : relevance of the surrogate's logit on the test sample; the test maps of all training samples
        sum to it where scores are what it is made of
    method : how relevance is propagated to the inputs
    n_train, n_support : training samples, and how many of them can have a score: the support vectors, or
        those that change some surrogate
    gap : relative duality gap of the surrogate, the certificate of its scores
    logit_bound : how far the logit is from that of the optimal surrogate at most, by the gap; None for
        regression, effects and ensembles
    input : the name of the input that samples and maps are of, where the model has several; else empty
    typicality : whether the test resembles the training set, and its nearest training samples; None where
        that was not measured
    margin, runner_up : the surrogate's logit of its class less that of its second class, and which that is;
        None where there are no classes
    tree : what the output is made of by labels, groups of similar samples, and samples, each level an exact
        sum; None for ensembles, whose members have groups of their own
    members : of an ensemble, the explanation of the same pairs by each member; scores and maps here are means
        of theirs, each in units of the standard deviation of the member's own scores
    others : the same explanation on each of the model's further inputs
    asked : the explainer and the input, a batch of one; None where it was made without an explainer
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
    against: int | None
    relative: bool
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
    tree: TreeNode | None = None
    margin: float | None = None
    runner_up: int | None = None
    members: tuple[Explanation, ...] = ()
    others: tuple[Explanation, ...] = ()
    logit_bound: float | None = None
    asked: Asked | None = field(default=None, repr=False)

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
        if self.effect is not None:
            words = would_change(self.effect.output, self.label_kind)
        else:
            words = made_of(self.label_kind, self.relative, self._over)
        return of_members(words, len(self.members)) if self.members else words

    @property
    def _over(self) -> Sides | None:
        """The names of the target and of the class that it is compared with."""
        if self.against is None:
            return None
        target, other = (f"“{ends(one_line(self.class_names[c]))}”" for c in (self.target, self.against))
        return target, other

    @property
    def claimed(self) -> tuple[str, str]:
        """What samples of either sign are evidence for or against: the target, or one class over another."""
        if self._over is None:
            return (f"“{self.class_names[self.target]}”",) * 2
        target, other = self._over
        return f"{target} over {other}", f"{other} over {target}"

    @property
    def equation(self) -> str:
        """The sum from the base value to the output, in words; empty where scores have no base value."""
        words = self.words
        if not words.origin:
            return ""
        logit, base, total = decimals([self.logit, self.base, abs(self.total)])
        sign = "−" if self.total < 0 else "+"
        return (
            f"{'' if self.against is None else f'{self.claimed[0]}: '}{words.output} {logit} = base value "
            f"{base} ({words.origin}) {sign} {total} from training samples"
        )

    @property
    def summary(self) -> Summary:
        """What it comes to: the evidence for the prediction and against it, and the checks of it."""
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

        It goes from ``base`` to ``logit``; of effects and ensembles from 0 to ``total``. It has no more
        points than an eye can see.
        """
        start = self.base if self.words.origin else 0.0
        return [(n, start + value) for n, value in running(self.scores, self.scores)]

    @property
    def sparsity(self) -> list[tuple[int, float]]:
        """The share of all absolute scores that the strongest samples hold: (samples, share)."""
        sums = running(self.scores, np.abs(self.scores))
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
            "summary": {"claim": self.summary.claim, "checks": [c._asdict() for c in self.summary.checks]},
            "effect": None if self.effect is None else asdict(self.effect),
            "typicality": None if self.typicality is None else self.typicality.to_dict(),
            "tree": None if self.tree is None else self.tree.to_dict(),
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
        over = {} if self.against is None else {"against": self.class_names[self.against]}
        facts = {
            "predicted": self.verdict.predicted,
            "about": self.about,
            **over,
            "logit": self.logit,
            **sides,
        }
        return line("Explanation", facts)

    def __str__(self) -> str:
        """Write the summary, the sum and the strongest samples as text."""
        rows: Columns = {
            "score": decimals([pair.score for pair in self.pairs]),
            "training_sample": [pair.index for pair in self.pairs],
            "label": [pair.label_text for pair in self.pairs],
        }
        return "\n".join(filter(None, [self.summary.text, self.equation, text_table(rows)]))

    def _repr_html_(self) -> str | None:
        if not can_draw():
            return None
        return as_html([(why.summary.text, why.plot()) for why in self.inputs.values()])

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
        with app_import("A figure"):
            from whence.explanation.figures.pairs import draw

        rule = f"be one of the model's inputs, {', '.join(map(repr, self.inputs))}"
        check_that(input is None or input in self.inputs, "input", rule, input)
        return draw(self if input is None else self.inputs[input])

    @property
    def explainer(self) -> Any:
        """The explainer that made it."""
        return Explanations([self], self.asked).explainer

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Write the explanation as a page, see ``Explanations.to_html``."""
        return Explanations([self]).to_html(path)

    def show(self) -> None:
        """Display the explanation in a notebook, elsewhere open its page in the browser."""
        show(self, self.to_html())

    def serve(self, **options: Any) -> Any:
        """Show the input in the explorer, see ``Explanations.serve``."""
        return Explanations([self], self.asked).serve(**options)


def _text(one: Contribution | Explanation, *maps: str) -> dict[str, Any]:
    """Return the tokens of a text with their relevance; nothing of other samples."""
    if one.sample.tokens is None:
        return {}
    return {"tokens": list(one.sample.tokens)} | {name: getattr(one, name).tolist() for name in maps}


def running(scores: Scores, values: Scores) -> list[tuple[int, float]]:
    """Add up values in the order of their scores, from the strongest to the weakest, at a few points."""
    order = np.flatnonzero(scores)[np.argsort(-np.abs(scores[scores != 0]), kind="stable")]
    sums = np.concatenate([[0.0], np.cumsum(values[order])])
    places = np.round(np.geomspace(1, len(order), _POINTS)) if len(order) else np.array([])
    return [(n, float(sums[n])) for n in (0, *np.unique(places).astype(int).tolist())]


class Explanations(Sequence[Explanation]):
    """Where the predictions of a batch come from: one ``Explanation`` per test sample.

    ``print`` writes them as text, notebooks show figures, ``to_html`` writes a page.

    Parameters
    ----------
    explanations
        One per test sample.
    asked
        The explainer that made them and its inputs, which ``serve`` shows.
    """

    def __init__(self, explanations: Sequence[Explanation], asked: Asked | None = None) -> None:
        self._all, self._asked = tuple(explanations), asked

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, test: int) -> Explanation: ...
    @overload
    def __getitem__(self, test: slice) -> Explanations: ...
    def __getitem__(self, test: int | slice) -> Explanation | Explanations:
        if not isinstance(test, slice):
            return self._all[test]
        asked = self._asked
        return Explanations(self._all[test], asked and asked._replace(x=take(asked.x, test)))

    def __repr__(self) -> str:
        return f"Explanations of {counted(len(self), 'prediction')}"

    def __str__(self) -> str:
        """Write the explanations as text, of many the first."""
        left = len(self) - _PRINTED
        shown = [f"Test {test}: {why}" for test, why in enumerate(self[:_PRINTED])]
        return "\n\n".join([*shown, *([f"… {counted(left, 'more explanation')}"] if left > 0 else [])])

    def _repr_html_(self) -> str | None:
        if not can_draw():
            return None
        left = len(self) - _SHOWN
        note = f"{counted(left, 'more explanation')}: plot(test) draws one, to_html(path) writes all"
        shown = [(why.summary.text, why.plot()) for why in self[:_SHOWN]]
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

    @property
    def explainer(self) -> Any:
        """The explainer that made them: ask it for scores, audits and what-if questions."""
        return self._require_asked().explainer

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Write all explanations as one page that needs no network and no scripts.

        Parameters
        ----------
        path
            Where to write it; None writes no file.

        Returns
        -------
        The path as a string, or without a path the page itself. Texts and names are escaped.
        """
        from whence.explanation.page import write_explanations

        return write_explanations(self._all, path)

    def show(self) -> None:
        """Display the explanations in a notebook, elsewhere open their page in the browser."""
        show(self, self.to_html())

    def serve(self, **options: Any) -> Any:
        """Show the inputs in the explorer: ``explainer.serve`` with them as tests, and its options."""
        asked = self._require_asked()
        truths = [why.truth for why in self]
        known = bool(truths) and None not in truths and isinstance(asked.x, Tensor | np.ndarray | list)
        return asked.explainer.serve((asked.x, truths) if known else asked.x, **options)

    def _require_asked(self) -> Asked:
        """Return what was asked, or raise where the explanations were made without an explainer."""
        if self._asked is None:
            raise UnsupportedError(
                "Explanations must be made by explainer.explain to know their explainer. These were put "
                "together by hand. Call explainer.serve(tests) instead."
            )
        return self._asked
