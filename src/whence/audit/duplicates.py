"""Near-duplicates: samples that are nearly the same, within the training set and between it and tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from whence.attribution.training_features import training_features
from whence.audit.access import (
    Table,
    capabilities_of,
    check_ids,
    check_no_documents,
    chosen_ids,
    features_of,
    markdown,
    unsupported,
)
from whence.core.arrays import Array, Doubles, Ints, Mask
from whence.core.checks import check_count, check_flag, check_that, to_array
from whence.core.display import Columns, counted, displayed
from whence.core.progress import report, watched
from whence.errors import InvalidInputError

RADIUS = 0.3
"""Near-duplicates are nearer than this share of the distance to the tenth neighbour."""
_NEIGHBOURS = 10
_FLOOR = 0.1  # of the median distance to the tenth neighbour: the least a sample's own counts as
_BLOCK = 1 << 22  # distances held at a time


@displayed("n_groups", "n_leaks", "n_different", "n_extra", "radius", rows="columns")
@dataclass(frozen=True, eq=False)
class Duplicates(Table):
    """Groups of samples that are nearly the same: those with different labels first, then those with tests.

    Attributes
    ----------
    groups : (m,) the group of each member, from 0; the rows of a group follow each other, tests first
    indices : (m,) indices in the training set or, where ``tests`` is True, of tests
    tests : (m,) whether a member is a test
    labels : (m, …) their labels; blank for tests whose labels were not passed
    label_names : their labels in words; empty where not known
    nearest : (m,) distance to the nearest other member, as a share of the distance to the tenth neighbour
    different : (n_groups,) whether a group has different labels
    leaks : (n_groups,) whether a group has tests and training samples
    radius : the share up to which samples are near-duplicates
    ids : the user's ids of training samples, None for tests; or None
    """

    groups: Ints
    indices: Ints
    tests: Mask
    labels: Array
    label_names: tuple[str, ...]
    nearest: Doubles
    different: Mask
    leaks: Mask
    radius: float
    ids: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.different)

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return len(self)

    @property
    def n_leaks(self) -> int:
        """The number of groups with tests."""
        return int(self.leaks.sum())

    @property
    def n_different(self) -> int:
        """The number of groups with different labels."""
        return int(self.different.sum())

    @property
    def n_extra(self) -> int:
        """The number of training samples that repeat another sample."""
        return len(self.extra())

    def extra(self, *, different: bool = True) -> Ints:
        """Return the training samples that repeat the first member of their group, a test if it has one.

        Without them the training set has one of each, and none of the tests. ``different=False`` leaves out
        groups with different labels, which need a look first.
        """
        check_flag("different", different)
        wanted = ~self.tests
        wanted[np.searchsorted(self.groups, np.arange(len(self)))] = False
        return np.sort(self.indices[wanted if different else wanted & ~self.different[self.groups]])

    def members(self, group: int) -> slice:
        """Return the rows of a group."""
        group = check_count("group", group, 0, len(self) - 1)
        start, stop = np.searchsorted(self.groups, [group, group + 1])
        return slice(int(start), int(stop))

    @property
    def summary(self) -> str:
        """What was found, in a sentence."""
        if not len(self):
            return "Nothing found: no two samples are nearly the same."
        return (
            f"{counted(len(self), 'group')} of near-duplicates: {self.n_different:,} with different labels, "
            f"{self.n_leaks:,} with tests. {counted(self.n_extra, 'training sample')} repeat others."
        )

    def columns(self) -> Columns:
        """Return one row per member as columns of plain values."""
        return {
            "group": self.groups.tolist(),
            "set": ["test" if is_test else "train" for is_test in self.tests],
            "index": self.indices.tolist(),
            **self._id_column(),
            "label": list(self.label_names),
            "nearest": self.nearest.tolist(),
            "different_labels": self.different[self.groups].tolist(),
            "leak": self.leaks[self.groups].tolist(),
        }

    def __str__(self) -> str:
        """Write what was found, and the first ten groups as a table in Markdown."""
        rows = []
        for group in range(min(10, len(self))):
            own = self.members(group)
            shown = [self._name(i) for i in range(own.start, min(own.stop, own.start + 6))]
            more = own.stop - own.start - len(shown)
            labels = ", ".join(dict.fromkeys(name for name in self.label_names[own] if name))
            why = [word for word, on in (("labels", self.different), ("leak", self.leaks)) if on[group]]
            rows.append((group, ", ".join(shown) + f" and {more} more" * bool(more), labels, ", ".join(why)))
        if not rows:
            return self.summary
        return f"{self.summary}\n\n" + markdown(("group", "samples", "labels", "look at"), rows)

    def _name(self, row: int) -> str:
        if self.tests[row]:
            return f"test {self.indices[row]}"
        return str(self.indices[row] if self.ids is None else self.ids[row])


class _Near(NamedTuple):
    """Pairs of rows (p,) that are near each other, with their distances (p,) as shares of the tenth's."""

    one: Ints
    other: Ints
    shares: Doubles


