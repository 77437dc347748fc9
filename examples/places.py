"""Where the examples find data and keep weights."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder(name: str) -> Path:
    """Return the folder of a data set or a published model, below ``WHENCE_DATA``.

    Without that variable it is ``~/.cache/whence/data``.
    """
    folder = Path(os.environ.get("WHENCE_DATA") or "~/.cache/whence/data").expanduser() / name
    if not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}. Set WHENCE_DATA to the folder that holds {name!r}.")
    return folder


def weights(name: str, *, made_by: str | None = None) -> Path:
    """Return the place of trained weights, below ``WHENCE_WEIGHTS`` or the folder ``weights``.

    Parameters
    ----------
    name
        Of a file or a folder.
    made_by
        The command that makes them, for the message when they must be there and are not.
    """
    path = Path(os.environ.get("WHENCE_WEIGHTS") or "weights").expanduser() / name
    if made_by is not None and not path.exists():
        raise SystemExit(f"There are no weights at {path}. Make them with: {made_by}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
