"""What the explorer shows, whoever asks: the state behind the page, live or written to a file."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from whence.attributors import DualDA
from whence.errors import InvalidInputError
from whence.explanation.samples import as_samples
from whence.features import as_float32
from whence.session import Session
from whence.ui import payload
from whence.ui.payload import Json

C_STEPS = (1e-2, 1e-1, 1.0, 1e1, 1e2)
"""The values of C on offer, as multiples of the explainer's own."""


class Explorer:
    """A session, and what can be asked of it.

    Attributes
    ----------
    session : the explainer with its model, training set and tests
    names : one a class
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        explainer = session.explainer
        self.names = explainer.class_names_ or tuple(map(str, range(explainer.n_classes_)))
        self._lock = threading.RLock()
        self._path: dict[float, DualDA] = {explainer.C_: explainer}

    @functools.cached_property
    def features(self) -> torch.Tensor:
        """Features (M, d) of the test samples."""
        return torch.from_numpy(np.array(as_float32(self.session.test_bank.features)))

    @functools.cached_property
    def truths(self) -> Any:
        """True classes (M,) of the test samples."""
        return self.session.test_bank.labels

    @functools.cached_property
    def probabilities(self) -> torch.Tensor:
        """The model's probabilities (M, K)."""
        return self.session.explainer._fitted().model_logits(self.features).double().softmax(1)

    def info(self) -> Json:
        """What holds for all tests."""
        explainer, session = self.session.explainer, self.session
        faith = explainer.faithfulness_features(self.features)
        predicted = self.probabilities.argmax(1).numpy()
        inputs = session._tests().take([0])
        return {
            "title": session.path.stem,
            "kind": payload.sample(as_samples(inputs, explainer._with_model().prepare.preprocess)[0])["kind"],
            "classes": list(self.names),
            "n_train": explainer.n_train_,
            "n_tests": len(self.truths),
            "n_support": len(explainer.support_),
            "C": explainer.C_,
            "Cs": self.Cs(),
            "gap": explainer.gap_,
            "accuracy": float((predicted == self.truths).mean()),
            "agreement": faith.agreement,
            "mcc": faith.mcc,
        }

    def Cs(self) -> list[float]:
        """The values of C that explanations can be asked for at, ascending."""
        C = self.session.explainer.C_
        return [float(f"{C * step:.3g}") if step != 1 else C for step in C_STEPS]

    def rows(
        self,
        *,
        offset: int = 0,
        limit: int = 24,
        label: int | None = None,
        predicted: int | None = None,
        wrong: bool = False,
        disagree: bool = False,
    ) -> Json:
        """A page of the test samples that fit, with small pictures."""
        classes = self.probabilities.argmax(1).numpy()
        surrogate = self.surrogate_classes
        fits = np.ones(len(self.truths), dtype=bool)
        if label is not None:
            fits &= self.truths == label
        if predicted is not None:
            fits &= classes == predicted
        if wrong:
            fits &= classes != self.truths
        if disagree:
            fits &= classes != surrogate
        found = np.flatnonzero(fits)
        return {"total": len(found), "rows": self.summaries(found[offset : offset + limit].tolist())}

    @functools.cached_property
    def surrogate_classes(self) -> Any:
        """The surrogate's classes (M,)."""
        return self.session.explainer.predict_features(self.features).numpy()

    def summaries(self, indices: Sequence[int]) -> list[Json]:
        """One line a test sample."""
        if not indices:
            return []
        inputs = self.session._tests().take(list(indices))
        tokenizer = self.session.explainer._with_model().prepare.preprocess
        shown = as_samples(inputs, tokenizer)
        out = []
        for index, picture in zip(indices, shown, strict=True):
            best = int(self.probabilities[index].argmax())
            out.append(
                {
                    "index": index,
                    "truth": int(self.truths[index]),
                    "predicted": best,
                    "probability": float(self.probabilities[index, best]),
                    "surrogate_class": int(self.surrogate_classes[index]),
                    "sample": payload.sample(picture)
                    if picture.tokens is None
                    else {"kind": "text", "tokens": list(picture.tokens[:24])},
                }
            )
        return out

    def explain(self, index: int, k: int = 5, target: int | None = None, C: float | None = None) -> Json:
        """Explain a test sample."""
        with self._lock:
            explainer = self.at(C)
            why = self.session.explain([index], k, target, explainer=explainer)[0]
            scores = explainer.attribute_features(self.features[[index]], why.target, sparse=True).data
        return {"test": index, "C": explainer.C_, **payload.explanation(why, scores)}

    def explain_own(self, x: Any, k: int = 5, target: int | None = None, C: float | None = None) -> Json:
        """Explain an input of the user's own, a batch of one as the model or its preprocessing takes it."""
        with self._lock:
            explainer = self.at(C)
            why = explainer.explain(x, k, target)[0]
            scores = explainer.attribute(x, why.target, sparse=True).data
        return {"test": None, "C": explainer.C_, **payload.explanation(why, scores)}

    def at(self, C: float | None, progress: Callable[[Json], object] | None = None) -> DualDA:
        """Give the explainer at another C of ``Cs``, solved when it is first asked for."""
        own = self.session.explainer
        if C is None:
            return own
        if C not in self.Cs():
            known = ", ".join(f"{c:g}" for c in self.Cs())
            raise InvalidInputError(f"'C' must be one of {known}. Got {C:g}.")
        with self._lock:
            if C not in self._path:
                self._path[C] = own.what_if(as_float32(self.session.train_bank.features), C=C)
            return self._path[C]

    def concepts(self, index: int, pair: int | None, target: int | None, kind: str, n: int = 3) -> Json:
        """Take the score of a pair apart into concepts: single features, or principal components."""
        from whence.relevance import Concepts

        explainer = self.session.explainer
        if kind not in ("neurons", "components"):
            raise InvalidInputError(f"'kind' must be neurons or components. Got {kind!r}.")
        with self._lock:
            width = explainer.vectors_.shape[1]
            chosen = Concepts.neurons(width) if kind == "neurons" else self._components
            inputs = self.session._tests().take(self.session.check_tests([index]))
            why = explainer._explaining(1, None).concepts(inputs, target, pair, chosen, n, 9)
        return payload.concepts(why)

    @functools.cached_property
    def _components(self) -> Any:
        from whence.relevance import Concepts

        return Concepts.principal(self.session.explainer.vectors_)

    def text_input(self, text: str) -> Any:
        """Make a batch of one of a text."""
        if self.session.explainer._with_model().prepare.preprocess is None:
            raise InvalidInputError(
                "A text needs the tokeniser that the explainer was fitted with. Fit with --preprocess."
            )
        return [text]

    def image_input(self, pixels: Any) -> Any:
        """Make a batch of one of a picture (height, width, 3) of bytes, in the training samples' shape."""
        from PIL import Image

        explainer = self.session.explainer
        if explainer._with_model().prepare.preprocess is not None:
            return [Image.fromarray(pixels)]
        assert explainer._data is not None
        some = np.linspace(0, explainer.n_train_ - 1, 16).astype(int).tolist()
        like = np.asarray(explainer._data.take(some), dtype=np.float32)
        if like.ndim != 4 or like.shape[1] not in (1, 3):
            raise InvalidInputError(
                "A picture needs a model of pictures. This one's inputs have another shape."
            )
        if like.min() < 0 or (1 < like.max() < 32) or like.max() > 255:
            raise InvalidInputError(
                "The training samples are scaled in a way that is not known here. Fit with --preprocess, "
                "which then scales a picture too."
            )
        _, channels, height, width = like.shape
        picture = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
        values = np.asarray(picture.convert("L" if channels == 1 else "RGB"), dtype=np.float32)
        planes = values[None] if channels == 1 else np.moveaxis(values, -1, 0)
        return torch.from_numpy((planes if like.max() > 1 else planes / 255)[None].copy())

    def what_if(self, index: int, remove: Sequence[int], relabel: dict[int, int], target: int | None) -> Json:
        """Solve the surrogate without or with other labels of some training samples; compare."""
        own = self.session.explainer
        with self._lock:
            other = own.what_if(as_float32(self.session.train_bank.features), remove=remove, relabel=relabel)
        f = self.features[self.session.check_tests([index])]
        wanted = int(self.probabilities[index].argmax()) if target is None else target

        def told(explainer: DualDA) -> Json:
            logits = explainer._fitted().logits(f)[0].double()
            best = int(logits.argmax())
            return {
                "predicted": best,
                "logits": [float(value) for value in logits],
                "logit": float(logits[wanted]),
                "n_support": len(explainer.support_),
                "gap": explainer.gap_,
            }

        before, after = told(own), told(other)
        agree = (own.predict_features(self.features) == other.predict_features(self.features)).double()
        return {
            "test": index,
            "target": wanted,
            "before": before,
            "after": after,
            "changed_tests": int(len(agree) - agree.sum()),
            "n_tests": len(agree),
            "seconds": other.seconds_["solution"],
        }

    def suspects(self, offset: int, limit: int) -> Json:
        """A page of the training samples whose labels may be wrong."""
        return {"total": 0, "ranking": "", "rows": []}

    def classes(self) -> list[Json]:
        """The classes, and the training samples that carry them."""
        return []
