"""What lies between two samples: the parts of a pair's score that go through concepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from whence.core.display import displayed, line
from whence.core.naming import app_import
from whence.explanation.evidence import facts
from whence.pages.pictures import as_html, can_draw
from whence.pages.samples import Array, Sample
from whence.pages.style import drawn, scale
from whence.tasks import LabelKind

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@displayed()
@dataclass(frozen=True, eq=False)
class ConceptPart:
    """What one concept contributes to the score of a pair.

    Attributes
    ----------
    name : of the concept
    score : τ(x, i | v), the part of the pair's score; positive is evidence for the target class
    test_activation, train_activation : how strongly the two samples show it, f·v
    test_map, train_map : relevance of the part on either sample
    indices, samples : the training samples that show the concept most, strongest first; where the pair's
        training sample shows it negatively, those that show it most negatively
    """

    name: str
    score: float
    test_activation: float
    train_activation: float
    test_map: Array
    train_map: Array
    indices: tuple[int, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ConceptExplanation:
    """Why a training sample supports or contradicts a prediction: the concepts that the two share.

    Attributes
    ----------
    test, train : the two samples
    index, label, label_text : the training sample's place and label, and that in words
    label_kind : which words are used, of a class, a label or a number
    target : the class that the scores are about
    class_names : one name per class
    score, bias : τ of the pair, and the part of it that comes from the bias and goes through no concept
    names, scores : all concepts, and each one's part (q,) of the score
    is_basis : whether the concepts are an orthonormal basis: the parts then sum to ``score`` − ``bias``
    parts : the concepts that contribute most with the score's own sign, largest first
    among : which training samples the concepts' samples were chosen from
    method : how relevance is propagated to the inputs
    """

    test: Sample
    train: Sample
    index: int
    label: Any
    label_text: str
    label_kind: LabelKind
    target: int
    class_names: tuple[str, ...]
    score: float
    bias: float
    names: tuple[str, ...]
    scores: npt.NDArray[np.float64]
    is_basis: bool
    parts: tuple[ConceptPart, ...]
    among: str
    method: str

    @property
    def shown(self) -> float:
        """The sum of the shown concepts' parts."""
        return sum(part.score for part in self.parts)

    @property
    def full(self) -> dict[str, float]:
        """The relevance of the full colour in the maps on either sample, ``train`` and ``test``."""
        sides = {"train": self.train, "test": self.test}
        return {
            name: scale(drawn(sample, getattr(part, f"{name}_map")) for part in self.parts)
            for name, sample in sides.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything but pixels, in plain types that JSON takes."""
        scores = dict(zip(self.names, self.scores.tolist(), strict=True))
        return {**facts(self), "scores": scores, "parts": [facts(part) for part in self.parts]}

    def __repr__(self) -> str:
        about, names = self.class_names[self.target], [part.name for part in self.parts]
        facts = {"index": self.index, "about": about, "score": self.score, "concepts": names}
        return line("ConceptExplanation", facts)

    def _repr_html_(self) -> str | None:
        if not can_draw():
            return None
        return as_html([(repr(self), self.plot())])

    def plot(self) -> Figure:
        """Draw the pair, and for each concept the samples that show it most and its maps on both samples.

        Returns
        -------
        matplotlib Figure; ``figure.savefig("concepts.pdf")`` writes it.
        """
        with app_import("A figure"):
            from whence.explanation.figures.concepts import draw

        return draw(self)
