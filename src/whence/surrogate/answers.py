"""The last answers of a linear operator, kept by what was asked."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Answers:
    """Keeps the rows that were computed last, by key, for several threads.

    Parameters
    ----------
    nbytes : maximum size of all rows

    Examples
    --------
    >>> answers = Answers(1 << 20)
    >>> answers([b"a", b"b"], lambda missing: torch.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    >>> answers([b"b", b"c"], lambda missing: torch.tensor([[3.0]])).tolist()
    [[2.0], [3.0]]
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes, self._lock = nbytes, threading.Lock()
        self._rows: OrderedDict[bytes, Tensor] = OrderedDict()

    def __call__(self, keys: Sequence[bytes], compute: Callable[[list[int]], Tensor]) -> Tensor:
        """Return a row per key; ``compute`` makes those at the given places of ``keys``."""
        with self._lock:
            known = {key: self._rows[key] for key in keys if key in self._rows}
        missing = [place for place, key in enumerate(keys) if key not in known]
        made = compute(missing) if missing else None
        if made is not None and len(missing) == len(keys):
            rows = made
        else:
            new = {} if made is None else dict(zip(missing, made, strict=True))
            rows = torch.stack([new[place] if place in new else known[key] for place, key in enumerate(keys)])
        self._keep(keys, rows)
        return rows

    def _keep(self, keys: Sequence[bytes], rows: Tensor) -> None:
        """Keep the last rows that fit, as copies, since a row of a batch would keep the whole batch."""
        if not len(rows):
            return
        fitting = self._nbytes // max(1, rows[0].nbytes)
        with self._lock:
            for key, row in list(zip(keys, rows, strict=True))[-fitting:] if fitting else ():
                if key not in self._rows:
                    self._rows[key] = row.clone()
                self._rows.move_to_end(key)
            while len(self._rows) > fitting:
                self._rows.popitem(last=False)
