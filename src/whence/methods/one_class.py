"""One-class machines: the typicality of a test as an exact sparse sum over training samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import a_seed, one_of, parameter
from whence.core import contents
from whence.core.arrays import Floats, Ints, Mask
from whence.core.checks import check_positive, check_share
from whence.core.contents import Layout
from whence.core.progress import bar
from whence.errors import InvalidInputError
from whence.features.training import Classifier, Training
from whence.surrogate.scores import Expansion, Vectors
from whence.svm import OneClassProblem as Problem
from whence.svm import Solution, solve
from whence.tasks import Task

By = Literal["class", "whole"]
_HALVINGS = 14  # bisection steps of log C: ν is accurate to some thousandths
_ENDS = -12.0, 6.0  # range of log C·mean‖f‖²: from all samples at their bound to almost none
_LOOSE = 1e-4  # gap of the solutions during the search for C


class Machines:
    """The machines of one fit: one per class, or one for the whole training set.

    Attributes
    ----------
    gap : the largest relative duality gap of a machine
    support, boundary, outside : indices of training samples with λ ≠ 0; with 0 < λ < C; at the bound
    """

    def __init__(self, by: By, fitted: Fitted) -> None:
        self.by, self._arrays = by, fitted.arrays
        self._used = np.flatnonzero(fitted.used)
        self._own = _columns(by, fitted.task, fitted.labels[fitted.used])
        lam, columns = self._arrays["lam"], len(self._arrays["bounds"]) if self._own is None else 1
        if lam.shape[1] != columns or (lam < 0).any():
            raise contents.refused(f"'lam' must have {columns} columns without negative values")
        if int((lam > 0).any(1).sum()) != len(self._arrays["vectors"]):
            raise contents.refused("'vectors' must have one row per sample with coefficients")

    @property
    def gap(self) -> float:
        """The largest relative duality gap of a machine."""
        return float(self._arrays["gap"])

    @property
    def support(self) -> Ints:
        """Indices of training samples with λ ≠ 0 in some machine."""
        return self._where(self._arrays["lam"] > 0)

    @property
    def boundary(self) -> Ints:
        """Indices of the training samples on a boundary: 0 < λ < C."""
        lam = self._arrays["lam"]
        return self._where((lam > 0) & (lam < self._limits()))

    @property
    def outside(self) -> Ints:
        """Indices of the training samples at the bound, outside of their boundary or on it."""
        return self._where(self._arrays["lam"] >= self._limits())

    def typicality(self, features: Tensor, targets: Tensor) -> Tensor:
        """Compute w_c·g(x) of tests with features (B, d), (B,)."""
        g = (features - self._arrays["centre"]).double()
        sums: Tensor = (g @ self._weight.T)[torch.arange(len(g)), self._machine(targets)]
        return sums

    def between(self, tests: Tests) -> Tensor:
        """Compute λ_i g_i·g(x) (B, M)."""
        return self._expansion.dense(tests.features - self._arrays["centre"], self._machine(tests.targets))

    def squares(self) -> Tensor:
        """Compute λ_i‖g_i‖² (M,)."""
        lam = self._arrays["lam"].sum(1)
        norms = torch.zeros_like(lam)
        norms[(self._arrays["lam"] > 0).any(1)] = self._arrays["vectors"].double().square().sum(1)
        return (lam * norms).float()

    def _limits(self) -> Tensor:
        """Return the bound C of λ (M, columns): that of a sample's class, or of each label."""
        bounds = self._arrays["bounds"]
        return bounds if self._own is None else bounds[torch.as_tensor(self._own)][:, None]

    def _where(self, mask: Tensor) -> Ints:
        places: Ints = self._used[mask.any(1).cpu().numpy()]
        return places

    def _machine(self, targets: Tensor) -> Tensor:
        return torch.zeros_like(targets) if self.by == "whole" else targets

    @cached_property
    def _lam(self) -> csr_array:
        """λ (M, machines)."""
        lam = self._arrays["lam"].cpu().numpy()
        if self._own is None:
            return csr_array(lam)
        rows = np.flatnonzero(lam[:, 0])
        shape = len(lam), len(self._arrays["bounds"])
        return csr_array((lam[rows, 0], (rows, self._own[rows])), shape=shape)

    @cached_property
    def _weight(self) -> Tensor:
        """w (machines, d)."""
        rows = np.flatnonzero(np.diff(self._lam.indptr))
        vectors = self._arrays["vectors"].double().cpu().numpy()
        return torch.as_tensor(self._lam[rows].T @ vectors, device=self._arrays["vectors"].device)

    @cached_property
    def _expansion(self) -> Expansion:
        rows = np.flatnonzero(np.diff(self._lam.indptr))
        return Expansion(Vectors(self._arrays["vectors"]), rows, self._lam, constant=0.0)


