"""An adapter whose library is missing says what to install; a name that there is none of is an error."""

from __future__ import annotations

import sys

import pytest

from whence import interop
from whence.errors import InvalidInputError


@pytest.mark.parametrize(
    ("name", "package", "command"),
    [
        ("CaptumInfluence", "captum", "pip install captum"),
        ("QuandaExplainer", "quanda", "pip install quanda"),
        ("add_to_datalab", "cleanlab", r"pip install 'cleanlab\[datalab\]'"),
    ],
)
def test_what_is_missing_is_named(
    name: str, package: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.influence", None)
    monkeypatch.delitem(sys.modules, f"whence.interop.{package}", raising=False)
    with pytest.raises(InvalidInputError, match=f"{name} needs {package}.*{command}"):
        getattr(interop, name)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = interop.nothing
