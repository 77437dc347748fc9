"""Training sets come out whole, in the user's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from whence.data import as_training_set
from whence.errors import InvalidInputError

X = torch.arange(20.0).reshape(10, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return X[i], int(Y[i])


def collected(data: Any, batch_size: int = 4) -> tuple[torch.Tensor, list[int], list[int], list[int]]:
    batches = list(as_training_set(data, batch_size))
    inputs = torch.cat([torch.as_tensor(b.inputs) for b in batches])
    labels = [int(y) for b in batches for y in b.labels]
    indices = [int(i) for b in batches for i in b.indices]
    return inputs, labels, indices, [len(b.labels) for b in batches]


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X.numpy(), Y.numpy()),
        (X, Y.tolist()),
        Pairs(),
        [(X[i], int(Y[i])) for i in range(10)],
        TensorDataset(X, Y),
        DataLoader(Pairs(), batch_size=4),
        DataLoader(Pairs(), batch_size=4, shuffle=True),
        DataLoader(Pairs(), batch_size=4, shuffle=True, drop_last=True),
    ],
    ids=[
        "tensors",
        "arrays",
        "list labels",
        "dataset",
        "list",
        "tensor dataset",
        "loader",
        "shuffled",
        "dropped",
    ],
)
def test_every_source_gives_all_samples_in_order(data: Any) -> None:
    inputs, labels, indices, sizes = collected(data)
    assert torch.equal(inputs, X)
    assert labels == Y.tolist()
    assert indices == list(range(10))
    assert sizes == [4, 4, 2]
    assert len(as_training_set(data)) == 10


def test_a_loader_keeps_its_batch_size_and_collate() -> None:
    def doubled(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([2 * x for x, _ in samples]), torch.tensor([y for _, y in samples])

    loader = DataLoader(Pairs(), batch_size=3, shuffle=True, collate_fn=doubled)
    inputs, _, _, sizes = collected(loader, batch_size=7)
    assert torch.equal(inputs, 2 * X)
    assert sizes == [3, 3, 3, 1]


def test_a_subset_counts_from_its_own_start() -> None:
    inputs, labels, indices, _ = collected(Subset(Pairs(), [7, 2]))
    assert torch.equal(inputs, X[[7, 2]])
    assert labels == [1, 2]
    assert indices == [0, 1]


def test_reading_twice_gives_the_same() -> None:
    samples = as_training_set(DataLoader(Pairs(), batch_size=4, shuffle=True))
    first, second = ([b.labels.tolist() for b in samples] for _ in range(2))
    assert first == second


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(Pairs())


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Pairs(), sampler=SubsetRandomSampler([1, 2])),
        DataLoader(Pairs(), sampler=WeightedRandomSampler([1.0] * 10, 10)),
        DataLoader(Pairs(), batch_sampler=[[0, 1], [2]]),
        DataLoader(Pairs(), batch_size=None),
        DataLoader(Stream(), batch_size=2),
        Stream(),
        iter([1]),
        3,
    ],
    ids=["subset", "weighted", "batches", "unbatched", "stream loader", "stream", "iterator", "number"],
)
def test_sources_without_a_known_order_are_refused(loader: Any) -> None:
    with pytest.raises(InvalidInputError, match="'data'"):
        as_training_set(loader)


@pytest.mark.parametrize(
    "data", [(X[:0], Y[:0]), [], TensorDataset(X[:0], Y[:0])], ids=["arrays", "list", "set"]
)
def test_an_empty_set_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInputError, match="at least one sample"):
        as_training_set(data)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y.float(), "integer labels"),
        (Y[:9], r"shape \(10,\)"),
        (torch.nn.functional.one_hot(Y), "one label a sample"),
        (np.array(list("abcdefghij")), "integer labels"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_training_set((X, labels))


@pytest.mark.parametrize(
    "data", [TensorDataset(X), TensorDataset(X, Y, Y), list(X)], ids=["one", "three", "bare"]
)
def test_samples_that_are_no_pairs_are_refused(data: Any) -> None:
    with pytest.raises(InvalidInputError, match="pairs"):
        list(as_training_set(data))
