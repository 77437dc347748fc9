"""Methods by gradients in the last block: GradDot, GradCos, TracIn, and EK-FAC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks.language.asking import Query
from benchmarks.language.tuning import Language, Read, losses

BATCH = 16
DAMPING = 0.1  # of the mean eigenvalue of a layer


class Record(NamedTuple):
    """The inputs of a linear layer, (B, T, i), and the derivatives of a loss by its outputs, (B, T, o)."""

    inputs: Tensor
    slopes: Tensor

    @property
    def gradients(self) -> Tensor:
        """Gradients (B, o, i) of the losses of the batch's texts."""
        return torch.einsum("bto,bti->boi", self.slopes, self.inputs)


class Basis(NamedTuple):
    """Eigenvectors (o, o) and (i, i) of a layer's curvature, and 1/(eigenvalue + damping) (o, i)."""

    out: Tensor
    inner: Tensor
    inverse: Tensor

    def turned(self, record: Record) -> Record:
        """Return a record along the eigenvectors."""
        return Record(record.inputs @ self.inner, record.slopes @ self.out)


class LastBlock:
    """Records of the linear layers of a model's last block."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.layers = [m for m in language.tuned[-1].modules() if isinstance(m, nn.Linear)]
        for layer in self.layers:
            layer.weight.requires_grad_()

    def of_documents(self, some: Sequence[Read], drawn: torch.Generator | None = None) -> list[Record]:
        """Record the mean losses of documents or, for labels that the model draws, their sums."""
        inputs, outputs, (last, labels, rows) = self._run(some)
        if drawn is not None:
            labels = _drawn(last.detach(), self.language.head, drawn)
        each = losses(last, self.language.head, labels)
        share = 1.0 / torch.tensor([len(one.ids) - 1.0 for one in some])[rows]
        slopes = torch.autograd.grad((each * share).sum() if drawn is None else each.sum(), outputs)
        return [Record(a.detach(), s) for a, s in zip(inputs, slopes, strict=True)]

    def of_answers(self, some: Sequence[Read], queries: Sequence[Query]) -> list[Record]:
        """Record the mean losses of answers."""
        inputs, outputs, (last, labels, rows) = self._run(some)
        place = torch.cat([torch.arange(1, len(query.ids)) for query in queries])
        first = torch.tensor([query.first for query in queries])[rows]
        length = torch.tensor([float(len(query.tokens)) for query in queries])[rows]
        chosen = place >= first
        each = losses(last[chosen], self.language.head, labels[chosen])
        slopes = torch.autograd.grad((each / length[chosen]).sum(), outputs)
        return [Record(a.detach(), s) for a, s in zip(inputs, slopes, strict=True)]

    def _run(self, some: Sequence[Read]) -> tuple[list[Tensor], list[Tensor], tuple[Tensor, Tensor, Tensor]]:
        """Run texts; return the inputs and outputs of each layer, and the outputs of the model."""
        kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}

        def keep(module: nn.Module, taken: tuple[Tensor], given: Tensor) -> None:
            kept[module] = taken[0], given

        hooks = [layer.register_forward_hook(keep) for layer in self.layers]
        try:
            found = self.language.predicting(some)
        finally:
            for hook in hooks:
                hook.remove()
        inputs, outputs = zip(*(kept[layer] for layer in self.layers), strict=True)
        return list(inputs), list(outputs), found


def products(
    language: Language,
    documents: Sequence[Read],
    queries: Sequence[Query],
    read: Sequence[Read],
    bases: Sequence[Basis] | None = None,
) -> dict[str, Tensor]:
    """Inner products (queries, documents) of gradients, and their lengths; with bases by the curvature, too.

    Along a layer's eigenvectors plain inner products are what they were.
    """
    block = LastBlock(language)
    parts: list[list[Tensor]] = [[] for _ in block.layers]
    for some in _batches(len(queries)):
        records = block.of_answers([read[i] for i in some], [queries[i] for i in some])
        for j, record in enumerate(records):
            parts[j].append((bases[j].turned(record) if bases else record).gradients.flatten(1))
    tests = [torch.cat(part) for part in parts]
    found: dict[str, list[Tensor]] = {"plain": [], "norms": [], "curved": []}
    for some in tqdm(_batches(len(documents)), "Gradients"):
        plain, norms, curved = torch.zeros(len(queries), len(some)), torch.zeros(len(some)), None
        for j, record in enumerate(block.of_documents([documents[i] for i in some])):
            gradients = (bases[j].turned(record) if bases else record).gradients.flatten(1)
            plain += tests[j] @ gradients.T
            norms += gradients.square().sum(1)
            if bases:
                curved = 0.0 if curved is None else curved
                curved = curved + tests[j] @ (gradients * bases[j].inverse.flatten()).T
        found["plain"].append(plain)
        found["norms"].append(norms.sqrt())
        if curved is not None:
            found["curved"].append(curved)
    lengths = torch.stack([test.square().sum(1) for test in tests]).sum(0).sqrt()
    return {name: torch.cat(part, -1) for name, part in found.items() if part} | {"lengths": lengths}


def curvature(language: Language, documents: Sequence[Read], seed: int = 0) -> list[Basis]:
    """Factor the curvature of the last block, layer by layer, by labels that the model draws for each token.

    With a what a layer takes and s the derivatives by what it gives, the eigenvectors are those of E[s sᵀ]
    and E[a aᵀ], the eigenvalues mean squares of the gradients along them, per token.
    """
    block, n = LastBlock(language), sum(len(one.ids) - 1 for one in documents)
    sums = [
        (torch.zeros(m.out_features, m.out_features), torch.zeros(m.in_features, m.in_features))
        for m in block.layers
    ]
    for some, records in _drawing(block, documents, seed):
        inside = torch.cat(
            [torch.arange(records[0].inputs.shape[1])[None] < len(documents[i].ids) for i in some]
        )
        for (out, inner), record in zip(sums, records, strict=True):
            a, s = record.inputs[inside], record.slopes[inside]
            out += s.T @ s
            inner += a.T @ a
    turns = [tuple(torch.linalg.eigh(each.double())[1].float() for each in pair) for pair in sums]
    squares = [torch.zeros(len(out), len(inner)) for out, inner in turns]
    bases = [Basis(*turn, square) for turn, square in zip(turns, squares, strict=True)]
    for _, records in _drawing(block, documents, seed):
        for square, basis, record in zip(squares, bases, records, strict=True):
            square += basis.turned(record).gradients.square().sum(0)
    values = [square / n for square in squares]
    return [
        basis._replace(inverse=1 / (value + DAMPING * value.mean()))
        for basis, value in zip(bases, values, strict=True)
    ]


def _drawing(block: LastBlock, documents: Sequence[Read], seed: int) -> Iterator[tuple[range, list[Record]]]:
    """Return the records of all documents for labels that the model draws, the same ones each time."""
    drawn = torch.Generator().manual_seed(seed)
    for some in tqdm(_batches(len(documents)), "Curvature"):
        yield some, block.of_documents([documents[i] for i in some], drawn)


def _drawn(last: Tensor, head: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a label (n,) for each row, as the model would."""
    parts = [
        torch.multinomial((rows @ head.T).softmax(1), 1, generator=generator) for rows in last.split(256)
    ]
    return torch.cat(parts)[:, 0]


def _batches(n: int) -> list[range]:
    return [range(start, min(start + BATCH, n)) for start in range(0, n, BATCH)]


def tables(several: Sequence[dict[str, Tensor]]) -> dict[str, np.ndarray]:
    """Make the scores (queries, documents) of all methods of products at checkpoints, the last at the end."""
    last, n = several[-1], len(several)
    rates = [1 - (i + 0.5) / n for i in range(n)]  # the mean of a rate that falls to 0
    found = {
        "GradDot, last block": last["plain"],
        "GradCos, last block": last["plain"] / last["norms"] / last["lengths"][:, None],
        "TracIn, last block": sum(rate * each["plain"] for rate, each in zip(rates, several, strict=True)),
        "EK-FAC, last block": last["curved"],
    }
    return {name: table.double().numpy() for name, table in found.items()}
