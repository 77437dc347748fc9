"""An explanation in one sentence: what it rests on, what speaks against it, how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from whence.explanation.usual import Reason, Trust
from whence.pages.style import ends, one_line, percent

if TYPE_CHECKING:
    from whence.explanation.contribution import Contribution
    from whence.explanation.record import Explanation

LEADS: dict[Trust, str] = {
    "yes": "trust this explanation",
    "care": "take this explanation with care",
    "no": "do not trust this explanation",
}
"""What the reasons together come to, by the worst of them."""
_LOOSE = 1e-2  # duality gap from which the scores themselves are in doubt
_FEW = 0.05  # share of the evidence from which the samples shown are more than examples
_CONTESTED = 0.9  # of the weight for it, that speaks against a prediction
_STABLE = 0.7  # of the halves in which a sample stays among the strongest


class Summary(NamedTuple):
    """What an explanation comes to.

    Attributes
    ----------
    claim : what the prediction rests on and what speaks against it
    reasons : to trust it or not, as far as they are known
    """

    claim: str
    reasons: tuple[Reason, ...]

    @property
    def trust(self) -> Trust:
        """How far to trust it: as far as the worst reason says."""
        return max((one.trust for one in self.reasons), key=list(LEADS).index)

    @property
    def lead(self) -> str:
        """What that comes to, in words."""
        return LEADS[self.trust]

    @property
    def because(self) -> str:
        """The reasons in words: doubts first, the worst before the others, then what speaks for it."""
        doubts = [one for trust in ("no", "care") for one in self.reasons if one.trust == trust]
        rest = [one.words for one in self.reasons if one.trust == "yes"]
        if not doubts:
            return _listed(rest)
        return _listed([one.words for one in doubts]) + (f", although {_listed(rest)}" if rest else "")

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        return f"{self.claim}; {self.lead}: {self.because}."


def summary(why: Explanation) -> Summary:
    """Sum up an explanation."""
    claim = _of_effects(why) if why.foretold is not None else _made_of(why)
    found = [_agreement(why), *([] if why.usual is None else [why.usual.reason])]
    if why.pairs and why.share_for < _FEW and why.foretold is None:
        found.append(
            Reason("care", f"the samples shown hold only {percent(why.share_for)} of what it rests on")
        )
    if why.gap > _LOOSE:
        found.append(Reason("care", "the surrogate was not solved to the end"))
    return Summary(claim, tuple(found))


def stability(kept: Sequence[int], halves: int) -> Reason | None:
    """Say whether the strongest samples stay so; ``kept`` is in how many of the halves each of them does."""
    if not kept or not halves:
        return None
    if sum(kept) >= _STABLE * halves * len(kept):
        return Reason("yes", "its strongest samples stay so on halves of the training set")
    return Reason("care", "halves of the training set have other strongest samples")


def _agreement(why: Explanation) -> Reason:
    if why.verdict.agrees:
        return Reason("yes", "the surrogate gives the model’s answer")
    return Reason("no", f"the surrogate {why.words.says} “{_short(why.verdict.surrogate)}”")


def _made_of(why: Explanation) -> str:
    """Say what samples an output is made of."""
    about, for_, against = f"“{_short(why.about)}”", why.proponents, why.opponents
    if why.label_kind == "number":
        up = f"is pulled up by {_such(why, for_)}" if for_ else "is pulled up by no training sample"
        return f"{about} {up}, and down by {_such(why, against) if against else 'none'}"
    rests = f"rests on likeness to {_such(why, for_)}" if for_ else "rests on no training sample"
    if not against:
        return f"{about} {rests}; nothing speaks against it"
    weight = -why.evidence_against / why.evidence_for if why.evidence_for else 1.0
    told = f", with {percent(weight)} of that weight" if why.evidence_for else ""
    told += ", so that it is contested" if weight >= _CONTESTED else ""
    return f"{about} {rests}; {_such(why, against, 'samples')} speak against it{told}"


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
    names = list(dict.fromkeys(_short(pair.told) for pair in pairs))
    shown = names if len(names) <= 3 else [*names[:2], "others"]
    return f"{samples} labelled {_listed(shown)}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def _short(name: str) -> str:
    return ends(one_line(name))
