"""The corrected training set, read back and compared with the original by other means."""

from __future__ import annotations

import csv
import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import whence
from tests.helpers.explored import NAMES, N, picture_project
from whence.app.cli import app
from whence.errors import InvalidInputError
from whence.project import Configuration, Project, export_changes

GONE, NEW = [1, 4], {2: "cat", 7: "dog"}


def model(inputs: int, classes: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 4), nn.ReLU(), nn.Linear(4, classes)).eval()


def marked(explainer: Any) -> Project:
    """A project whose list removes GONE and gives NEW."""
    project, names = Project.of(explainer), list(explainer.class_names_)
    project.work.add("remove", GONE, why="=cmd()", who="Ada")
    project.work.add("relabel", list(NEW), label=[names.index(word) for word in NEW.values()])
    project.work.add("flag", [0])
    return project


def table(n: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    numbers = {"a": rng.normal(size=n), "=b": rng.integers(-5, 5, n)}
    words = np.array(["cat", "dog", "cow"])[np.arange(n) % 3]
    words[[2, 7]] = ["cow", "cow"]
    return pd.DataFrame({**numbers, "label": words})


@pytest.mark.parametrize("pair", [False, True])
def test_a_table_is_the_original_but_for_its_labels(tmp_path: Path, pair: bool) -> None:
    whole = table()
    data = (whole[["a", "=b"]], whole["label"]) if pair else whole
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(
        model(2, 3), data, class_names=["cat", "cow", "dog"]
    )
    export_changes(marked(explainer), tmp_path, data=data)
    found = pd.read_csv(tmp_path / "corrected.csv", dtype=str)
    found["a"], found["=b"] = found["a"].map(float), found["=b"].map(int)  # by Python, to the last digit
    wanted = whole.copy()
    wanted.loc[list(NEW), "label"] = list(NEW.values())
    pd.testing.assert_frame_equal(
        found, wanted.drop(index=GONE).reset_index(drop=True), check_dtype=False, check_exact=True
    )
    assert whole.equals(table()), "the original is unchanged"

    with open(tmp_path / "changes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["index"], row["action"], row["old_label"], row["new_label"]) for row in rows] == [
        ("0", "flag", "cat", ""), ("1", "remove", "dog", ""), ("2", "relabel", "cow", "cat"),
        ("4", "remove", "dog", ""), ("7", "relabel", "cow", "dog"),
    ]  # fmt: skip
    assert (rows[1]["why"], rows[1]["who"]) == ("'=cmd()", "Ada")
    indices = json.loads((tmp_path / "indices.json").read_text())
    names = list(explainer.class_names_)
    assert indices["remove"] == GONE
    assert indices["relabel"] == {str(i): names.index(word) for i, word in NEW.items()}


def test_a_dataset_of_hugging_face_keeps_its_features(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    n = 12
    features = datasets.Features(
        {
            "label": datasets.ClassLabel(names=["cat", "cow", "dog"]),
            "x": datasets.Sequence(datasets.Value("float32"), length=2),
        }
    )
    x = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    labels = [{"cat": 0, "dog": 2, "cow": 1}[word] for word in table(n)["label"]]
    data = datasets.Dataset.from_dict({"label": labels, "x": x.tolist()}, features=features)

    def collate(items: list[Any]) -> Any:
        return torch.tensor([item["x"] for item in items]), torch.tensor([item["label"] for item in items])

    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model(2, 3), data, collate_fn=collate)
    export_changes(marked(explainer), tmp_path)
    found = datasets.load_from_disk(str(tmp_path / "corrected"))
    assert found.features == features
    keep = [i for i in range(n) if i not in GONE]
    assert np.array_equal(np.array(found["x"][:], np.float32), x[keep])
    corrected = {2: 0, 7: 2}
    assert list(found["label"][:]) == [corrected.get(i, labels[i]) for i in keep]


def test_files_of_images_are_moved_and_moved_back(tmp_path: Path) -> None:
    root, rng = tmp_path / "photos", np.random.default_rng(0)
    for place in range(12):
        name = ("cat", "cow", "dog")[place // 4]
        (root / name).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (4, 4, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(root / name / f"{place % 4}, =.png")

    def prepare(images: list[Any]) -> torch.Tensor:
        return torch.stack([torch.from_numpy(np.asarray(image, np.float32).copy()) for image in images])

    network = nn.Sequential(nn.Flatten(), *model(48, 3))
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(network, str(root), preprocess=prepare)
    project = Project.of(explainer)
    project.work.add("remove", [1])
    project.work.add("relabel", [0, 8], label=1)
    out = tmp_path / "out"
    export_changes(project, out)
    before = {path: path.read_bytes() for path in sorted(root.rglob("*.png"))}

    def run(*options: str) -> Any:
        command = [sys.executable, str(out / "apply_moves.py"), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "would be moved" in run().stdout
    assert sorted(root.rglob("*.png")) == list(before)
    assert run("--apply").returncode == 0
    moved = {"cow/0, =-2.png": "cat/0, =.png", "cow/0, =-3.png": "dog/0, =.png"}
    for new, old in moved.items():
        assert (root / new).read_bytes() == before[root / old]
    assert (tmp_path / "photos_removed" / "cat" / "1, =.png").read_bytes() == before[root / "cat/1, =.png"]
    assert not (root / "cat" / "1, =.png").exists()
    assert run("--apply").returncode != 0, "not twice"
    assert run("--undo").returncode == 0
    assert {path: path.read_bytes() for path in sorted(root.rglob("*.png"))} == before


def test_retraining_runs_as_written(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """With a training whose accuracy counts what it was given."""
    (tmp_path / "mine_of_export.py").write_text(
        "import torch\n"
        "x = torch.eye(3).repeat(4, 1)\n"
        "def data(): return x, torch.tensor([0, 1, 2] * 3 + [1, 1, 2])\n"  # sample 9 should be 0
        "def test(): return torch.eye(3), torch.arange(3)\n"
        "def model():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))\n"
        "def train(data, seed):\n"
        "    right = all(int(y) == int(x.argmax()) for x, y in data)\n"
        "    net = torch.nn.Linear(3, 3, bias=False)\n"
        "    net.weight.data = torch.eye(3) if right else -torch.eye(3)\n"
        "    return net\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine, path = importlib.import_module("mine_of_export"), tmp_path / "x.whence"
    whence.DualDA(C=0.1, show_progress=False).fit(mine.model(), mine.data()).save(path)
    Configuration(*(f"mine_of_export:{name}" for name in ("model", "data", "test"))).write(path)
    project = Project.open(path, trust=True, show_progress=False)
    project.work.add("relabel", [9], label=0)
    project.work.add("remove", [2])
    for options in (["--train", "mine_of_export:train"], []):
        out = tmp_path / f"out{len(options)}"
        done = CliRunner().invoke(app, ["export", str(path), "--trust", "--out", str(out), *options])
        assert done.exit_code == 0, done.output
        assert "1 sample removed, 1 relabelled" in done.output
        runpy.run_path(str(out / "retrain.py"), run_name="__main__")
        printed = capsys.readouterr().out
        assert "12 samples before, 11 after" in printed
        assert "standard deviation over 3 seeds" in printed
    figures = json.loads((tmp_path / "out2" / "retrain.json").read_text())
    assert (figures["before"], figures["after"], figures["gain"]) == ([0.0] * 3, [1.0] * 3, [1.0] * 3)


def test_other_data_are_written_as_indices(tmp_path: Path) -> None:
    project = picture_project()
    project.work.add("remove", "0-4")
    written = {path.name for path in export_changes(project, tmp_path)}
    assert written == {"changes.csv", "indices.json", "retrain.py"}
    assert json.loads((tmp_path / "indices.json").read_text())["n_train"] == N
    assert f"{NAMES[0]}," in (tmp_path / "changes.csv").read_text()


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="module:function"):
        export_changes(picture_project(), tmp_path, train="train")
    with pytest.raises(InvalidInputError, match="'data' must be the training set"):
        export_changes(picture_project(), tmp_path, data=table())
    assert not list(tmp_path.iterdir())
