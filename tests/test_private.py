"""No module reads the private names of another: what rooms need of each other is public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import whence

ROOT = Path(whence.__file__).parent

# Names of others that have an underscore and are read all the same, and why.
ALLOWED = {
    "_asdict": "documented: of a NamedTuple",
    "_fields": "documented: of a NamedTuple",
    "_replace": "documented: of a NamedTuple",
    "_exit": "documented: of os",
    "_forward_cls": "the function behind a node of torch's graph; torch has no other name for it",
    "_version": "of a tensor, counts writes into it: named in torch's notes on autograd",
    "_is_view": "of a tensor, which has no other way to tell",
    "_modules": "of nn.Module: children that are None and children twice are in no public list",
    "_compiled_call_impl": "of nn.Module, by which alone compiled parts are known",
    "_C": "torch's module of compiled functions, where some functions are found only",
    "_nn": "likewise",
    "_whence_tag": "whence's own, on a tensor that is torch's",
}


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in ALLOWED


def own_names(tree: ast.Module) -> set[str]:
    """Names that a module has itself: functions, classes, variables, and attributes of ``self``.

    What a class has of its base is its own too, also on another object of the class.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.expr) -> bool:
    """Whether an expression is the object or class that a method belongs to, or its ``super()``."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def attribute(node: ast.AST) -> tuple[ast.expr, str] | None:
    """Find of what a node reads which attribute: by a dot, or by ``getattr`` and its like."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
        return None
    of, name = node.args[:2]
    by_name = node.func.id in ("getattr", "setattr", "hasattr", "delattr")
    return (of, str(name.value)) if by_name and isinstance(name, ast.Constant) else None


def private_reads(source: str) -> Iterator[tuple[int, str]]:
    """Return line and name of everything private that a module takes from elsewhere."""
    tree = ast.parse(source)
    own = own_names(tree)
    for node in ast.walk(tree):
        read = attribute(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [*(getattr(node, "module", None) or "").split(".")]
            names += [part for alias in node.names for part in alias.name.split(".")]
            yield from ((node.lineno, name) for name in names if is_private(name))
        elif read is not None and is_private(read[1]) and not is_self(read[0]) and read[1] not in own:
            assert isinstance(node, ast.expr)
            yield node.lineno, read[1]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_name_of_another_module_is_read(path: Path) -> None:
    found = [f"line {line}: {name}" for line, name in private_reads(path.read_text(encoding="utf-8"))]
    assert not found, f"{path.relative_to(ROOT)} reads what is private elsewhere: {', '.join(found)}"


def test_the_check_sees_every_form_of_reading() -> None:
    bad = """
import torch._dynamo
from whence.core import _hidden
from whence.svm._inner import solve
def f(other):
    getattr(other, "_one")
    other.public._two = other._three()
"""
    names = ["_dynamo", "_hidden", "_inner", "_one", "_two", "_three"]
    assert sorted(private_reads(bad)) == sorted(zip([2, 3, 4, 6, 7, 7], names, strict=True))
    good = """
class A(B):
    def __init__(self):
        self._mine, self.__dunder__ = 1, super()._theirs()
    def like(self, other):
        return self._mine == other._mine and _here(other._replace(x=1))
def _here(_): pass
"""
    assert list(private_reads(good)) == []
