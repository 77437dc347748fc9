"""Training sets come out whole, in the user's order."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import whence
from whence.data import as_training_set
from whence.data.training_set import Mark
from whence.errors import DataWarning, InvalidInputError, SampleError
from whence_studies.scenes.retrain import digest_inputs, digest_samples

X = torch.arange(20.0).reshape(10, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return X[i], int(Y[i])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return ((X[i], int(Y[i])) for i in range(10))


@dataclass
class Sample:
    image: np.ndarray
    label: int


class Named(NamedTuple):
    y: int
    image: torch.Tensor


def collected(data: Any, batch_size: int = 4) -> tuple[torch.Tensor, list[int], list[int], list[int]]:
    batches = list(as_training_set(data, batch_size).batches())
    parts = [next(iter(b.inputs.values())) if isinstance(b.inputs, dict) else b.inputs for b in batches]
    inputs = torch.cat([torch.as_tensor(part) for part in parts])
    labels = [int(y) for b in batches for y in b.labels]
    indices = [int(i) for b in batches for i in b.indices]
    return inputs, labels, indices, [len(b.labels) for b in batches]


SOURCES = {
    "tensors": (X, Y),
    "arrays": (X.numpy(), Y.numpy()),
    "list labels": (X, Y.tolist()),
    "dataset": Pairs(),
    "list": [(X[i], int(Y[i])) for i in range(10)],
    "tensor dataset": TensorDataset(X, Y),
    "loader": DataLoader(Pairs(), batch_size=4),
    "shuffled": DataLoader(Pairs(), batch_size=4, shuffle=True),
    "dropped": DataLoader(Pairs(), batch_size=4, shuffle=True, drop_last=True),
    "worker": DataLoader(Pairs(), batch_size=4, num_workers=1),
    "tensor loader": DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True),
    "mappings": [{"x": X[i], "label": Y[i]} for i in range(10)],
    "lists in mappings": [{"target": int(Y[i]), "x": X[i].tolist()} for i in range(10)],
    "dataclasses": [Sample(X[i].numpy(), int(Y[i])) for i in range(10)],
    "named tuples": [Named(int(Y[i]), X[i]) for i in range(10)],
    "columns": ({"x": X}, Y),
    "lists": (X.tolist(), Y.tolist()),
    "stream": Stream(),
    "stream loader": DataLoader(Stream(), batch_size=4),
}


@pytest.mark.parametrize("data", SOURCES.values(), ids=SOURCES)
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


UNORDERED = {
    "subset": DataLoader(Pairs(), sampler=SubsetRandomSampler([1, 2])),
    "weighted": DataLoader(Pairs(), sampler=WeightedRandomSampler([1.0] * 10, 10)),
    "batches": DataLoader(Pairs(), batch_sampler=[[0, 1], [2]]),
    "unbatched": DataLoader(Pairs(), batch_size=None),
    "loose stream": DataLoader(Stream(), batch_size=None),
    "iterator": iter([1]),
    "splits": {"train": Pairs(), "test": Pairs()},
    "number": 3,
}


@pytest.mark.parametrize("loader", UNORDERED.values(), ids=UNORDERED)
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
        (Y[:9], "10 inputs and 9 labels"),
        (torch.nn.functional.one_hot(Y), "classes or many labels"),
        (np.array(list("abcdefghij")), "labels of text, such as 'a'.*id2label"),
        ([[1, 2], [3]] * 5, "one label per sample"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_training_set((X, labels))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TensorDataset(X), "pairs.*tuple with 1 parts"),
        (TensorDataset(X, Y, Y), "pairs.*tuple with 3 parts"),
        ([3], "pairs.*int"),
        ([{"x": X[0]}], "one label, named one of label.*the names x"),
        ([{"x": X[0], "label": 0, "y": 1}], "the names x, label, y"),
        ([{"label": 0}], "inputs and one label"),
        ([{"x": X[0], "label": 0}, {"z": X[0], "label": 0}], "the same names"),
    ],
)
def test_samples_without_inputs_and_label_are_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(as_training_set(data).batches())


@pytest.mark.parametrize("collated", [False, True])
def test_several_inputs_stay_apart(collated: bool) -> None:
    def collate(samples: list[Any]) -> Any:
        return default_collate([((x, 2 * x), y) for x, y in samples])

    data = Pairs() if collated else [((X[i], Y[i]), int(Y[i])) for i in range(10)]
    (batch,) = as_training_set(data, collate_fn=collate if collated else None).batches()
    assert isinstance(batch.inputs, tuple)
    assert torch.equal(batch.inputs[0], X)
    assert torch.equal(batch.inputs[1], 2 * X if collated else Y)


def test_a_memory_map_stays_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    samples = as_training_set((mapped, Y.numpy()), 4)
    assert all(np.shares_memory(batch.inputs, mapped) for batch in samples.batches())
    assert np.array_equal(np.concatenate([batch.inputs for batch in samples.batches()]), X.numpy())


def test_a_stream_can_be_read_by_index() -> None:
    samples = as_training_set(Stream(), 4)
    assert samples.is_stream
    order = [3, 4, 9, 0, 0, 7]
    assert samples.read(order).indices.tolist() == order
    assert torch.equal(torch.stack([samples[i][0] for i in order]), X[order])
    copied = pickle.loads(pickle.dumps(samples))
    assert torch.equal(copied[8][0], X[8])


def test_a_stream_that_ends_early_names_the_sample() -> None:
    class Shrinking(IterableDataset[Any]):
        lengths = iter([10, 10, 10, 10, 6])

        def __iter__(self) -> Any:
            return iter([(X[i], 0) for i in range(next(self.lengths))])

    samples = as_training_set(Shrinking(), 4)
    with pytest.raises(SampleError, match="fewer than the 10 samples") as caught:
        list(samples.batches())
    assert caught.value.index == 6


def test_a_training_set_is_taken_as_it_is() -> None:
    samples = as_training_set(Pairs(), 4)
    assert as_training_set(samples, 7, names=["a"]) is samples
    with pytest.raises(InvalidInputError, match="must be given where the samples are first read"):
        as_training_set(samples, preprocess=brightness)


# Labels and class names


def test_text_labels_go_by_the_models_names() -> None:
    labels = ["dog", "cat", "dog"]
    samples = as_training_set((X[:3], labels), names=["cat", "dog"])
    assert [b.labels.tolist() for b in samples.batches()] == [[1, 0, 1]]
    assert samples.class_names == ("cat", "dog")
    samples = as_training_set(list(zip(X[:3], labels, strict=True)), names=["cat", "dog"])
    assert [b.labels.tolist() for b in samples.batches()] == [[1, 0, 1]]


def test_an_unknown_name_is_refused_with_its_index() -> None:
    data = list(zip(X[:3], ["dog", "cat", "cow"], strict=True))
    with pytest.raises(
        SampleError, match=r"Sample 2 .*'cow' is not a class of the model: cat, dog"
    ) as caught:
        list(as_training_set(data, 2, names=["cat", "dog"]).batches())
    assert caught.value.index == 2


def test_class_names_are_picked_up() -> None:
    class Classy(Pairs):
        classes: ClassVar = ["a", "b", "c"]

    assert as_training_set(Classy()).class_names == ("a", "b", "c")
    assert as_training_set(DataLoader(Subset(Classy(), [1, 2]))).class_names == ("a", "b", "c")
    assert as_training_set(ConcatDataset([Classy(), Classy()])).class_names == ("a", "b", "c")
    assert as_training_set(ConcatDataset([Classy(), Pairs()])).class_names is None
    assert as_training_set(Classy(), names=["x", "y", "z"]).class_names == ("x", "y", "z")
    with pytest.warns(DataWarning, match="model calls class 1 'c', the data 'b'.*id2label"):
        assert as_training_set(Classy(), names=["a", "c", "b"]).class_names == ("a", "c", "b")
    assert as_training_set((X, Y)).class_names is None


@pytest.mark.parametrize(
    "data",
    [
        Pairs(),
        Subset(TensorDataset(X, Y), range(10)),
        ConcatDataset([TensorDataset(X[:4], Y[:4]), TensorDataset(X[4:], Y[4:])]),
        ConcatDataset([Pairs(), TensorDataset(X, Y)]),
    ],
)
def test_labels_known_beforehand_are_those_of_the_samples(data: Any) -> None:
    samples = as_training_set(data)
    known = samples.known_labels()
    if known is not None:
        assert known.tolist() == [int(y) for b in samples.batches() for y in b.labels]
    assert (known is None) == isinstance(getattr(data, "datasets", [data])[0], Pairs)


# Preprocessing


def test_preprocess_gets_tensors_where_inputs_stack_and_lists_where_not() -> None:
    seen: list[Any] = []

    def note(batch: Any) -> torch.Tensor:
        seen.append(batch)
        return torch.zeros(len(next(iter(batch.values())) if isinstance(batch, dict) else batch), 2)

    list(as_training_set([("a", 0), ("b", 1)], preprocess=note).batches())
    assert seen[-1] == ["a", "b"]
    named = [{"text": "a", "n": 3, "y": 0}, {"text": "b", "n": 4, "y": 1}]
    list(as_training_set(named, preprocess=note).batches())
    assert seen[-1]["text"] == ["a", "b"]
    assert seen[-1]["n"].tolist() == [3, 4]
    list(as_training_set((X, Y), 4, preprocess=note).batches())
    assert torch.equal(seen[-1], X[8:])


def test_preprocess_follows_collate_fn() -> None:
    def collate(samples: list[Any]) -> dict[str, Any]:
        return {"x": torch.stack([x for x, _ in samples]), "labels": [y for _, y in samples]}

    (batch,) = as_training_set(Pairs(), collate_fn=collate, preprocess=lambda b: {"x": 2 * b["x"]}).batches()
    assert torch.equal(batch.inputs["x"], 2 * X)
    assert batch.labels.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([("text", 0)], "a list of str.*'preprocess'"),
        ([{"text": "text", "label": 0}], "'text': a list of str"),
        ([([1, 2], 0), ([1, 2, 3], 1)], "lists of lengths 2, 3 .*collate_fn"),
        ([{"ids": [1], "label": 0}, {"ids": [1, 2], "label": 1}], "'ids': lists of lengths 1, 2"),
        ([(torch.ones(2), 0), (torch.ones(3), 1)], "Tensors of lengths 2, 3"),
        ([(object(), 0)], "a list of object"),
        ([("text", 0), (torch.ones(2), 1)], "a list of str"),
        ((np.array(["a", "b"]), [0, 1]), "a list of str"),
    ],
)
def test_inputs_that_are_no_tensors_are_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(as_training_set(data).batches())


# Samples that cannot be read, and samples that change


class Broken(Pairs):
    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        if i == 5:
            raise OSError("truncated")
        return super().__getitem__(i)


def test_a_sample_that_cannot_be_read_is_named() -> None:
    with pytest.raises(SampleError, match=r"Sample 5 .*OSError: truncated") as caught:
        list(as_training_set(Broken(), 4).batches())
    assert caught.value.index == 5
    assert isinstance(caught.value.__cause__, OSError)


class Augmented(Pairs):
    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        x, y = super().__getitem__(i)
        return x + torch.rand(()), y


def test_samples_that_change_are_noticed() -> None:
    with pytest.warns(DataWarning, match="different inputs for the same sample, such as 0.*testing"):
        as_training_set(Augmented())
    with pytest.warns(DataWarning, match="different inputs"):
        as_training_set((X, Y), preprocess=lambda x: x + torch.rand(()))

    class AugmentedStream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([Augmented()[i] for i in range(10)])

    with pytest.warns(DataWarning, match="different inputs"):
        as_training_set(AugmentedStream())


def test_missing_values_are_no_change() -> None:
    data = [(torch.tensor([torch.nan, 1.0]), 0), (torch.tensor([torch.nan, 2.0]), 1)]
    assert len(as_training_set(data)) == 2


# Image folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of images; the colours tell the files apart."""
    Image = pytest.importorskip("PIL.Image")
    for name, colours in {"dog": [10, 20, 30], "cat": [40, 50]}.items():
        for i, colour in enumerate(colours):
            path = tmp_path / name / ("deep" if i == 2 else "") / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L" if i else "RGB", (4, 4), colour if i else (colour,) * 3).save(path)
        (tmp_path / name / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def brightness(images: list[Any]) -> torch.Tensor:
    assert all(image.mode == "RGB" for image in images)
    return torch.stack([torch.from_numpy(np.array(image)).float().movedim(-1, 0) for image in images])


def test_an_image_folder_is_read_class_by_class(folder: Path) -> None:
    for path in (folder, str(folder)):
        samples = as_training_set(path, 2, preprocess=brightness)
        batches = list(samples.batches())
        pixels = [int(image[0, 0, 0]) for b in batches for image in b.inputs]
        assert pixels == [40, 50, 10, 20, 30]
        assert [int(y) for b in batches for y in b.labels] == [0, 0, 1, 1, 1]
        assert samples.class_names == ("cat", "dog", "empty")
    with pytest.raises(InvalidInputError, match=r"a list of Image.*'preprocess'"):
        list(as_training_set(folder).batches())


def test_folders_go_by_the_models_names(folder: Path) -> None:
    samples = as_training_set(folder, preprocess=brightness, names=["dog", "horse", "cat"])
    assert [b.labels.tolist() for b in samples.batches()] == [[2, 2, 0, 0, 0]]
    with pytest.raises(SampleError, match=r"Sample 0 .*'cat' is not a class of the model: dogs, cats"):
        list(as_training_set(folder, preprocess=brightness, names=["dogs", "cats"]).batches())


def test_a_corrupt_image_is_named_with_its_file(folder: Path) -> None:
    path = folder / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(SampleError, match=r"Sample 3 .*dog.1\.png") as caught:
        list(as_training_set(folder, preprocess=brightness).batches())
    assert caught.value.index == 3


def test_a_corrupt_image_can_be_skipped(folder: Path) -> None:
    (folder / "dog" / "1.png").write_bytes(b"no image")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(48, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    )
    (folder / "empty").rmdir()
    e = whence.DualDA(C=1e-2, show_progress=False)
    with pytest.raises(SampleError, match=r"Sample 3 .*dog.1\.png.*on_error"):
        e.fit(model, folder, preprocess=brightness)
    e.fit(model, folder, preprocess=brightness, on_error="skip")
    assert e.skipped_.tolist() == [3]
    assert e.labels_.tolist() == [0, 0, 1, -1, 1]
    assert e.class_names_ == ("cat", "dog")
    image = as_training_set(folder, preprocess=brightness)[0][0]
    assert e.attribute([image]).shape == (1, 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "no image in them"), ("nowhere", "which does not exist"), ("file", "which is a file")],
)
def test_a_folder_without_images_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=message):
        as_training_set(tmp_path / name)


