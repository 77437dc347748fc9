"""Imports point one way, and importing whence stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import whence

ROOT = Path(whence.__file__).parent

# Rooms from the bottom of the house to the top. A module may import from its own room and from rooms below.
ROOMS = [
    {"errors"},
    {"core"},
    {"engine"},
    {"svm"},
    {"tasks"},
    {"data"},
    {"model"},
    {"features"},
    {"relevance"},
    {"pages"},
    {"explanation"},
    {"surrogate"},
    {"gradients"},
    {"attribution"},
    {"methods"},
    {"metrics", "sample", "audit"},
    {"interop"},
    {"project"},
    {"ui"},
    {"app"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def room_of(module: str) -> str | None:
    """The room of a dotted name in whence; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports from whence, relative ones resolved."""
    package = ["whence", *path.relative_to(ROOT).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # ``from whence import store`` names a module; ``from whence import DualDA`` the package itself.
            found |= {f"{module}.{alias.name}" if module == "whence" else module for alias in node.names}
    return {name for name in found if name == "whence" or name.startswith("whence.")}


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_up_the_list(path: Path) -> None:
    relative = path.relative_to(ROOT)
    own = relative.parts[0].removesuffix(".py")
    assert own in LEVEL, f"{relative} is in a room that no rule covers: add it to ROOMS"
    for name in imported(path):
        other = room_of(name)
        if other in LEVEL:
            assert LEVEL[other] <= LEVEL[own], f"{relative} imports {name}, which lies above it"
            assert LEVEL[other] < LEVEL[own] or other == own, f"{relative} imports {name} next to it"
        else:
            # The public names sit above everything but the command line and the page.
            assert LEVEL[own] >= LEVEL["ui"], f"{relative} imports the public package: {name}"


def test_svm_knows_only_arrays() -> None:
    for path in (ROOT / "svm").rglob("*.py"):
        names = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert "torch" not in names, path
        assert {room_of(name) for name in imported(path)} <= {"svm", "errors", "core"}, path


def test_the_check_sees_every_form_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "svm" / "bad.py"
    path.parent.mkdir()
    path.write_text(
        "import whence.app.cli\nfrom whence import ui\nfrom ..data import x\n"
        "from . import solve\nimport torch\n"
    )
    assert imported(path) == {"whence.app.cli", "whence.ui", "whence.data", "whence.svm"}


def test_importing_whence_is_light() -> None:
    code = """
import sys
import whence, whence.app.cli
assert not {"torch", "numba", "scipy"} & set(sys.modules), "the command line must start at once"
import numba.core.dispatcher as dispatcher
compiled = []
original = dispatcher.Dispatcher.compile
dispatcher.Dispatcher.compile = lambda self, sig: (compiled.append(self), original(self, sig))[1]
whence.DualDA
names = "matplotlib pydantic transformers peft datasets PIL ray fastapi sklearn"
heavy = set(names.split()) & set(sys.modules)
assert not heavy, heavy
assert not compiled, compiled
print(whence.__version__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == whence.__version__
