"""What ``whence serve`` does: show all test samples on a page of this machine."""

from __future__ import annotations

from whence.app.opening import Saved
from whence.app.telling import say
from whence.ui.explorer import Explorer
from whence.ui.server import listen, serve

_BUDGET = 60.0  # seconds of the solver that a visitor waits for, when effects are first asked for


def run(saved: Saved, host: str, port: int, token: str | None) -> None:
    """Serve until interrupted, at an address that is taken before the explainer is read."""
    with listen(host, port, token) as listener:
        serve(Explorer(saved.open(), _BUDGET), listener, token, say)