def test_pillow_is_asked_for_by_its_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(SampleError, match=r"whence\[images\]"):
        list(as_training_set(folder, preprocess=brightness).batches())


# Sets made of a set


FORMS = {name: SOURCES[name] for name in ("tensors", "columns", "dataset", "mappings")}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_sets_made_of_a_set_read_from_the_same_source(data: Any) -> None:
    whole = as_training_set(data, 4)
    places, labels = np.array([7, 2, 2, 9, 0]), np.array([2, 2, 1, 0, 1])
    mask = np.array([True, False, True, False, False])

    def plus(inputs: Any, rng: np.random.Generator) -> Any:
        return {"x": inputs["x"] + 100} if isinstance(inputs, dict) else inputs + 100

    some = whole.subset(places).relabelled(labels, ("a", "b", "c")).marked(Mark(plus, mask, 0))
    assert some.source is whole.source
    assert some.class_names == ("a", "b", "c")
    expected = X[places] + 100 * torch.from_numpy(mask)[:, None]
    for derived, inputs, classes in (
        (whole.subset(places), X[places], Y[places].tolist()),
        (some, expected, labels.tolist()),
        (some.subset(np.array([2, 0])), expected[[2, 0]], [1, 2]),
    ):
        batches = list(derived.batches())
        parts = [batch.inputs["x"] if isinstance(batch.inputs, dict) else batch.inputs for batch in batches]
        assert torch.equal(torch.cat(parts), inputs)
        assert np.concatenate([batch.labels for batch in batches]).tolist() == classes
        assert derived.every_label().tolist() == classes
        assert derived.read([1, 0]).labels.tolist() == classes[1::-1]
        assert len(DataLoader(derived)) == len(derived)
    assert torch.equal(collected(whole)[0], X)


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_fingerprints_tell_sets_apart(data: Any) -> None:
    whole = as_training_set(data, 4)
    ones, other = np.ones(10, dtype=np.int64), np.arange(10) % 2 == 0
    sets = [
        whole,
        whole.subset(np.arange(9)),
        whole.subset(np.arange(10)[::-1]),
        whole.relabelled(ones, None),
        whole.marked(Mark(lambda inputs, rng: inputs, other, 0)),
        whole.marked(Mark(lambda inputs, rng: inputs, ~other, 0)),
        whole.marked(Mark(lambda inputs, rng: inputs, other, 1)),
    ]
    digests = [digest_samples(samples, digest_inputs(samples)) for samples in sets]
    assert len(set(digests)) == len(sets)
    again = as_training_set(data, 4)
    assert digest_samples(again, digest_inputs(again)) == digests[0]


@pytest.mark.parametrize("data", [*FORMS.values(), Stream()], ids=[*FORMS, "stream"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_go_from_anywhere_to_anywhere(data: Any, num_workers: int) -> None:
    samples = as_training_set(data, 3).reading(num_workers, "raise")
    found = [batch.indices.tolist() for batch in samples.batches(2, 9)]
    assert found == [[2, 3, 4], [5, 6, 7], [8]]
    assert [batch.indices.tolist() for batch in samples.batches(8)] == [[8, 9]]
    assert list(samples.batches(10)) == []


def test_samples_that_cannot_be_read_are_passed_over() -> None:
    samples = as_training_set(Broken(), 3).reading(0, "skip")
    assert [(b.indices.tolist(), b.skipped) for b in samples.batches(3)] == [
        ([3, 4], (5,)),
        ([6, 7, 8], ()),
        ([9], ()),
    ]
    alone = samples.read([5])
    assert (alone.inputs, len(alone.labels), alone.skipped) == (None, 0, (5,))
    with pytest.raises(SampleError, match="on_error"):
        samples.reading(0, "raise").read([5])


def test_reading_leaves_random_numbers_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    list(as_training_set(Pairs(), 4).batches())
    assert torch.equal(torch.rand(3), expected)
