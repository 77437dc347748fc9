"""Explanations as JSON for pages, read off their records: samples and maps as pictures."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from torch.nn.functional import interpolate

from whence.explanation.concepts import ConceptExplanation
from whence.explanation.contribution import Contribution, Full
from whence.explanation.record import Explanation
from whence.explanation.usual import Trust
from whence.explanation.wording import Question, Words
from whence.pages.pictures import data_uri
from whence.pages.samples import Array, Sample
from whence.pages.style import drawn, unwritten
from whence.pages.texts import begun, headline
from whence.tasks import LabelKind

Class = Annotated[int, Field(ge=0, description="A class by its number")]
Index = Annotated[int, Field(ge=0, description="A sample's place")]

_SMALL = 96  # pixels per side, and tokens, of samples in lists


class Image(BaseModel):
    """A sample that is a picture."""

    kind: Literal["image"] = "image"
    src: str
    width: int
    height: int


class Text(BaseModel):
    """A sample that is a text."""

    kind: Literal["text"] = "text"
    tokens: list[str]
    headline: Annotated[int, Field(description="Tokens of the headline; 0 where the text is short")]


class Values(BaseModel):
    """A sample that is neither."""

    kind: Literal["values"] = "values"
    values: list[float]


def shown(sample: Any) -> Any:
    """Return a sample as it is shown."""
    if not isinstance(sample, Sample):
        return sample
    if sample.image is not None:
        height, width = sample.image.shape[:2]
        return Image(src=data_uri(sample.image), width=width, height=height)
    if sample.tokens is not None:
        return Text(tokens=list(sample.tokens), headline=headline(sample.tokens))
    assert sample.values is not None
    return Values(values=_rounded(sample.values))


def small(sample: Any) -> Any:
    """Return a sample for a list: a picture of at most 96 pixels per side, or the beginning of a text."""
    if isinstance(sample, Sample) and sample.tokens is not None:
        return shown(Sample(tokens=begun(sample.tokens, _SMALL)))
    if not isinstance(sample, Sample) or sample.image is None or max(sample.image.shape[:2]) <= _SMALL:
        return shown(sample)
    height, width = sample.image.shape[:2]
    ratio = _SMALL / max(height, width)
    size = max(1, round(height * ratio)), max(1, round(width * ratio))
    planes = torch.from_numpy(np.ascontiguousarray(sample.image)).reshape(1, height, width, -1)
    less = interpolate(planes.permute(0, 3, 1, 2), size, mode="area")[0].permute(1, 2, 0).numpy()
    return shown(Sample(image=less.reshape(*size, *sample.image.shape[2:])))


_Kinds = Annotated[Image | Text | Values, Field(discriminator="kind")]
Shown = Annotated[_Kinds, BeforeValidator(shown)]
Small = Annotated[_Kinds, BeforeValidator(small)]


class Pixels(BaseModel):
    """Relevance on a picture: one in grey, from −``most`` in black to ``most`` in white; 128 of 255 is 0."""

    width: int
    height: int
    most: float
    src: str


class Bars(BaseModel):
    """Relevance on a text or on values; ``outside`` is that on tokens which are no part of the text."""

    values: list[float]
    outside: float = 0.0


def _map(relevance: Any, info: ValidationInfo) -> Any:
    """Return a map as it is drawn on its sample, which the context has by the map's name."""
    if not isinstance(relevance, np.ndarray) or info.context is None:
        return relevance
    assert info.field_name is not None
    return _drawn(info.context[info.field_name], relevance)


def _drawn(sample: Sample, relevance: Array) -> Pixels | Bars:
    found = drawn(sample, relevance)
    if found.ndim == 1:
        return Bars(values=_rounded(found), outside=unwritten(sample, relevance))
    most = float(np.abs(found).max(initial=0)) or 1.0
    height, width = found.shape
    grey = ((128 + 127 * found / most) / 255).astype(np.float32)
    return Pixels(width=width, height=height, most=most, src=data_uri(grey))


Map = Annotated[Pixels | Bars, BeforeValidator(_map)]


class View(BaseModel):
    """Reads its fields off a record."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, why: Explanation | ConceptExplanation) -> Self:
        """Read a record."""
        if isinstance(why, Explanation):
            return cls.model_validate(why, context=dict.fromkeys(("logit_map", "test_map"), why.sample))
        return cls.model_validate(why, context={"test_map": why.test, "train_map": why.train})


class Pair(View):
    """A training sample and what it contributes; positive is evidence for the target class."""

    index: Index
    label: Any
    told: str
    differs: bool
    score: float
    share: float
    coefficient: float | None
    spread: float | None
    sample: Shown
    test_map: Map
    train_map: Map

    @model_validator(mode="before")
    @classmethod
    def _on_its_sample(cls, pair: Any) -> Any:
        """Draw the map on the training sample, which the context does not have."""
        if not isinstance(pair, Contribution):
            return pair
        fields = {name: getattr(pair, name) for name in cls.model_fields}
        return fields | {"train_map": _drawn(pair.sample, pair.train_map)}


class Why(View):
    """A reason to trust an explanation or not, see ``whence.explanation.summary``."""

    trust: Trust
    words: str


class Summed(View):
    """What an explanation comes to: a claim, and reasons to trust it, to which others may be added."""

    claim: str
    reasons: list[Why]


class Near(View):
    """A training sample near the test."""

    index: Index
    told: str
    distance: float
    sample: Small


class Usual(View):
    """How usual a test is for the training set, see ``whence.explanation.Usual``."""

    strange: bool
    share: float
    heading: str
    detail: str
    reason: Why
    neighbours: list[Near]


class Said(View):
    """What the model and the surrogate say, in words, see ``Verdict``."""

    predicted: str
    probability: float | None
    truth: str | None
    right: bool | None
    surrogate: str
    agrees: bool


class Explained(View):
    """Where one prediction comes from, see ``Explanation``."""

    question: Question
    words: Words
    label_kind: LabelKind
    summary: Summed
    verdict: Said
    about: str
    told: str
    sample: Shown
    logit_map: Map
    full: Full
    pairs: list[Pair]
    predicted: Class
    probability: float | None
    surrogate_class: Class
    truth: Any
    target: Class
    logit: float
    base: float
    total: float
    bias: float
    evidence_for: float
    evidence_against: float
    share_for: float
    share_against: float
    sums: dict[str, float]
    method: str
    n_members: int
    n_train: int
    n_support: int
    gap: float
    waterfall: list[tuple[int, float]]
    sparsity: list[tuple[int, float]]


class Part(View):
    """A concept's part of a pair's score."""

    name: str
    score: float
    test_activation: float
    train_activation: float
    test_map: Map
    train_map: Map
    indices: list[Index]
    samples: list[Small]


class Strip(View):
    """The concepts of a pair, see ``ConceptExplanation``."""

    index: Index
    score: float
    bias: float
    is_basis: bool
    full: dict[str, float]
    train: Shown
    test: Shown
    parts: list[Part]


def _rounded(values: Array) -> list[float]:
    return [float(f"{value:.5g}") for value in values.ravel().tolist()]
