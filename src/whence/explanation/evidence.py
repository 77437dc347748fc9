"""The parts of an explanation: training samples with their scores, its summary, and the checks of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.core.display import displayed, number
from whence.pages.samples import Array, Sample
from whence.pages.style import ends, one_line, percent, signed

if TYPE_CHECKING:
    from whence.explanation.record import Explanation


class Check(NamedTuple):
    """The outcome of a check of an explanation.

    Attributes
    ----------
    passed : whether it holds; None where it was not measured
    words : the outcome with its numbers, a sentence
    """

    passed: bool | None
    words: str

    @property
    def mark(self) -> str:
        """A tick, a warning sign, or a dash where it was not measured."""
        return {True: "✓", False: "⚠", None: "–"}[self.passed]


@displayed()
@dataclass(frozen=True)
class EffectOf:
    """Which output effects are on, and which surrogate predicts them.

    Attributes
    ----------
    output : "logit", "margin" or "log_prob", of the target class
    surrogate : its name
    """

    output: str
    surrogate: str = "softmax surrogate"

    @property
    def description(self) -> str:
        """How effects are predicted, in words."""
        return f"to first order, at the {self.surrogate} of the whole training set"


def facts(record: Any) -> dict[str, Any]:
    """Return the fields of a record that hold a number, a name or several of these, in types of JSON."""
    values = {field.name: getattr(record, field.name) for field in fields(record) if field.repr}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if all(
            isinstance(v, int | float | str | None) for v in (value if isinstance(value, tuple) else [value])
        )
    }


@displayed()
@dataclass(frozen=True, eq=False)
class Contribution:
    """What one training sample contributes to a prediction.

    Attributes
    ----------
    index : its place in the training set
    label : its class, or its label of another kind
    label_text, differs : the label in words, and whether it is another than the target
    score : τ, or the effect; positive is evidence for the target class, or raises its output
    share : its part of all scores of its sign, in [0, 1]
    bias : the part of the score that comes from the bias, that no feature accounts for
    coefficient : λ_ic, the global attribution for the target class, less that for the class it is compared
        with; times z_i·z(x), or z_i·(z(x) − z̄), it is the score. None of effects
    sample : the sample itself
    test_map, train_map : relevance of the score on either sample, in the input's shape; of a text, one value
        per token. Positive supports the target class.
    spread : standard deviation of the score over the members of an ensemble; None elsewhere
    alike, alike_score : its near-duplicates, which are not shown for its sake, and the sum of their scores
    """

    index: int
    label: Any
    label_text: str
    differs: bool
    score: float
    share: float
    bias: float
    coefficient: float | None
    sample: Sample
    test_map: Array
    train_map: Array
    spread: float | None = None
    alike: tuple[int, ...] = ()
    alike_score: float = 0.0

    @property
    def alike_words(self) -> str:
        """How many near-duplicates it stands for; empty where there are none."""
        return f"and {len(self.alike)} like it, {signed(self.alike_score)}" if self.alike else ""


@displayed()
@dataclass(frozen=True, eq=False)
class Neighbour:
    """A training sample near the test.

    Attributes
    ----------
    index : its place in the training set
    label_text : its label, in words
    distance : of features of unit length, from 0 to 2
    sample : the sample itself
    """

    index: int
    label_text: str
    distance: float
    sample: Sample


@displayed()
@dataclass(frozen=True, eq=False)
class Typicality:
    """Whether a test sample resembles the training set.

    Attributes
    ----------
    novel : whether it is unlike the training set: ``share`` is beyond ``quantile``
    share : of training samples that are nearer to the others than the test is to them
    quantile : the share that counts as typical
    n_compared : the number of training samples that the share is of
    neighbours : the k nearest training samples by their features, the nearest first
    spaces : what was compared: "features", and of inputs their "values", "direction" and "statistics"
    furthest : the space in which it is furthest from the training set
    """

    novel: bool
    share: float
    quantile: float
    n_compared: int
    neighbours: tuple[Neighbour, ...]
    spaces: tuple[str, ...] = ("features",)
    furthest: str = "features"

    @property
    def heading(self) -> str:
        """The result in a phrase."""
        return (
            "The input is unlike the training data" if self.novel else "The input resembles the training data"
        )

    @property
    def detail(self) -> str:
        """How far it is, and what was compared, in a phrase."""
        return f"{self.compared} of {self.n_compared:,} training samples{self._by}"

    @property
    def compared(self) -> str:
        """How far it is, in a few words."""
        way, share = ("further from", self.share) if self.share > 0.5 else ("nearer to", 1 - self.share)
        return f"{way} it than {'all' if share == 1 else percent(share)}"

    @property
    def _by(self) -> str:
        if len(self.spaces) == 1:
            return f", by {self.spaces[0]} alone"
        most = _SPACES.get(self.furthest, self.furthest)
        return f", most by {most}" if self.novel else ""

    @property
    def check(self) -> Check:
        """Whether the input resembles the training data."""
        return Check(not self.novel, f"{self.heading}: {self.detail}.")

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the samples, in plain types that JSON takes."""
        return {**facts(self), "neighbours": [facts(near) for near in self.neighbours]}


# The summary: the evidence for a prediction and against it, and the checks

