"""Compute the reference maps of tests/data/relevance again: ``python -m benchmarks.references [names]``.

Runs in whence's development environment; zennit and lxt get environments of their own under ``--work``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from datetime import date
from pathlib import Path

import torch
import transformers
from tests.helpers.reference_models import FOLDER, SPECS, load_reference
from tqdm import tqdm

from benchmarks.environments import environment
from benchmarks.references.by_hand import differences
from benchmarks.references.cases import make_case, save_case

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
# The last without dependencies: they ask for torchvision, of which the workers supply the names they need.
ENVIRONMENTS = {
    "zennit": ([TORCH], ["numpy", "pillow", "safetensors"], ["--no-deps", "zennit==0.5.1"]),
    "lxt": ([TORCH], ["transformers==4.52.4", "safetensors"], ["--no-deps", "lxt==2.1"]),
}
VARIANTS = {
    "llama": ("attnlrp", "cp", "cp_gate"),
    "gpt2": ("attnlrp", "cp"),
    "bert": ("attnlrp", "cp"),
    "vit": ("attnlrp", "cp"),
    "vit_torch": ("cp",),
}


def work(python: Path, module: str, *arguments: str) -> None:
    """Run a worker in its environment."""
    settings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(python), "-W", "ignore:'zennit'", "-m", f"benchmarks.references.{module}", *arguments]
    subprocess.run(command, check=True, cwd=ROOT, env=settings)


def main() -> None:
    """Remake every case, let the workers add their maps, and report sums and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SPECS, []], help="models; all by default")
    parser.add_argument("--work", type=Path, default=Path("bench-data/references"), help="for environments")
    options = parser.parse_args()
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)

    def python_of(package: str) -> Path:
        return environment(options.work / package, *ENVIRONMENTS[package])

    for name in tqdm(options.names or SPECS, desc="references"):
        provenance = {
            "date": date.today().isoformat(),
            "command": f"python -m benchmarks.references {name}",
            "dtype": "float64 (weights and inputs are values of float32)",
            "case": f"torch {torch.__version__}, transformers {transformers.__version__}",
        }
        save_case(FOLDER / f"{name}.safetensors", make_case(name), provenance)
        if name in VARIANTS:
            for variant in VARIANTS[name]:
                work(python_of("lxt"), "lxt_maps", str(FOLDER), name, variant)
        else:
            work(python_of("zennit"), "zennit_maps", str(FOLDER), name)
    for name in options.names or SPECS:
        report(name)


def report(name: str) -> None:
    """Print each map's sum next to that of R, and the distance of zennit's maps from the form by hand."""
    reference = load_reference(name)
    print(f"{name}: features differ by {reference.metadata['features_differ_by']:.1e} between environments")
    hand = {} if name in VARIANTS else differences(reference)
    for key, value in reference.maps.items():
        sums = zip(value.flatten(1).sum(1).tolist(), reference.relevance.sum(1).tolist(), strict=True)
        text = ", ".join(f"{found:.4f} of {given:.4f}" for found, given in sums)
        print(f"  {key:22} sums {text}" + (f"; by hand {hand[key]:.1e}" if key in hand else ""))


if __name__ == "__main__":
    main()
