"""Write the files that ``tests/attribution/test_saved.py`` reads: ``python -m tests.helpers.saved dualda``.

Only where the format of a method's file has changed since it was written: other files stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.helpers.nets import mlp
from whence import methods

FOLDER = Path(__file__).parents[1] / "data" / "saved"
KNOWN = load_file(FOLDER / "expected.safetensors")
OPTIONS = {"dualda": {"metric": "whitened"}, "effects": {"metric": "raw"}}


def network() -> nn.Module:
    """Return the network of the files."""
    model = mlp(6, 8, 3)
    model.load_state_dict({name[8:]: value for name, value in KNOWN.items() if name.startswith("weights.")})
    return model


def write(name: str) -> dict[str, Tensor]:
    """Fit a method and save it; return its scores and self-influence."""
    method = methods.get(name)(show_progress=False, **OPTIONS.get(name, {}))
    method.fit(network(), (KNOWN["x"], KNOWN["y"])).save(FOLDER / f"{name}.whence")
    return {f"scores.{name}": method.attribute(KNOWN["tests"]), f"self.{name}": method.self_influence()}


if __name__ == "__main__":
    written = {key: value for name in sys.argv[1:] for key, value in write(name).items()}
    save_file(KNOWN | written, FOLDER / "expected.safetensors")
