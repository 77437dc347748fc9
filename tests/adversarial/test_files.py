"""A file whose checksum is right is still only believed where its contents fit together."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests.adversarial.test_reuse import arrays, plain
from whence.core import store
from whence.core.cache import Cache
from whence.core.files import replacing
from whence.errors import StoreError
from whence.features import extract


def learnable() -> tuple[torch.Tensor, torch.Tensor]:
    x = arrays()[0]
    with torch.no_grad():
        return x, plain()(x).argmax(1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    explainer = whence.DualDA(C=1.0, show_progress=False).fit(
        plain(), learnable(), cache_dir=folder / "cache"
    )
    explainer.save(folder / "copy.whence")
    explainer.save(folder / "bank.whence", features="bank")
    explainer.what_if(C=1e-6).explainer.save(folder / "all.whence")  # all samples are support vectors
    effects = whence.Effects(C=1e-3, layers="last", show_progress=False).fit(plain(), learnable())
    effects.save(folder / "effects.whence")
    return folder


Crafted = Callable[[dict[str, Any], dict[str, Any]], None]


def scaled(name: str, by: float) -> Crafted:
    return lambda arrays, manifest: arrays.update({name: arrays[name] * by})


def one(name: str) -> Crafted:
    def change(arrays: dict[str, Any], manifest: dict[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] += 0.1 * float(np.abs(arrays[name]).max())

    return change


def fact(name: str, by: float) -> Crafted:
    return lambda arrays, manifest: manifest.update({name: manifest[name] * by})


def consistent(arrays: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Weights that are the sum of their coefficients, ten times what they were."""
    for name in ("lam_data", "coef"):
        arrays[name] = 10 * arrays[name]


CRAFTED: dict[str, Crafted] = {
    "coef": scaled("coef", 2.0),
    "a number of coef": one("coef"),
    "sign of coef": scaled("coef", -1.0),
    "lam_data": scaled("lam_data", 0.5),
    "a number of lam_data": one("lam_data"),
    "order of lam_data": lambda arrays, manifest: arrays.update(lam_data=arrays["lam_data"][::-1].copy()),
    "vectors": scaled("vectors", 1.1),
    "order of vectors": lambda arrays, manifest: arrays.update(vectors=arrays["vectors"][::-1].copy()),
    "constant": fact("constant", 3.0),
    "C": fact("C", 1e-3),
    "coefficients and weights": consistent,
}


def crafted(path: Path, out: Path, change: Crafted) -> Path:
    arrays, manifest = store.read(path)
    change(arrays, manifest)
    store.write(out, arrays, manifest)
    return out


@pytest.mark.parametrize("file", ["copy", "all", "effects"])
@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_explainer_is_refused(saved: Path, tmp_path: Path, file: str, name: str) -> None:
    with pytest.raises(StoreError, match="does not hold what was saved"):
        whence.load(crafted(saved / f"{file}.whence", tmp_path / "x", CRAFTED[name]), plain())


def test_whole_explainers_say_what_was_checked(saved: Path) -> None:
    cache = saved / "cache"
    found = {
        file: whence.load(saved / f"{file}.whence", plain(), cache_dir=cache).origins_["solution"]
        for file in ("copy", "all", "bank", "effects")
    }
    assert found == {
        "copy": "loaded, its gap as saved",
        "all": "loaded, its gap computed again",
        "bank": "loaded, its gap computed again",
        "effects": "loaded, its gap as saved",
    }


@pytest.mark.parametrize("file", ["all", "bank"])
def test_a_gap_that_is_too_good_is_refused(saved: Path, tmp_path: Path, file: str) -> None:
    def better(arrays: dict[str, Any], manifest: dict[str, Any]) -> None:
        arrays["lam_data"] = 0.5 * arrays["lam_data"]
        arrays["coef"] = 0.5 * arrays["coef"]

    path = crafted(saved / f"{file}.whence", tmp_path / "x", better)
    with pytest.raises(StoreError, match="'gap' must be that of the coefficients"):
        whence.load(path, plain(), cache_dir=saved / "cache")


# Banks


@pytest.mark.parametrize("file", ["features.npy", "labels.npy", "inputs.npy"])
@pytest.mark.parametrize("change", [(b"<f4", b"<i4"), (b"<i8", b"<f8"), (b"|u1", b"|i1")])
def test_another_dtype_is_another_bank(tmp_path: Path, file: str, change: tuple[bytes, bytes]) -> None:
    explainer = whence.DualDA(C=1e-2, tol=1e-2, show_progress=False)
    explainer.fit(plain(), arrays(), cache_dir=tmp_path / "cache").save(tmp_path / "x", features="bank")
    before = explainer.attribute(arrays()[0][:3])
    (path,) = (tmp_path / "cache").glob(f"bank-*/{file}")
    whole = path.read_bytes()
    if change[0] not in whole[:128]:
        pytest.skip("of another dtype")
    path.write_bytes(whole.replace(*change, 1))
    with pytest.raises(StoreError, match=r"checksum|header"):
        whence.load(tmp_path / "x", plain(), cache_dir=tmp_path / "cache")
    again = extract(plain(), arrays(), cache_dir=tmp_path / "cache", show_progress=False)
    assert again.note.startswith("computed again")
    found = whence.load(tmp_path / "x", plain(), cache_dir=tmp_path / "cache")
    torch.testing.assert_close(found.attribute(arrays()[0][:3]), before)


def test_a_flipped_bit_of_a_bank_is_seen(tmp_path: Path, rng: np.random.Generator) -> None:
    extract(plain(), arrays(), cache_dir=tmp_path, show_progress=False)
    (path,) = tmp_path.glob("bank-*/features.npy")
    whole = bytearray(path.read_bytes())
    whole[int(rng.integers(128, len(whole)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(whole))
    note = extract(plain(), arrays(), cache_dir=tmp_path, show_progress=False).note
    assert "damaged or stale" in note


# What killed processes leave


def scrap(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f".{name}.{os.urandom(16).hex()}.tmp"
    path.write_bytes(b"half")
    return path


def test_scraps_of_killed_saves_are_swept(tmp_path: Path) -> None:
    mine = [tmp_path / ".notes.tmp", tmp_path / ".x.whence.tmp", tmp_path / "x.0123.tmp"]
    for path in mine:
        path.write_text("mine")
    dead = [scrap(tmp_path, "x.whence"), scrap(tmp_path, "other.whence")]
    with replacing(tmp_path / "busy") as file:
        file.write(b"busy")
        (busy,) = tmp_path.glob(".busy.*.tmp")
        store.write_text(tmp_path / "third", "text")
        assert busy.exists()
    assert not any(path.exists() for path in dead)
    assert all(path.read_text() == "mine" for path in mine)
    assert (tmp_path / "busy").read_bytes() == b"busy"


def test_scraps_in_a_cache_are_swept(tmp_path: Path) -> None:
    extract(plain(), arrays(), cache_dir=tmp_path / "cache", show_progress=False)
    (entry,) = Cache(tmp_path / "cache").entries()
    dead = [scrap(tmp_path / "cache" / entry.name, "about.json"), scrap(tmp_path / "cache", "x")]
    Cache(tmp_path / "cache").sweep()
    assert not any(path.exists() for path in dead)
    note = extract(plain(), arrays(), cache_dir=tmp_path / "cache", show_progress=False).note
    assert note == "reused"
