"""The terms of explanations, with one sentence per term, and how pages show them.

A page holds the whole list once. In its texts the first occurrence of a term is a control that shows its
sentence on hover, on keyboard focus or on tap.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from markupsafe import Markup, escape


class Meaning(NamedTuple):
    """A word, its name in addresses, the forms in which texts have it (a pattern), and what it means."""

    name: str
    key: str
    forms: str
    meaning: str


GLOSSARY = (
    Meaning("surrogate", "surrogate", r"\b[Ss]urrogate\b",
            "A support vector machine on the model’s last features, which replaces its last layer here: its "
            "outputs are exact sums over training samples."),
    Meaning("support vector", "support-vector", r"\b[Ss]upport vectors?\b",
            "A training sample that the surrogate needs; without all the others it would be the same."),
    Meaning("duality gap", "gap", r"\b(?:relative )?duality gap\b",
            "An upper bound on how far the surrogate is from the optimum, relative to its objective: 1e-6 is "
            "a millionth."),
    Meaning("τ (tau)", "tau", r"τ",
            "What one training sample adds to the logit of the explained class: its weight λ times its "
            "similarity to the test sample."),
    Meaning("λ (lambda)", "lambda", r"λ",
            "The weight of a training sample for a class, the same for every test; 0 for those that are no "
            "support vectors."),
    Meaning("C", "C", r"\bC(?= = )",
            "The largest weight of a training sample: a small C spreads a prediction over many samples, a "
            "large C over few."),
    Meaning("at the bound", "bound", r"\bat the bound\b",
            "A sample whose weight is C: the surrogate does not classify it with a margin, so it is hard, "
            "atypical or labelled wrong."),
    Meaning("logit", "logit", r"\blogit\b",
            "The score of a class before softmax turns scores into probabilities; the class with the largest "
            "is predicted."),
    Meaning("bias", "bias", r"\bbias\b",
            "The part of an output that is the same for every input, so that no pixel or word accounts for "
            "it."),
    Meaning("relevance", "relevance", r"\b[Rr]elevance\b",
            "How much of a score comes from a pixel, a word or a value: blue parts support what is "
            "explained, orange ones contradict it."),
    Meaning("rules", "rules", r"\b(?:epsilon_plus_flat|attn_lrp_cp|attn_lrp|epsilon|[Rr]ules)\b",
            "How a score is propagated from layer to layer back to the input (layer-wise relevance "
            "propagation)."),
    Meaning("effect", "effect", r"\b[Ee]ffects?\b",
            "How much higher the output is with the training sample than if the model were trained without "
            "it, as the surrogate predicts."),
    Meaning("to first order", "first-order", r"\bto first order\b",
            "Predicted from the derivative of the surrogate, without solving it again: exact for small "
            "changes only."),
    Meaning("halves", "halves", r"\bhalves\b",
            "The surrogate is solved again on random halves of the training set, to see which samples stay "
            "among the strongest."),
    Meaning("concept", "concept", r"\b[Cc]oncepts?\b|\bcomponents?\b",
            "A direction in the model’s features that samples share; a component is one along which the "
            "support vectors differ most."),
    Meaning("base", "base", r"\bbase\b",
            "The prediction without any score: for regression, the mean of the training targets."),
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
