"""Scores of other tools: files in the forms that these document, read row by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

import whence
from whence.errors import InvalidInputError, UnsupportedError
from whence.interop import open_scores

T, N = 5, 8
SCORES = np.random.default_rng(0).standard_normal((T, N)).astype(np.float32)


def rows(path: Path, n_tests: int = T, n_train: int = N, **options: Any) -> np.ndarray:
    """All scores (test, train) of a file, row by row."""
    opened = open_scores(path, n_tests, n_train, show_progress=False, **options)
    return np.stack([opened.row(test) for test in range(n_tests)])


def kronfluence(folder: Path, tensors: dict[str, Any], name: str = "pairwise_scores") -> Path:
    """A file as kronfluence's ``save_pairwise_scores`` and ``save_self_scores`` write it."""
    file = folder / f"{name}.safetensors"
    safetensors.torch.save_file({key: torch.as_tensor(value) for key, value in tensors.items()}, file)
    return file


def flat(folder: Path, scores: Tensor, *, written: bool = True, **more: Any) -> Path:
    """A folder as bergson's sequence writer leaves it: items are training samples, scores queries."""
    name = str(scores.dtype).removeprefix("torch.")
    raw = scores.contiguous().view(torch.int16) if scores.dtype == torch.bfloat16 else scores
    (folder / "scores.bin").write_bytes(raw.numpy().tobytes())
    flags = np.ones(len(scores), np.bool_)
    flags[3] = written
    (folder / "written.bin").write_bytes(flags.tobytes())
    about = {"num_items": len(scores), "num_scores": scores.shape[1], "dtype": name, "format": "flat", **more}
    (folder / "info.json").write_text(json.dumps(about))
    return folder


def records(folder: Path, scores: np.ndarray, *, written: bool = True) -> Path:
    """A folder as bergson's earlier writer leaves it: per query a score, a flag, and padding."""
    items, queries = scores.shape
    form = {
        "names": [f"{name}_{i}" for i in range(queries) for name in ("score", "written")],
        "formats": ["float32", "bool"] * queries,
        "offsets": [8 * i + at for i in range(queries) for at in (0, 4)],
        "itemsize": 8 * queries,
    }
    stored: Any = np.zeros(items, np.dtype(form))  # type: ignore[call-overload]
    for i in range(queries):
        stored[f"score_{i}"], stored[f"written_{i}"] = scores[:, i], True
    stored["written_1"][2] = written
    stored.tofile(folder / "scores.bin")
    about = {"num_items": items, "num_scores": queries, "dtype": form}
    (folder / "info.json").write_text(json.dumps(about))
    return folder


def as_numpy(folder: Path, scores: np.ndarray) -> Path:
    np.save(folder / "scores.npy", scores)
    return folder / "scores.npy"


def as_torch(folder: Path, scores: np.ndarray) -> Path:
    torch.save(torch.from_numpy(scores), folder / "scores.pt")
    return folder / "scores.pt"


WAYS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "numpy": ("numpy", lambda folder: as_numpy(folder, SCORES)),
    "numpy, transposed": ("numpy", lambda folder: as_numpy(folder, SCORES.T)),
    "captum": ("torch", lambda folder: as_torch(folder, SCORES)),
    "dattri": ("torch", lambda folder: as_torch(folder, SCORES.T.copy())),
    "kronfluence": ("kronfluence", lambda folder: kronfluence(folder, {"all_modules": SCORES})),
    "kronfluence's folder": (
        "kronfluence",
        lambda folder: kronfluence(folder, {"all_modules": SCORES}).parent,
    ),
    "bergson": ("bergson", lambda folder: flat(folder, torch.from_numpy(SCORES.T))),
    "bergson, records": ("bergson", lambda folder: records(folder, SCORES.T)),
    "a tensor": ("safetensors", lambda folder: kronfluence(folder, {"matrix": SCORES.T.copy()})),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_tests_whoever_wrote_them(way: str, tmp_path: Path) -> None:
    tool, write = WAYS[way]
    path = write(tmp_path)
    np.testing.assert_array_equal(rows(path), SCORES)
    opened = open_scores(path, T, N)
    assert opened.tool == tool
    assert tool in repr(opened)


def test_scores_of_modules_are_summed(tmp_path: Path) -> None:
    parts = {"conv": 0.25 * SCORES, "fc": 0.75 * SCORES}
    path = kronfluence(tmp_path, parts)
    np.testing.assert_allclose(rows(path), SCORES, rtol=1e-6)
    assert open_scores(path, T, N).about == "sum over 2 modules"


@pytest.mark.parametrize("write", [kronfluence, flat])
def test_bfloat16_is_read_exactly(write: Any, tmp_path: Path) -> None:
    halves = torch.from_numpy(SCORES).bfloat16()
    path = flat(tmp_path, halves.T) if write is flat else kronfluence(tmp_path, {"all_modules": halves})
    np.testing.assert_array_equal(rows(path), halves.float().numpy())


def test_own_files_keep_ids_targets_and_meaning(tmp_path: Path) -> None:
    x, y = torch.randn(N, 3), torch.arange(N) % 2
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(3, 2), (x, y))
    for name in ("scores.parquet", "scores.safetensors"):
        explainer.save_scores(tmp_path / name, x[:T], [1, 0, 1, 0, 1])
        opened = open_scores(tmp_path / name, T, N)
        np.testing.assert_allclose(opened.row(2), explainer.attribute(x[2:3], 1)[0], rtol=1e-6)
        assert opened.targets is not None
        assert opened.targets.tolist() == [1, 0, 1, 0, 1]
        assert opened.tool == "whence"
        assert "supports the target class" in opened.about


