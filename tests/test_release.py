"""What a release says of itself in several places is the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import whence

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return dict(tomllib.loads(text("pyproject.toml"))["project"])


def test_the_version_is_the_same_everywhere(project: dict[str, Any]) -> None:
    assert project["dynamic"] == ["version"]
    assert re.search(r"^version: (.+)$", text("CITATION.cff"), re.MULTILINE)[1] == whence.__version__
    headings = re.findall(r"^## \[(.+?)\]", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[:2] == ["Unreleased", whence.__version__]


def test_the_description_stands_alone(project: dict[str, Any]) -> None:
    """An index of packages shows neither images nor files of the repository."""
    targets = re.findall(r"\]\(([^)]*)\)", text(project["readme"]))
    assert all(target.startswith("https://arxiv.org/") for target in targets)
    # What it shares with the README is the same there.
    table = [line for line in text(project["readme"]).splitlines() if line.startswith("| ")]
    for line in table[1:]:
        assert line.removesuffix(" |") in text("README.md"), line


def test_extras_that_run_commands_install_the_app(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    for name in ("evaluate", "docs"):
        assert any(re.match(r"whence\[.*\bapp\b", one) for one in extras[name]), name
    plain = {re.split("[<>=]", one)[0] for one in (*project["dependencies"], *extras["app"])}
    assert {"matplotlib", "typer", "rich", "fastapi", "uvicorn"} <= plain
    assert project["scripts"]["whence"] == "whence.__main__:main"


def test_no_page_names_an_address_that_does_not_exist() -> None:
    pages = [
        ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "DESCRIPTION.md")
    ]
    for page in [
        *pages,
        *sorted((ROOT / ".github").rglob("*.md")),
        *sorted((ROOT / ".github").rglob("*.yml")),
    ]:
        assert not re.search(r"[\w.]+@[\w-]+\.\w|example\.(com|org)", page.read_text(encoding="utf-8")), page
