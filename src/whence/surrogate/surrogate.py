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
from whence.surrogate.identity import WIDTH
from whence.surrogate.scores import Expansion, Parts, Scored, Vectors
from whence.surrogate.solving import SurrogateSolution
from whence.svm import CChoice
from whence.tasks import Task

HEAD_LAYOUT: Layout = {"head_weight": ("K", "d"), "head_bias": ("K",)}
_LOGITS = 1 << 20  # computed at a time


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Weights W = Σ_i λ_i f_iᵀ next to the model's own head.

    Attributes
    ----------
    task : what outputs and labels are
    solution : λ (N, K), W (K, d[+1]), and how they were reached
    stored : (S, d) features of the samples with λ_i ≠ 0, in training order, as the surrogate reads them
    labels : (N, …)
    head : the model's last layer, where it is known; it reads raw features
    sketch : (N, 4 + …) of the training set, by which it is recognised
    unseen : samples that had no part in choosing C, by which agreement is measured
    bank : where the features of all samples lie in a cache; None where they do not
    agreement : share of training samples that had no part in choosing C for which it names the model's class;
        for several labels the share of labels, for regression R²; None where there are none
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
    """Scores are parts of an output, no predicted change of one."""

    @property
    def lam(self) -> csr_array:
        """Global attributions λ (train, class): positive supports the class, whatever the test."""
        return self.solution.lam

    @property
    def coef(self) -> Doubles:
        """Weights W (class, d), with the bias as a last column where there is one."""
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
        """What follows the features to carry the bias, 0 without one: τ = λ_ic (f_i·f(x) + b²)."""
        return self.solution.constant if self.bias else 0.0

    @property
    def kappa(self) -> float | None:
        """C·N·mean‖f‖², by which C compares across data sets and features; None without a bias."""
        return self.C * int(self.task.known(self.labels).sum()) * self.constant**2 if self.constant else None

    @cached_property
    def expansion(self) -> Expansion:
        """What computes scores."""
        return Expansion(self.stored, self.support, self.lam, constant=self.constant)

    @property
    def vectors(self) -> Tensor:
        """The support vectors' features (S, d), all in memory; ``stored`` reads some at a time."""
        return self.stored.whole()

    @property
    def nbytes(self) -> int:
        """Size of λ, W, the support vectors' features in memory, and the head."""
        return sum(array.nbytes for array in self.arrays(vectors=not self.stored.mapped).values())

    @property
    def facts(self) -> dict[str, Any]:
        """What a manifest says besides the arrays."""
        return {
            "C": self.C,
            "C_path": None if self.C_path is None else dataclasses.asdict(self.C_path),
            "gap": self.gap,
            "agreement": self.agreement,
            "constant": self.constant,
            "history": [dataclasses.asdict(change) for change in self.history],
        }

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
    def restored(cls, arrays: Arrays, manifest: Any, device: str | torch.device | None, unit: bool) -> Self:
        """Rebuild from what ``arrays`` returned and a ``SurrogateManifest``, or raise StoreError.

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
        history = tuple(manifest.history)
        first = first_labels(labels, history, task)  # raises where the history is of another set
        unseen = without_part(task, first, manifest.parameters["seed"], manifest.C_path is None)
        if history:
            unseen = still_unseen(unseen, len(first), task.known(labels))
        more = unseen, manifest.bank, manifest.agreement, history
        return cls(task, solution, vectors, labels, head, arrays["sketch"], *more)

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Return the rows of ``vectors`` of support vectors, by their places in the training set."""
        return torch.as_tensor(np.searchsorted(self.support, indices), device=self.stored.like.device)

    def support_logits(self) -> Iterator[tuple[slice, Doubles]]:
        """Compute the logits W f_i (s, K) of the support vectors, in float64, some at a time."""
        d, size = self.stored.shape[1], max(64, _LOGITS // len(self.coef))
        for start in range(0, len(self.stored), size):
            rows = slice(start, min(start + size, len(self.stored)))
            f = self.stored[rows].double().cpu().numpy()
            yield rows, f @ self.coef[:, :d].T + (self.coef[:, -1] if self.bias else 0.0) + self.task.base

    def logits(self, features: Tensor) -> Tensor:
        """Compute the surrogate's outputs W f(x), (B, K), and their base where there is one, in float64."""
        read = self.stored.as_read(features)
        return new_logits(self.coef, read) + torch.as_tensor(self.task.base, device=features.device)

    def model_logits(self, features: Tensor) -> Tensor:
        """Compute the model's own logits (B, K), or the surrogate's where the head is unknown."""
        return self.logits(features) if self.head is None else head_logits(self.head, features)

    def scored(self, features: Tensor, target: int) -> Scored:
        """Score the support vectors of a class for one test with features (1, d)."""
        row = self.expansion.sparse(features, torch.tensor([target]))
        return Scored(row.indices.astype(np.int64), row.data.astype(np.float64))

    def parts(self, features: Tensor, target: int, indices: Sequence[int]) -> Parts:
        """Return what scores are at the features: λ_ic f_i on the test, λ_ic f(x) on the training sample."""
        vectors = self.stored[self.rows(indices)]
        lam = torch.as_tensor(self.lam[list(indices)][:, [target]].toarray()[:, 0], device=vectors.device)
        column, test = lam[:, None].to(vectors), self.stored.as_read(features).to(vectors)
        return Parts(vectors, column * vectors, column * test, lam * self.constant**2, lam)

    def self_influence(self) -> Tensor:
        """λ_{i,y_i}‖f_i‖² of every training sample, (N,); for other tasks with Σ_c |λ_ic|, as a rule."""
        weights = self.task.label_weights(self.lam[self.support])
        norms = self.stored.squared_norms() + self.constant**2
        out = norms.new_zeros(len(self.labels))
        out[torch.as_tensor(self.support, device=out.device)] = norms * torch.as_tensor(weights).to(norms)
        return out

    def faithfulness(self, features: Tensor, logits: Tensor | None = None) -> Faithfulness:
        """Compare with the model's output (B, K) for features (B, d); None computes it by the head."""
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
        alignment = cosine(self.coef[:, : features.shape[1]], self.head.weight.astype(np.float64))
        return Faithfulness(agreement, None, alignment, alike, len(features))


def _narrowed(values: Array) -> Array:
    """Return integers in the smallest type that has room for them; other values unchanged."""
    if values.dtype.kind != "i":
        return values
    return values.astype(np.min_scalar_type(-int(values.max(initial=0)) - 1))


def _checked(arrays: Arrays, task_of: Callable[[int], Task], mapped: bool) -> Task:
    """Return the task of saved arrays, which are then safe to compute with, or raise StoreError.

    Vectors that are ``mapped`` are of all samples, and their checksum was compared before.
    """
    names = {"lam_data", "lam_indices", "lam_indptr", "coef", "vectors", "labels", "sketch"}
    head = {"head_weight", "head_bias"} & arrays.keys()
    contents.check_names(arrays, names | ({"head_weight"} if head else set()), head)
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
