"""The words of explanations that not everyone knows, each in one sentence, and how pages show them.

A page holds the whole list once. In its texts the first of each word is a control that shows its sentence
to those who point at it, reach it by keyboard or tap it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from markupsafe import Markup, escape


class Term(NamedTuple):
    """A word, its name in addresses, the forms in which texts have it (a pattern), and what it means."""

    name: str
    key: str
    forms: str
    meaning: str


GLOSSARY = (
    Term(
        "surrogate", "surrogate", r"\b[Ss]urrogate\b",
        "A support vector machine on the model’s last features, which stands for the model here: its answers "
        "are exact sums over training samples.",
    ),
    Term(
        "support vector", "support-vector", r"\b[Ss]upport vectors?\b",
        "A training sample that the surrogate needs; without all the others it would be the same.",
    ),
    Term(
        "duality gap", "gap", r"\b(?:relative )?duality gap\b",
        "How far the surrogate is from the best one at most, as a part of what was minimised: 1e-6 is a "
        "millionth.",
    ),
    Term(
        "τ (tau)", "tau", r"τ",
        "What one training sample adds to the explained class, or takes from it: its weight λ times its "
        "likeness to the test sample.",
    ),
    Term(
        "λ (lambda)", "lambda", r"λ",
        "How hard a training sample pulls toward a class, whatever is tested; 0 of those that are no support "
        "vectors.",
    ),
    Term(
        "C", "C", r"\bC(?= = )",
        "How hard a single training sample may pull: a small C spreads a prediction over many samples, a "
        "large C rests it on few.",
    ),
    Term(
        "at the bound", "bound", r"\bat the bound\b",
        "A sample that pulls as hard as C allows: the surrogate does not get it right by a margin, so it is "
        "hard, unusual or labelled wrong.",
    ),
    Term(
        "logit", "logit", r"\blogit\b",
        "The number that a class gets before these become probabilities; the class with the largest is "
        "predicted.",
    ),
    Term(
        "bias", "bias", r"\bbias\b",
        "The part of an output that is the same for every input, so that no pixel or word carries it.",
    ),
    Term(
        "relevance", "relevance", r"\b[Rr]elevance\b",
        "How much of a score comes from a pixel, a word or a value: blue parts speak for what is explained, "
        "orange ones against it.",
    ),
    Term(
        "rules", "rules", r"\b(?:epsilon_plus_flat|attn_lrp_cp|attn_lrp|epsilon|[Rr]ules)\b",
        "How a score is handed back from layer to layer to the input, so that each part gets its share "
        "(layer-wise relevance propagation).",
    ),
    Term(
        "effect", "effect", r"\b[Ee]ffects?\b",
        "How much the output would change if the training sample were gone and the model trained again, as "
        "the surrogate foretells it.",
    ),
    Term(
        "to first order", "first-order", r"\bto first order\b",
        "Foretold from where the surrogate stands, without solving it again: exact for small changes only.",
    ),
    Term(
        "halves", "halves", r"\bhalves\b",
        "The surrogate is solved again on random halves of the training set, to see which samples stay "
        "strong whatever else is there.",
    ),
    Term(
        "concept", "concept", r"\b[Cc]oncepts?\b|\bcomponents?\b",
        "A direction in the model’s features that samples share; a component is one along which the support "
        "vectors differ most.",
    ),
    Term(
        "base", "base", r"\bbase\b",
        "What is predicted where no training sample scores: of a regression, the mean of the training "
        "targets.",
    ),
)  # fmt: skip
"""All terms, in the order in which they matter."""

_ANY = re.compile("|".join(f"(?P<t{i}>{term.forms})" for i, term in enumerate(GLOSSARY)))
_TAG = re.compile(r"(<[^>]*>)")


def glossed(text: str) -> Markup:
    """Write a text, escaped unless it is HTML already, with the first of each term as a control."""
    seen: set[str] = set()

    def control(match: re.Match[str]) -> str:
        assert match.lastgroup is not None
        term = GLOSSARY[int(match.lastgroup[1:])]
        if term.key in seen:
            return match[0]
        seen.add(term.key)
        return (
            f'<button type="button" class="term" aria-describedby="term-{term.key}" '
            f'data-meaning="{escape(term.meaning)}">{match[0]}</button>'
        )

    parts = _TAG.split(str(escape(text)))
    return Markup("".join(part if part.startswith("<") else _ANY.sub(control, part) for part in parts))