def duplicates(
    explainer: Any,
    tests: Any = None,
    *,
    test_features: Any = None,
    test_labels: Any = None,
    features: Any = None,
    radius: float = RADIUS,
    ids: Sequence[Any] | None = None,
) -> Duplicates:
    """Find samples that are nearly the same, within the training set and between it and tests.

    Two samples are near-duplicates if their distance, of features as the explainer's metric reads them, is at
    most ``radius`` times the distance of either to its tenth nearest training sample. The rule has no units,
    and is stricter where samples are close together anyway. Near-duplicates are joined into groups.

    Copies and light noise are found. A shift or another brightness is found as far as the model's features
    ignore it; see docs/research/audit.md.

    Parameters
    ----------
    explainer
        A fitted DualDA or Effects, of any task.
    tests
        Test inputs, as for ``explainer.attribute``. A test that is also a training sample is a leak: the
        test's accuracy says little. None compares training samples alone.
    test_features
        Features (B, d) of tests, instead of ``tests``.
    test_labels
        Labels of the tests, one per test.
    features
        Features (N, d) of the training set, as for ``wrong_labels``.
    radius
        Above 0 and below 1. Larger values find more, and more that only look alike.
    ids
        One id per training sample, for the export.

    Examples
    --------
    >>> import numpy as np, whence
    >>> rng = np.random.default_rng(0)
    >>> f, y = rng.normal(size=(60, 5)), np.arange(60) % 3
    >>> f[41] = f[7]  # the same sample with another label
    >>> bank = whence.features.FeatureBank.of(f, y)
    >>> explainer = whence.DualDA(C=0.1, show_progress=False).fit(features=bank)
    >>> found = whence.audit.duplicates(explainer, test_features=f[[5]], test_labels=[2])
    >>> print(found)
    2 groups of near-duplicates: 1 with different labels, 1 with tests. 2 training samples repeat others.
    <BLANKLINE>
    | group | samples | labels | look at |
    |---|---|---|---|
    | 0 | 7, 41 | 1, 2 | labels |
    | 1 | test 0, 5 | 2 | leak |
    """
    can = capabilities_of(explainer)
    if can.members or not can.explains:
        raise unsupported(explainer, "a fitted DualDA, or another that explains by features")
    check_no_documents(explainer)
    check_that(
        isinstance(radius, int | float) and 0 < radius < 1,
        "radius",
        "be a number above 0 and below 1",
        radius,
    )
    check_ids(ids, explainer.n_train_)
    with_tests = tests is not None or test_features is not None
    check_that(with_tests or test_labels is None, "test_labels", "be None without tests", test_labels)
    if test_features is not None:
        test_features = to_array("test_features", test_features)
        check_that(test_features.ndim == 2, "test_features", "have shape (B, d)", test_features.shape)
    fitted, metric = explainer.fitted_, explainer.surrogate_.metric
    X = metric.rows(training_features(fitted, features))
    places = np.flatnonzero(explainer.used_)
    rows = torch.from_numpy(np.asarray(X))
    parts = [rows]
    if with_tests:
        read = features_of(explainer, tests, test_features)[1]
        parts += [metric(part).cpu().to(rows.dtype) for part, _ in read]
    labels = _labels(explainer, test_labels, sum(map(len, parts[1:])))
    near = _pairs(torch.cat(parts), len(rows), float(radius), explainer.show_progress)
    return _grouped(explainer, near, places, labels, float(radius), ids)


def _labels(explainer: Any, given: Any, n_tests: int) -> Array:
    """Return the labels of the training samples of the fit, and then of the tests; blank if not known."""
    own, task = explainer.labels_[explainer.used_], explainer.task_
    if given is None:
        return np.concatenate([own, task.blank(n_tests)]) if n_tests else own
    try:
        labels = task.encode(given)
        check_that(
            len(labels) == n_tests, "test_labels", f"have one per test, {n_tests} of them", len(labels)
        )
        task.check(labels, np.arange(n_tests), explainer.n_classes_, "head")
    except InvalidInputError as error:
        raise InvalidInputError(f"'test_labels' must be labels as in the training set. {error}") from error
    return np.concatenate([own, labels.astype(own.dtype)])


