"""What scores mean, in words: what a logit is made of, or what would change without a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from whence.tasks import LabelKind

Question = Literal["made of", "would change"]
"""Whether scores are the parts of the surrogate's logit, or what samples change by being there."""

Sides = tuple[str, str]
"""A phrase about positive scores, and one about negative ones."""

OUTPUTS = {"logit": "logit", "margin": "margin", "log_prob": "log-probability"}
"""What effects can be on, by its name in code."""


@dataclass(frozen=True)
class Words:
    """The words of one question, which shared by figures, pages and the explorer.

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
    origin : what the base value is the output of, or what else it is; empty where scores do not sum to an
        output
    total : what the sum of all scores is, after "sum"
    scored : which samples can have a score, after their number
    running, held : captions of the curves of all scores
    colours : what either colour means, in three words
    output : what is explained, in a word
    predicted, true : what stands before what the model says, and before what is true
    other, others : what a training sample marked by ≠ is, in short and as a sentence; empty where none is
    says : what a surrogate does, before what it says
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
    origin: str = ""
    colours: Sides = ("for the target", "against it")
    output: str = "logit"
    predicted: str = "predicted"
    true: str = "true label"
    other: str = "label differs from the target"
    others: str = "The training sample’s label differs from the target class."
    says: str = "predicts"


_PAIRS = (
    "Each pair of a training sample and the test sample has two maps, which show the features of either that "
    "its score comes from."
)
_READING = (
    "A score τ is large when the training sample matters to the surrogate and looks like the test sample to "
    f"the model. {{}} {_PAIRS}"
)
_PULLS = (
    "samples whose target is above the prediction of the others pull up what looks like them, those below it "
    "pull it down."
)
_OF_CLASSES = Words(
    title="Where a prediction comes from",
    titles="Where {n} predictions come from",
    lead="Which training samples a prediction comes from, and which features of them and of the test sample.",
    reading=_READING.format(
        "The scores of all training samples sum to the surrogate’s logit of the target class."
    ),
    asks="Why",
    mark="τ = ",
    scores="Scores τ",
    side=("evidence for", "evidence against"),
    share=("for", "against"),
    everything=("all evidence for", "all evidence against"),
    nothing=("No training sample supports this class.", "No training sample contradicts this class."),
    sign=("evidence for the target class", "evidence against it"),
    total="= surrogate logit",
    scored="are support vectors, the rest score 0",
    running="Running sum of the scores: it ends at the logit",
    held="Share of all evidence",
)


_OF_LABELS = replace(
    _OF_CLASSES,
    reading=_READING.format(
        "The scores of all training samples sum to the surrogate’s logit of the label that is explained, "
        "which is on where that is above 0: samples with the label support it, others contradict it."
    ),
    nothing=("No training sample supports this label.", "No training sample contradicts this label."),
    sign=("evidence that the label is on", "evidence that it is off"),
    colours=("for the label", "against it"),
    predicted="labels on",
    true="true labels",
    other="without the label that is explained",
    others="The training sample is without the label that is explained.",
    says="has",
)

_OF_NUMBERS = replace(
    _OF_CLASSES,
    reading=_READING.format(
        "The surrogate’s prediction is the base value, which for a regression is the mean of the training "
        f"targets, plus the scores of all training samples, in the units of the targets: {_PULLS}"
    ),
    side=("pulls up", "pulls down"),
    share=("upward", "downward"),
    everything=("all that pulls up", "all that pulls down"),
    nothing=("No training sample pulls it up.", "No training sample pulls it down."),
    sign=("pulls the prediction up", "pulls the prediction down"),
    total="of all scores",
    scored="leave the tube or lie at its edge, the rest score 0",
    running="Running sum of the scores: from the base value to the prediction",
    held="Share of all that pulls",
    origin="the mean of the training targets",
    colours=("pulls up", "pulls down"),
    output="prediction",
    true="true value",
    other="",
    others="",
)

MADE_OF: dict[LabelKind, Words] = {"class": _OF_CLASSES, "label": _OF_LABELS, "number": _OF_NUMBERS}
"""The words of what a prediction is made of, by the τ of the paper."""


def made_of(label_kind: LabelKind, relative: bool, over: Sides | None = None) -> Words:
    """Return the words of what an output, or the difference of two, is made of.

    Parameters
    ----------
    label_kind : of the task
    relative : whether scores say what sets the input apart from the average training sample
    over : names of the target and of the class that it is compared with; None for the target alone
    """
    words = MADE_OF[label_kind]
    average = "the average training sample"
    if over is not None:
        target, other = over
        average = f"the average sample of {other}"
        words = replace(
            words,
            reading=_READING.format(
                f"The scores of all training samples sum to the surrogate’s logit of {target} less that of "
                f"{other}."
            ),
            side=("evidence for", "evidence for"),
            share=("for", "against"),
            nothing=(
                f"No training sample is evidence for {target} over {other}.",
                f"No training sample is evidence for {other} over {target}.",
            ),
            sign=(f"evidence for {target} over {other}", f"evidence for {other} over {target}"),
            total="= surrogate logit difference",
            running="Running sum of the scores: it ends at the difference of the two logits",
            colours=("for the target", "for the other class"),
            output="logit difference",
        )
    if not relative:
        return words
    number = label_kind == "number"
    reading = (
        f"Scores say what sets this input apart from {average}: a score is large when the training sample "
        f"matters to the surrogate and looks more like this input than like {average} to the model. The "
        f"surrogate’s {words.output} is the base value, which is that of {average}, plus the scores of all "
        f"training samples{f', in the units of the targets: {_PULLS}' if number else '.'} {_PAIRS}"
    )
    return replace(
        words,
        reading=reading,
        mark="",
        scores="Scores",
        total="of all scores",
        running=f"Running sum of the scores: from the base value to the {words.output}",
        origin=average,
    )


def would_change(output: str, label_kind: LabelKind = "class") -> Words:
    """Return the words of effects on an output of the model, or on a prediction that is a number."""
    number = label_kind == "number"
    name, whole = ("prediction", "prediction") if number else (OUTPUTS[output], "logit")
    of, of_class, units = f" the {name} of", " of the target class", ""
    if number:
        of, of_class, units = "", "", "in the units of the targets, "
    words = Words(
        title="What would change a prediction",
        titles="What would change {n} predictions",
        lead="What would change without a training sample, if the model were trained again, as its surrogate "
        "predicts it.",
        reading=f"An effect is how much higher the {name}{of_class} is with the training sample than without "
        f"it, {units}where the others make up for it as far as they can. Each is of one sample alone, and "
        f"together they are not the {whole}. The maps of a pair show the features of either sample that its "
        "effect comes from.",
        asks="What would change",
        mark="",
        scores="Effects",
        side=(f"raises{of}", f"lowers{of}"),
        share=("raising", "lowering"),
        everything=("all that raises", "all that lowers"),
        nothing=("No training sample raises it.", "No training sample lowers it."),
        sign=(
            f"without the sample the {name} would be lower",
            f"without the sample the {name} would be higher",
        ),
        total=f"of all effects, not the {whole}",
        scored="have an effect, the rest have none",
        running=f"Running sum of the effects, which are of one sample each: it does not end at the {whole}",
        held="Share of all effects",
    )
    if not number:
        return words
    return replace(words, output=name, true="true value", other="", others="")


def of_members(words: Words, n: int) -> Words:
    """Return the words of scores that are means over the n members of an ensemble."""
    return replace(
        words,
        reading=words.reading
        + f" Here scores and maps are means over {n} models, each in units of the standard deviation of its "
        "own scores, so that they sum to no logit; ± is the standard deviation over the models.",
        mark="",
        scores="Mean scores",
        origin="",
        total=f"of the means over {n} models",
        scored="score in some model, the rest score 0 in all",
        running=f"Running sum of the means over {n} models",
    )
