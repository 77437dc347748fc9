"""Rows that others write to a bank's file: the bank is the same, and nobody writes to another storage."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from whence import engine
from whence.engine import Engine, Outcome
from whence.features import direct, extract

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(90, 6)).astype(np.float32), np.arange(90) % 3


class Elsewhere(Engine):
    """Runs pieces here in another order, as if they ran on other machines; stops after some of them."""

    name = "elsewhere-of-a-test"
    elsewhere = True

    def __init__(self, pieces: int = 99) -> None:
        self.pieces = pieces

    def run(self, function, items, threads):
        for count, place in enumerate(sorted(range(len(items)), key=lambda place: place ^ 1)):
            if count == self.pieces:
                raise KeyboardInterrupt
            yield Outcome(place, function(items[place]))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def features_in(folder: Path):
    return extract(model(), (X, Y), batch_size=8, cache_dir=folder, show_progress=False)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("bank-*/*") if path.name != "about.json"}


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 7), (5, 1), (100, 4096), (3, 1 << 20)])
def test_sums_of_pieces_are_joined(sizes) -> None:
    a, b = (rng.bytes(size) for size in sizes)
    assert direct.joined(zlib.crc32(a), zlib.crc32(b), len(b)) == zlib.crc32(a + b)


def test_the_bank_is_the_same_and_what_was_stopped_goes_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(direct, "_LEAST", 1)
    here = features_in(tmp_path / "here")
    with engine.using(Elsewhere(5)), pytest.raises(KeyboardInterrupt):
        features_in(tmp_path / "there")
    with engine.using(Elsewhere()):
        there = features_in(tmp_path / "there")
    assert there.note == "resumed at sample 32"  # the fifth batch is not there, the sixth is written again
    np.testing.assert_array_equal(there.features, here.features)
    np.testing.assert_array_equal(there.labels, here.labels)
    assert there.checksum == here.checksum
    assert files(tmp_path / "there") == files(tmp_path / "here")  # no sign is left
    assert features_in(tmp_path / "there").note == "reused"


@pytest.mark.parametrize("sizes", ["small", "large"])
def test_rows_are_sent_where_the_storage_is_another_or_they_are_few(tmp_path: Path, sizes) -> None:
    path = tmp_path / "features.npy"
    np.save(path, np.zeros((8, 6), np.float32))
    before = path.read_bytes()
    rows = X[:4] if sizes == "small" else rng.normal(size=(1 << 16, 6)).astype(np.float32)
    target = direct.Target(path, 128, 24, tmp_path / "sign-of-another")
    assert target.write(0, rows) is rows
    (tmp_path / "sign-of-another").touch()
    written = target.write(0, rows)
    if sizes == "small":
        assert written is rows
        assert path.read_bytes() == before
    else:
        assert written == (len(rows), zlib.crc32(rows.tobytes()))
        assert path.read_bytes()[128:] == rows.tobytes()
