import dataclasses
import gzip

import numpy as np
import pytest
import torch
from tools import sample as make

from whence import sample
from whence.errors import InvalidInputError
from whence.sample import dataset


def test_sample_is_balanced_and_in_range():
    data = sample.load()
    assert data.train_images.shape == (5000, 1, 28, 28)
    assert data.test_images.shape == (1000, 1, 28, 28)
    for images, labels in ((data.train_images, data.train_labels), (data.test_images, data.test_labels)):
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert (images.min(), images.max()) == (0, 1)
        assert torch.bincount(labels).tolist() == [len(labels) // 10] * 10
    assert len(data.class_names) == 10


def test_loading_twice_gives_separate_tensors():
    first = sample.load()
    first.train_images.zero_()
    assert sample.load().train_images.any()


def test_sample_stays_below_three_megabytes_with_its_licence():
    folder = dataset.files("whence.sample")
    names = [item for item in folder.iterdir() if item.name.endswith(".gz")]
    assert len(names) == 4
    assert sum(len(item.read_bytes()) for item in names) < 3_000_000
    assert "Copyright © 2017 Zalando SE" in folder.joinpath("LICENSE-fashion-mnist").read_text("utf-8")


def test_make_draws_a_stratified_sample_of_the_originals(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    source, one, two = (tmp_path / name for name in ("source", "one", "two"))
    for folder in (source, one, two):
        folder.mkdir()
    originals = {}
    for split in ("train", "t10k"):
        labels = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), 6))
        originals[split] = rng.integers(0, 256, size=(60, 28, 28), dtype=np.uint8)
        (source / f"{split}-images-idx3-ubyte.gz").write_bytes(make.to_idx(originals[split]))
        (source / f"{split}-labels-idx1-ubyte.gz").write_bytes(make.to_idx(labels))
    monkeypatch.setattr(make, "SIZES", {"train": 30, "t10k": 20})

    make.make(source, one)
    make.make(source, two)

    for item in one.iterdir():
        assert item.read_bytes() == (two / item.name).read_bytes()
    drawn = dataset.parse_idx(gzip.decompress((one / "train-images-idx3-ubyte.gz").read_bytes()), "drawn")
    labels = dataset.parse_idx(gzip.decompress((one / "train-labels-idx1-ubyte.gz").read_bytes()), "drawn")
    assert np.bincount(labels).tolist() == [3] * 10
    known = {image.tobytes() for image in originals["train"]}
    assert all(image.tobytes() in known for image in drawn)


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x00\x08", b"<html>not found</html>", b"\x00\x00\x08\x01\x00\x00\x00\x05abc"]
)
def test_broken_idx_files_are_refused_by_name(content):
    with pytest.raises(InvalidInputError, match="train-images must be a complete IDX file"):
        dataset.parse_idx(content, "train-images")


def test_training_learns_repeats_by_seed_and_leaves_torch_as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    model = sample.train(seed=3, epochs=1, show_progress=False)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training

    again = sample.train(seed=3, epochs=1, show_progress=False)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))

    data = sample.load()
    assert sample.accuracy(model, data.test_images, data.test_labels) > 0.6


def test_a_part_of_the_sample_is_its_beginning():
    whole, part = sample.load(), sample.load(n_train=100, n_test=10)
    assert torch.equal(part.train_images, whole.train_images[:100])
    assert torch.equal(part.test_labels, whole.test_labels[:10])
    for options in ({"n_train": 0}, {"n_train": 5001}, {"n_test": 1001}, {"n_test": 2.5}):
        with pytest.raises(
            InvalidInputError, match=f"'{next(iter(options))}' must be an integer of at least 1"
        ):
            sample.load(**options)


def test_training_takes_other_labels():
    data = sample.load(n_train=256)
    turned = dataclasses.replace(data, train_labels=torch.full_like(data.train_labels, 3))
    model = sample.train(data=turned, epochs=2, show_progress=False)
    assert sample.accuracy(model, data.test_images, torch.full_like(data.test_labels, 3)) == 1
    with pytest.raises(InvalidInputError, match=r"'data' must have at least 64 training images\. Got 63"):
        sample.train(data=sample.load(n_train=63))


def test_training_needs_an_epoch():
    with pytest.raises(InvalidInputError, match=r"'epochs' must be an integer of at least 1 .* Got 0"):
        sample.train(epochs=0)
