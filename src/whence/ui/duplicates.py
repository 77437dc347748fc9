"""The view of near-duplicates: groups of samples that are nearly the same, with their pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.audit import Duplicates
from whence.errors import UnsupportedError
from whence.ui.background import Background
from whence.ui.explorer import Explorer
from whence.ui.requests import Answer
from whence.ui.solved import withheld

_SHOWN = 12  # members of a group with a picture


class Copies:
    """Groups of near-duplicates in an explorer, found once.

    Parameters
    ----------
    explorer : whose samples are compared
    """

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self._work: Background[Duplicates] = Background(lambda: explorer.project.duplicates)

    def search(self) -> Background[Duplicates]:
        """Return the background work that finds them."""
        if (reason := withheld(self.explorer.project).get("duplicates")) is not None:
            raise UnsupportedError(reason)
        return self._work

    def rows(self, offset: int, limit: int) -> Answer:
        """Return a page of groups: leaks first, then those with different labels.

        ``extra`` are the training samples that repeat the first member of their group, a test if it has one,
        without those of groups with different labels, of which ``unclear`` says how many there are.
        """
        found = self.search().result()
        order = np.lexsort((~found.different, ~found.leaks))
        return {
            "total": len(found),
            "leaks": found.n_leaks,
            "different": found.n_different,
            "extra": found.extra(different=False).tolist(),
            "unclear": found.n_different,
            "radius": found.radius,
            "with_tests": not self.explorer.project.from_training,
            "rows": [self._group(found, int(group)) for group in order[offset : offset + limit]],
        }

    def _group(self, found: Duplicates, group: int) -> Answer:
        rows = found.members(group)
        is_test, indices = found.tests[rows], found.indices[rows]
        shown = slice(0, _SHOWN)
        pictures = self._pictures(is_test[shown], indices[shown])
        members = [
            {
                "test": bool(test),
                "index": int(index),
                "label": name,
                "nearest": float(near),
                "sample": picture,
            }
            for test, index, name, near, picture in zip(
                is_test[shown],
                indices[shown],
                found.label_names[rows],
                found.nearest[rows],
                pictures,
                strict=False,
            )
        ]
        return {
            "group": group,
            "size": len(indices),
            "leak": bool(found.leaks[group]),
            "different": bool(found.different[group]),
            "training": indices[~is_test].tolist(),
            "extra": indices[1:][~is_test[1:]].tolist(),
            "members": members,
        }

    def _pictures(self, is_test: Any, indices: Any) -> list[Answer]:
        tests = iter(self.explorer.tests.samples(indices[is_test].tolist()))
        training = iter(self.explorer.training.samples(indices[~is_test].tolist()))
        return [next(tests if test else training) for test in is_test]
