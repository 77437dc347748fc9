"""Things that a user names as ``module:name``."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.core import naming


def test_a_broken_import_in_the_users_module_is_shown_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.py").write_text("import not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        naming.make_named("model", "other:x")
