"""Count what each package has: files, lines of code, its longest file, and private names read across modules.

Code is what is left without docstrings, comments and blank lines. Run: ``python -m tools.lines [folder]``.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HOME), str(HOME / "src")]

from tests.test_private import private_reads  # noqa: E402

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """The size of a file or of several: lines in all, lines of code, private reads."""

    lines: int
    code: int
    reads: int


def size(path: Path) -> Size:
    """Count one file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    documentation = {number for node in ast.walk(ast.parse(text)) for number in docstring(node)}
    code = [
        number
        for number, line in enumerate(lines, 1)
        if number not in documentation and line.strip() and not line.lstrip().startswith("#")
    ]
    return Size(len(lines), len(code), sum(1 for _ in private_reads(text)))


def docstring(node: ast.AST) -> range:
    """Return the lines of a module's, class's or function's docstring."""
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    return range(0)


def packages(folder: Path) -> dict[str, dict[Path, Size]]:
    """Measure all files by package; a module next to the packages counts as one."""
    sizes: dict[str, dict[Path, Size]] = {}
    for path in sorted(folder.rglob("*.py")):
        package = path.relative_to(folder).parts[0].removesuffix(".py")
        sizes.setdefault(package, {})[path] = size(path)
    return sizes


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HOME / "src" / "whence"
    row = "{:<14}{:>6}{:>8}{:>8}{:>9}  {}"
    print(row.format("package", "files", "lines", "code", "private", "longest file"))
    total: dict[Path, Size] = {}
    for package, files in [*packages(folder).items(), ("all", total)]:
        total |= files
        longest = max(files, key=lambda path: files[path].lines)
        sums = [sum(column) for column in zip(*files.values(), strict=True)]
        where = f"{longest.relative_to(folder)} ({files[longest].lines})"
        print(row.format(package, len(files), *(f"{number:,}" for number in sums), where))


if __name__ == "__main__":
    main()
