"""Files that were saved before the house was rebuilt are read, and give the scores that they gave."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import whence

FOLDER = Path(__file__).parents[1] / "data" / "saved"
KNOWN = load_file(FOLDER / "expected.safetensors")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.whence")), ids=lambda path: path.stem)
def test_an_old_file_is_read_and_scores_as_it_did(path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    model.load_state_dict({name[8:]: value for name, value in KNOWN.items() if name.startswith("weights.")})
    loaded = whence.load(path, model=model)
    scores, own = KNOWN[f"scores.{path.stem}"], KNOWN[f"self.{path.stem}"]
    torch.testing.assert_close(
        torch.as_tensor(loaded.attribute(KNOWN["tests"])), scores, rtol=1e-4, atol=1e-6
    )
    torch.testing.assert_close(torch.as_tensor(loaded.self_influence()), own, rtol=1e-4, atol=1e-6)


def test_an_old_file_explains_with_its_data() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    model.load_state_dict({name[8:]: value for name, value in KNOWN.items() if name.startswith("weights.")})
    loaded = whence.load(FOLDER / "dualda.whence", model=model, data=(KNOWN["x"], KNOWN["y"]))
    why = loaded.explain(KNOWN["tests"], k=3)
    scores = KNOWN["scores.dualda"]
    for row, explanation in zip(scores, why, strict=True):
        best = explanation.proponents[0]
        assert best.score == pytest.approx(float(row.max()), rel=1e-4)
