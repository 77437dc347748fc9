"""The manual and the code agree: what is public is documented, and what is documented exists."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools import commands
from typer.main import get_command

import whence
from whence import errors, sample
from whence.app.cli import app
from whence.attribution.fitted import Fitted
from whence.surrogate.surrogate import Surrogate

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("api/*.md"), *DOCS.glob("research/*.md"), ROOT / "README.md"])
PACKAGES = sorted(
    package.name
    for package in pkgutil.iter_modules(whence.__path__)
    if hasattr(importlib.import_module(f"whence.{package.name}"), "__all__")
)
COMMANDS = commands.found(get_command(app))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_of(page: Path) -> Iterator[str]:
    """Return what stands as code on a page: blocks, indented lines and spans, but no directives of Sphinx."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"^```(?!\{)[^\n]*\n(.*?)^```", text, re.M | re.S)
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    yield from re.findall(r"(?:^(?: {4}).*\n?)+", text, re.M)
    yield from re.findall(r"`([^`\n]+)`", text)


def resolve(dotted: str) -> Any:
    """Find what a dotted name stands for, module by module and then attribute by attribute."""
    thing: Any = whence
    for place, part in enumerate(dotted.split(".")[1:], start=2):
        if inspect.ismodule(thing) and not hasattr(thing, part):
            thing = importlib.import_module(".".join(dotted.split(".")[:place]))
        else:
            thing = getattr(thing, part)
    return thing


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def test_every_page_has_its_place_in_the_manual() -> None:
    placed = set()
    for index in (DOCS / "index.md", DOCS / "api" / "index.md"):
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", index.read_text(), re.M | re.S):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            entries = [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
            placed |= {str((index.parent / entry).relative_to(DOCS)) for entry in entries}
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if page.is_relative_to(DOCS)}
    assert placed - {"gallery/index"} == pages - {"index"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_of_a_package_is_in_the_reference(package: str) -> None:
    page = DOCS / "api" / f"{package}.md"
    assert page.is_file(), f"write {name_of(page)}, with an automodule of whence.{package}"
    text = page.read_text()
    if f".. automodule:: whence.{package}\n" in text:  # which lists all of __all__
        left_out = re.search(r":exclude-members: (.*)", text)
        listed = (DOCS / "api" / "whence.md").read_text() + (DOCS / "api" / "methods.md").read_text()
        names = left_out[1].split(", ") if left_out else []
        names = [name for name in names if name not in whence.methods.__all__ or name in whence.__all__]
    else:
        listed, names = text, importlib.import_module(f"whence.{package}").__all__
    missing = [name for name in names if not re.search(rf":: (\w+\.)*{name}$", listed, re.M)]
    assert not missing


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_every_public_name_has_a_docstring(package: str) -> None:
    module = importlib.import_module(f"whence.{package}".rstrip("."))
    for name in module.__all__:
        try:
            thing = getattr(module, name)
        except whence.InvalidInputError:  # an adapter of a library that is not installed
            continue
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        assert inspect.getdoc(thing), f"{module.__name__}.{name}"
        for called, member in vars(thing).items() if inspect.isclass(thing) else ():
            public = not called.startswith("_") and (
                inspect.isfunction(member) or isinstance(member, property)
            )
            assert not public or inspect.getdoc(getattr(thing, called)), f"{module.__name__}.{name}.{called}"


def test_the_first_page_of_the_reference_has_what_importing_whence_gives() -> None:
    text = (DOCS / "api" / "whence.md").read_text()
    listed = set(re.findall(r"^\.\. (?:autoclass|autofunction|data):: (\w+)$", text, re.M))
    assert listed == {name for name in whence.__all__ if not hasattr(errors, name)}


def test_every_error_and_warning_is_documented() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    missing = [kind.__name__ for kind in kinds if f"| `{kind.__name__}` |" not in text]
    assert not missing


def test_every_command_and_option_is_documented() -> None:
    assert (DOCS / "commands.md").read_text() == commands.page(), (
        "python -m tools.commands > docs/commands.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_on_a_page_exist(page: Path) -> None:
    for code in code_of(page):
        for dotted in re.findall(r"(?<![\w./-])(whence(?:\.[A-Za-z_]\w*)+)", code):
            try:
                resolve(dotted)
            except whence.InvalidInputError:  # an adapter of a library that is not installed
                pass
            except (AttributeError, ImportError) as error:
                pytest.fail(f"{name_of(page)} names {dotted}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_an_explainer_has_what_a_page_asks_of_it(page: Path) -> None:
    explainers = whence.DualDA, whence.Effects, whence.Ensemble
    kinds = [kind for explainer in explainers for kind in explainer.__mro__]
    learned = set(re.findall(r"\w+_\b", " ".join(kind.__doc__ or "" for kind in kinds)))
    learned |= {
        f"{name}_" for record in (Fitted, Surrogate) for name in (*dir(record), *record.__annotations__)
    }
    known = {name for kind in kinds for name in vars(kind)} | learned
    for code in code_of(page):
        asked = set(re.findall(r"(?<![\w.])explainer\.([a-z]\w*)", code))
        assert asked <= known, f"{name_of(page)}: {asked - known}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_on_a_page_exist_with_their_options(page: Path) -> None:
    for code in code_of(page):
        for line in re.split(r"[\n;]", code.replace("\\\n", " ")):
            called = re.match(r"\s*(?:\$ )?(whence(?: [a-z]+)+)(.*)", line)
            if not called or called[1] == "whence cache":
                continue
            matching = [name for name in COMMANDS if f"{called[1]} ".startswith(f"{name} ")]
            assert matching, f"{name_of(page)}: {line.strip()}"
            known = {option for param in COMMANDS[matching[0]].params for option in param.opts} | {"--help"}
            used = set(re.findall(r"(?<![\w-])--[a-zA-Z-]+", called[2].split(" #")[0]))
            assert used <= known, f"{name_of(page)}: {line.strip()}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_on_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", page.read_text(), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


def test_the_lines_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sample.load(n_train=200, n_test=20)
    scope: dict[str, Any] = {
        "model": sample.train(data=data, epochs=2, show_progress=False),
        "train_data": (data.train_images, data.train_labels),
        "x": data.test_images[:2],
    }
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", whence.AgreementWarning)
        exec(lines, scope)
    assert scope["why"].explainer.attribute(scope["x"]).shape == (2, 200)
    assert Path("why.html").stat().st_size > 10_000


def test_the_readme_and_the_pages_for_users_are_short() -> None:
    generated = {"commands.md", "messages.md", "architecture.md"}
    limits = {page: 1500 for page in DOCS.glob("*.md") if page.name not in generated}
    limits[ROOT / "README.md"] = 700
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in limits}
    long = {name_of(page): words[page] for page in limits if words[page] > limits[page]}
    assert not long
