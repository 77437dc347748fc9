"""The support vector machine that stands in for a model's head, with the support vectors' features only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.contents import Layout
from whence.core.store import Arrays
from whence.data import TrainingSet
from whence.errors import InvalidInputError
from whence.features import taken
from whence.features.place import BankPlace
from whence.model.bound import BoundModel
from whence.model.heads import Head
from whence.model.inputs import to_model
from whence.surrogate.expansion import Expansion
from whence.surrogate.faithfulness import Faithfulness, faithfulness, head_logits, new_logits
from whence.surrogate.sketch import WIDTH, check_same
from whence.surrogate.sketch import sketch as make_sketch
from whence.surrogate.solutions import SurrogateSolution
from whence.surrogate.vectors import Vectors
from whence.tasks import Task

HEAD_LAYOUT: Layout = {"head_weight": ("K", "d"), "head_bias": ("K",)}
_LOGITS = 1 << 20  # computed at a time
_KNOWN_BY = 7  # random samples by which a training set is known again, beside the first


class Surrogate:
    """Weights W = Σ_i λ_i f_iᵀ beside the model's own head.

    Parameters
    ----------
    task : what outputs and labels are
    solution : λ (N, K), W (K, d[+1]), and how they were reached
    vectors : (S, d) features of the samples with λ_i ≠ 0, in training order, as the surrogate reads them
    labels : (N, …)
    head : the model's last layer, where it is known; it reads features as they are
    sketch : (N, 4 + …) of the training set, by which it is known again; None in files of version 0.1
    bank : where the features of all samples lie in a cache; None where they do not
    """

    def __init__(
        self,
        task: Task,
        solution: SurrogateSolution,
        vectors: Vectors,
        labels: Array,
        head: Head | None,
        sketch: Floats | None,
        bank: BankPlace | None = None,
    ) -> None:
        self.task, self.solution, self.labels, self.head, self.sketch = task, solution, labels, head, sketch
        self.lam, self.coef = solution.lam, solution.weight
        self.support = solution.support
        self.stored = vectors
        self.bank = bank
        self.bias = self.coef.shape[1] > self.stored.shape[1]
        self.constant = solution.constant if self.bias else 0.0
        self.expansion = Expansion(self.stored, self.support, self.lam, constant=self.constant)

    @property
    def vectors(self) -> Tensor:
        """The support vectors' features (S, d), all in memory; ``stored`` has some at a time."""
        return self.stored.whole()

    def arrays(self, vectors: bool = True) -> Arrays:
        """Everything to save, with the support vectors' features or without."""
        head = {} if self.head is None else {"head_weight": self.head.weight, "head_bias": self.head.bias}
        arrays = {
            "lam_data": self.lam.data,
            "lam_indices": _narrowed(self.lam.indices),
            "lam_indptr": _narrowed(self.lam.indptr),
            "coef": self.coef,
            "vectors": self.vectors.cpu().numpy() if vectors else None,
            "labels": _narrowed(self.labels),
            **head,
            "sketch": self.sketch,
        }
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, manifest: Any, device: str | torch.device | None, unit: bool
    ) -> Self:
        """Rebuild from what ``arrays`` gave, and from the manifest of ``DualDA``, or raise StoreError.

        Where that names a bank, "vectors" is the map of its features, of all samples. With ``unit`` features
        are read at unit length.
        """
        task, labels = _checked(arrays, manifest.task_of, manifest.bank is not None), arrays["labels"]
        if labels.dtype.kind == "i":
            labels = labels.astype(np.int64)
        rows = arrays["lam_data"], arrays["lam_indices"], arrays["lam_indptr"]
        lam = csr_array(rows, shape=(len(labels), task.n_outputs))
        known = manifest.C, manifest.gap, manifest.C_path, manifest.constant, "loaded"
        solution = SurrogateSolution(lam, arrays["coef"], *known)
        head = Head(arrays["head_weight"], arrays.get("head_bias")) if "head_weight" in arrays else None
        places = None if manifest.bank is None else solution.support
        vectors = Vectors(arrays["vectors"], places, device, unit)
        return cls(task, solution, vectors, labels, head, arrays.get("sketch"), manifest.bank)

    def check_training(self, features: Floats, rows: Ints | None = None, argument: str = "features") -> None:
        """Raise unless features (n, d) are those of training samples ``rows`` (n,), or of all, as fitted."""
        rows = np.arange(len(self.labels)) if rows is None else rows
        used = self.task.known(self.labels)[rows]
        if self.sketch is not None:
            known = self.task.known(self._fitted_labels)
            check_same(self.sketch, known, taken(features, used), rows[used], argument)
            return
        used &= np.isin(rows, self.support)  # the only ones whose features a file of version 0.1 has
        known = np.isin(np.arange(len(self.labels)), self.support)
        kept = np.zeros((len(self.labels), WIDTH + 1), np.float32)
        kept[self.support] = make_sketch(self.vectors.cpu().numpy(), self.labels[self.support])
        check_same(kept, known, taken(features, used), rows[used], argument)

    @property
    def _fitted_labels(self) -> Array:
        """The labels of the training set as it is, whatever is asked about it."""
        return self.labels if self.sketch is None else self.sketch[:, WIDTH:].reshape(self.labels.shape)

    def check_labels(self, labels: Array, argument: str) -> None:
        """Raise unless training labels (N, …), blank where one is unknown, are those that were fitted."""
        if len(labels) != len(self.labels):
            raise InvalidInputError(
                f"'{argument}' must be of the training set that was fitted, {len(self.labels):,} samples. "
                f"Got {len(labels):,}."
            )
        kept = self._fitted_labels
        differ = (kept != labels.astype(kept.dtype)).reshape(len(labels), -1).any(axis=1)
        other = np.flatnonzero(self.task.known(kept) & self.task.known(labels) & differ)
        if len(other):
            i = other[0]
            raise InvalidInputError(
                f"'{argument}' must be the training set that was fitted, in its order. {len(other):,} of "
                f"{len(labels):,} samples have other labels: sample {i} has {labels[i]}, was "
                f"{kept[i].astype(labels.dtype)}. Give the same samples, or fit again."
            )

    def check_data(self, data: TrainingSet, model: BoundModel, relabelled: Sequence[int] = ()) -> None:
        """Raise unless a training set is the one that was fitted, by a look at a few of its samples.

        Samples that were ``relabelled`` since may have any label.
        """
        labels = self.task.blank(len(data))
        self.check_labels(labels, "data")  # as many as there were
        possible = self.support if self.sketch is None else np.flatnonzero(self.task.known(self.labels))
        rows = np.sort(np.r_[possible[:1], np.random.default_rng().permutation(possible[1:])[:_KNOWN_BY]])
        batch = data.read(rows.tolist())
        known = data.known_labels()
        if known is not None and np.array_equal(known[rows], batch.labels):
            labels = known.copy()
        labels[rows] = batch.labels
        labels[list(relabelled)] = self.task.blank(1)[0]
        self.check_labels(labels, "data")
        found = model.read_batch(to_model(model.extractor.model, batch.inputs)).features
        self.check_training(found.float().cpu().numpy(), rows, "data")

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Return the rows of ``vectors`` that support vectors have, by their places in the training set."""
        return torch.as_tensor(np.searchsorted(self.support, indices), device=self.stored.like.device)

    def support_logits(self) -> Iterator[tuple[slice, Doubles]]:
        """Compute the logits W f_i (s, K) of the support vectors, in float64, some at a time."""
        d, size = self.stored.shape[1], max(64, _LOGITS // len(self.coef))
        for start in range(0, len(self.stored), size):
            some = slice(start, min(start + size, len(self.stored)))
            f = self.stored[some].double().cpu().numpy()
            yield some, f @ self.coef[:, :d].T + (self.coef[:, -1] if self.bias else 0.0) + self.task.base

    def logits(self, features: Tensor) -> Tensor:
        """Compute the surrogate's outputs W f(x), (B, K), and their base where there is one, in float64."""
        read = self.stored.as_read(features)
        return new_logits(self.coef, read) + torch.as_tensor(self.task.base, device=features.device)

    def classes(self, features: Tensor) -> Tensor:
        """Return the output that the model predicts, or the surrogate where the head is unknown, (B,)."""
        return self.task.default_target(self.model_logits(features))

    def model_logits(self, features: Tensor) -> Tensor:
        """Compute the model's own logits (B, K), or the surrogate's where the head is unknown."""
        return self.logits(features) if self.head is None else head_logits(self.head, features)

    def self_influence(self) -> Tensor:
        """λ_{i,y_i}‖f_i‖² of every training sample, (N,); of other tasks with Σ_c |λ_ic|, as a rule."""
        own = self.task.label_weights(self.lam[self.support])
        norms = self.stored.squared_norms() + self.constant**2
        out = norms.new_zeros(len(self.labels))
        out[torch.as_tensor(self.support, device=out.device)] = norms * torch.as_tensor(own).to(norms)
        return out

    def faithfulness(self, features: Tensor, logits: Tensor | None = None) -> Faithfulness:
        """Compare with the model's output (B, K) for features (B, d); None takes what the head makes."""
        if self.head is None:
            raise InvalidInputError(
                "'head' must be known to compare the surrogate with the model. It is not: pass "
                "head=(weight, bias) to FeatureBank.of, or use fit(model, data)."
            )
        theirs = head_logits(self.head, features) if logits is None else logits
        if self.task.has_classes:
            return faithfulness(self.coef, self.head, self.stored.as_read(features), theirs)
        agreement, alike = self.task.compare_outputs(
            self.logits(features).cpu().numpy(), theirs.double().cpu().numpy()
        )
        weights = self.coef[:, : features.shape[1]], self.head.weight.astype(np.float64)
        lengths = float(np.linalg.norm(weights[0]) * np.linalg.norm(weights[1]))
        cosine = float(np.vdot(*weights)) / lengths if lengths > 0 else 0.0
        return Faithfulness(agreement, None, cosine, alike, len(features))


