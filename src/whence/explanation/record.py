"""What one prediction comes from: the training samples that speak for and against it, and their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from whence.core.checks import is_integer, shown
from whence.errors import InvalidInputError
from whence.pages.samples import Array, Sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one training sample contributes to a prediction.

    Attributes
    ----------
    index : its place in the training set
    label : its class
    score : τ; positive is evidence for the target class, negative evidence against it
    share : its part of all evidence of its sign, in [0, 1]
    coefficient : λ, its global attribution for the target class
    sample : the sample itself
    test_map, train_map : relevance of the pair's score on the test and on the training sample, in the
        input's shape; of a text, one value a token. Positive speaks for the target class.
    """

    index: int
    label: int
    score: float
    share: float
    coefficient: float
    sample: Sample
    test_map: Array
    train_map: Array


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where one prediction comes from.

    Attributes
    ----------
    sample : the test sample
    predicted, probability : the model's class for it, and the probability the model gives that class
    surrogate_class : the class that the surrogate gives it; where it differs, do not trust the explanation
    truth : its true class, or None where it is not known
    target : the class that the scores are about
    class_names : one name a class
    evidence_for, evidence_against : sums of all positive and of all negative scores
    bias : the part of the logit that comes from the bias, which no feature of an input carries
    proponents, opponents : the strongest samples of either sign, strongest first
    logit_map : relevance of the surrogate's logit on the test sample, which is the sum of the test maps of
        all training samples
    method : how relevance was brought to the inputs
    n_train, n_support : training samples, and how many of them are support vectors and so can score
    gap : relative duality gap of the surrogate, the certificate of its scores
    """

    sample: Sample
    predicted: int
    probability: float
    surrogate_class: int
    truth: int | None
    target: int
    class_names: tuple[str, ...]
    evidence_for: float
    evidence_against: float
    bias: float
    proponents: tuple[Contribution, ...]
    opponents: tuple[Contribution, ...]
    logit_map: Array
    method: str
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
        return sum(pair.share for pair in self.proponents)

    @property
    def share_against(self) -> float:
        """The part of ``evidence_against`` that the shown opponents carry, in [0, 1]."""
        return sum(pair.share for pair in self.opponents)

    @property
    def pairs(self) -> tuple[Contribution, ...]:
        """Proponents, then opponents."""
        return self.proponents + self.opponents

    @property
    def maps(self) -> dict[str, Any]:
        """Relevance as arrays: ``logit``, ``test`` (pair, …), and ``train``, an array a pair.

        Pairs are in the order of ``pairs``. Images' maps have the input's shape, texts' one value a token.
        """
        shape = (len(self.pairs), *self.logit_map.shape)
        test = np.array([pair.test_map for pair in self.pairs], dtype=np.float32).reshape(shape)
        return {"logit": self.logit_map, "test": test, "train": [pair.train_map for pair in self.pairs]}

    @property
    def sums(self) -> dict[str, float]:
        """What the maps sum to, beside what they are of.

        ``logit`` = ``features`` + ``bias``; ``features`` is what the logit's map starts from and
        ``logit_map`` what arrives at the input: biases and stabilisers inside the model take the rest.
        ``shown`` is the sum of the shown pairs' scores, ``shown_maps`` that of their test maps, and
        ``likeness`` the cosine between the sum of their test maps and the logit's map.
        """
        shown = self.maps["test"].sum(axis=0) if self.pairs else np.zeros_like(self.logit_map)
        lengths = float(np.linalg.norm(shown) * np.linalg.norm(self.logit_map))
        return {
            "logit": self.logit,
            "features": self.logit - self.bias,
            "bias": self.bias,
            "logit_map": float(self.logit_map.sum()),
            "shown": sum(pair.score for pair in self.pairs),
            "shown_maps": float(shown.sum()),
            "likeness": float(np.vdot(shown, self.logit_map)) / lengths if lengths else 0.0,
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything but pixels, in plain types that JSON takes; of texts also the tokens and their maps."""

        def shown(sample: Sample, **maps: Array) -> dict[str, Any]:
            if sample.tokens is None:
                return {}
            return {"tokens": list(sample.tokens)} | {name: m.tolist() for name, m in maps.items()}

        def plain(pair: Contribution) -> dict[str, Any]:
            return {
                "index": pair.index,
                "label": pair.label,
                "class": self.class_names[pair.label],
                "score": pair.score,
                "share": pair.share,
                "coefficient": pair.coefficient,
                "test_map_sum": float(pair.test_map.sum()),
                "train_map_sum": float(pair.train_map.sum()),
                **shown(pair.sample, test_map=pair.test_map, train_map=pair.train_map),
            }

        return {
            "predicted": self.predicted,
            "probability": self.probability,
            "surrogate_class": self.surrogate_class,
            "truth": self.truth,
            "target": self.target,
            "class_names": list(self.class_names),
            "logit": self.logit,
            "bias": self.bias,
            "evidence_for": self.evidence_for,
            "evidence_against": self.evidence_against,
            "share_for": self.share_for,
            "share_against": self.share_against,
            "sums": self.sums,
            "proponents": [plain(pair) for pair in self.proponents],
            "opponents": [plain(pair) for pair in self.opponents],
            "method": self.method,
            "n_train": self.n_train,
            "n_support": self.n_support,
            "gap": self.gap,
            **shown(self.sample, logit_map=self.logit_map),
        }

    def plot(self) -> Figure:
        """Draw the test sample with its map, its proponents and opponents, and the maps of each pair.

        Returns
        -------
        matplotlib Figure; ``figure.savefig("why.pdf")`` writes it. No global matplotlib state is touched.
        """
        from whence.explanation.figures.pairs import draw

        return draw(self)


class Explanations(Sequence[Explanation]):
    """Where the predictions of a batch come from: one ``Explanation`` a test sample."""

    def __init__(self, explanations: Sequence[Explanation]) -> None:
        self._all = tuple(explanations)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, test: int) -> Explanation: ...
    @overload
    def __getitem__(self, test: slice) -> Explanations: ...
    def __getitem__(self, test: int | slice) -> Explanation | Explanations:
        return Explanations(self._all[test]) if isinstance(test, slice) else self._all[test]

    def __repr__(self) -> str:
        return f"Explanations of {len(self)} predictions"

    @property
    def maps(self) -> list[dict[str, Any]]:
        """The relevance maps of each test sample, see ``Explanation.maps``."""
        return [why.maps for why in self]

    def plot(self, test: int = 0) -> Figure:
        """Draw the explanation of one test sample, the first if none is named."""
        if not is_integer(test) or not -len(self) <= test < len(self):
            raise InvalidInputError(f"'test' must be one of the {len(self)} test samples. Got {shown(test)}.")
        return self[test].plot()

    def to_dict(self) -> list[dict[str, Any]]:
        """Each explanation in plain types that JSON takes."""
        return [why.to_dict() for why in self]

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Write all explanations as one page that needs no network and no scripts.

        Parameters
        ----------
        path
            Where to write it; None only returns it.

        Returns
        -------
        The page. Texts and names are escaped.
        """
        from whence.explanation.page import write

        return write(self._all, path)
