"""Files with a right checksum and wrong contents: refused in words, never a crash and never another error."""

from __future__ import annotations

import dataclasses
import json
import random
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

import whence
from tests.helpers.nets import mlp
from whence import methods
from whence.app.info import describe
from whence.core import store
from whence.core.cache import Cache
from whence.errors import StoreError, WhenceError
from whence.features import folder
from whence.surrogate.solving import read_solution
from whence_studies.scenes import weights
from whence_studies.scenes.training import TrainedNetwork
from whence_studies.suite import results
from whence_studies.suite.run import Cells

N, D, K = 24, 5, 3
X = torch.from_numpy(np.random.default_rng(0).normal(size=(N, 4))).float()
Y = torch.arange(N) % K
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "dualda": ("dualda", {"C": 0.1}),
    "dualda auto": ("dualda", {"C": "auto", "bias": False}),
    "graddot": ("graddot", {}),
    "graddot last": ("graddot", {"params": "last"}),
    "gradcos": ("gradcos", {"projection": 7}),
    "trak": ("trak", {"projection": 7}),
    "representer": ("representer", {}),
    "hingerp": ("hingerp", {}),
    "similarity": ("similarity", {"metric": "l2"}),
    "influence": ("influence", {}),
    "lissa": ("lissa", {"depth": 5}),
    "arnoldi": ("arnoldi", {"projections": 4}),
    "ekfac": ("ekfac", {"params": "last"}),
}