def test_equal_sizes_need_an_orientation(tmp_path: Path) -> None:
    square = SCORES[:, :T]
    path = as_numpy(tmp_path, square)
    with pytest.raises(InvalidInputError, match="'orientation' must be 'test-train' or 'train-test'"):
        open_scores(path, T, T)
    np.testing.assert_array_equal(rows(path, T, T, orientation="test-train"), square)
    np.testing.assert_array_equal(rows(path, T, T, orientation="train-test"), square.T)
    fixed = flat(tmp_path, torch.from_numpy(square.copy()))  # bergson's is known
    np.testing.assert_array_equal(rows(fixed, T, T), square.T)
    with pytest.raises(InvalidInputError, match="'orientation' must be 'train-test' for bergson"):
        open_scores(fixed, T, T, orientation="test-train")


def test_sizes_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = as_numpy(tmp_path, SCORES)
    with pytest.raises(
        InvalidInputError, match=r"\(test, train\) = \(6, 8\) or .* = \(8, 6\).* Got \(5, 8\)"
    ):
        open_scores(path, 6, N)
    with pytest.raises(InvalidInputError, match=r"shape \(train, test\) = \(8, 5\), as"):
        open_scores(path, T, N, orientation="train-test")
    with pytest.raises(InvalidInputError, match="'orientation' must be one of None"):
        open_scores(path, T, N, orientation="rows")  # type: ignore[arg-type]


@pytest.mark.parametrize("transposed", [False, True])
def test_a_score_that_is_no_number_is_named_by_its_samples(transposed: bool, tmp_path: Path) -> None:
    wrong = SCORES.copy()
    wrong[3, 6] = np.nan
    path = as_numpy(tmp_path, wrong.T if transposed else wrong)
    with pytest.raises(InvalidInputError, match="Got nan for test 3 and training sample 6"):
        open_scores(path, T, N)


def test_what_is_no_matrix_of_scores_is_refused(tmp_path: Path) -> None:
    alone = kronfluence(tmp_path, {"all_modules": SCORES[0]}, "self_scores")
    with pytest.raises(UnsupportedError, match="one per sample, 8, such as kronfluence's self scores"):
        open_scores(alone, T, N)
    tokens = kronfluence(tmp_path, {"all_modules": np.stack([SCORES] * 3, 2)}, "tokens")
    with pytest.raises(UnsupportedError, match="one per token"):
        open_scores(tokens, T, N)
    mixed = kronfluence(tmp_path, {"a": SCORES, "b": SCORES[:2].copy()}, "mixed")
    with pytest.raises(InvalidInputError, match="matrices of one shape"):
        open_scores(mixed, T, N)
    with pytest.raises(InvalidInputError, match="'scores' must be a matrix of numbers"):
        open_scores(as_numpy(tmp_path, SCORES[0]), T, N)
    (tmp_path / "scores.csv").write_text("1,2")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="'path' must end in"):
        open_scores(tmp_path / "scores.csv", T, N)
    with pytest.raises(InvalidInputError, match="or a folder with pairwise_scores"):
        open_scores(tmp_path / "empty", T, N)


class Harm:
    """Would write a file where it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.write_text, (Path("harmed"), "x")


def test_no_code_in_a_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(Harm(), tmp_path / "scores.pt")
    np.save(tmp_path / "scores.npy", np.array([Harm()], object), allow_pickle=True)
    for name in ("scores.pt", "scores.npy"):
        with pytest.raises(InvalidInputError, match="must be an array"):
            open_scores(tmp_path / name, T, N)
    assert not (tmp_path / "harmed").exists()


def test_unfinished_and_damaged_folders_of_bergson(tmp_path: Path) -> None:
    scores = torch.from_numpy(SCORES.T.copy())
    with pytest.raises(InvalidInputError, match="Got none of item 3: the run was not finished"):
        open_scores(flat(tmp_path, scores, written=False), T, N)
    with pytest.raises(UnsupportedError, match="Got scores of tokens"):
        open_scores(flat(tmp_path, scores, attribute_tokens=True), T, N)
    with pytest.raises(InvalidInputError, match="'dtype' must be one of"):
        open_scores(flat(tmp_path, scores, dtype="object"), T, N)
    with pytest.raises(InvalidInputError, match=r"'scores.bin' must have 320 bytes. Got 160"):
        open_scores(flat(tmp_path, scores, dtype="float64"), T, N)
    with pytest.raises(InvalidInputError, match="'num_items' must be an integer"):
        open_scores(flat(tmp_path, scores, num_items="8"), T, N)
    with pytest.raises(InvalidInputError, match="Got none of item 2 for query 1"):
        open_scores(records(tmp_path, SCORES.T, written=False), T, N)
    (tmp_path / "info.json").write_text("[")
    with pytest.raises(InvalidInputError, match="must be JSON of bergson"):
        open_scores(tmp_path, T, N)


def test_rows_stay_on_disk(tmp_path: Path) -> None:
    opened = open_scores(as_numpy(tmp_path, SCORES), T, N)
    part = opened.take(slice(0, 1), slice(0, N))
    assert isinstance(part.base, np.memmap) or isinstance(part, np.memmap)
    with pytest.raises(InvalidInputError, match="test"):
        opened.row(T)
