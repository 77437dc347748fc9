"""Influence functions by EK-FAC: a layer's curvature as a Kronecker product with corrected eigenvalues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whence.attribution.base import Attributor, Capabilities, register
from whence.attribution.fitted import Fitted, Tests
from whence.attribution.parameters import Params, a_seed, one_of, parameter
from whence.core.checks import check_count, check_positive
from whence.core.contents import Layout
from whence.core.progress import watched
from whence.errors import ModelError
from whence.features.training import Classifier, Training
from whence.gradients.curvature import count_drawn, drawn, reread, residuals
from whence.gradients.layers import AllLayers, Batches, HeadOnly, Layers, Record, Vectors

Labels = Literal["auto", "exact", "sampled"]

_check_damping = partial(check_positive, why=", or None for a tenth of each layer's mean eigenvalue")
_NUMBERS = 1 << 25  # numbers of gradients in memory at a time
_FEW = 10  # classes up to which labels="auto" is exact


@register
@dataclass(eq=False)
class EKFAC(Attributor):
    """Attribute predictions by influence functions with an eigenvalue-corrected Kronecker curvature.

    The score of training sample i for class c at x is τ_c(x, i) = (1/N) Σ_l g_l(x)ᵀ (F_l + d_l I)⁻¹ g_l(i), a
    sum over layers l, where g_l is the gradient of the cross-entropy by the layer's weights and bias, of x
    for class c and of i for its label. It estimates the increase of the loss of x for c when i is left out,
    so **positive is evidence for the target class**. With the layer's inputs a and the derivatives s by its
    outputs, for labels drawn from the model, F_l has the eigenvectors of E[s sᵀ] ⊗ E[a aᵀ], and
    the mean squares of the gradients along them as eigenvalues. Layers are nn.Linear and nn.Conv2d
    without groups; other parameters, such as those of normalisation, are left out.

    Parameters
    ----------
    params
        "all" for all layers, "last" for the last one.
    damping
        d_l, above 0; None is a tenth of the mean eigenvalue of the layer.
    labels
        How the expectation over the model's labels is computed: "exact" has one backward pass per class;
        "sampled" draws one label per training sample, which is noisy for small training sets; "auto" is exact
        up to 10 classes.
    n_samples
        Number of training samples for the curvature, drawn at random; None uses all.
    seed
        Makes a run repeatable.

    Attributes
    ----------
    layers_, left_out_ : tuple of str, the layers that are used, and the trainable parameters that are not

    Examples
    --------
    >>> import torch, whence
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
    >>> explainer = whence.methods.get("ekfac")(show_progress=False).fit(model, (x, y))
    >>> explainer.attribute(x[:3]).shape, explainer.layers_
    (torch.Size([3, 20]), ('0', '2'))
    """

    name: ClassVar[str] = "ekfac"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_loss=True,
        memory="P and the squares of the layers' widths, or N × d for the last layer; P per test to explain",
        cost=3.0,
    )

    params: Params = parameter("all", one_of(Params))
    damping: float | None = parameter(None, _check_damping, or_none=True)
    labels: Labels = parameter("auto", one_of(Labels))
    n_samples: int | None = parameter(10_000, check_count, or_none=True)
    seed: int = parameter(0, a_seed)

    def learn(self, training: Training, **given: Any) -> dict[str, Tensor]:
        layers: Layers
        if self.params == "last":
            layers = HeadOnly(training.classifier, training.features)
        else:
            layers = AllLayers(training.classifier, training.batches)
        rows = drawn(len(training.labels), self.n_samples, self.seed)
        part = layers if rows is None else layers.subset(rows)
        n = len(training.labels) if rows is None else len(rows)
        vectors = self._label_vectors(n, training.task.n_outputs)
        bases = _bases(_watched(part.train(vectors), n, "Eigenvectors", self.show_progress))
        batches = _watched(part.train(vectors), n, "Eigenvalues", self.show_progress)
        sums = _sums_of_squares(batches, bases)
        arrays: dict[str, Tensor] = {}
        for j, ((out, inner), values) in enumerate(zip(bases, sums, strict=True)):
            values = values / n
            damping = 0.1 * values.mean() if self.damping is None else self.damping
            if not (values.max() + damping > 0):
                raise ModelError(
                    f"'damping' must be a number if a layer has no curvature. Got None, and "
                    f"{layers.names[j]!r} has inputs or derivatives of zero for all training samples. "
                    "Pass for example damping=1e-8."
                )
            arrays |= {f"out {j}": out, f"inner {j}": inner, f"inverse {j}": 1 / (values + damping)}
        arrays = {name: tensor.to(training.features) for name, tensor in arrays.items()}
        return {**arrays, "features": training.features} if self.params == "last" else arrays

    def _open(self, fitted: Fitted) -> EigenCorrected:
        opened: Layers
        if self.params == "last":
            opened = HeadOnly(fitted.classifier, fitted.arrays["features"])
        else:
            opened = AllLayers(fitted.classifier, fitted.batches)
        parts = ("out", "inner", "inverse")
        factors = [
            _Factor(*(fitted.arrays[f"{part} {j}"] for part in parts)) for j in range(len(opened.names))
        ]
        return EigenCorrected(opened, factors, fitted.used_labels, self.show_progress)

    @property
    def layers_(self) -> tuple[str, ...]:
        """Names of the layers that are used."""
        names: tuple[str, ...] = self.fitted_.scorer.opened.names
        return names

    def _needs_inputs(self) -> bool:
        return self.params == "all"

    def _layout(self, classifier: Classifier) -> Layout:
        factors: Layout = {"out 0": ("K", "K"), "inner 0": ("e", "e"), "inverse 0": ("K", "e")}
        return {**factors, "features": ("N", "d")}

    def _unsaved(self, fitted: Fitted | None) -> str:
        return reread(type(self).__name__, self.params == "last")

    def _facts(self, fitted: Fitted) -> dict[str, Any]:
        return super()._facts(fitted) | count_drawn(fitted, self.n_samples)

    def _label_vectors(self, n: int, n_classes: int) -> Vectors:
        """Return vectors v with E[v vᵀ] = diag(p) − p pᵀ: one per class, or the residual of a drawn label.

        Random numbers are drawn per sample, so that labels do not depend on the batches.
        """
        if self.labels == "exact" or (self.labels == "auto" and n_classes <= _FEW):
            return _for_all_classes
        return _for_labels_drawn(torch.from_numpy(np.random.default_rng(self.seed).random(n)))


class _Factor(NamedTuple):
    """One layer: eigenvectors of E[s sᵀ] (o, o) and E[a aᵀ] (i, i), and 1/(eigenvalue + damping) (o, i)."""

    out: Tensor
    inner: Tensor
    inverse: Tensor


@dataclass(frozen=True, eq=False)
class EigenCorrected:
    """The inverse curvature of fitted layers, for computing scores.

    Attributes
    ----------
    opened : the layers, which compute gradients
    factors : one per layer
    labels : (N,) labels of the training samples
    left_out : names of the trainable parameters that are not used
    """

    opened: Layers
    factors: list[_Factor]
    labels: Tensor
    show_progress: bool

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the trainable parameters that are not used; empty for the last layer."""
        return self.opened.left_out if isinstance(self.opened, AllLayers) else ()

    def between(self, tests: Tests) -> Tensor:
        """Compute scores (B, N) of tests."""
        factors = self.factors
        gradients, places = [], [1] * len(factors)
        for (batch,) in self.opened.tests(tests.x, tests.features, _for_classes(tests.targets)):
            gradients.append(_gradients(batch, factors))
            places = [max(n, record.inputs.shape[1]) for n, record in zip(places, batch, strict=True)]
        # Rotating training gradients at many places is slow: there the fewer tests are rotated back instead.
        rotate_train = [n == 1 for n in places]
        rows = []
        for factor, rotate, parts in zip(factors, rotate_train, zip(*gradients, strict=True), strict=True):
            test = torch.cat(parts) * factor.inverse
            rows.append((test if rotate else factor.out @ test @ factor.inner.T).flatten(1))
        scores = rows[0].new_zeros(len(rows[0]), len(self.labels))
        done = 0
        for piece in self._train("Scores"):
            here = scores[:, done : done + len(piece[0].inputs)]
            for test, factor, rotate, record in zip(rows, factors, rotate_train, piece, strict=True):
                train = _rotated(record, factor.out, factor.inner) if rotate else _product(record)
                here += test @ train.to(test).flatten(1).T
            done += here.shape[1]
        return scores.div_(len(self.labels))

    def squares(self) -> Tensor:
        """Compute self-influences (N,) of the training samples."""
        parts = []
        for piece in self._train("Self-influence"):
            pairs = zip(_gradients(piece, self.factors), self.factors, strict=True)
            layers = [torch.einsum("noi,oi->n", g.square(), factor.inverse) for g, factor in pairs]
            parts.append(torch.stack(layers).sum(0))
        return torch.cat(parts).div_(len(self.labels))

    def _train(self, title: str) -> Iterator[list[Record]]:
        """Yield the records of the training samples for their own labels, in pieces."""
        batches = self.opened.train(_for_classes(self.labels))
        for (batch,) in _watched(batches, len(self.labels), title, self.show_progress):
            yield from _pieces(batch, self.factors)


