"""The parts of an explanation: training samples with their scores, how typical its test is, its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from whence.core.display import displayed
from whence.pages.samples import Array, Sample
from whence.pages.style import ends, one_line, percent

if TYPE_CHECKING:
    from whence.explanation.record import Explanation

Trust = Literal["yes", "care", "no"]
"""Whether to trust an explanation: yes, with care, or not."""


class Reason(NamedTuple):
    """Why to trust an explanation, or why not."""

    trust: Trust
    words: str


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
    values = {field.name: getattr(record, field.name) for field in fields(record)}
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
    coefficient : λ, the global attribution for the target class, by which τ = λ f_i·f(x); None of effects
    sample : the sample itself
    test_map, train_map : relevance of the score on either sample, in the input's shape; of a text, one value
        per token. Positive supports the target class.
    spread : standard deviation of the score over the members of an ensemble; None elsewhere
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
    """How typical a test sample is of the training set.

    Attributes
    ----------
    novel : whether nothing like it is in the training set: ``share`` is beyond ``quantile``
    share : of training samples that are nearer to their own k-th neighbour than the test is to its
    quantile : the share that counts as typical
    n_compared : the number of training samples that the share is of
    neighbours : the k nearest training samples, the nearest first
    """

    novel: bool
    share: float
    quantile: float
    n_compared: int
    neighbours: tuple[Neighbour, ...]

    @property
    def heading(self) -> str:
        """The result in a phrase."""
        return "Nothing like this in the training set" if self.novel else "Typical of the training set"

    @property
    def detail(self) -> str:
        """How typical it is, in a sentence without its full stop."""
        k = len(self.neighbours)
        rank = {1: "", 2: "second ", 3: "third "}.get(k, f"{k}th ")
        way, link, share = (
            ("further", "from", self.share) if self.share > 0.5 else ("nearer", "to", 1 - self.share)
        )
        than = "all" if share == 1 else percent(share)
        return (
            f"{way} {link} its {rank}nearest training sample than {than} of {self.n_compared:,} training "
            f"samples are {link} theirs"
        )

    @property
    def reason(self) -> Reason:
        """Whether it is a reason to trust what training samples say of the test."""
        if self.novel:
            return Reason("care", "nothing like this is in the training set")
        return Reason("yes", "the training set has similar samples")

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the samples, in plain types that JSON takes."""
        return {**facts(self), "neighbours": [facts(near) for near in self.neighbours]}


# The summary: the evidence for a prediction, what contradicts it, how far to trust it

LEADS: dict[Trust, str] = {
    "yes": "trust this explanation",
    "care": "take this explanation with care",
    "no": "do not trust this explanation",
}
"""What the reasons together come to, by the worst of them."""
_LOOSE = 1e-2  # duality gap from which the scores themselves are in doubt
_FEW = 0.05  # share of the evidence from which the samples shown are more than examples
_CONTESTED = 0.9  # evidence against, as a share of the evidence for, from which a prediction is contested
_STABLE = 0.7  # of the halves in which a sample stays among the strongest


class Summary(NamedTuple):
    """What an explanation comes to.

    Attributes
    ----------
    claim : what supports the prediction and what contradicts it
    reasons : to trust it or not, as far as they are known
    """

    claim: str
    reasons: tuple[Reason, ...]

    @property
    def trust(self) -> Trust:
        """How far to trust it: as far as the worst reason says."""
        return max((reason.trust for reason in self.reasons), key=list(LEADS).index)

    @property
    def lead(self) -> str:
        """What that comes to, in words."""
        return LEADS[self.trust]

    @property
    def because(self) -> str:
        """The reasons in words: doubts first, the worst of them first, then the reasons to trust it."""
        doubts = [
            reason.words for level in ("no", "care") for reason in self.reasons if reason.trust == level
        ]
        rest = _listed([reason.words for reason in self.reasons if reason.trust == "yes"])
        return _listed(doubts) + (f", although {rest}" if rest else "") if doubts else rest

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        return f"{self.claim}; {self.lead}: {self.because}."


def summarize(why: Explanation) -> Summary:
    """Sum up an explanation."""
    reasons = [_agreement(why), *([] if why.typicality is None else [why.typicality.reason])]
    if why.pairs and why.share_for < _FEW and why.effect is None:
        reasons.append(
            Reason("care", f"the samples shown hold only {percent(why.share_for)} of its evidence")
        )
    if why.gap > _LOOSE:
        reasons.append(Reason("care", "the surrogate is not solved to convergence"))
    return Summary(_made_of(why) if why.effect is None else _of_effects(why), tuple(reasons))


def stability(counts: Sequence[int], halves: int) -> Reason | None:
    """Say whether the strongest samples stay so, by the number of halves in which each of them does."""
    if not counts or not halves:
        return None
    if sum(counts) >= _STABLE * halves * len(counts):
        return Reason("yes", "its strongest samples are the same on halves of the training set")
    return Reason("care", "halves of the training set have other strongest samples")


def _agreement(why: Explanation) -> Reason:
    if why.verdict.agrees:
        return Reason("yes", "the surrogate agrees with the model")
    return Reason("no", f"the surrogate {why.words.says} “{_short(why.verdict.surrogate)}”")


def _made_of(why: Explanation) -> str:
    """Say what samples an output is made of."""
    about, for_, against = f"“{_short(why.about)}”", why.proponents, why.opponents
    if why.label_kind == "number":
        up = f"is pulled up by {_such(why, for_)}" if for_ else "is pulled up by no training sample"
        return f"{about} {up}, and down by {_such(why, against) if against else 'none'}"
    if why.label_kind == "label" or why.target == why.predicted:
        about += f" ({percent(why.probability or 0.0)})"
    claim = f"{about}, supported by {_such(why, for_) if for_ else 'no training sample'}"
    if not against:
        return f"{claim}; nothing contradicts it"
    weight = -why.evidence_against / why.evidence_for if why.evidence_for else 1.0
    closely = "closely contested" if weight >= _CONTESTED else "contradicted"
    share = f", with {percent(weight)} of that weight" if why.evidence_for else ""
    return f"{claim}; {closely} by {_such(why, against, 'samples')}{share}"


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
    return f"{samples} labelled {_listed(names if len(names) <= 3 else [*names[:2], 'others'])}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def _short(name: str) -> str:
    return ends(one_line(name))
