"""An explanation in one sentence: its evidence, what contradicts it, how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from whence.explanation.evidence import Reason, Trust
from whence.pages.style import ends, one_line, percent

if TYPE_CHECKING:
    from whence.explanation.evidence import Contribution
    from whence.explanation.record import Explanation

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