def _for_classes(classes: Tensor) -> Vectors:
    """Return the derivatives of the loss for given classes, one per sample."""
    return lambda logits, rows: [residuals(logits, classes[rows]).to(logits)]


def _for_labels_drawn(numbers: Tensor) -> Vectors:
    """Return the derivatives for labels drawn from the model, by one number in [0, 1) per sample."""

    def drawn(logits: Tensor, rows: slice) -> list[Tensor]:
        below = logits.double().softmax(1).cumsum(1) <= numbers[rows].to(logits.device)[:, None]
        labels = below.sum(1).clamp(max=logits.shape[1] - 1)
        return [residuals(logits, labels).to(logits)]

    return drawn


def _for_all_classes(logits: Tensor, rows: slice) -> list[Tensor]:
    """Return the derivatives for every label, weighted by the root of its probability."""
    p = logits.double().softmax(1)
    eye = torch.eye(p.shape[1], dtype=p.dtype, device=p.device)
    return [(p[:, k, None].sqrt() * (p - eye[k])).to(logits) for k in range(p.shape[1])]


def _watched(batches: Batches, n: int, title: str, show: bool) -> Batches:
    """Return the records of n samples with a progress bar."""
    return watched(batches, n, title, show, lambda batch: len(batch[0][0].inputs))


