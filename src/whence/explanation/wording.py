"""What scores mean, in words: what a logit is made of, or what would change without a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Question = Literal["made of", "would change"]
"""Whether scores are the parts of the surrogate's logit, or what samples change by being there."""

Sides = tuple[str, str]
"""A phrase about positive scores, and one about negative ones."""

OUTPUTS = {"logit": "logit", "margin": "margin", "log_prob": "log-probability"}
"""What effects can be on, by its name in code."""


@dataclass(frozen=True)
class Words:
    """The words of one question, which figures, pages and the explorer share.

    Attributes
    ----------
    title, titles : of a page with one explanation, and with n
    lead, reading : what such a page shows, and how it is read
    asks : the question about one prediction, before the class's name
    mark, scores : what stands before a score, and what several are called
    side : what samples of a sign do, before the class's name
    share : whose share a sample has, after "of all"
    everything : all scores of a sign
    nothing : said where there is none of a sign
    sign : what a sign means
    total : what the sum of all scores is, after "sum"
    scored : which samples can have a score, after their number
    running, held : captions of the curves of all scores
    train_map : what the map on a training sample is of
    """

    title: str
    titles: str
    lead: str
    reading: str
    asks: str
    mark: str
    scores: str
    side: Sides
    share: Sides
    everything: Sides
    nothing: Sides
    sign: Sides
    total: str
    scored: str
    running: str
    held: str
    train_map: str


MADE_OF = Words(
    title="Where a prediction comes from",
    titles="Where {n} predictions come from",
    lead="Which training samples a prediction comes from, and which features of them and of the test sample.",
    reading="A score τ is large when the training sample matters to the surrogate and looks like the test "
    "sample to the model. The scores of all training samples sum to the surrogate’s logit of the target "
    "class. Each pair of a training sample and the test sample has two maps, which show the features of "
    "either that its score comes from.",
    asks="Why",
    mark="τ = ",
    scores="Scores τ",
    side=("evidence for", "evidence against"),
    share=("for", "against"),
    everything=("all evidence for", "all evidence against"),
    nothing=("No training sample speaks for this class.", "No training sample speaks against this class."),
    sign=("evidence for the target class", "evidence against it"),
    total="= surrogate logit",
    scored="are support vectors, the rest score 0",
    running="Running sum of the scores: it ends at the logit",
    held="Share of all evidence",
    train_map="of its score, too",
)


def would_change(output: str) -> Words:
    """Give the words of effects on an output of the model."""
    name = OUTPUTS[output]
    return Words(
        title="What would change a prediction",
        titles="What would change {n} predictions",
        lead="What training samples change by being there: what would be missing if one were gone and the "
        "model trained again, as its surrogate foretells it.",
        reading=f"An effect is how much higher the {name} of the target class is with the training sample "
        "than without it, where the others make up for it as far as they can. Each is of one sample alone, "
        "and together they are not the logit. The maps of a pair show the features of either sample that "
        "its effect comes from.",
        asks="What would change",
        mark="",
        scores="Effects",
        side=(f"raises the {name} of", f"lowers the {name} of"),
        share=("raising", "lowering"),
        everything=("all that raises", "all that lowers"),
        nothing=("No training sample raises it.", "No training sample lowers it."),
        sign=(
            f"without the sample the {name} would be lower",
            f"without the sample the {name} would be higher",
        ),
        total="of all effects, not the logit",
        scored="have an effect, the rest have none",
        running="Running sum of the effects: each is of one sample alone, and it does not end at the logit",
        held="Share of all effects",
        train_map="of its effect, too",
    )