def network() -> nn.Module:
    return mlp(4, D, K)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of every kind that is saved."""
    folder, found = tmp_path_factory.mktemp("saved"), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key, (name, options) in OPTIONS.items():
            found[key] = folder / key
            methods.get(name)(show_progress=False, **options).fit(network(), (X, Y)).save(found[key])
        whence.DualDA(show_progress=False).fit(network(), (X, Y), cache_dir=folder / "cache")
    found["solution"] = next((folder / "cache").glob("solution-*/*.safetensors"))
    return found


KINDS = [*OPTIONS, "solution"]


def use(kind: str, path: Path) -> None:
    """Read a file and compute with it."""
    if kind == "solution":
        solved = read_solution(path)
        assert (solved.lam.T @ np.ones(solved.lam.shape[0])).shape == (len(solved.weight),)
        return
    found = whence.load(path, network())
    assert found.attribute(X[:2]).shape == (2, N)
    assert found.self_influence().shape == (N,)


def altered(path: Path, out: Path, **arrays: Any) -> Path:
    """Write a file with other arrays, None for none, and a right checksum."""
    now, manifest = store.read(path)
    now.update(arrays)
    store.write(out, {name: array for name, array in now.items() if array is not None}, manifest)
    return out


def replaced(array: np.ndarray, place: int, value: float) -> np.ndarray:
    array = array.astype(np.int64) if array.dtype.kind == "i" else array.copy()  # with room for any value
    array.flat[place] = value
    return array


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_is_taken(saved: dict[str, Path], kind: str) -> None:
    use(kind, saved[kind])
    if kind != "solution":
        assert whence.load(saved[kind], network()).attribute(X).isfinite().all()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "lam_indices",
            lambda a: replaced(a, 3, 10**6),
            r"'lam_indices' must lie in \[0, 2\], and has 1000000",
        ),
        ("lam_indices", lambda a: replaced(a, 3, -1), r"'lam_indices' must lie in \[0, 2\], and has -1 at 3"),
        ("lam_indices", lambda a: a * 0, "'lam_indices' must name each class once per row"),
        ("lam_indices", lambda a: a.astype(np.float32), "'lam_indices' must be integers"),
        ("lam_indptr", lambda a: a[::-1].copy(), "'lam_indptr' must ascend from 0"),
        ("lam_indptr", lambda a: replaced(a, 5, 0), "'lam_indptr' must ascend from 0"),
        ("lam_indptr", lambda a: a[:-1], r"'lam_indptr' must have shape \(25\), and has \(24,\)"),
        ("lam_indptr", lambda a: replaced(a, -1, 10**9), "'lam_indptr' must lie in"),
        ("lam_data", lambda a: replaced(a, 0, np.nan), "'lam_data' must be finite"),
        ("lam_data", lambda a: a[:-1], "'lam_indices' must have shape"),
        (
            "lam_data",
            lambda a: a.astype(np.float32),
            "'lam_data' must be of dtype float64, and is of float32",
        ),
        ("coef", lambda a: a[:, :3], "'coef' must have a column per feature"),
        ("coef", lambda a: a[:-1], "must have shape|must lie in"),
        ("coef", lambda a: replaced(a, 0, np.inf), "'coef' must be finite"),
        ("vectors", lambda a: a[:-1], "'vectors' must have a row per sample with coefficients"),
        ("vectors", lambda a: a[0], "'vectors' must have shape"),
        ("vectors", lambda a: replaced(a, 0, np.nan), "'vectors' must be finite"),
        ("labels", lambda a: replaced(a, 0, 10**6), r"'labels' must lie in \[-1, 2\], and has 1000000 at 0"),
        ("labels", lambda a: a.astype(np.float64), "'labels' must be integers"),
        ("labels", lambda a: a[:-1], "must have shape"),
        ("head_weight", lambda a: a.T.copy(), "'head_weight' must have shape"),
        ("head_weight", lambda a: None, "the array 'head_weight' is missing"),
        ("labels", lambda a: None, "the array 'labels' is missing"),
        ("more", lambda a: np.ones(3), "it has an array 'more', which does not belong there"),
    ],
)
def test_a_crafted_array_is_named(
    saved: dict[str, Path], tmp_path: Path, name: str, change: Any, message: str
) -> None:
    arrays, _ = store.read(saved["dualda"])
    path = altered(saved["dualda"], tmp_path / "x", **{name: change(arrays.get(name))})
    with pytest.raises(StoreError, match=message):
        use("dualda", path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("C"), "C: field required"),
        (lambda m: m.update(C="large"), "C: input should be a valid number"),
        (lambda m: m.update(C=-1.0), "C: input should be greater than 0"),
        (lambda m: m.update(gap="1e-7"), "gap: input should be a valid number"),
        (lambda m: m.update(more=1), "more: extra inputs are not permitted"),
        (lambda m: m.update(class_names=["a"]), "class_names must be 3 names, and there are 1"),
        (lambda m: m.update(class_names="abc"), "class_names: input should be a valid array"),
        (lambda m: m.update(fingerprint=7), "fingerprint: input should be an object"),
        (lambda m: m["fingerprint"].pop("layer"), "a fingerprint must name the layer"),
        (lambda m: m["parameters"].pop("tol"), "'tol' is missing"),
        (lambda m: m["parameters"].update(tol="small"), "'tol' must be"),
        (lambda m: m["parameters"].update(bias=False), "'coef' must have a column for the bias"),
        (lambda m: m["parameters"].update(more=1), "'more'"),
        (lambda m: m["parameters"].update(n_threads=10**9), "'n_threads' must be"),
        (lambda m: m.update(parameters=[]), "parameters: input should be an object"),
        (lambda m: m.update(C_path={"C": 1}), "parameters cannot be taken|field required"),
        (lambda m: m.update(method="magic"), "magic"),
    ],
)
def test_a_crafted_manifest_is_named(
    saved: dict[str, Path], tmp_path: Path, change: Any, message: str
) -> None:
    arrays, manifest = store.read(saved["dualda"])
    change(manifest)
    store.write(tmp_path / "x", arrays, manifest)
    with pytest.raises(StoreError, match=message):
        use("dualda", tmp_path / "x")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"C": NaN}', "[" * 100_000, '{"method": Infinity}', "\ud800", '{"C": "\ud800"}'],
)
def test_a_manifest_that_is_no_manifest(tmp_path: Path, text: str) -> None:
    arrays = {"a": np.ones(2)}
    header = {"format": store.FORMAT, "checksum": store._checksum(arrays, text), "manifest": text}
    save_file(arrays, tmp_path / "x", metadata={"whence": json.dumps(header)})
    with pytest.raises(StoreError):
        whence.load(tmp_path / "x")


DTYPES = ("float16", "float32", "float64", "int64", "int32", "uint8", "bool")


class Crafter:
    """Changes the structure of arrays and manifests at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def array(self, a: np.ndarray) -> np.ndarray | None:
        place = self.random.randrange(max(a.size, 1))
        numbers = [0, -1, 1, 10**6, 2**31 - 1, -(2**31)] + (
            [np.nan, np.inf, 1e30] if a.dtype.kind == "f" else []
        )
        ways = [
            lambda: None,
            lambda: replaced(a, place, self.random.choice(numbers)) if a.size else np.ones(3, a.dtype),
            lambda: a[:-1],
            lambda: a[:0],
            lambda: np.concatenate([a, a]),
            lambda: a[None],
            lambda: a.reshape(-1),
            lambda: a.T.copy(),
            lambda: a[::-1].copy(),
            lambda: a.astype(self.random.choice(DTYPES)),
            lambda: np.zeros((0,), a.dtype),
            lambda: np.zeros((3, 0), a.dtype),
        ]  # fmt: skip
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.random.choice(ways)()

    def value(self, value: Any) -> Any:
        if isinstance(value, dict) and value and self.random.random() < 0.8:
            key = self.random.choice(sorted(value))
            way = self.random.random()
            if way < 0.15:
                del value[key]
            elif way < 0.3:
                value[self.random.choice(["more", "", "é", "__class__"])] = 1
            else:
                value[key] = self.value(value[key])
            return value
        if isinstance(value, list) and value and self.random.random() < 0.7:
            place = self.random.randrange(len(value))
            value[place] = self.value(value[place])
            return value
        numbers = [None, True, -1, 0, 10**6, 10**30, -0.5, 1e300]
        return self.random.choice([*numbers, "", "x", "auto", "9" * 50, [], {}, [[]], {"a": {}}, [1, 2]])


