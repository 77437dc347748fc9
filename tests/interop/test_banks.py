"""Banks of retrained networks: written, read, and used to judge scores of any origin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from scipy.stats import spearmanr

import whence
from tests.helpers.commands import mistake, run
from whence.attribution.score_files import labels_digest
from whence.errors import InvalidInputError, MissingFileError
from whence.interop import RetrainingBank, open_bank, read_bank, read_dattri, read_kronfluence, write_bank
from whence.interop.banks import scores_for
from whence.metrics import lds, random_subsets

parquet = pytest.importorskip("pyarrow.parquet")

M, N, T = 12, 20, 4


def make(**other: Any) -> RetrainingBank:
    """A bank whose outputs are noisy sums of the scores of ``truth``."""
    subsets = random_subsets(N, M, seed=1)
    noise = np.random.default_rng(1).standard_normal((M, T))
    return RetrainingBank(subsets, subsets @ truth().T + noise, np.arange(M), "logit", **other)


def truth() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((T, N))


def spearman(bank: RetrainingBank, scores: np.ndarray) -> float:
    """The mean LDS by scipy."""
    sums = bank.subsets @ scores.T
    return float(np.mean([spearmanr(sums[:, t], bank.outputs[:, t]).statistic for t in range(T)]))


NAMES: dict[str, Any] = {
    "train_ids": [f"{i}.png" for i in range(N)],
    "test_ids": list("abcd"),
    "targets": np.array([0, 1, 1, 0]),
    "training_labels": labels_digest(np.arange(N) % 2),
    "source": "a test",
}


@pytest.mark.parametrize("other", [{}, NAMES])
def test_a_bank_is_read_as_it_was_written(tmp_path: Path, other: dict[str, Any]) -> None:
    bank = make(**other)
    again = read_bank(write_bank(tmp_path / "bank.parquet", bank))
    for name in ("subsets", "outputs", "seeds", "targets"):
        np.testing.assert_array_equal(getattr(again, name), getattr(bank, name))
    for name in ("train_ids", "test_ids", "output", "training_labels", "source"):
        assert getattr(again, name) == getattr(bank, name)
    assert (again.n_models, again.n_train, again.n_tests) == (M, N, T)
    assert "n_train=20" in repr(again)


def test_other_programs_can_read_and_write_a_bank(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    bank = make()
    table = parquet.read_table(write_bank(tmp_path / "bank.parquet", bank))
    assert table.column_names == ["seed", "train", "outputs"]
    row = table.to_pylist()[3]
    assert row["train"] == np.flatnonzero(bank.subsets[3]).tolist()
    assert row["outputs"] == bank.outputs[3].tolist()
    rows = {"seed": [5, 6], "train": [[0, 2], [1]], "outputs": [[1.0], [2.0]]}
    about = {"content": "retraining bank", "version": "1", "n_train": "3", "output": "margin"}
    parquet.write_table(pyarrow.table(rows).replace_schema_metadata(about), tmp_path / "own.parquet")
    own = read_bank(tmp_path / "own.parquet")
    np.testing.assert_array_equal(own.subsets, [[True, False, True], [False, True, False]])
    assert own.output == "margin"
    assert own.seeds.tolist() == [5, 6]


def test_networks_with_one_subset_are_put_together() -> None:
    subsets = np.array([[0, 1, 1], [1, 1, 0], [0, 1, 1], [1, 1, 0]], bool)
    outputs = np.array([[1.0], [2.0], [3.0], [4.0]])
    masks, found = RetrainingBank(subsets, outputs, np.arange(4), "logit").by_subset()
    np.testing.assert_array_equal(masks, subsets[:2])
    np.testing.assert_array_equal(found, [[[1.0], [2.0]], [[3.0], [4.0]]])
    masks, found = RetrainingBank(subsets[:3], outputs[:3], np.arange(3), "logit").by_subset()
    np.testing.assert_array_equal(found, [[[2.0], [2.0]]])


@pytest.mark.parametrize("form", ["parquet", "safetensors", "npy", "kronfluence"])
def test_scores_of_every_form_are_judged_alike(tmp_path: Path, form: str) -> None:
    bank, scores = make(**NAMES), truth() + 1.5
    path = tmp_path / f"scores.{form.replace('kronfluence', 'safetensors')}"
    order = np.random.default_rng(2).permutation(N)
    if form == "parquet":
        table = {
            "test": [NAMES["test_ids"][t] for t in range(T) for _ in range(N)],
            "train": [NAMES["train_ids"][i] for _ in range(T) for i in order],
            "score": scores[:, order].ravel(),
        }
        parquet.write_table(pytest.importorskip("pyarrow").table(table), path)
    elif form == "safetensors":
        ids = {"train_ids": json.dumps([NAMES["train_ids"][i] for i in order])}
        safetensors.numpy.save_file({"scores": scores[:, order].copy()}, path, ids)
    elif form == "npy":
        np.save(path, scores)
    else:
        safetensors.numpy.save_file({"all_modules": scores}, path)
    found = scores_for(bank, path).scores
    np.testing.assert_allclose(found, scores)
    assert lds(found, bank.subsets, bank.outputs).mean() == pytest.approx(spearman(bank, scores))


def test_scores_of_an_explainer_are_judged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(N, 4), torch.arange(N) % 2
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(4, 2), (x, y))
    bank = make(targets=NAMES["targets"], training_labels=NAMES["training_labels"])
    path = explainer.save_scores(tmp_path / "s.parquet", x[:T], target=NAMES["targets"])
    found = scores_for(bank, path)
    np.testing.assert_allclose(found.scores, explainer.attribute(x[:T], NAMES["targets"]).numpy(), rtol=1e-6)
    assert found.about["method"] == "DualDA"
    other = explainer.save_scores(tmp_path / "other.parquet", x[:T], target=[0, 1, 0, 0])
    with pytest.raises(InvalidInputError, match=r"Got class 0 for test 2, whose outputs are of class 1"):
        scores_for(bank, other)
    with pytest.raises(InvalidInputError, match=r"'training_labels'.*of another training set"):
        scores_for(make(training_labels=labels_digest(np.zeros(N))), path)


def test_scores_of_other_samples_are_refused(tmp_path: Path) -> None:
    bank = make(**NAMES)
    np.save(tmp_path / "wide.npy", np.zeros((T, N + 1)))
    np.save(tmp_path / "nan.npy", np.full((T, N), np.nan))
    np.save(tmp_path / "objects.npy", np.array([None]))
    safetensors.numpy.save_file({"a": truth(), "b": truth()}, tmp_path / "two.safetensors")
    ids = {"train_ids": json.dumps([f"{i}.jpg" for i in range(N)])}
    safetensors.numpy.save_file({"scores": truth()}, tmp_path / "ids.safetensors", ids)
    pyarrow = pytest.importorskip("pyarrow")
    rows = {"test": ["a"], "train": ["x.png"], "score": [1.0]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "ids.parquet")
    parquet.write_table(pyarrow.table({"test": ["a"]}), tmp_path / "columns.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    (tmp_path / "text.safetensors").write_text("no tensors")
    (tmp_path / "scores.csv").write_text("1,2")
    rules = {
        "wide.npy": r"one row per test and one column per training sample, shape \(4, 20\)\. Got \(4, 21\)",
        "nan.npy": r"'scores' must be finite",
        "objects.npy": "must be an array of numbers",
        "two.safetensors": "one tensor alone",
        "ids.safetensors": r"'0\.png' has no score",
        "ids.parquet": r"name samples such as '0\.png'\. Got 'x\.png'",
        "columns.parquet": "columns score, test, train",
        "text.parquet": "must be a Parquet file",
        "text.safetensors": "must be a safetensors file",
        "scores.csv": r"end in \.parquet, \.safetensors or \.npy",
    }
    for name, rule in rules.items():
        with pytest.raises(InvalidInputError, match=rule):
            scores_for(bank, tmp_path / name)
    with pytest.raises(MissingFileError, match=r"nowhere\.npy"):
        scores_for(bank, tmp_path / "nowhere.npy")


def test_what_is_no_bank_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"must be a retraining bank.*Got the columns a"):
        read_bank(tmp_path / "a.parquet")
    rows = {"seed": [5], "train": [[0, 7]], "outputs": [[1.0]]}
    about = {"content": "retraining bank", "version": "1", "n_train": "3"}
    table = pyarrow.table(rows)
    parquet.write_table(table.replace_schema_metadata(about), tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match=r"'train' must lie in \[0, 3\)\. Got 7"):
        read_bank(tmp_path / "b.parquet")
    parquet.write_table(table.replace_schema_metadata(about | {"version": "2"}), tmp_path / "c.parquet")
    with pytest.raises(InvalidInputError, match=r"'version' must be 1\. Got 2"):
        read_bank(tmp_path / "c.parquet")
    with pytest.raises(InvalidInputError, match=r"masks\.pt and margins\.pt or indices_lds\.pt"):
        open_bank(tmp_path)
    with pytest.raises(InvalidInputError, match=r"'outputs' must have shape \(12, any\)"):
        RetrainingBank(random_subsets(N, M), np.zeros((M + 1, T)), np.arange(M), "logit")
    with pytest.raises(InvalidInputError, match=r"'path' must end in \.parquet"):
        write_bank(tmp_path / "bank.csv", make())


@pytest.mark.parametrize("dtype", [bool, np.float32, np.int64])
def test_files_in_the_form_of_kronfluence(tmp_path: Path, dtype: type) -> None:
    bank = make()
    torch.save(bank.subsets.astype(dtype), tmp_path / "masks.pt")
    torch.save(bank.outputs, tmp_path / "margins.pt")
    for found in (read_kronfluence(tmp_path), open_bank(tmp_path)):
        np.testing.assert_array_equal(found.subsets, bank.subsets)
        np.testing.assert_array_equal(found.outputs, bank.outputs)


def test_files_in_the_form_of_dattri(tmp_path: Path) -> None:
    bank = make()
    rows = [np.random.default_rng(i).permutation(np.flatnonzero(used)) for i, used in enumerate(bank.subsets)]
    torch.save(torch.from_numpy(np.array(rows)), tmp_path / "indices_lds.pt")
    torch.save(torch.from_numpy(-bank.outputs), tmp_path / "target_values_lds.pt")
    found = read_dattri(tmp_path, N)
    np.testing.assert_array_equal(found.subsets, bank.subsets)
    np.testing.assert_array_equal(found.outputs, bank.outputs)
    assert open_bank(tmp_path).n_train == 5_000
    with pytest.raises(InvalidInputError, match=r"'indices' must lie in \[0, 3\)"):
        read_dattri(tmp_path, 3)


def test_files_that_run_code_are_refused(tmp_path: Path) -> None:
    torch.save(make(), tmp_path / "masks.pt")  # a class of whence: any code of others would do
    torch.save(make().outputs, tmp_path / "margins.pt")
    with pytest.raises(InvalidInputError, match=r"masks\.pt' must be an array that torch\.save wrote"):
        read_kronfluence(tmp_path)


def test_the_command_prints_what_scipy_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bank, noise = make(**NAMES), np.random.default_rng(3).standard_normal((T, N))
    write_bank("bank.parquet", bank)
    np.save("good.npy", truth())
    np.save("noise.npy", noise)
    found = json.loads(run("lds", "bank.parquet", "good.npy", "noise.npy", "--json").stdout)
    assert (found["models"], found["tests"], found["output"], found["source"]) == (M, T, "logit", "a test")
    columns = found["scores"]
    assert columns["method"] == ["good.npy", "noise.npy"]
    assert columns["LDS"] == pytest.approx([spearman(bank, truth()), spearman(bank, noise)])
    assert columns["low"][0] < columns["LDS"][0] <= columns["high"][0]
    assert 0 < columns["error"][0] < 0.5
    shown = run("lds", "bank.parquet", "good.npy").stdout
    assert "12 networks on 12 subsets of 20 samples" in shown
    assert f"| good.npy | {spearman(bank, truth()):.3f} |" in shown
    assert "must be different files" in str(mistake("lds", "bank.parquet", "good.npy", "good.npy"))
    np.save("few.npy", truth()[:, :3])
    assert isinstance(mistake("lds", "bank.parquet", "few.npy"), InvalidInputError)
    assert isinstance(mistake("lds", "nowhere", "good.npy"), MissingFileError)
