"""Registries are open: what a user adds is found like what whence has."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence
from tests.helpers.registered import forgetting
from whence.core import naming
from whence.core.registry import Registry
from whence.errors import InvalidInputError


class Fruit:
    name = ""


class Apple(Fruit):
    name = "apple"


@pytest.fixture
def fruits():
    with forgetting():
        registry: Registry[type[Fruit]] = Registry(
            "fruit",
            lambda thing: isinstance(thing, type) and issubclass(thing, Fruit),
            lambda kind: kind.name,
        )
        yield registry


def test_what_is_registered_is_found_by_its_name(fruits) -> None:
    assert whence.register(Apple) is Apple
    assert fruits.get("apple") is Apple
    assert fruits.names() == ["apple"]
    assert list(fruits) == [Apple]
    assert "apple" in fruits
    assert "pear" not in fruits


def test_a_module_of_the_working_folder_is_found(fruits, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orchard_of_mine.py").write_text(
        "from tests.core.test_registry import Fruit\nclass Pear(Fruit):\n    name = 'pear'\nword = 'x'\n"
    )
    assert fruits.get("orchard_of_mine:Pear").name == "pear"
    with pytest.raises(InvalidInputError, match="'name' must name a fruit"):
        fruits.get("orchard_of_mine:word")


def test_an_unknown_name_is_told_what_is_known(fruits) -> None:
    fruits.add(Apple)
    with pytest.raises(InvalidInputError, match=r"must be one of apple, or module:name.*Got 'plum'"):
        fruits.get("plum", "fruit")


def test_a_name_is_taken_once_but_may_be_defined_anew(fruits) -> None:
    fruits.add(Apple)
    fruits.add(type("Apple", (Fruit,), {"name": "apple", "__module__": __name__}))

    class Other(Fruit):
        name = "apple"

    with pytest.raises(InvalidInputError, match=r"must be new\. Got 'apple'"):
        fruits.add(Other)


def test_what_is_of_no_kind_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="must be one of"):
        whence.register(3)


def test_a_broken_import_in_the_users_module_is_shown_as_it_is(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "other.py").write_text("import not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        naming.make_named("model", "other:x")