def _bases(batches: Batches) -> list[tuple[Tensor, Tensor]]:
    """Compute eigenvectors (o, o) of Σ s sᵀ and (i, i) of Σ a aᵀ for every layer."""
    sums: list[tuple[Tensor, Tensor]] = []
    for batch in batches:
        if not sums:
            sums = [(_square_of(r.derivatives), _square_of(r.inputs)) for r in batch[0]]
        for (_, inner), record in zip(sums, batch[0], strict=True):
            inner += _products(record.inputs)
        for records in batch:
            for (out, _), record in zip(sums, records, strict=True):
                out += _products(record.derivatives)
    return [(torch.linalg.eigh(out)[1], torch.linalg.eigh(inner)[1]) for out, inner in sums]


def _sums_of_squares(batches: Batches, bases: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Sum the squared gradients along the eigenvectors over samples, (o, i) float64 per layer."""
    sums = [out.new_zeros(len(out), len(inner)) for out, inner in bases]
    for batch in batches:
        for total, basis, records in zip(sums, bases, zip(*batch, strict=True), strict=True):
            out, inner = (b.to(records[0].inputs) for b in basis)
            for piece in zip(*(_cut(record, total.numel()) for record in records), strict=True):
                _add_squares(total, piece, out, inner)
    return sums


def _add_squares(total: Tensor, records: tuple[Record, ...], out: Tensor, inner: Tensor) -> None:
    """Add the squared gradients of some samples; the records of all labels have the same inputs."""
    inputs, (o, i), places = records[0].inputs, total.shape, records[0].inputs.shape[1]
    if places == 1:  # the square of the product is that of its parts
        squares = (inputs[:, 0] @ inner).square()
        for record in records:
            total += (record.derivatives[:, 0] @ out).square().T @ squares
    elif places * (i * i + len(records) * o * o) <= len(records) * o * i * (o + i):
        rotated = inputs @ inner  # once for all labels
        for record in records:
            total += _product(Record(rotated, record.derivatives @ out)).square().sum(0)
    else:
        for record in records:
            total += (out.T @ _product(record) @ inner).square().sum(0)


def _pieces(records: list[Record], factors: list[_Factor]) -> Iterator[list[Record]]:
    """Divide a batch so that the gradients of a piece fit into memory."""
    size = sum(factor.inverse.numel() for factor in factors)
    cut = [_cut(record, size) for record in records]
    yield from map(list, zip(*cut, strict=True))


def _cut(record: Record, size: int) -> Iterator[Record]:
    """Divide the samples of a layer, whose gradients have ``size`` numbers each."""
    n = max(1, _NUMBERS // size)
    for start in range(0, len(record.inputs), n):
        yield Record(*(part[start : start + n] for part in record))


def _gradients(records: list[Record], factors: list[_Factor]) -> list[Tensor]:
    """Compute gradients (n, o, i) of every layer along its eigenvectors."""
    return [_rotated(record, f.out, f.inner) for record, f in zip(records, factors, strict=True)]


def _rotated(record: Record, out: Tensor, inner: Tensor) -> Tensor:
    """Compute gradients (n, o, i) along eigenvectors, outᵀ (Σ_t d_t a_tᵀ) inner, in the cheaper order."""
    record = Record(*(part.to(out) for part in record))
    (o, i), places = (len(out), len(inner)), record.inputs.shape[1]
    if places * (o * o + i * i) <= o * i * (o + i):
        return _product(Record(record.inputs @ inner, record.derivatives @ out))
    return out.T @ _product(record) @ inner


def _product(record: Record) -> Tensor:
    """Compute the gradient Σ_t d_t a_tᵀ (n, o, i) of every sample."""
    a, d = record
    # One place makes an outer product, which is slow by matmul.
    return d.mT * a if a.shape[1] == 1 else d.mT @ a


def _square_of(rows: Tensor) -> Tensor:
    return rows.new_zeros(rows.shape[-1], rows.shape[-1], dtype=torch.float64)


def _products(rows: Tensor) -> Tensor:
    """Sum r rᵀ over all rows of (n, T, width)."""
    flat = rows.flatten(0, 1)
    return flat.T @ flat
