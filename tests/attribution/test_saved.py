"""Saved files are read: those that were written earlier, and those of a user's own method."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import safetensors
import torch
from torch import Tensor, nn

import whence
from tests.helpers.nets import mlp
from tests.helpers.registered import forgetting
from tests.helpers.saved import FOLDER, KNOWN, network
from whence import methods
from whence.attribution.base import METHODS
from whence.attribution.fitted import Fitted, Tests
from whence.core.registry import register
from whence.errors import InvalidInputError, StoreError
from whence.methods import Attributor


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.whence")), ids=lambda path: path.stem)
def test_an_old_file_is_read_and_scores_as_it_did(path: Path) -> None:
    loaded = whence.load(path, model=network())
    scores, own = KNOWN[f"scores.{path.stem}"], KNOWN[f"self.{path.stem}"]
    torch.testing.assert_close(
        torch.as_tensor(loaded.attribute(KNOWN["tests"])), scores, rtol=1e-4, atol=1e-6
    )
    torch.testing.assert_close(torch.as_tensor(loaded.self_influence()), own, rtol=1e-4, atol=1e-6)


def test_an_old_file_explains_with_its_data() -> None:
    loaded = whence.load(FOLDER / "dualda.whence", model=network(), data=(KNOWN["x"], KNOWN["y"]))
    why = loaded.explain(KNOWN["tests"], k=3, relative=False)
    scores = KNOWN["scores.dualda"]
    for row, explanation in zip(scores, why, strict=True):
        best = explanation.proponents[0]
        assert best.score == pytest.approx(float(row.max()), rel=1e-4)


class Counts(Attributor):
    """Scores samples by numbers that are no float32, which it keeps."""

    name = "counts"

    def learn(self, training: Any, **given: Any) -> dict[str, torch.Tensor]:
        n = len(training.labels)
        return {
            "counts": torch.arange(n),
            "even": torch.arange(n) % 2 == 0,
            "half": torch.arange(n).double() / 2,
        }

    def score_tests(self, fitted: Fitted, tests: Tests) -> torch.Tensor:
        kept = fitted.arrays["counts"] * fitted.arrays["even"] + fitted.arrays["half"]
        return kept.expand(len(tests), -1)

    def score_self(self, fitted: Fitted) -> torch.Tensor:
        return fitted.arrays["half"]


class Laid(Counts):
    """Says the shapes too, which are those of floats."""

    name = "laid"

    def _layout(self, classifier: Any) -> dict[str, tuple[int | str, ...]]:
        return dict.fromkeys(("counts", "even", "half"), ("N",))


def test_what_a_method_of_ones_own_keeps_comes_back_whatever_its_kind(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(6, 3), KNOWN["x"]
    with forgetting():
        whence.register(Counts)
        fitted = Counts(show_progress=False).fit(model, (x, KNOWN["y"]))
        fitted.save(tmp_path / "counts.whence")
        back = whence.load(tmp_path / "counts.whence", model)
        assert torch.equal(back.attribute(x), fitted.attribute(x))
        assert back.attribute(x)[0, :4].tolist() == [0, 0.5, 3, 1.5]
    with pytest.raises(
        StoreError, match=r"Laid must keep floats where its _layout.* Got 'counts' of dtype int64"
    ):
        Laid(show_progress=False).fit(model, (x, KNOWN["y"])).save(tmp_path / "laid.whence")


# A method of a user's own: one class, registered from outside, and it does all that ours do


@dataclass(eq=False)
class SameLabel(Attributor):
    """1 for every training sample of the target class, −1 for the others."""

    name: ClassVar[str] = "same-label"

    weight: float = 1.0

    def learn(self, training: Any, **given: Any) -> dict[str, Tensor]:
        return {"signs": self.weight * (2 * nn.functional.one_hot(training.labels, 3).T.float() - 1)}

    def score_tests(self, fitted: Fitted, tests: Tests) -> Tensor:
        return fitted.arrays["signs"][tests.targets]

    def score_self(self, fitted: Fitted) -> Tensor:
        return torch.full((fitted.arrays["signs"].shape[1],), self.weight)


def case() -> tuple[nn.Module, Tensor, Tensor]:
    return mlp(4, 6, 3), torch.randn(12, 4), torch.arange(12) % 3


def test_a_method_is_found_by_module_and_name_without_registration() -> None:
    assert methods.get(f"{__name__}:SameLabel") is SameLabel
    with pytest.raises(InvalidInputError, match=r"must name an attribution method.*a function"):
        methods.get(f"{__name__}:case")


def test_a_registered_method_is_fitted_saved_and_loaded(tmp_path: Path, monkeypatch: Any) -> None:
    model, x, y = case()
    e = SameLabel(2.0, show_progress=False).fit(model, (x, y))
    scores = e.attribute(x[:4], target=1)
    assert torch.equal(scores, torch.where(y == 1, 2.0, -2.0).expand(4, -1))
    assert (y[e.top_k(x[:1], 2, 1).proponents.indices] == 1).all()
    e.save(tmp_path / "own.whence")
    with pytest.raises(StoreError, match=r"'same-label', which is not registered.*whence\.register"):
        whence.load(tmp_path / "own.whence", model)
    monkeypatch.setattr(METHODS, "_things", {method.name: method for method in METHODS})  # until the end
    assert register(SameLabel) is SameLabel
    assert methods.get("same-label") is SameLabel
    assert "same-label" in methods.names()
    back = whence.load(tmp_path / "own.whence", model)
    assert torch.equal(back.attribute(x[:4], target=1), scores)


@pytest.mark.parametrize("form", ["safetensors", "parquet"])
def test_scores_are_read_by_other_programs(form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, y, model = torch.randn(12, 4), torch.arange(12) % 2, torch.nn.Linear(4, 2)
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y), class_names=("no", "yes"))
    names = [f"file {i}.png" for i in range(12)]
    path = explainer.save_scores(tmp_path / f"scores.{form}", x[:3], target="yes", train_ids=names)
    want = explainer.attribute(x[:3], target=1).numpy()
    if form == "safetensors":
        with safetensors.safe_open(path, "numpy") as file:
            about, got, target = file.metadata(), file.get_tensor("scores"), file.get_tensor("target")
        assert json.loads(about["train_ids"]) == names
        assert json.loads(about["test_ids"]) == [0, 1, 2]
        assert target.tolist() == [1, 1, 1]
    else:
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
        about = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
        got = np.zeros((3, 12), np.float32)
        for row in table.to_pylist():
            got[row["test"], names.index(row["train"])] = row["score"]
            assert row["target"] == 1
        assert table.num_rows == np.count_nonzero(want)
    np.testing.assert_array_equal(got, want)
    assert json.loads(about["axes"]) == ["test", "train"]
    assert about["sign"] == "positive supports the target class"
    assert json.loads(about["outputs"]) == ["no", "yes"]
    other = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(4, 2), (x, y))
    again = safetensors.safe_open(other.save_scores(tmp_path / "other.safetensors", x[:1]), "numpy")
    assert about["model"].startswith("sha256:")
    assert again.metadata()["model"] != about["model"]


def test_scores_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    x, y = torch.randn(12, 4), torch.arange(12) % 2
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(4, 2), (x, y))
    with pytest.raises(InvalidInputError, match=r"must end in \.parquet or \.safetensors\. Got 's\.csv'"):
        explainer.save_scores(tmp_path / "s.csv", x)
    with pytest.raises(InvalidInputError, match=r"'train_ids' must be 12 texts or 12 whole numbers.* Got 3"):
        explainer.save_scores(tmp_path / "s.parquet", x, train_ids=["a", "b", "c"])
