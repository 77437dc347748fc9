"""Features in memory, in banks and from the cache, against the model's own layers."""

from __future__ import annotations

import copy
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, get_worker_info

import whence
from tests.helpers.lazy import D, K, Lazy, N, Net, arrays, net
from whence import engine
from whence.core.cache import Cache
from whence.core.fingerprint import Digest
from whence.errors import InvalidInputError, SampleError, StoreError
from whence.features import FeatureBank, as_float32, extract, job, rows
from whence.features.folder import Folder
from whence.svm import choose_C, solve
from whence.tasks import Classes


def features_of(model: Net, x: Any) -> np.ndarray:
    """By the layers' own weights in float64."""
    z = np.asarray(x, np.float64) @ model.body.weight.detach().double().numpy().T
    z = (z + model.body.bias.detach().double().numpy()) * model.scale
    return np.where(z > 0, z, model.shape.negative_slope * z)


def quiet(model: nn.Module, data: Any, **options: Any) -> FeatureBank:
    return extract(model, data, show_progress=False, **options)


# What is extracted


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("batch_size", [1, 50, 500])
def test_features_are_the_inputs_of_the_last_layer(tmp_path: Path, cached: bool, batch_size: int) -> None:
    model, (x, y) = net(), arrays()
    bank = quiet(model, (x, y), batch_size=batch_size, cache_dir=tmp_path / "new" if cached else None)
    np.testing.assert_allclose(bank.features, features_of(model, x), rtol=1e-5, atol=1e-6)
    assert bank.labels.tolist() == y.tolist()
    assert bank.valid.all()
    assert bank.features.dtype == np.float32
    assert bank.features.flags.writeable != cached
    assert bank.note == "computed"
    assert model.training


def test_a_bank_is_a_plain_npy_file(tmp_path: Path) -> None:
    bank = quiet(net(), arrays(), cache_dir=tmp_path)
    (folder,) = tmp_path.glob("bank-*")
    assert np.array_equal(np.load(folder / "features.npy"), bank.features)
    assert np.array_equal(np.load(folder / "labels.npy"), arrays()[1])
    assert not bank.features.flags.writeable


@pytest.mark.parametrize("cached", [False, True])
def test_float16_takes_half_the_room(tmp_path: Path, cached: bool) -> None:
    model, (x, y) = net(), arrays()
    bank = quiet(model, (x, y), dtype="float16", cache_dir=tmp_path if cached else None)
    assert bank.features.dtype == np.float16
    np.testing.assert_allclose(bank.features, features_of(model, x), rtol=2e-3, atol=1e-3)
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y), dtype="float16")
    expected = whence.DualDA(C=0.1, show_progress=False).fit(
        features=FeatureBank.of(features_of(model, x).astype(np.float16).astype(np.float32), y)
    )
    np.testing.assert_allclose(explainer.coef_, expected.coef_, atol=2e-3)
    assert explainer.attribute(x[:2]).dtype == torch.float32


def test_autocast_runs_in_mixed_precision() -> None:
    model, (x, y) = net(), arrays()
    seen = []
    model.body.register_forward_hook(lambda _m, _i, output: seen.append(output.dtype))
    bank = quiet(model, (x, y), autocast="bfloat16")
    assert torch.bfloat16 in seen
    np.testing.assert_allclose(bank.features, features_of(model, x), rtol=0.05, atol=0.05)


def test_the_model_is_moved_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model, moves = net(), []
    monkeypatch.setattr(model, "to", lambda device: moves.append(str(device)))
    quiet(model, arrays(), device="cpu:0")
    assert moves == ["cpu:0", "cpu"]
    with pytest.raises(InvalidInputError):
        quiet(model, Lazy(bad=(3,)), device="cpu:0")
    assert moves == ["cpu:0", "cpu"] * 2


def test_a_device_that_is_full_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    model, moves = net(), []

    def full(device: Any) -> None:
        moves.append(str(device))
        if len(moves) == 1:
            raise torch.OutOfMemoryError("tried to allocate 20 GiB")

    monkeypatch.setattr(model, "to", full)
    with pytest.raises(
        InvalidInputError, match=r"'device' must have room.* name another device, or use a smaller"
    ):
        quiet(model, arrays(), device="cpu:0")
    assert moves == ["cpu:0", "cpu"]  # and it is taken back


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
def test_workers_change_nothing(tmp_path: Path) -> None:
    alone = quiet(net(), Lazy(bad=(7,)), on_error="skip")
    helped = quiet(net(), Lazy(bad=(7,)), on_error="skip", num_workers=2, cache_dir=tmp_path)
    assert np.array_equal(alone.features, helped.features)
    assert alone.skipped.tolist() == helped.skipped.tolist() == [7]