_SPACES = {
    "features": "its features",
    "values": "its values",
    "direction": "the pattern of its values",
    "statistics": "its brightness, contrast and roughness",
}
_LOOSE = 1e-2  # duality gap from which the scores themselves are in doubt
_CLOSE = 0.5  # half of the margin that the surrogate is solved for: a runner-up that is nearer contests
_STABLE, _UNSTABLE = 0.7, 0.3  # shares of the halves that "stable" and "unstable" begin at


class Summary(NamedTuple):
    """What an explanation comes to.

    Attributes
    ----------
    claim : the prediction, what supports it and what contradicts it, a sentence
    checks : whether the surrogate predicts what the model predicts, and whether the input resembles the
        training data; a third where the surrogate is not solved to convergence
    """

    claim: str
    checks: tuple[Check, ...]

    @property
    def text(self) -> str:
        """The claim, then a line per check."""
        return "\n".join([self.claim, *(f"{check.mark} {check.words}" for check in self.checks)])


def summarize(why: Explanation) -> Summary:
    """Sum up an explanation."""
    typical = NOT_MEASURED if why.typicality is None else why.typicality.check
    loose = Check(False, f"The surrogate is not solved to convergence: its duality gap is {why.gap:.1e}.")
    claim = _made_of(why) if why.effect is None else _of_effects(why)
    return Summary(f"{claim}.", (agreement(why), typical, *([loose] if why.gap > _LOOSE else [])))


NOT_MEASURED = Check(None, "Whether the input resembles the training data is not measured.")
"""The check of an input that was not compared with the training set."""


def agreement(why: Explanation) -> Check:
    """Check whether the surrogate predicts what the model predicts, and say with which margins."""
    outcome, who = why.verdict, "The surrogates together" if why.n_members else "The surrogate"
    says = "predict" if why.n_members else "predicts"
    ours, theirs = _short(outcome.surrogate), _short(outcome.predicted)
    if why.label_kind != "class":
        chance = "" if outcome.probability is None else f" ({percent(outcome.probability)})"
        both = f"{who} {says} {ours}, the model {theirs}"
        about = f" for “{_short(why.class_names[why.target])}”{chance}" if why.label_kind == "label" else ""
        end = "." if outcome.agrees else "; this does not explain the model’s output."
        return Check(outcome.agrees, f"{both}{about}{end}")
    ahead = ""
    if why.margin is not None and why.runner_up is not None:
        ahead = f", its logit {number(why.margin)} above “{_short(why.class_names[why.runner_up])}”"
    chance = "" if outcome.probability is None else f", with probability {percent(outcome.probability)}"
    if outcome.agrees:
        return Check(True, f"{who} {says} “{ours}” too{ahead}.")
    return Check(
        False,
        f"{who} {says} “{ours}”{ahead}; the model predicts “{theirs}”{chance}. The evidence shown does not "
        "lead to the model’s prediction.",
    )


def stability(counts: Sequence[int], halves: int, k: int) -> Check | None:
    """Check whether the strongest samples stay so, by the number of halves in which each of them does.

    On average in at least 70 % of the halves they are "stable", in less than 30 % "unstable".
    """
    if not counts or not halves:
        return None
    mean = sum(counts) / len(counts)
    share = mean / halves
    word = "stable" if share >= _STABLE else "unstable" if share < _UNSTABLE else "partly stable"
    return Check(
        share >= _UNSTABLE,
        f"Its strongest samples are {word}: on average in the top {k} of {mean:.1f} of {halves} halves of "
        "the training set.",
    )


def _made_of(why: Explanation) -> str:
    """Say what samples an output is made of."""
    about, for_, against = f"“{_short(why.about)}”", why.proponents, why.opponents
    if why.label_kind == "number":
        up = f"is pulled up by {_such(why, for_)}" if for_ else "is pulled up by no training sample"
        return f"{about} {up}, and down by {_such(why, against) if against else 'none'}"
    if why.label_kind == "label" or why.target == why.predicted:
        about += f" ({percent(why.probability or 0.0)})"
    second = why.runner_up if why.target == why.surrogate_class and why.against is None else None
    if second is not None and why.margin is not None and why.margin < _CLOSE:
        about += f", closely contested by “{_short(why.class_names[second])}”"
    supported = _such(why, for_) if for_ else "no training sample"
    contradicted = f"most evidence against it is from {_such(why, against, 'samples')}"
    return f"{about}, supported by {supported}; {contradicted if against else 'nothing contradicts it'}"


def _of_effects(why: Explanation) -> str:
    """Say without what samples an output would be another."""
    output = "" if why.label_kind == "number" else f"The {why.words.output} of "
    about, for_, against = f"{output}“{_short(why.about)}”", why.proponents, why.opponents
    lower = f"lower without {_such(why, for_)}" if for_ else ""
    higher = f"higher without {_such(why, against)}" if against else ""
    both = ", and ".join(part for part in (lower, higher) if part)
    return f"{about} would be {both or 'the same without any training sample'}"


def _such(why: Explanation, pairs: Sequence[Contribution], samples: str = "training samples") -> str:
    """Describe training samples by their labels, the strongest first."""
    if why.label_kind == "label":
        with_, without = (any(pair.differs is differs for pair in pairs) for differs in (False, True))
        has = "with and without it" if with_ and without else "with it" if with_ else "without it"
        return f"{samples} {has}"
    names = list(dict.fromkeys(_short(pair.label_text) for pair in pairs))
    listed = _listed(names if len(names) <= 3 else [*names[:2], "others"])
    return f"{samples} labelled {listed}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def _short(name: str) -> str:
    return ends(one_line(name))
