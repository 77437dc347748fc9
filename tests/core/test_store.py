"""Saved files are whole, exact, and tied to their model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn

from whence.core import store
from whence.errors import StoreError

ARRAYS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.array([1, -2, 3], dtype=np.int64),
    "empty": np.empty((0, 4), dtype=np.float64),
    "turned": np.arange(6.0).reshape(2, 3).T,
}
MANIFEST = {"x": 0.1, "y": [1, None], "z": {"κ": "ü"}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "x.whence"
    store.write(path, ARRAYS, MANIFEST)
    return path


def test_what_is_written_comes_back(saved: Path) -> None:
    arrays, manifest = store.read(saved)
    assert manifest == MANIFEST
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)


def test_the_file_is_plain_safetensors(saved: Path) -> None:
    with safe_open(saved, framework="np") as file:
        assert json.loads(json.loads(file.metadata()["whence"])["manifest"]) == MANIFEST
        assert np.array_equal(file.get_tensor("a"), ARRAYS["a"])


def test_equal_contents_make_equal_files(saved: Path) -> None:
    other = saved.with_name("other")
    store.write(other, dict(reversed(ARRAYS.items())), MANIFEST)
    assert other.read_bytes() == saved.read_bytes()


def test_every_truncation_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in [0, 1, 8, len(whole) // 2, len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"x\.whence"):
            store.read(saved)


def test_every_altered_byte_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    for place in range(0, len(whole), 7):
        altered = bytearray(whole)
        altered[place] ^= 1
        saved.write_bytes(bytes(altered))
        with pytest.raises(StoreError):
            store.read(saved)


def test_another_format_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FORMAT", 99)
    store.write(saved, ARRAYS, MANIFEST)
    monkeypatch.undo()
    with pytest.raises(StoreError, match="has format 99, this version of whence reads format 1"):
        store.read(saved)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    save_file({"a": ARRAYS["a"]}, path)
    with pytest.raises(StoreError, match="no manifest"):
        store.read(path)
    path.write_text("hello")
    with pytest.raises(StoreError, match="no saved explainer"):
        store.read(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        store.read(tmp_path / "nowhere")


def test_a_failed_write_leaves_the_old_file_and_no_scraps(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", half)
    with pytest.raises(StoreError, match="disk full"):
        store.write(saved, {}, {})
    assert store.read(saved)[1] == MANIFEST
    assert list(saved.parent.iterdir()) == [saved]


def test_values_that_json_cannot_hold_are_refused_before_writing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.write(tmp_path / "x", {}, {"gap": float("nan")})
    assert not list(tmp_path.iterdir())


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def changes(alter: Any) -> list[str]:
    other = model()
    with torch.no_grad():
        alter(other)
    return store.differences(store.fingerprint(model(), "2"), store.fingerprint(other, "2"))


def test_equal_models_have_equal_fingerprints() -> None:
    assert changes(lambda m: None) == []
    assert changes(lambda m: m.train()) == []


def test_fingerprints_say_which_tensors_differ() -> None:
    assert changes(lambda m: m[2].bias[0].add_(1e-6)) == ["2.bias has other values"]
    assert changes(lambda m: m[1].running_mean.add_(1)) == ["1.running_mean has other values"]
    assert changes(lambda m: m.register_buffer("extra", torch.ones(1))) == ["extra is new"]
    assert changes(lambda m: setattr(m[0], "bias", None)) == ["0.bias is missing"]
    shaped = changes(lambda m: setattr(m[0], "weight", nn.Parameter(torch.ones(5, 3))))
    assert shaped == ["0.weight is float32 [5, 3], was float32 [4, 3]"]
    assert any("float64" in line for line in changes(lambda m: m.double()))
    assert changes(lambda m: m.double())[-1].startswith("and ")
    prints = store.fingerprint(model(), "2"), store.fingerprint(model(), "0")
    assert store.differences(*prints) == ["the layer is '0', was '2'"]


def test_every_kind_of_tensor_has_a_fingerprint() -> None:
    holder = nn.Module()
    for i, dtype in enumerate([torch.bfloat16, torch.float16, torch.bool, torch.int8, torch.complex64]):
        holder.register_buffer(f"b{i}", torch.ones(2, 2, dtype=dtype))
    holder.register_buffer("scalar", torch.tensor(3))
    holder.register_buffer("nothing", torch.empty(0))
    holder.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)
    assert len(store.fingerprint(holder, "")) == 9


def test_a_glance_changes_with_the_weights() -> None:
    m = model()
    before = store.glance(m)
    m.eval()(torch.ones(2, 3))
    assert store.glance(m) == before
    with torch.no_grad():
        m[0].weight.add_(1)
    assert store.glance(m) != before
