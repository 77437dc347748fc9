"""Files are written whole or not at all, with the user's own modes and links, and nothing is left behind."""

from __future__ import annotations

import ast
import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests.helpers.explained import explanation
from tests.helpers.lazy import arrays, net
from tests.helpers.tables import Written
from tests.studies.test_page import made
from whence.core import files, store
from whence.core.cache import Cache
from whence.errors import StoreError
from whence.explanation import Explanations
from whence.features import extract
from whence_studies.report import page
from whence_studies.suite import results

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes, links and locks of POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Any:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path, umask: Any, mask: int) -> None:
    umask(mask)
    store.write(tmp_path / "a", {"x": np.ones(3)}, {})
    store.write_text(tmp_path / "b", "text")
    extract(net(), arrays(), cache_dir=tmp_path / "cache", show_progress=False)
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(made) == 6
    assert {mode(path) for path in made} == {0o666 & ~mask}


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, umask: Any) -> None:
    store.write_text(tmp_path / "b", "text")
    (tmp_path / "b").chmod(0o640)
    store.write_text(tmp_path / "b", "other")
    assert mode(tmp_path / "b") == 0o640


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    store.write_text(tmp_path / "far" / "real", "old")
    (tmp_path / "link").symlink_to("far/real")
    store.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "real").read_text() == "new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["real"]


def test_scraps_of_killed_processes_are_swept_and_those_in_use_are_not(tmp_path: Path) -> None:
    dead = tmp_path / f".x.whence.{'0' * 32}.tmp"
    dead.write_bytes(b"half")
    other = tmp_path / f".y.whence.{'1' * 32}.tmp"
    other.write_bytes(b"half")
    mine = tmp_path / ".y.whence.tmp"
    mine.write_bytes(b"of the user")
    with files.replacing(tmp_path / "x.whence") as file:
        assert not dead.exists()
        assert not other.exists()
        (alive,) = tmp_path.glob(".x.whence.*.tmp")
        store.write_text(tmp_path / "x.whence", "another writer")
        assert alive.exists()
        file.write(b"this one")
    assert (tmp_path / "x.whence").read_text() == "this one"
    assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, "x.whence"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_failing_system_is_one_clear_line_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "x.whence"
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(net(), arrays())
    explainer.save(path)
    before = path.read_bytes()
    explainer.C_ = 5.0

    def failing(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreError, match=rf"'{path}' cannot be written \({os.strerror(code)}\)") as raised:
        explainer.save(path)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert explainer.attribute(arrays()[0][:2]).shape == (2, 203)


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(net(), arrays())
    for place in (Path("/proc/x.whence"), tmp_path / "nowhere" / "x.whence", tmp_path):
        with pytest.raises(StoreError, match="cannot be written"):
            explainer.save(place)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_cache_that_cannot_be_written_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    original = os.open

    def refusing(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            raise OSError(code, os.strerror(code), str(path))
        return original(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(StoreError, match=rf"'cache_dir' must be .*{os.strerror(code)}"):
        extract(net(), arrays(), cache_dir=tmp_path, show_progress=False)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_solution_that_cannot_be_kept_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    original = store.write

    def failing(path: Any, *rest: Any) -> None:
        if "solution" in str(path):
            raise StoreError(f"'{path}' cannot be written ({os.strerror(code)}).")
        original(path, *rest)

    monkeypatch.setattr(store, "write", failing)
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(net(), arrays(), cache_dir=tmp_path)
    assert os.strerror(code) in explainer.origins_["solution"]
    expected = whence.DualDA(C=0.1, show_progress=False).fit(net(), arrays())
    np.testing.assert_array_equal(explainer.coef_, expected.coef_)
    assert [entry.kind for entry in Cache(tmp_path).entries()] == ["bank"]


def full_disk(handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda path: Explanations([explanation()]).to_html(path), id="explanation"),
        pytest.param(lambda path: Written({"a": [1, 2]}).to_csv(path), id="csv"),
        pytest.param(lambda path: Written({"a": [1, 2]}).to_parquet(path), id="parquet"),
        pytest.param(lambda path: page.write(path, made()), id="evaluation"),
        pytest.param(lambda path: results.write(path, made()), id="results"),
    ],
)
def test_what_cannot_be_written_leaves_the_users_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], object]
) -> None:
    path = tmp_path / "mine"
    path.write_bytes(b"the old one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(StoreError, match=rf"'{path}' cannot be written \(No space left on device\)"):
            write(path)
    assert path.read_bytes() == b"the old one"
    write(path)
    assert path.read_bytes() not in (b"the old one", b"")
    assert list(tmp_path.iterdir()) == [path]


# Banks grow by rows, locks are empty, and one is a switch of the kernel's.
OTHER_WAYS = {"core/files.py", "features/folder.py", "features/rows.py", "metrics/resources.py"}


def test_every_module_writes_files_in_the_one_way_that_leaves_them_whole() -> None:
    root = Path(whence.__file__).parent
    found = [
        f"{path.relative_to(root)}: {ast.unparse(node)}"
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).as_posix() not in OTHER_WAYS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and writes_by_itself(node)
    ]
    assert found == []


def writes_by_itself(call: ast.Call) -> bool:
    """Whether a call opens the file that it writes, and not writes to the one that ``replacing`` gives."""
    function, arguments = ast.unparse(call.func), [ast.unparse(part) for part in call.args]
    name = function.rpartition(".")[2]
    if name == "open":
        modes = [
            part.value for part in (*call.args, *(k.value for k in call.keywords)) if hasattr(part, "value")
        ]
        return any(str(mode)[:1] in ("w", "x", "a") for mode in modes)
    if name in ("savefig", "write_table") or function in ("np.save", "json.dump", "torch.save"):
        return "file" not in arguments
    return name in ("write_text", "write_bytes", "save_file") and function != "store.write_text"


def test_a_pipe_or_a_device_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        store.write_text(path, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]
