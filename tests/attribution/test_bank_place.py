"""Explainers that read their support vectors from a bank in the cache: the same answers, or a refusal."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

import whence
from whence.core import store
from whence.errors import InvalidInputError, StoreError
from whence.surrogate import scores
from whence.surrogate.scores import Expansion, Vectors

N, D, K = 60, 5, 3


@pytest.fixture
def fitted(tmp_path: Path) -> tuple[nn.Module, whence.DualDA, Path]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, D), nn.Tanh(), nn.Linear(D, K))
    x, y = torch.randn(N, 4), torch.arange(N) % K
    cache = tmp_path / "cache"
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y), cache_dir=cache)
    explainer.save(tmp_path / "copy.whence")
    explainer.save(tmp_path / "bank.whence", features="bank")
    return model, explainer, tmp_path


def _features(folder: Path) -> Path:
    (found,) = (folder / "cache").glob("bank-*/features.npy")
    return found


@pytest.mark.parametrize("rows", [1, 7, 1000])  # read at a time
def test_both_forms_answer_alike(fitted, rows: int, monkeypatch) -> None:
    monkeypatch.setattr(scores, "_BLOCK_BYTES", rows * 4 * D)
    model, explainer, folder = fitted
    loaded = whence.load(folder / "bank.whence", model, cache_dir=folder / "cache")
    copy = whence.load(folder / "copy.whence", model)
    assert loaded.surrogate_.stored.mapped
    assert not copy.surrogate_.stored.mapped
    torch.manual_seed(1)
    x = torch.randn(9, 4)
    for target in (None, 1):
        torch.testing.assert_close(loaded.attribute(x, target), copy.attribute(x, target))
        ours, theirs = (each.attribute(x, target, sparse=True) for each in (loaded, copy))
        np.testing.assert_array_equal(ours.indices, theirs.indices)
        np.testing.assert_allclose(ours.data, theirs.data, rtol=1e-5, atol=1e-7)
        for side, other in zip(loaded.top_k(x, 7, target), copy.top_k(x, 7, target), strict=True):
            if isinstance(side, torch.Tensor):
                assert torch.equal(side, other)
            else:
                assert torch.equal(side.indices, other.indices)
                torch.testing.assert_close(side.scores, other.scores)
    torch.testing.assert_close(loaded.self_influence(), explainer.self_influence())
    assert torch.equal(loaded.vectors_, copy.vectors_)
    assert loaded.predict(x).equal(copy.predict(x))


def test_the_file_is_without_features_and_saves_as_either(fitted) -> None:
    model, explainer, folder = fitted
    arrays, manifest = store.read(folder / "bank.whence")
    assert "vectors" not in arrays
    assert set(manifest["bank"]) == {"name", "checksum"}
    loaded = whence.load(folder / "bank.whence", model, cache_dir=folder / "cache")
    loaded.save(folder / "again.whence", features="bank")
    assert (folder / "again.whence").read_bytes() == (folder / "bank.whence").read_bytes()
    loaded.save(folder / "copied.whence")
    assert torch.equal(whence.load(folder / "copied.whence", model).vectors_, explainer.vectors_)


def _written(folder: Path, **changes: str) -> None:
    """Change what the file says of its bank; the entry vouches for its rows."""
    arrays, manifest = store.read(folder / "bank.whence")
    manifest["bank"] |= changes
    store.write(folder / "bank.whence", arrays, manifest)


CHANGES = {
    "gone": (lambda folder: shutil.rmtree(_features(folder).parent), "which is not there"),
    "a number": (
        lambda folder: _features(folder).write_bytes(_features(folder).read_bytes()[:-1] + b"?"),
        r"checksum|were written|cannot be read",
    ),
    "the end": (
        lambda folder: _features(folder).write_bytes(_features(folder).read_bytes()[:-4]),
        r"checksum|were written|cannot be read",
    ),
    "other rows": (
        lambda folder: _written(folder, checksum="0" * 16),
        "other rows than those that were fitted",
    ),
    "a way out of the cache": (
        lambda folder: _written(folder, name=f"../cache/{_features(folder).parent.name}"),
        "must be that of a folder",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_bank_that_is_not_the_fitted_one_is_refused(fitted, change: str) -> None:
    model, _, folder = fitted
    with pytest.raises(StoreError, match="Pass 'cache_dir'"):
        whence.load(folder / "bank.whence")
    alter, message = CHANGES[change]
    alter(folder)
    with pytest.raises(StoreError, match=message):
        whence.load(folder / "bank.whence", model, cache_dir=folder / "cache")


def test_what_lies_in_no_bank_is_saved_as_a_copy_only(tmp_path: Path) -> None:
    bank = whence.features.FeatureBank.of(np.eye(3), np.arange(3))
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    with pytest.raises(InvalidInputError, match="cache_dir"):
        explainer.save(tmp_path / "x.whence", features="bank")
    with pytest.raises(InvalidInputError, match="'features' must be"):
        explainer.save(tmp_path / "x.whence", features="map")


def test_a_map_beyond_memory_is_fitted_without_a_copy(tmp_path: Path, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3
    np.save(tmp_path / "x.npy", X)
    held = whence.DualDA(C=0.1, show_progress=False).fit(features=whence.features.FeatureBank.of(X, y))
    monkeypatch.setattr("whence.surrogate.scores.fits", lambda *_: False)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    other = whence.DualDA(C=0.1, show_progress=False).fit(features=whence.features.FeatureBank.of(mapped, y))
    assert other.surrogate_.stored.mapped
    torch.testing.assert_close(other.attribute(features=X[:4]), held.attribute(features=X[:4]))


def test_scores_by_parts_rank_as_their_definition(monkeypatch) -> None:
    """τ = λ (f·f(x) + b²) by a plain product, ranked by numpy."""
    monkeypatch.setattr(scores, "_BLOCK_BYTES", 3 * 4 * 8)  # three rows
    rng = np.random.default_rng(3)
    X, tests = rng.normal(size=(30, 8)).astype(np.float32), rng.normal(size=(5, 8)).astype(np.float32)
    support, lam = np.arange(0, 30, 2), np.zeros((30, 2))
    lam[support] = rng.normal(size=(15, 2))
    expansion = Expansion(Vectors(X, support), support, csr_array(lam), constant=0.5)
    expected = lam[:, 1] * (tests @ X.T + 0.25)
    target = torch.ones(5, dtype=torch.int64)
    np.testing.assert_allclose(
        expansion.dense(torch.from_numpy(tests), target), expected, rtol=1e-4, atol=1e-6
    )
    strongest, weakest = expansion.top_k(torch.from_numpy(tests), target, 4)
    np.testing.assert_array_equal(strongest.indices, np.argsort(-expected, axis=1)[:, :4])
    np.testing.assert_array_equal(weakest.indices, np.argsort(expected, axis=1)[:, :4])
