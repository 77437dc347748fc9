"""The number of threads inside a piece of work, on which the last bits of its result can depend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from whence.core.checks import check_count


@contextmanager
def limited(n: int | None) -> Iterator[None]:
    """Let torch and the libraries of linear algebra use ``n`` threads; None leaves them as they are."""
    if n is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    n = check_count("n", n)
    torch: Any = sys.modules.get("torch")  # without torch there are no threads of torch
    before = torch.get_num_threads() if torch else 0
    try:
        with threadpool_limits(limits=n):
            if torch:
                torch.set_num_threads(n)
            yield
    finally:
        if torch:
            torch.set_num_threads(before)