def craft(crafter: Crafter, path: Path, out: Path, read: Any) -> int:
    """Change a file sixty times and read it; count how often it was refused."""
    refused = 0
    for turn in range(60):
        arrays, manifest = store.read(path)
        if turn % 2:
            name = crafter.random.choice(sorted(arrays))
            changed = crafter.array(arrays.pop(name))
            arrays |= {} if changed is None else {name: changed}
        else:
            found = crafter.value(manifest)
            manifest = found if isinstance(found, dict) else {}
        store.write(out, arrays, manifest)
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                read(out)
        except WhenceError:  # of a method itself, where the numbers make no sense to it
            refused += 1
    return refused


@pytest.mark.parametrize("kind", KINDS)
def test_random_changes_are_refused_or_harmless(saved: dict[str, Path], tmp_path: Path, kind: str) -> None:
    crafter = Crafter(sum(map(ord, kind)))
    assert craft(crafter, saved[kind], tmp_path / "x", partial(use, kind)) > 20


NO_ROWS = np.empty((0, 4), np.float32), np.empty(0, np.int64)


@pytest.mark.parametrize(
    "changes",
    [
        {"progress": {"samples": -1}},
        {"progress": {"samples": 1}},
        {"progress": {"samples": 1.5}},
        {"progress": {"samples": "3"}},
        {"progress": {"sums": [1]}},
        {"progress": {"sums": [1, 2]}},
        {"progress": {"sums": ["a", "b"]}},
        {"progress": {"samples": 1, "sums": None}},
        {"progress": {"sums": [0, 1 << 70]}},
        {"progress": 7},
        {"complete": True, "progress": {"samples": 2}},
        {"format": 99},
        {"format": [1]},
        {"parts": {"more": "1"}},
        {"parts": None},
    ],
)
def test_crafted_banks_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    slot = Cache(tmp_path).slot("bank", {"seed": "0"})
    slot.cache.make()
    slot.begin("a bank")
    folder.Folder(slot, *NO_ROWS).close()
    about = slot.path / "about.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | changes))
    with pytest.raises(StoreError):
        folder.Folder(slot, *NO_ROWS)


@pytest.mark.parametrize("text", ["", "[]", "7", "[" * 100_000, '{"format": NaN}'])
def test_banks_that_are_none(tmp_path: Path, text: str) -> None:
    slot = Cache(tmp_path).slot("bank", {"seed": "0"})
    slot.path.mkdir()
    (slot.path / "about.json").write_text(text)
    with pytest.raises(StoreError):
        folder.Folder(slot, *NO_ROWS)


ROW = ("lds", "dualda", "score", None, 0.5, "")


@pytest.mark.parametrize(
    "rows",
    [
        "",
        "7",
        "{}",
        "[[]]",
        "[null]",
        "[" * 100_000,
        [ROW[:3]],
        [[*ROW, 1]],
        [[1, *ROW[1:]]],
        [[*ROW[:4], "x", ""]],
        [[*ROW[:5], None]],
        '[["a", "b", "c", null, NaN, ""]]',
    ],
)
def test_crafted_cells_are_measured_anew(tmp_path: Path, rows: Any) -> None:
    cells, part = Cells(Cache(tmp_path), {"seed": 0}), {"metric": "lds"}
    cells.write([results.Row(*ROW)], part, "a cell", None)
    assert cells.read(part) == [results.Row(*ROW)]
    path = cells.slot(part).path / "rows.json"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    assert cells.read(part) is None


@pytest.mark.parametrize(
    "changes", [{"protocol": 3}, {"versions": {"a": 1}}, {"versions": []}, {"protocol": None}]
)
def test_crafted_results_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    pytest.importorskip("pyarrow")
    made = results.Results((results.Row(*ROW),), {"name": "x"}, {"python": "3"})
    results.write(tmp_path / "r.parquet", made)
    assert results.read(tmp_path / "r.parquet") == made
    results.write(tmp_path / "r.parquet", dataclasses.replace(made, **changes))
    with pytest.raises(StoreError, match="holds no results"):
        results.read(tmp_path / "r.parquet")


def test_crafted_weights_are_refused_or_harmless(tmp_path: Path) -> None:
    weights.save_weights(tmp_path / "w", network().state_dict(), {"seconds": 1.0})

    def read(path: Path) -> None:
        weights.load_weights(path, network())

    read(tmp_path / "w")
    assert craft(Crafter(1), tmp_path / "w", tmp_path / "x", read) > 20


def test_crafted_models_of_a_scene_are_refused_or_harmless(tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in network().state_dict().items()}
    TrainedNetwork(network(), [state], [0.1]).write(tmp_path)

    def read(path: Path) -> None:
        TrainedNetwork.read(path.parent, network())

    whole = tmp_path / "whole"
    (tmp_path / "1.safetensors").rename(whole)
    whole.with_name("1.safetensors").write_bytes(whole.read_bytes())
    read(whole)
    assert craft(Crafter(1), whole, tmp_path / "1.safetensors", read) > 20


def test_info_of_a_crafted_file_is_one_clear_line(saved: dict[str, Path], tmp_path: Path) -> None:
    assert describe(saved["dualda"])["samples"] == N
    for name in ("labels", "coef", "vectors"):
        with pytest.raises(StoreError, match=f"the array '{name}' is missing"):
            describe(altered(saved["dualda"], tmp_path / "x", **{name: None}))