@register
@dataclass(eq=False)
class OneClass(Attributor):
    """Attribute the typicality of a test for a class to training samples.

    For each class c, a one-class machine is solved on its samples: min_w ½‖w‖² + C Σ_i max(0, 1 − w·g_i),
    with features g = f − m, where m is the mean of the whole training set, and C such that at most a share
    ``nu`` of the class lies outside. With w_c = Σ_i λ_i g_i, the typicality of a test is w_c·g(x): **1 is the
    boundary, above it the test is inside**. The score of training sample i is λ_i g_i·g(x), **positive if it
    makes the test typical of the class**, and the scores of all samples sum to w_c·g(x). Samples well inside,
    and those of other classes, have λ = 0 and score 0. One machine for the ``"whole"`` training set uses raw
    features, m = 0: around its own mean no direction would be special.

    For multi-label tasks there is one machine per label, on the samples that have it; regression has no
    classes and requires ``by="whole"``. To find out-of-distribution samples, the distance to neighbours
    (``DualDA.novelty``) was better on images and slightly worse on texts; one machine for the whole training
    set was useless (docs/research/audit.md).

    Parameters
    ----------
    nu
        Maximum share of each class outside of its boundary.
    by
        "class", or "whole" for one machine for the whole training set.
    tol
        Relative duality gap to reach.
    seed
        Seed of the solver.

    Attributes
    ----------
    nu_ : (machines,) Σλ/(C·n) of each machine, an upper bound of the share outside; above ``nu`` if a class
        lies on both sides of the mean
    gap_ : float, the largest relative duality gap of a machine
    support_, boundary_, outside_ : int64, indices of training samples with λ ≠ 0 in some machine; those on a
        boundary, 0 < λ < C; and those at the bound, outside of a boundary or on it

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.OneClass(show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3]).shape, explainer.typicality(x[:3]).shape
    (torch.Size([3, 20]), torch.Size([3]))
    """

    name: ClassVar[str] = "one-class"
    capabilities: ClassVar[Capabilities] = Capabilities(
        last_layer_only=True,
        memory="d numbers per support vector",
        cost=0.5,
        own_class_only=True,
        tasks=("class", "label", "number"),
    )
    nu: float = parameter(0.1, check_share)
    by: By = parameter("class", one_of(By))
    tol: float = parameter(1e-6, check_positive)
    seed: int = parameter(0, a_seed)

    def typicality(self, x: Any = None, target: Any = None, *, features: Any = None) -> Tensor:
        """Compute w_c·g(x) of a batch, (B,), above 1 inside; arguments are those of ``attribute``."""
        tests = self._tests(x, target, features)
        sums: Tensor = self.fitted_.scorer.typicality(tests.features, tests.targets)
        return sums

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        """Solve the machines."""
        X, labels, task = training.features, training.labels.cpu().numpy(), training.task
        # Centred on the mean of all samples, a single machine would have w = 0 at any C.
        centre = torch.zeros_like(X[0]) if self.by == "whole" else X.mean(0)
        G = (X - centre).cpu().numpy()
        machine_of = _columns(self.by, task, labels)
        n = 1 if self.by == "whole" else task.n_outputs
        lam = np.zeros((len(G), 1 if machine_of is not None else n))
        bounds, nu, gap = np.zeros(n), np.ones(n), 0.0
        for c in bar(
            "Solving one-class machines", n, "classes", parts=range(n), show=self.show_progress and n > 1
        ):
            members: Mask = machine_of == c if machine_of is not None else labels[:, c] > 0
            if not members.any():
                continue
            machine = self._machine_of(G[members])
            lam[members, 0 if machine_of is not None else c] = machine.lam.toarray()[:, 0]
            bounds[c], gap = machine.C, max(gap, machine.gap)
            nu[c] = _share(machine, int(members.sum()))
        kept = {"lam": lam, "bounds": bounds, "nu": nu, "gap": np.array([gap])}
        vectors = torch.as_tensor(G[lam.any(axis=1)], device=X.device)
        return {"centre": centre, "vectors": vectors} | {
            name: torch.as_tensor(array, device=X.device) for name, array in kept.items()
        }

    def _open(self, fitted: Fitted) -> Machines:
        return Machines(self.by, fitted)

    def _doubles(self) -> tuple[str, ...]:
        return ("lam", "bounds", "nu", "gap")

    def _check_task(self, task: Task) -> None:
        super()._check_task(task)
        if self.by == "class" and task.label_kind == "number":
            raise InvalidInputError(
                "'by' must be \"whole\" for regression, which has no classes. Got 'class'."
            )

    def _machine_of(self, G: Floats) -> Solution:
        """Solve the machine of features (n, d) at the C whose share outside is ``nu``, or just below it."""
        low, high = _ENDS
        scale = float(np.einsum("nd,nd->n", G, G, dtype=np.float64).mean()) or 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            wide = _share(self._solve(G, float(np.exp(middle)) / scale, _LOOSE), len(G)) > self.nu
            low, high = (middle, high) if wide else (low, middle)
        return self._solve(G, float(np.exp(high)) / scale, self.tol)

    def _solve(self, G: Floats, C: float, tol: float) -> Solution:
        ones = np.ones(len(G))
        return solve(G, ones, problem=Problem, n_classes=1, C=C, bias=False, tol=tol, seed=self.seed)

    def _layout(self, classifier: Classifier) -> Layout:
        machines = 1 if self.by == "whole" else "K"
        return {
            "centre": ("d",),
            "vectors": ("S", "d"),
            "lam": ("N", "columns"),
            "bounds": (machines,),
            "nu": (machines,),
            "gap": (1,),
        }


def _columns(by: By, task: Task, labels: Any) -> Ints | None:
    """Return the machine (M,) of each sample; None if a sample can be in several."""
    if by == "whole":
        return np.zeros(len(labels), np.int64)
    return np.asarray(labels, np.int64) if task.has_classes else None


def _share(solution: Solution, n: int) -> float:
    """Return ν = Σλ/(C·n)."""
    return min(1.0, float(solution.lam.sum()) / (solution.C * n))