def _pairs(rows: Tensor, n: int, radius: float, show_progress: bool) -> _Near:
    """Return the near pairs among the first n rows, and between these and the others."""
    k = min(_NEIGHBOURS, n - 1)
    if k < 1:
        return _Near(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    # Around the mean: the rounding of an inner product grows with the lengths of its factors.
    rows = rows - rows[:n].mean(0)
    far, near = _nearest(rows, n, k, show_progress)
    tenth = np.maximum(far[:, -1], _FLOOR * float(np.median(far[:n, -1])))
    one = np.repeat(np.arange(len(rows)), k)
    other, bound = near.ravel(), radius * np.minimum(np.repeat(tenth, k), tenth[near.ravel()])
    # Rounding may hide that two rows are the same: those that could be are compared once more, exactly.
    maybe = np.flatnonzero(far.ravel() <= bound + _slack(rows))
    one, other, bound = one[maybe], other[maybe], bound[maybe]
    exact = [
        torch.linalg.vector_norm(rows[a].double() - rows[b].double(), dim=1).numpy()
        for a, b in zip(_split(one), _split(other), strict=True)
    ]
    distances = np.concatenate([np.empty(0), *exact])
    keep = distances <= bound
    scale = np.where(bound[keep] > 0, bound[keep] / radius, 1.0)
    return _Near(one[keep], other[keep], distances[keep] / scale)


def _slack(rows: Tensor) -> float:
    """Return how far rounding may move a distance that is computed by inner products."""
    largest = float(torch.linalg.vector_norm(rows, dim=1).max())
    return 4.0 * largest * float(np.sqrt(torch.finfo(rows.dtype).eps))


def _split(places: Ints) -> Iterable[Ints]:
    return np.array_split(places, max(1, len(places) // 10_000))


def _nearest(rows: Tensor, n: int, k: int, show_progress: bool) -> tuple[Doubles, Ints]:
    """Return distances and places of the first n rows nearest to each row (m, k), without itself."""
    m, squares = len(rows), torch.einsum("nd,nd->n", rows, rows)
    distances, places = np.empty((m, k)), np.empty((m, k), np.int64)
    step, pool = max(1, _BLOCK // n), rows[:n].T.contiguous()
    starts = range(0, m, step)

    def slices() -> Iterator[slice]:
        for start in starts:
            report("Comparing samples", start, m)
            yield slice(start, min(start + step, m))

    show = show_progress and len(starts) >= 4
    for part in watched(slices(), m, "Comparing samples", show, lambda one: one.stop - one.start):
        far = torch.addmm(squares[:n], rows[part], pool, alpha=-2.0)  # ‖a − b‖² − ‖a‖²
        own = torch.arange(min(part.start, n), min(part.stop, n))
        far[own - part.start, own] = torch.inf
        values, chosen = far.topk(k, dim=1, largest=False)
        far_squared = (values + squares[part, None]).clamp_(min=0)
        distances[part], places[part] = far_squared.double().sqrt().numpy(), chosen.numpy()
    return distances, places


def _grouped(
    explainer: Any, near: _Near, places: Ints, labels: Array, radius: float, ids: Sequence[Any] | None
) -> Duplicates:
    """Join pairs into groups, and order these and their members."""
    m, n, task = len(labels), len(places), explainer.task_
    graph = coo_array((np.ones(len(near.one)), (near.one, near.other)), shape=(m, m))
    component = connected_components(graph, directed=False)[1]
    nearest = np.full(m, np.inf)
    for side in (near.one, near.other):
        np.minimum.at(nearest, side, near.shares)
    rows: Ints = np.flatnonzero(np.isfinite(nearest))
    # Tests first within each group.
    rows = rows[np.lexsort((rows, rows < n, component[rows]))]
    starts = np.flatnonzero(np.diff(component[rows], prepend=-1))
    groups = np.split(rows, starts[1:]) if len(rows) else []
    known, flat = task.known(labels), labels.reshape(m, -1)
    different = np.array([len(np.unique(flat[own[known[own]]], axis=0)) > 1 for own in groups], bool)
    leaks = np.array([own[0] >= n for own in groups], bool)
    sizes = np.array([len(own) for own in groups], np.int64)
    order = np.lexsort((-sizes, ~leaks, ~different))
    rows = np.concatenate([np.empty(0, np.int64), *(groups[group] for group in order)])
    tests = rows >= n
    indices = np.where(tests, rows - n, places[np.minimum(rows, n - 1)])
    return Duplicates(
        groups=np.repeat(np.arange(len(order)), sizes[order]),
        indices=indices,
        tests=tests,
        labels=labels[rows],
        label_names=tuple(task.label_text(labels[row]) if known[row] else "" for row in rows),
        nearest=nearest[rows],
        different=different[order],
        leaks=leaks[order],
        radius=radius,
        ids=None if ids is None else _ids(ids, indices, tests),
    )


def _ids(ids: Sequence[Any], indices: Ints, tests: Mask) -> tuple[Any, ...]:
    """Return the ids of training samples, None for tests."""
    known = iter(chosen_ids(ids, indices[~tests]) or ())
    return tuple(None if is_test else next(known) for is_test in tests)
