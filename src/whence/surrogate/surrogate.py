"""The surrogate of a model's last layer: weights that are a sum over training samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Array, Doubles, Floats, Ints
from whence.core.contents import Layout
from whence.core.store import Arrays
from whence.errors import InvalidInputError
from whence.features.folder import BankPlace
from whence.features.metric import MAP_ARRAYS, FeatureMap
from whence.model.heads import Head
from whence.surrogate.agreement import (
    Faithfulness,
    cosine,
    faithfulness,
    head_logits,
    new_logits,
    still_unseen,
    without_part,
)
from whence.surrogate.changes import Change, first_labels
from whence.surrogate.groups import SampleGroups, group_samples
from whence.surrogate.identity import WIDTH
from whence.surrogate.scores import Contrast, Expansion, Parts, Scored, Vectors
from whence.surrogate.solving import SurrogateSolution
from whence.svm import CChoice
from whence.tasks import Task

HEAD_LAYOUT: Layout = {"head_weight": ("K", "d"), "head_bias": ("K",)}
_LOGITS = 1 << 20  # computed at a time


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Weights W = Σ_i λ_i z_iᵀ on features z = φ(f), next to the model's own head.

    Attributes
    ----------
    task : the task
    solution : λ (N, K), W (K, d[+1]), and how they were computed
    stored : (S, d) transformed features z_i of the samples with λ_i ≠ 0, in training order
    labels : (N, …) labels of the training set
    head : the model's last layer, if known; it reads raw features
    sketch : (N, 4 + …) sketch of the training set, to recognise it
    unseen : samples that had no part in choosing C, on which agreement is measured
    bank : the place of all features in a cache, or None
    agreement : share of unseen training samples with the model's class; for several labels the share of
        labels, for regression R²; None without unseen samples
    history : changes of the training set since the fit, the oldest first
    """

    task: Task
    solution: SurrogateSolution
    stored: Vectors
    labels: Array
    head: Head | None
    sketch: Floats
    unseen: Ints
    bank: BankPlace | None = None
    agreement: float | None = None
    history: tuple[Change, ...] = ()

    effect: ClassVar[None] = None
    """Scores are parts of an output, not predicted changes."""

    @property
    def lam(self) -> csr_array:
        """Global attributions λ (train, class): positive supports the class, for any test."""
        return self.solution.lam

    @property
    def coef(self) -> Doubles:
        """Weights W (class, d), with the bias as a last column if there is one."""
        return self.solution.weight

    @cached_property
    def support(self) -> Ints:
        """Training samples (S,) with λ_i ≠ 0, ascending."""
        return self.solution.support

    @property
    def C(self) -> float:
        """The C that was used."""
        return self.solution.C

    @property
    def C_path(self) -> CChoice | None:
        """How C was chosen; print it."""
        return self.solution.choice

    @property
    def gap(self) -> float:
        """Relative duality gap (P(W) − D(λ))/P(W) of these weights."""
        return self.solution.gap

    @property
    def bias(self) -> bool:
        """Whether there is a bias."""
        return bool(self.coef.shape[1] > self.stored.shape[1])

    @property
    def constant(self) -> float:
        """The constant feature b of the bias, 0 without one: τ = λ_ic (z_i·z(x) + b²)."""
        return self.solution.constant if self.bias else 0.0

    @property
    def kappa(self) -> float | None:
        """C·N·mean‖z‖², which makes C comparable across data sets and features; None without a bias."""
        return self.C * int(self.task.known(self.labels).sum()) * self.constant**2 if self.constant else None

    @cached_property
    def expansion(self) -> Expansion:
        """The computation of scores."""
        return Expansion(
            self.stored, self.support, self.lam, constant=self.constant, means=self.solution.means
        )

    @property
    def grouped_by_class(self) -> bool:
        """Whether each of ``groups`` has samples of one class; otherwise groups ignore labels."""
        return self.task.has_classes and not self.task.of_documents

    @cached_property
    def groups(self) -> SampleGroups:
        """Groups of similar support vectors, the same for every test."""
        labels = self.labels[self.support]
        if not self.grouped_by_class:
            labels = np.zeros(len(labels), np.int64)
        return group_samples(self.stored, labels, self.solution.means[0])

    @property
    def metric(self) -> FeatureMap:
        """The map φ that the hyper-parameter ``metric`` learned; it transforms training samples and tests."""
        return self.solution.metric

    @property
    def vectors(self) -> Tensor:
        """The support vectors' features (S, d) in memory; ``stored`` reads them in parts."""
        return self.stored.whole()

    @property
    def nbytes(self) -> int:
        """Size of λ, W, the support vectors' features in memory, and the head."""
        return sum(array.nbytes for array in self.arrays(vectors=not self.stored.mapped).values())

    @property
    def facts(self) -> dict[str, Any]:
        """The values of the manifest besides the arrays."""
        return {
            "C": self.C,
            "C_path": None if self.C_path is None else dataclasses.asdict(self.C_path),
            "gap": self.gap,
            "agreement": self.agreement,
            "constant": self.constant,
            "reading": self.metric.facts,
            "history": [dataclasses.asdict(change) for change in self.history],
        }

    def arrays(self, vectors: bool = True) -> Arrays:
        """Return the arrays to save, with or without the support vectors' features."""
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
            "means": self.solution.means,
            **self.metric.arrays,
        }
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def restored(cls, arrays: Arrays, manifest: Any, device: str | torch.device | None) -> Self:
        """Rebuild from the result of ``arrays`` and a ``SurrogateManifest``, or raise StoreError.

        If the manifest has a bank, "vectors" is the memory map of its features for all samples.
        """
        task, labels = _checked(arrays, manifest.task_of, manifest.bank is not None), arrays["labels"]
        if labels.dtype.kind == "i":
            labels = labels.astype(np.int64)
        rows = arrays["lam_data"], arrays["lam_indices"], arrays["lam_indptr"]
        lam = csr_array(rows, shape=(len(labels), task.n_outputs))
        metric = FeatureMap.restored(arrays, manifest.reading, arrays["vectors"].shape[1])
        known = manifest.C, manifest.gap, manifest.C_path, manifest.constant, metric, arrays["means"]
        solution = SurrogateSolution(lam, arrays["coef"], *known, "loaded")
        head = Head(arrays["head_weight"], arrays.get("head_bias")) if "head_weight" in arrays else None
        places = None if manifest.bank is None else solution.support
        vectors = Vectors(arrays["vectors"], places, device, metric)
        history = tuple(manifest.history)
        first = first_labels(labels, history, task)  # raises if the history is of another set
        unseen = without_part(task, first, manifest.parameters["seed"], manifest.C_path is None)
        if history:
            unseen = still_unseen(unseen, len(first), task.known(labels))
        more = unseen, manifest.bank, manifest.agreement, history
        return cls(task, solution, vectors, labels, head, arrays["sketch"], *more)

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Return the rows of ``vectors`` for support vectors, by their indices in the training set."""
        return torch.as_tensor(np.searchsorted(self.support, indices), device=self.stored.like.device)

    def support_logits(self) -> Iterator[tuple[slice, Doubles]]:
        """Yield the logits W z_i (s, K) of the support vectors in float64, in blocks."""
        d, size = self.stored.shape[1], max(64, _LOGITS // len(self.coef))
        for start in range(0, len(self.stored), size):
            rows = slice(start, min(start + size, len(self.stored)))
            f = self.stored[rows].double().cpu().numpy()
            yield rows, f @ self.coef[:, :d].T + (self.coef[:, -1] if self.bias else 0.0) + self.task.base

    def logits(self, features: Tensor) -> Tensor:
        """Compute the surrogate's outputs W z(x) (B, K), including the task's base, in float64."""
        return self.read_logits(self.stored.transform(features))

    def read_logits(self, read: Tensor) -> Tensor:
        """Compute the same for transformed features z (B, d)."""
        return new_logits(self.coef, read) + torch.as_tensor(self.task.base, device=read.device)

    def model_logits(self, features: Tensor) -> Tensor:
        """Compute the model's logits (B, K), or the surrogate's if the head is unknown."""
        return self.logits(features) if self.head is None else head_logits(self.head, features)

    def scored(self, features: Tensor, contrast: Contrast) -> Scored:
        """Score the support vectors of a class for one test with features (1, d)."""
        row = self.expansion.sparse(features, *_tensors(contrast))
        return Scored(row.indices.astype(np.int64), row.data.astype(np.float64))

    def parts(self, features: Tensor, contrast: Contrast, indices: Sequence[int]) -> Parts:
        """Return scores as linear functions: λ_ic z_i of the test, λ_ic z(x) of the training sample."""
        vectors = self.stored[self.rows(indices)]
        columns = self.lam[list(indices)]
        weights = columns[:, [contrast.target]].toarray()[:, 0]
        if contrast.against is not None:
            weights = weights - columns[:, [contrast.against]].toarray()[:, 0]
        lam = torch.as_tensor(weights, device=vectors.device)
        # In float64: λ of tiny features leaves the range of float32, its products do not.
        column, test = lam[:, None], self.expansion.shifted(features, *_tensors(contrast))
        return Parts(vectors, (column * vectors).to(vectors), (column * test).to(vectors), lam)

    def weight_of(self, contrast: Contrast) -> Doubles:
        """Return w_c, or w_c − w_c', (d,) without the bias."""
        d = self.stored.shape[1]
        weight = self.coef[contrast.target, :d]
        return weight if contrast.against is None else weight - self.coef[contrast.against, :d]

    def base_value(self, contrast: Contrast) -> float:
        """Return the base value: the logit, or difference of two, minus the sum of scores."""
        target, against, relative = contrast
        base = self.task.base - (0.0 if against is None else self.task.base[against])
        if not relative:
            return float(base[target])
        mean = self.solution.means[0 if against is None else 1 + against]
        biases = self.coef[:, -1] if self.bias else np.zeros(len(self.coef))
        bias = biases[target] - (0.0 if against is None else biases[against])
        return float(base[target] + self.weight_of(contrast) @ mean + bias)

    def self_influence(self) -> Tensor:
        """Compute λ_{i,y_i}‖z_i‖² of every training sample, (N,); other tasks use label weights of theirs."""
        weights = self.task.label_weights(self.lam[self.support])
        norms = self.stored.lengths().square() + self.constant**2
        out = self.stored.like.new_zeros(len(self.labels))
        influence = norms * torch.as_tensor(weights).to(norms)
        out[torch.as_tensor(self.support, device=out.device)] = influence.to(out)
        return out

    def faithfulness(self, features: Tensor, logits: Tensor | None = None) -> Faithfulness:
        """Compare with the model's output (B, K) for features (B, d); None computes it by the head."""
        if self.head is None:
            raise InvalidInputError(
                "'head' must be known to compare the surrogate with the model. Got None. Pass "
                "head=(weight, bias) to FeatureBank.of, or use fit(model, data)."
            )
        theirs = head_logits(self.head, features) if logits is None else logits
        if self.task.has_classes:
            return faithfulness(self.coef, self.head, self.stored.transform(features), theirs)
        agreement, alike = self.task.compare_outputs(
            self.logits(features).cpu().numpy(), theirs.double().cpu().numpy()
        )
        alignment = cosine(self.coef[:, : features.shape[1]], self.head.weight.astype(np.float64))
        return Faithfulness(agreement, None, alignment, alike, len(features))


