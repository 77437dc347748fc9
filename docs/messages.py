"""Every error and warning of whence as the manual lists them: read from the code when it is built."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import whence.errors

HOME = Path(whence.__file__).parent
KINDS = {name for name in vars(whence.errors) if name.endswith(("Error", "Warning"))} | {"StoppedError"}
GAP = "…"


def messages() -> dict[str, list[tuple[str, str]]]:
    """Return the messages by package, with the kind of error; what depends on the call is …."""
    listed: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(HOME.rglob("*.py")):
        package = path.relative_to(HOME).parts[0].removesuffix(".py")
        for kind, text in _raised(ast.parse(path.read_text(encoding="utf-8"))):
            listed.setdefault(package, set()).add((text, kind))
    return {package: sorted(texts, key=_by_words) for package, texts in listed.items()}


def _by_words(message: tuple[str, str]) -> str:
    return re.sub(r"\W", "", message[0]).lower()


def _raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Return the kind and the message of every error that is made, and of every warning."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        texts = [text for text in map(_text, node.args) if text.count(" ") > 2]
        if name == "warn" and texts and len(node.args) > 1:
            yield getattr(node.args[1], "id", "warning"), texts[0]
        elif texts and (name in KINDS or name == "refused"):
            yield "StoreError" if name == "refused" else name, texts[0]


def _text(node: ast.expr) -> str:
    """Return the text of an expression, with … for what is not known before it runs."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else GAP
    parts = [GAP]
    if isinstance(node, ast.JoinedStr):
        parts = [_text(part) for part in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(node.left), _text(node.right)]
    return re.sub(rf"{GAP}[\s{GAP}]*{GAP}", GAP, "".join(parts)).strip()


class Messages(SphinxDirective):
    """The list, one section per package."""

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the list."""
        return [node for package, texts in messages().items() for node in self._listed(package, texts)]

    def _listed(self, package: str, texts: list[tuple[str, str]]) -> list[nodes.Node]:
        listed = nodes.bullet_list()
        for text, kind in texts:
            words = nodes.paragraph("", "", nodes.Text(f"{text} "), nodes.literal("", kind))
            words["support_smartquotes"] = False  # unchanged, so that a search matches
            listed += nodes.list_item("", words)
        return [nodes.rubric("", "", nodes.literal("", package)), listed]
