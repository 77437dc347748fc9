import os
from pathlib import Path

import pytest

from tests.helpers.trap import avoid_trap

# Nets this small lose by a second thread, which spins while it waits: the suite took twice the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray, where it is installed, listens to this machine alone, which it reads at its import, tells nobody, and
# has workers that do not stand back behind everything else that runs here.
for setting in ("ENABLE_WINDOWS_OR_OSX_CLUSTER", "USAGE_STATS_ENABLED", "worker_niceness"):
    os.environ[f"RAY_{setting}"] = "0"
avoid_trap()  # before torch is imported

from tests.helpers import commands  # noqa: E402


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's module, to work in."""
    return commands.place_of(tmp_path, monkeypatch)


@pytest.fixture
def fitted(place: Path) -> Path:
    """That folder with an explainer too, fitted by the command line."""
    commands.run("fit", *commands.NAMED, "--C", "0.1", "--out", "x.whence")
    return place
