"""What commands do that read a saved explainer: open it, and read tests and classes that a user names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whence.app.telling import show_progress
from whence.errors import InvalidInputError
from whence.project import Project
from whence.tasks import Task


@dataclass(frozen=True)
class Saved:
    """A saved explainer, and what the user names in the place of what its configuration does."""

    path: Path
    trust: bool
    model: str | None
    data: str | None
    test: str | None
    preprocess: str | None

    def open(self) -> Project:
        """Read it with its model, data and tests, which takes time: what can be checked is, before."""
        names = {"model": self.model, "data": self.data, "test": self.test, "preprocess": self.preprocess}
        return Project.open(self.path, trust=self.trust, show_progress=show_progress(), **names)


def places(text: str, project: Project) -> list[int]:
    """Read a list of test samples such as ``0,4-7``, or raise."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            found += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise InvalidInputError(f"'tests' must be a list such as 0,4-7. Got {text!r}.") from None
    if not found:
        raise InvalidInputError(f"'tests' must name at least one test sample. Got {text!r}.")
    return project.check_tests(found)


def as_class(text: str | None, task: Task) -> int | None:
    """Read a class by its number or its name, or raise."""
    if text is None:
        return None
    names = task.names or ()
    if text in names:
        return names.index(text)
    if text.isdigit() and int(text) < task.n_outputs:
        return int(text)
    known = ", ".join(names) or f"0 … {task.n_outputs - 1}"
    raise InvalidInputError(f"'target' must be a class: {known}. Got {text!r}.")