class Hearing(Dataset[tuple[Tensor, int]]):
    """Tells what becomes of errors in threads of the process that reads it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if get_worker_info() is not None:
            for error in (ConnectionResetError("the asker has gone"), ValueError("a true error")):
                sys.excepthook(type(error), error, None)
        return torch.zeros(5), 0


def test_a_worker_does_not_complain_that_the_process_it_reads_for_has_gone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    quiet(net(), Hearing(), num_workers=1)
    err = capfd.readouterr().err
    assert "a true error" in err
    assert "has gone" not in err


def test_a_mistake_that_a_worker_finds_is_one_line() -> None:
    data = [(row, float(label)) for row, label in zip(*arrays(), strict=True)]
    with pytest.raises(InvalidInputError, match=r"^'data' must give integer labels.*\Z"):
        quiet(net(), data, num_workers=1, task="classes")


def test_features_too_large_for_memory_go_to_a_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = quiet(net(), arrays())
    monkeypatch.setattr(rows, "free_memory", lambda: 2 * N * D * 4 - 1)
    bank = quiet(net(), arrays())
    assert isinstance(bank.features, np.memmap)
    assert np.array_equal(bank.features, expected.features)
    half = quiet(net(), arrays(), dtype="float16")
    assert not isinstance(half.features, np.memmap)
    wide = as_float32(half.features)
    assert isinstance(wide, np.memmap)
    assert np.array_equal(wide, half.features.astype(np.float32))


def test_preflight_says_what_is_needed_and_what_is_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "free_memory", lambda: 3_000_000_000)
    monkeypatch.setattr(job, "free_disk", lambda folder: 2_000_000)
    extract(net(), arrays(), cache_dir=tmp_path)
    shown = capsys.readouterr().err
    # 203 · 6 · 4 bytes of features and 203 · 8 of labels are 6496.
    assert f"{N} rows × {D} float32; disk 6.5 kB of 2 MB free; memory" in shown
    assert "of 3 GB free" in shown
    assert "203/203 samples" in shown


def test_a_disk_that_is_too_small_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "free_disk", lambda folder: 6495)
    model = net()
    with pytest.raises(StoreError, match=r"need 6\.5 kB of disk at .* where 6\.5 kB are free.*float16"):
        quiet(model, arrays(), cache_dir=tmp_path)
    monkeypatch.setattr(job, "free_disk", lambda folder: 6496)
    assert quiet(model, arrays(), cache_dir=tmp_path).note == "computed"


# Samples that cannot be read, and bad values


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_an_unreadable_sample_is_named_or_skipped(tmp_path: Path, cached: bool, known: bool) -> None:
    bad = (0, 100, 101, N - 1)
    data = Lazy(bad, known)
    options: dict[str, Any] = {"batch_size": 2, "cache_dir": tmp_path if cached else None}
    with pytest.raises(InvalidInputError, match=r"Sample 0 .*image file is truncated.*on_error=\"skip\""):
        quiet(net(), data, **options)
    for note in ("computed", "reused" if cached else "computed"):
        bank = quiet(net(), data, on_error="skip", **options)
        kept = np.setdiff1d(np.arange(N), bad)
        assert bank.note == note
        assert bank.skipped.tolist() == list(bad)
        assert np.flatnonzero(bank.valid).tolist() == kept.tolist()
        expected = features_of(net(), data.x)
        expected[list(bad)] = 0
        np.testing.assert_allclose(bank.features, expected, rtol=1e-5, atol=1e-6)
        assert bank.labels[kept].tolist() == data.y[kept].tolist()
        assert (bank.labels[list(bad)] == -1).all()
    with pytest.raises(InvalidInputError, match="Sample 0"):
        quiet(net(), data, **options)
    healed = quiet(net(), Lazy((0, 100, N - 1), known), on_error="skip", **options)
    assert healed.note == "computed" or cached
    assert healed.skipped.tolist() == [0, 100, N - 1]


def test_a_set_without_one_readable_sample_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="can be read"):
        quiet(net(), Lazy(tuple(range(N))), on_error="skip")


def test_bad_values_name_the_sample() -> None:
    model, data = net(), Lazy(bad=(2,))
    data.x[100, 1] = np.nan
    with pytest.raises(InvalidInputError, match=r"Got nan for sample 100 of 'data', feature 0"):
        quiet(model, data, on_error="skip", batch_size=30)
    data.x[100] = 1e6
    with pytest.raises(InvalidInputError, match=r"Got -?inf for sample 100.*too large for float16.*float32"):
        quiet(model, data, on_error="skip", batch_size=30, dtype="float16")
    assert quiet(model, data, on_error="skip", batch_size=30).features.shape == (N, D)
    for label in (K, -1):
        data.y[150] = label
        with pytest.raises(InvalidInputError, match=rf"Sample 150 .*it is {label}"):
            quiet(model, data, on_error="skip", batch_size=30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "'dtype' must be one of \"float32\", \"float16\". Got 'int8'"),
        ({"autocast": "int8"}, "'autocast' must be one of None"),
        ({"num_workers": -1}, "'num_workers' must be an integer of at least 0"),
        ({"on_error": "ignore"}, "'on_error' must be"),
        ({"cache_dir": __file__}, "'cache_dir' must be a folder or a new path"),
        ({"cache_dir": Path(__file__) / "below"}, "'cache_dir' must be a folder that can be made"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        quiet(net(), arrays(), **options)


# The cache


def test_the_same_again_is_reused_without_running_the_model_over_the_data(tmp_path: Path) -> None:
    model = net()
    first = quiet(model, arrays(), cache_dir=tmp_path, batch_size=100)
    probes = (
        2 * 8 + 3 * 64 + 4
    )  # passes of a few samples that find the head, that show that they repeat, that are made up
    assert vars(model)["_seen"] == N + probes
    model = net()
    again = quiet(model, arrays(), cache_dir=tmp_path, batch_size=100)
    assert again.note == "reused"
    assert np.array_equal(again.features, first.features)
    assert vars(model)["_seen"] == probes + 5  # the first and a few others are computed anew


# Changes of the model and of the data are in test_stale.
OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": ({"dtype": "float16"}, "the dtype is 'float16', was 'float32'"),
    "autocast": ({"autocast": "bfloat16"}, "the autocast is 'bfloat16', was 'None'"),
    "batch": ({"batch_size": 7}, "the batch size is '7', was '64'"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_any_other_option_is_computed_anew_and_says_why(tmp_path: Path, name: str) -> None:
    options, why = OPTIONS[name]
    quiet(net(), arrays(), cache_dir=tmp_path)
    model, (x, y) = net(), arrays()
    bank = quiet(model, (x, y), cache_dir=tmp_path, **options)
    assert bank.note.startswith("computed, since ")
    assert why in bank.note
    assert ";" not in bank.note  # one thing was changed, and one is named
    assert np.array_equal(bank.features, quiet(model, (x, y), **options).features)
    assert quiet(model, (x, y), cache_dir=tmp_path, **options).note == "reused"
    assert quiet(net(), arrays(), cache_dir=tmp_path).note == "reused"


@pytest.mark.parametrize("kind", ["tensors", "subset", "concat", "list", "loader"])
def test_every_kind_of_set_is_known_again_and_a_change_is_seen(tmp_path: Path, kind: str) -> None:
    def make(x: np.ndarray, y: np.ndarray) -> Any:
        whole = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        return {
            "tensors": whole,
            "subset": Subset(whole, range(N)),
            "concat": ConcatDataset([Subset(whole, range(9)), Subset(whole, range(9, N))]),
            "list": [(row, int(label)) for row, label in zip(torch.from_numpy(x), y, strict=True)],
            "loader": DataLoader(whole, batch_size=20, shuffle=True),
        }[kind]

    x, y = arrays()
    quiet(net(), make(x, y), cache_dir=tmp_path)
    assert quiet(net(), make(x, y), cache_dir=tmp_path).note == "reused"
    y[30] = (y[30] + 1) % K
    note = quiet(net(), make(x, y), cache_dir=tmp_path).note
    assert ("samples 0 to 63 have other inputs or labels" if kind == "list" else "the labels differ") in note


@dataclass
class Pair:
    a: Any
    b: Any


def test_different_contents_have_different_digests() -> None:
    one = np.arange(6, dtype=np.float32)
    values = [
        one, one.astype(np.float64), one.reshape(2, 3), one.reshape(3, 2), one[::-1], -one, one[:0],
        torch.from_numpy(one), torch.from_numpy(one).bfloat16(), torch.tensor(1.0), torch.tensor(True),
        np.float32(1), np.array(1.0, np.float32), 1, 1.0, "1", b"1", True, None, "", [], {}, (1, 2), (12,),
        [[1], 2], [1, [2]], ["a", "b"], ["ab"], {"a": 1}, {"a": 2}, {"b": 1}, Pair(1, 2), Pair(2, 1),
        np.array(["x", None], dtype=object), np.array([None, "x"], dtype=object),
        Image.new("RGB", (2, 3)), Image.new("RGB", (3, 2)), Image.new("L", (2, 3)), Image.new("L", (2, 3), 1),
    ]  # fmt: skip
    digests = []
    for value in values:
        for copied in (value, copy.deepcopy(value)):
            digest = Digest()
            digest.add(copied)
            digests.append(digest.hexdigest())
    assert digests[::2] == digests[1::2]
    assert len(set(digests)) == len(values)


@pytest.mark.parametrize("name", ["features.npy", "labels.npy", "inputs.npy", "about.json"])
def test_damaged_banks_are_refused_and_computed_again(tmp_path: Path, name: str) -> None:
    expected = np.array(quiet(net(), arrays(), cache_dir=tmp_path).features)
    (file,) = tmp_path.glob(f"bank-*/{name}")
    whole = file.read_bytes()
    places = [0, 10, len(whole) // 2, len(whole) - 1]
    damages = [bytes(b ^ 8 if i == p else b for i, b in enumerate(whole)) for p in places]
    damages += [whole[:length] for length in (0, 1, len(whole) // 2, len(whole) - 1)]
    if name.endswith(".npy"):
        damages.append(whole + b"more")
    for damage in damages:
        file.write_bytes(damage)
        bank = quiet(net(), arrays(), cache_dir=tmp_path)
        assert bank.note.startswith("computed again, since the cached ones are damaged or stale: ")
        assert np.array_equal(bank.features, expected)
        assert bank.labels.tolist() == arrays()[1].tolist()
        assert quiet(net(), arrays(), cache_dir=tmp_path).note == "reused"
        file.with_name("about.json").touch()
    file.unlink()
    bank = quiet(net(), arrays(), cache_dir=tmp_path)
    assert np.array_equal(bank.features, expected)
    assert bank.note != "reused"


def test_a_map_of_a_bank_outlives_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "free_memory", lambda: 0)
    bank = quiet(net(), arrays(), cache_dir=tmp_path)
    before = np.array(bank.features)
    (entry,) = Cache(tmp_path).entries()
    Cache(tmp_path).remove([entry.name])
    assert np.array_equal(bank.features, before)
    assert list(tmp_path.iterdir()) == []


def test_solutions_are_kept_by_their_options(tmp_path: Path) -> None:
    def fit(**options: Any) -> whence.DualDA:
        options = {"C": 0.1, "tol": 1e-4, "show_progress": False, **options}
        return whence.DualDA(**options).fit(net(), arrays(), cache_dir=tmp_path)

    first = fit()
    assert first.origins_ == {"features": "computed", "solution": "computed"}
    again = fit()
    assert again.origins_ == {"features": "reused", "solution": "reused"}
    assert np.array_equal(again.lam_.toarray(), first.lam_.toarray())
    assert np.array_equal(again.coef_, first.coef_)
    assert (again.gap_, again.C_, again.C_path_) == (first.gap_, 0.1, None)
    for options, why in (
        ({"C": 0.2}, "the C is '0.2', was '0.1'"),
        ({"bias": False}, "the bias is 'False', was 'True'"),
        ({"tol": 1e-5}, "the tol is '1e-05', was '0.0001'"),
        ({"seed": 1}, "the seed is '1', was '0'"),
    ):
        found = fit(**options).origins_
        assert found["features"] == "reused"
        assert why in found["solution"]
    chosen, again = fit(C="auto"), fit(C="auto")
    assert again.origins_["solution"] == "reused"
    assert str(again.C_path_) == str(chosen.C_path_)
    for file in tmp_path.glob("solution-*/*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    damaged = fit()
    assert damaged.origins_["solution"].startswith("computed again, since the cached one is damaged")
    assert np.array_equal(damaged.lam_.toarray(), first.lam_.toarray())


def test_a_solution_that_did_not_converge_is_not_kept(tmp_path: Path) -> None:
    explainer = whence.DualDA(C=10.0, tol=1e-12, max_seconds=1e-9, show_progress=False)
    with pytest.warns(whence.ConvergenceWarning):
        explainer.fit(net(), arrays(), cache_dir=tmp_path)
    assert [entry.kind for entry in Cache(tmp_path).entries()] == ["bank"]


def test_an_entry_in_use_is_not_removed(tmp_path: Path) -> None:
    quiet(net(), arrays(), cache_dir=tmp_path)
    cache = Cache(tmp_path)
    (entry,) = cache.entries()
    with (
        cache.slot("bank", entry.parts).locked(),
        pytest.raises(StoreError, match="in use by another process"),
    ):
        cache.remove([entry.name])
    assert len(cache.entries()) == 1


def test_a_bank_of_another_size_is_refused(tmp_path: Path) -> None:
    slot = Cache(tmp_path).slot("bank", {})
    none = np.empty((0, 2), np.float32), Classes().blank(0)
    with pytest.raises(StoreError, match="does not say what it is for"):
        Folder(slot, *none)
    slot.cache.make()
    slot.begin("four samples")
    folder = Folder(slot, *none)
    folder.append(np.ones((4, 2), np.float32), np.array([0, -1, 0, 0]), np.zeros((4, 16), np.uint8))
    folder.checkpoint()
    folder.close()
    for dimension, dtype in ((3, "float32"), (1, "float32"), (2, "float16"), (2, "float64")):
        with pytest.raises(StoreError, match=r"not those that were written|bytes where"):
            Folder(slot, np.empty((0, dimension), dtype), none[1])
    folder = Folder(slot, *none)
    assert folder.progress.samples == 4
    assert folder.mapped()[1].tolist() == [0, -1, 0, 0]
    folder.close()


# Memory


def test_solver_and_path_read_a_map_in_place(tmp_path: Path) -> None:
    n, d = 60_000, 64
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (n, d))
    X[:] = 4 * np.eye(3, d, dtype=np.float32)[y] + rng.normal(size=(n, d)).astype(np.float32)
    X.flush()
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    solve(X[:100], y[:100], C=1e-3)  # compiles
    for run in (lambda: choose_C(X, y, max_samples=500), lambda: solve(X, y, C=1e-3, tol=1e-3)):
        tracemalloc.start()
        try:
            run()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < X.nbytes


@pytest.mark.parametrize("large", [False, True])
def test_a_large_bank_reaches_the_solver_as_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(rows, "free_memory", lambda: 2 * N * D * 4 - large)
    seen: list[Any] = []
    original = solve
    monkeypatch.setattr(
        "whence.surrogate.shards.solve", lambda X, *a, **k: (seen.append(X), original(X, *a, **k))[1]
    )
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(net(), arrays(), cache_dir=tmp_path)
    assert isinstance(seen[0], np.memmap) == large
    assert not isinstance(explainer.surrogate_.vectors.numpy().base, np.memmap)


# Where it runs


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_processes_give_the_same_bits(tmp_path: Path, on_error: Any) -> None:
    data = Lazy(bad=(7, 30)) if on_error == "skip" else arrays()
    here = quiet(net(), data, batch_size=32, on_error=on_error)
    with engine.using(engine.Processes(2)):
        there = quiet(net(), data, batch_size=32, on_error=on_error, cache_dir=tmp_path)
    assert np.array_equal(there.features, here.features)
    assert np.array_equal(there.labels, here.labels)
    assert quiet(net(), data, batch_size=32, on_error=on_error, cache_dir=tmp_path).note == "reused"


def test_an_error_in_a_process_names_the_sample() -> None:
    with engine.using(engine.Processes(2)), pytest.raises(SampleError, match=r"Sample 40 .*on_error"):
        quiet(net(), Lazy(bad=(40,)), batch_size=32)
