"""Measure the size and shape of the package: ``python -m tools.size [folder of src/whence]``.

Prints one line per figure: lines and files, deepest class, public names of a fitted DualDA, modules that the
smallest method loads, isinstance checks on methods and tasks, class names used twice, CPU-seconds to import
DualDA beyond torch, and lines of tests.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
KINDS = {
    "Attributor", "DualDA", "Effects", "Ensemble", "OneClass", "Task", "Classes", "OneLogit", "Tokens",
    "ManyLabels", "Regression",
}  # fmt: skip
"""Classes of methods and tasks, besides those whose name ends in "Attributor"."""

IMPORT = """
import resource, torch
def cpu(): return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
before = cpu()
import whence
whence.DualDA
print(cpu() - before)
"""
LOADED = """
import sys, importlib, pkgutil, whence
package = "methods" if "methods" in {m.name for m in pkgutil.iter_modules(whence.__path__)} else "attributors"
importlib.import_module(f"whence.{package}.similarity")
print(sum(name.split(".")[0] == "whence" for name in sys.modules))
"""
NAMES = """
import torch, whence
x, y = torch.randn(40, 3), torch.arange(40) % 2
explainer = whence.DualDA(C=0.1, show_progress=False).fit(torch.nn.Linear(3, 2), (x, y))
print(sum(not name.startswith("_") for name in dir(explainer)))
"""


def trees(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module below a folder with its syntax tree."""
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def lines(folder: Path) -> int:
    """Count the lines of all modules below a folder."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def classes(folder: Path) -> list[tuple[str, list[str]]]:
    """List the classes below a folder, each with the names of its bases."""
    return [
        (node.name, [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases])
        for _, tree in trees(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]


def deepest(found: list[tuple[str, list[str]]]) -> tuple[int, str]:
    """Return the depth of the deepest class, bases outside of the package not counted, and its name."""
    bases = dict(found)

    def depth(name: str, above: tuple[str, ...] = ()) -> int:
        if name not in bases or name in above:
            return 0
        return 1 + max((depth(base, (*above, name)) for base in bases[name]), default=0)

    return max((depth(name), name) for name in bases)


def kind_checks(folder: Path) -> list[str]:
    """List the places of isinstance checks on methods or tasks."""
    found = []
    for path, tree in trees(folder):
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")):
                continue
            names = {
                part.split(".")[-1].strip(" ()")
                for part in ast.unparse(node.args[1]).replace(",", "|").split("|")
            }
            if names & KINDS or any(name.endswith("Attributor") for name in names):
                found.append(f"{path.relative_to(folder)}:{node.lineno}")
    return found


def run(code: str, source: Path) -> str:
    """Run code with the package below ``source``, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HOME / "src" / "whence"
    found = classes(folder)
    twice = [name for name, count in Counter(name for name, _ in found).items() if count > 1]
    depth, name = deepest(found)
    checks = kind_checks(folder)
    seconds = min(float(run(IMPORT, folder.parent)) for _ in range(3))
    rows = {
        "lines in src/whence": f"{lines(folder):,}",
        "files in src/whence": f"{len(list(folder.rglob('*.py'))):,}",
        "deepest class": f"{depth} ({name})",
        "public names of a fitted DualDA": run(NAMES, folder.parent),
        "modules loaded by similarity": run(LOADED, folder.parent),
        "isinstance on methods or tasks": f"{len(checks)} {' '.join(checks[:5])}",
        "class names used twice": f"{len(twice)} {' '.join(twice[:8])}",
        "CPU-seconds to import DualDA beyond torch": f"{seconds:.2f}",
        "lines in tests": f"{lines(folder.parents[1] / 'tests'):,}",
    }
    for what, value in rows.items():
        print(f"{what:<44}{value}")


if __name__ == "__main__":
    main()
