"""Explainers whose training set may change after the fit."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from whence.attribution.surrogate_attributor import SurrogateAttributor
from whence.core import store
from whence.core.arrays import Ints, Mask
from whence.data import TrainingSet
from whence.model.bound import BoundModel
from whence.surrogate.agreement import without_part
from whence.surrogate.changes import Change, changed, first_labels
from whence.surrogate.sketch import sketch
from whence.surrogate.solutions import SurrogateSolver
from whence.surrogate.surrogate import Surrogate
from whence.surrogate.vectors import Vectors


class Updating(SurrogateAttributor):
    """A surrogate that follows changes of its training set, and remembers them.

    Attributes
    ----------
    history_ : tuple of Change, what ``update`` changed since the fit, the oldest first
    """

    history_: tuple[Change, ...]

    def update(
        self,
        *,
        add: Any = None,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        features: Any = None,
        cache_dir: str | PathLike[str] | None = None,
    ) -> Self:
        """Change the training set: add samples, leave some out, give some other labels. C stays as it is.

        The surrogate is that of a fit on the changed set with the same C, to ``tol``: only the features of
        what is added are computed, and the solver starts from the solution there is. **Every sample keeps its
        place**: what is left out scores 0 and is listed in ``skipped_``, what is added comes after the last
        sample. ``history_`` says what was changed, and is saved. The model stays as it is, also where it was
        not trained on what is added.

        Parameters
        ----------
        add
            Samples with their labels, in any form that ``fit`` takes, or a bank that
            ``whence.features.extract`` made of them; (features, labels) where the explainer has no model;
            documents where it is of a language model.
        remove
            Places of training samples to leave out.
        relabel
            New labels, by the places of training samples; none of documents.
        features
            Of the training set before the change: an array (train, d) or a FeatureBank. None takes them from
            ``cache_dir``; where they are not there, the model computes them again.
        cache_dir
            Folder that keeps features; None takes that of ``fit``, if it had one.

        Examples
        --------
        >>> import torch, whence
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> explainer = whence.DualDA(C=1e-2, show_progress=False).fit(torch.nn.Linear(4, 2), (x, y))
        >>> more = torch.randn(3, 4), torch.tensor([0, 1, 1])
        >>> explainer.update(add=more, remove=[5], relabel={7: 0}).attribute(x[:2]).shape
        torch.Size([2, 23])
        >>> explainer.skipped_.tolist(), explainer.history_[0].added
        ([5], 3)
        """
        self.check_fitted()
        self._check_parameters()
        started, before = time.perf_counter(), self.surrogate_
        made = changed(self, add, remove, {} if relabel is None else relabel, features, cache_dir)
        reading = time.perf_counter() - started
        X, labels, n = made.features, made.labels, made.change.added
        lam = csr_array(vstack([before.lam, csr_array((n, before.lam.shape[1]))])) if n else before.lam
        solution = SurrogateSolver(self.task_, self).again(X, labels, lam, self.C_, None)
        solution = solution._replace(choice=self.C_path_)
        vectors = Vectors.of(X, solution.support, self._place(self.model_), self.normalise)
        surrogate = Surrogate(self.task_, solution, vectors, labels, before.head, sketch(X, labels))
        seconds = {"features": reading, "solution": time.perf_counter() - started - reading}
        unseen, history = self._unseen, (*self.history_, made.change)
        self._adopt(self.task_, labels, before.head, self.model_, made.data, seconds)
        self._take(surrogate)
        self.origins_["features"], self.history_ = made.note, history
        self._measure(X, _still_unseen(unseen, len(before.labels), self.used_))
        return self

    def take_data(self, data: TrainingSet) -> None:
        """Take the training set, with all that was added; samples may have their labels before changes."""
        bound = self.require_model()
        fixed = [i for change in self.history_ for i, *_ in change.relabelled]
        self.surrogate_.check_data(data, bound, fixed)
        self.data_, bound.prepare = data.changed(self.labels_) if self.history_ else data, data.prepare

    def _state(self, vectors: bool = True) -> tuple[store.Arrays, dict[str, Any]]:
        arrays, facts = super()._state(vectors)
        return arrays, facts | {"history": [dataclasses.asdict(change) for change in self.history_]}

    def _keep(self, surrogate: Surrogate) -> None:
        self._take(surrogate)
        self.history_ = ()

    def _restore(self, arrays: store.Arrays, manifest: Any, bound: BoundModel | None) -> None:
        self._restore_surrogate(arrays, manifest, bound)
        self.history_ = tuple(manifest.history)
        if self.history_:
            first = first_labels(self.labels_, self.history_, self.task_)
            unseen = without_part(self.task_, first, self.seed, self.C_path_ is None)
            self._unseen = _still_unseen(unseen, len(first), self.used_)


def _still_unseen(unseen: Ints, n: int, used: Mask) -> Ints:
    """Of samples that had no part in choosing C, those that are left, and what came after the first n."""
    return np.concatenate([unseen[used[unseen]], n + np.flatnonzero(used[n:])])
