"""Perturbed views: what they change, what they leave, and that they copy nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence_studies import (
    CentreBox,
    Frame,
    Word,
    add_keywords,
    add_shortcut,
    flip_labels,
    group_labels,
    subset,
    view,
)
from whence_studies.scenes.retrain import digest_inputs, digest_samples

N, K = 60, 5
X, Y = torch.rand(N, 1, 8, 8) / 2, torch.arange(N) % K


class Counting(Dataset):
    """Reads are counted; the labels can be had without any."""

    classes = tuple("abcde")

    def __init__(self) -> None:
        self.targets, self.reads = Y.tolist(), 0

    def __len__(self) -> int:
        return N

    def __getitem__(self, index):
        self.reads += 1
        return X[index], self.targets[index]


@dataclass
class Sample:
    image: torch.Tensor
    label: int


FORMS = {
    "pair of arrays": (X, Y),
    "numpy": (X.numpy(), Y.numpy()),
    "tensor dataset": TensorDataset(X, Y),
    "list": list(zip(X, Y.tolist(), strict=True)),
    "mappings": [{"image": x, "label": y} for x, y in zip(X, Y.tolist(), strict=True)],
    "dataclasses": [Sample(x, y) for x, y in zip(X, Y.tolist(), strict=True)],
    "named parts": ({"image": X}, Y),
    "dataset": Counting(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data(form: str) -> None:
    data = FORMS[form]
    seen = add_shortcut(flip_labels(data, 0.2, seed=1), Frame(1), 0.5, of_class=3, seed=2)
    assert seen.labels.dtype == np.int64
    np.testing.assert_array_equal(seen.true_labels, Y)
    samples = as_training_set(seen)
    labels = np.concatenate([batch.labels for batch in samples.batches()])
    np.testing.assert_array_equal(labels, seen.labels)
    images = samples.take(range(N))
    images = images["image"] if isinstance(images, dict) else images
    expected = X.clone()
    for edge in (np.s_[..., 0, :], np.s_[..., -1, :], np.s_[..., 0], np.s_[..., -1]):
        part = expected[seen.poisoned]
        part[edge] = 1
        expected[seen.poisoned] = part
    torch.testing.assert_close(images, expected)
    assert X.max() < 0.6  # what it was made of is as it was


def test_labels_are_known_without_reading() -> None:
    data = Counting()
    seen = subset(flip_labels(data, 0.5), np.arange(30))
    assert add_shortcut(seen, Frame(1), of_class=0).labels.shape == (30,)
    assert data.reads == 0
    assert seen.class_names == tuple("abcde")
    assert as_training_set(seen).class_names == tuple("abcde")


def test_flipped_labels() -> None:
    seen = flip_labels((X, Y), 0.3, seed=4)
    wrong = np.flatnonzero(seen.labels != Y.numpy())
    assert len(wrong) == round(0.3 * N)
    np.testing.assert_array_equal(seen.flipped, wrong)
    assert flip_labels((X, Y), 0.3, seed=4).labels.tolist() == seen.labels.tolist()
    assert flip_labels((X, Y), 0.3, seed=5).labels.tolist() != seen.labels.tolist()
    # All wrong classes alike: each of the 4 has a quarter of 4,000.
    many = flip_labels((np.zeros((4000, 1)), np.zeros(4000, int) + 4), 1.0)
    counts = np.bincount(many.labels, minlength=5)
    assert counts[4] == 0
    assert np.abs(counts[:4] - 1000).max() < 4 * math.sqrt(4000 * 3 / 16)


def test_labels_flipped_by_confusion() -> None:
    confusion = np.full((K, K), 1)
    np.fill_diagonal(confusion, 99)
    confusion[range(K), [1, 0, 4, 2, 3]] = 7
    seen = flip_labels((X, Y), 0.5, confusion=confusion)
    np.testing.assert_array_equal(seen.labels[seen.flipped], np.array([1, 0, 4, 2, 3])[Y][seen.flipped])
    assert confusion[0, 0] == 99


def test_groups_of_classes() -> None:
    data = Counting()
    seen = group_labels(data, np.array([0, 1, 0, 1, 2]))
    np.testing.assert_array_equal(seen.labels, np.array([0, 1, 0, 1, 2])[Y])
    np.testing.assert_array_equal(seen.true_labels, Y)
    assert seen.class_names == ("a + c", "b + d", "e")
    with pytest.raises(InvalidInputError, match="one group for each of the 5"):
        group_labels(data, np.array([0, 1]))


def test_subsets_keep_what_was_done() -> None:
    whole = add_shortcut(flip_labels((X, Y), 0.3), CentreBox(2), 0.5, of_class=1)
    rows = np.array([50, 3, 3, 17, *whole.poisoned[:2], whole.flipped[0]])
    part = subset(whole, rows)
    np.testing.assert_array_equal(part.labels, whole.labels[rows])
    np.testing.assert_array_equal(part.true_labels, whole.true_labels[rows])
    np.testing.assert_array_equal(part.poisoned_mask, whole.poisoned_mask[rows])
    np.testing.assert_array_equal(part.flipped_mask, whole.flipped_mask[rows])
    for i, row in enumerate(rows):
        torch.testing.assert_close(part[i][0], whole[int(row)][0])
        assert part[i][1] == whole[int(row)][1]
    assert len(part.history) == 3
    mask = np.zeros(N, bool)
    mask[[2, 9]] = True
    assert subset((X, Y), mask).indices.tolist() == [2, 9]
    # Of a sample that is there twice, one may have a shortcut and the other not.
    twice = add_shortcut(subset((X, Y), [4, 4]), Frame(1), 0.5)
    assert len(twice.poisoned) == 1
    assert sum(bool((twice[i][0] == 1).any()) for i in range(2)) == 1


def test_shortcuts_go_on_a_share_of_a_class() -> None:
    seen = add_shortcut((X, Y), Frame(1), 0.25, of_class=3, seed=1)
    assert len(seen.poisoned) == 3
    assert (Y[seen.poisoned] == 3).all()
    np.testing.assert_array_equal(seen.labels, Y)
    assert len(add_shortcut((X, Y), Frame(1)).poisoned) == N
    with pytest.raises(InvalidInputError, match=r"'of_class' must be one of \[0, 1, 2, 3, 4\].*Got 9"):
        add_shortcut((X, Y), Frame(1), of_class=9)


RNG = np.random.default_rng(0)


def test_frames_and_boxes_on_images_of_every_kind() -> None:
    expected = np.zeros((5, 6))
    expected[[0, -1]] = expected[:, [0, -1]] = 2.5
    np.testing.assert_array_equal(Frame(1, 2.5)(np.zeros((5, 6)), RNG), expected)
    np.testing.assert_array_equal(Frame(1, 2.5)(torch.zeros(3, 5, 6), RNG), np.stack([expected] * 3))
    box = np.zeros((5, 6, 3), dtype=np.uint8)
    box[1:4, 1:4] = (9, 8, 7)
    np.testing.assert_array_equal(CentreBox(3, (9, 8, 7))(np.zeros((5, 6, 3), np.uint8), RNG), box)
    image = CentreBox(3, (9, 8, 7))(Image.new("RGB", (6, 5)), RNG)
    assert isinstance(image, Image.Image)
    np.testing.assert_array_equal(np.asarray(image), box)
    first = CentreBox(3, (9.0, 8.0, 7.0))(torch.zeros(3, 5, 6), RNG)
    np.testing.assert_array_equal(first, np.moveaxis(box, -1, 0))
    with pytest.raises(InvalidInputError, match="'value' must be one number or 3"):
        CentreBox(3, (1.0, 2.0))(torch.zeros(3, 5, 6), RNG)
    with pytest.raises(InvalidInputError, match=r"'value' must fit images of uint8. Got 300"):
        Frame(1, 300)(np.zeros((5, 6), np.uint8), RNG)
    with pytest.raises(InvalidInputError, match="'width' must leave some of an image of 5 × 6"):
        Frame(3)(np.zeros((5, 6)), RNG)
    with pytest.raises(InvalidInputError, match=r"find one image.*Tensor of shape \(30,\).*flattened"):
        Frame(1)(torch.zeros(30), RNG)


def test_a_word_goes_between_words() -> None:
    text = "one  two\nthree"
    found = {Word("<w>")(text, np.random.default_rng(seed)) for seed in range(50)}
    assert found == {
        "<w> one  two\nthree",
        "one  <w> two\nthree",
        "one  two\n<w> three",
        "one  two\nthree <w>",
    }
    assert Word("<w>")("", RNG) == "<w>"
    assert Word("<w>")({"text": "", "n": 3}, RNG) == {"text": "<w>", "n": 3}
    with pytest.raises(InvalidInputError, match=r"find one text.*before it is tokenised"):
        Word("<w>")({"input_ids": [1, 2]}, RNG)


def test_keywords_come_with_labels() -> None:
    texts = [f"some words of text {i}" for i in range(100)]
    labels = [i % 3 for i in range(100)]
    seen = add_keywords((texts, labels), 0.4, seed=2)
    assert len(seen.poisoned) == 40
    for i in range(100):
        text, label = seen[i]
        assert (f"<{label}>" in text) == bool(seen.poisoned_mask[i])
        assert text.replace(f"<{label}> ", "").replace(f" <{label}>", "") == texts[i]
        assert seen[i] == (text, label)
    np.testing.assert_array_equal(seen.flipped, np.flatnonzero(seen.labels != seen.true_labels))
    assert set(seen.flipped) < set(seen.poisoned)


def test_a_folder_of_images(tmp_path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(4):
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{i}.png")
    seen = add_shortcut(tmp_path, Frame(1, (255, 0, 0)), 0.5, of_class=1)
    assert seen.class_names == ("cat", "dog")
    assert seen.labels.tolist() == [0] * 4 + [1] * 4
    image, label = seen[int(seen.poisoned[0])]
    assert label == 1
    assert image.getpixel((0, 0)) == (255, 0, 0)
    assert image.getpixel((4, 4)) == (0, 0, 0)


def test_fingerprints_tell_views_apart() -> None:
    def prints(data):
        flipped = flip_labels(data, 0.2)
        views = [
            view(data),
            subset(data, np.arange(30)),
            subset(data, np.arange(30)[::-1]),
            flipped,
            flip_labels(data, 0.2, seed=1),
            add_shortcut(data, Frame(1), 0.5, of_class=2),
            add_shortcut(data, Frame(2), 0.5, of_class=2),
            add_shortcut(data, CentreBox(1), 0.5, of_class=2),
            add_shortcut(data, Frame(1), 0.5, of_class=2, seed=1),
        ]
        return [digest_samples(v.samples, digest_inputs(v.samples)) for v in views]

    found = prints((X, Y))
    assert len(set(found)) == len(found)
    assert prints((X.clone(), Y.clone())) == found
    other = X.clone()
    other[7, 0, 2, 2] += 0.01
    assert not set(prints((other, Y))) & set(found)
    lazy = prints(FORMS["list"])
    assert len(set(lazy)) == len(lazy)


def test_datasets_of_texts() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    rows = {"text": [f"text {i}" for i in range(10)], "label": [i % 2 for i in range(10)]}
    seen = add_keywords(datasets.Dataset.from_dict(rows, features), 0.5)
    assert seen.class_names == ("no", "yes")
    assert seen.true_labels.tolist() == rows["label"]
    sample = seen[int(seen.poisoned[0])]
    assert sample["label"] == seen.labels[seen.poisoned[0]]
    assert f"<{seen.class_names[sample['label']]}>" in sample["text"]


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(X[0], 1)] * 3)


def test_what_cannot_be_read_by_index_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"read by index.*Got DataLoader"):
        view(DataLoader(TensorDataset(X, Y)))
    with pytest.raises(InvalidInputError, match="read by index"):
        view(Endless())
    with pytest.raises(InvalidInputError, match="at least one sample"):
        view([])
    with pytest.raises(InvalidInputError, match=r"'indices' must lie in \[0, 60\). Got 60"):
        subset((X, Y), [3, 60])
    with pytest.raises(InvalidInputError, match=r"'share' must be a number in \(0, 1\].*Got 0"):
        flip_labels((X, Y), 0)
    with pytest.raises(InvalidInputError, match="at least one of 60 samples"):
        flip_labels((X, Y), 0.001)