def _tensors(contrast: Contrast) -> tuple[Tensor, Tensor | None, bool]:
    """Return a contrast as tensors of a batch of one."""
    against = None if contrast.against is None else torch.tensor([contrast.against])
    return torch.tensor([contrast.target]), against, contrast.relative


def _narrowed(values: Array) -> Array:
    """Convert integers to the smallest sufficient dtype; other values are unchanged."""
    if values.dtype.kind != "i":
        return values
    return values.astype(np.min_scalar_type(-int(values.max(initial=0)) - 1))


def _checked(arrays: Arrays, task_of: Callable[[int], Task], mapped: bool) -> Task:
    """Validate saved arrays and return their task, or raise StoreError.

    ``mapped`` vectors are of all samples, and their checksum was compared before.
    """
    names = {"lam_data", "lam_indices", "lam_indptr", "coef", "vectors", "labels", "sketch", "means"}
    head = {"head_weight", "head_bias"} & arrays.keys()
    more = {f"metric_{name}" for name in MAP_ARRAYS}
    contents.check_names(arrays, names | ({"head_weight"} if head else set()), head | more)
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
    several = task.has_classes and not task.of_documents
    contents.check_floats(arrays, {"means": (1 + K * several, "d")}, sizes)
    task.check_saved("labels", labels)
    used = task.known(labels)
    sketch = arrays["sketch"]
    contents.check_shape("sketch", sketch, (len(labels), WIDTH + int(np.prod(labels.shape[1:]))), {})
    # Sums are finite, blank labels need not be.
    sums: contents.Layout = {"sketch": (len(labels), WIDTH)}
    contents.check_floats({"sketch": sketch[:, :WIDTH]}, sums, {}, {"sketch": ("float32",)})
    contents.check_rows(arrays, "lam_", len(labels), K)
    support = np.diff(arrays["lam_indptr"]) > 0
    if (not mapped and int(support.sum()) != sizes["S"]) or not used[support].all():
        raise contents.refused("'vectors' must have a row per sample with coefficients, and has not")
    return task