def _narrowed(values: Array) -> Array:
    """Integers in the smallest type that has room for them; other values as they are."""
    if values.dtype.kind != "i":
        return values
    return values.astype(np.min_scalar_type(-int(values.max(initial=0)) - 1))


def _checked(arrays: Arrays, task_of: Callable[[int], Task], mapped: bool) -> Task:
    """Return the task of saved arrays, which are then safe to compute with, or raise StoreError.

    Vectors that are ``mapped`` are of all samples, and their checksum was compared before.
    """
    names = {"lam_data", "lam_indices", "lam_indptr", "coef", "vectors", "labels"}
    head = {"head_weight", "head_bias"} & arrays.keys()
    known = {"sketch"} & arrays.keys()  # files of version 0.1 have none
    contents.check_names(arrays, names | ({"head_weight"} if head else set()), head | known)
    sizes: dict[str, int] = {}
    shapes: Layout = {"coef": ("K", "columns"), "vectors": ("S", "d"), **HEAD_LAYOUT}
    layout = {name: shape for name, shape in shapes.items() if name in arrays}
    if mapped:
        del layout["vectors"]
        contents.check_shape("vectors", arrays["vectors"], (len(arrays["labels"]), "d"), sizes)
    contents.check_floats(arrays, layout, sizes, dict.fromkeys((*head, "vectors"), contents.FLOATS))
    K, extra = sizes["K"], sizes["columns"] - sizes["d"]
    if K < 1 or sizes["d"] < 1 or extra not in (0, 1):
        raise contents.refused(f"'coef' must have a column per feature and perhaps one more, and has {extra}")
    task, labels = task_of(K), arrays["labels"]
    task.check_saved("labels", labels)
    used = task.known(labels)
    if known:
        found = arrays["sketch"]
        contents.check_shape("sketch", found, (len(labels), WIDTH + int(np.prod(labels.shape[1:]))), {})
        # Sums are finite, blank labels need not be.
        sums: contents.Layout = {"sketch": (len(labels), WIDTH)}
        contents.check_floats({"sketch": found[:, :WIDTH]}, sums, {}, {"sketch": ("float32",)})
    contents.check_rows(arrays, "lam_", len(labels), K)
    support = np.diff(arrays["lam_indptr"]) > 0
    if (not mapped and int(support.sum()) != sizes["S"]) or not used[support].all():
        raise contents.refused("'vectors' must have a row per sample with coefficients, and has not")
    return task
