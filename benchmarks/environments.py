"""Virtual environments for packages that whence's own must not hold."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


def environment(folder: Path, *installs: Sequence[str]) -> Path:
    """Make a virtual environment, unless it is there, and give its interpreter.

    Parameters
    ----------
    folder : where it is made
    installs : arguments of pip, one call after another
    """
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for packages in installs:
            subprocess.run([*install, *packages], check=True)
        done.touch()
    return python.absolute()
