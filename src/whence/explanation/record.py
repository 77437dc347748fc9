"""What one prediction comes from: the training samples that speak for it and those that speak against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from whence.attributors.base import Ranked
from whence.attributors.dualda import DualDA
from whence.errors import InvalidInputError
from whence.model import evaluating

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Picture = npt.NDArray[np.float32]
"""An image to look at: (height, width) in grey or (height, width, 3) in colour, in [0, 1]."""


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one training sample contributes to a prediction.

    Attributes
    ----------
    index : its place in the training set
    label : its class
    score : τ; positive is evidence for the target class, negative evidence against it
    share : its part of all evidence of its sign, in [0, 1]
    image : the sample itself
    """

    index: int
    label: int
    score: float
    share: float
    image: Picture


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where one prediction comes from.

    Attributes
    ----------
    image : the test sample
    predicted, probability : the model's class for it, and the probability the model gives that class
    truth : its true class, or None where it is not known
    target : the class that the scores are about
    class_names : one name a class
    evidence_for, evidence_against : sums of all positive and of all negative scores
    proponents, opponents : the strongest samples of either sign, strongest first
    n_train, n_support : training samples, and how many of them are support vectors and so can score
    gap : relative duality gap of the surrogate, the certificate of its scores
    """

    image: Picture
    predicted: int
    probability: float
    truth: int | None
    target: int
    class_names: tuple[str, ...]
    evidence_for: float
    evidence_against: float
    proponents: tuple[Contribution, ...]
    opponents: tuple[Contribution, ...]
    n_train: int
    n_support: int
    gap: float

    @property
    def logit(self) -> float:
        """The surrogate's logit of the target: the sum of all scores."""
        return self.evidence_for + self.evidence_against

    @property
    def share_for(self) -> float:
        """The part of ``evidence_for`` that the shown proponents carry, in [0, 1]."""
        return sum(sample.share for sample in self.proponents)

    @property
    def share_against(self) -> float:
        """The part of ``evidence_against`` that the shown opponents carry, in [0, 1]."""
        return sum(sample.share for sample in self.opponents)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pixels, in plain types that JSON takes."""

        def plain(sample: Contribution) -> dict[str, Any]:
            name = self.class_names[sample.label]
            numbers = {"score": sample.score, "share": sample.share}
            return {"index": sample.index, "label": sample.label, "class": name} | numbers

        return {
            "predicted": self.predicted,
            "probability": self.probability,
            "truth": self.truth,
            "target": self.target,
            "class_names": list(self.class_names),
            "logit": self.logit,
            "evidence_for": self.evidence_for,
            "evidence_against": self.evidence_against,
            "share_for": self.share_for,
            "share_against": self.share_against,
            "proponents": [plain(sample) for sample in self.proponents],
            "opponents": [plain(sample) for sample in self.opponents],
            "n_train": self.n_train,
            "n_support": self.n_support,
            "gap": self.gap,
        }

    def plot(self) -> Figure:
        """Draw the test sample, its proponents and opponents with their scores, and the balance of evidence.

        Returns
        -------
        matplotlib Figure; ``figure.savefig("why.pdf")`` writes it. No global matplotlib state is touched.
        """
        from whence.explanation.figure import draw

        return draw(self)


def explain(
    explainer: DualDA,
    model: nn.Module,
    x: Tensor,
    *,
    train_images: Tensor,
    train_labels: Tensor,
    class_names: Sequence[str],
    truth: Tensor | None = None,
    target: int | Sequence[int] | Tensor | None = None,
    k: int = 5,
) -> list[Explanation]:
    """Explain a batch of images by the training samples that their predictions come from.

    Parameters
    ----------
    explainer
        Fitted on ``model`` and the training set.
    model
        The classifier itself, for its probabilities.
    x : (B, channels, height, width)
        The images to explain, in [0, 1].
    train_images, train_labels : (N, channels, height, width) and (N,)
        The training set, in the order that the explainer was fitted on.
    class_names
        One name a class.
    truth : (B,)
        The true classes, where they are known.
    target
        The class to explain: None for the model's own, one class, or one a test.
    k
        How many proponents and opponents to show.

    Returns
    -------
    list of Explanation, one a test. Positive scores are evidence for the target class.
    """
    with evaluating(model):
        probabilities, predicted = model(x).double().softmax(dim=1).max(dim=1)
    names = tuple(class_names)
    top = explainer.top_k(x, k, target)
    scores = explainer.attribute(x, target)  # (B, N)
    evidence_for = scores.clamp(min=0).sum(dim=1).tolist()
    evidence_against = scores.clamp(max=0).sum(dim=1).tolist()

    def contributions(ranked: Ranked, b: int, total: float) -> tuple[Contribution, ...]:
        pairs = zip(ranked.indices[b].tolist(), ranked.scores[b].tolist(), strict=True)
        return tuple(
            Contribution(i, int(train_labels[i]), score, score / total, as_picture(train_images[i]))
            for i, score in pairs
            if i >= 0  # fewer than k samples of this sign
        )

    return [
        Explanation(
            image=as_picture(x[b]),
            predicted=int(predicted[b]),
            probability=float(probabilities[b]),
            truth=None if truth is None else int(truth[b]),
            target=int(top.target[b]),
            class_names=names,
            evidence_for=evidence_for[b],
            evidence_against=evidence_against[b],
            proponents=contributions(top.proponents, b, evidence_for[b]),
            opponents=contributions(top.opponents, b, evidence_against[b]),
            n_train=len(train_labels),
            n_support=len(explainer.support_),
            gap=explainer.gap_,
        )
        for b in range(len(x))
    ]


def as_picture(image: Tensor) -> Picture:
    """Turn an image tensor (1 or 3, height, width) in [0, 1] into an array to look at."""
    pixels = image.detach().cpu().float().numpy()
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise InvalidInputError(
            "An image must have shape (1 or 3, height, width) and values in [0, 1] to be shown. "
            f"Got shape {pixels.shape} and values in [{pixels.min():g}, {pixels.max():g}]. Undo its scaling."
        )
    return pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
