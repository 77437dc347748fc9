"""What an output is made of, as a tree: base value and labels, groups of similar samples, samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from whence.core.arrays import Doubles, Ints
from whence.core.display import counted, displayed, plain_line
from whence.pages.samples import Sample
from whence.pages.style import percent, signed

Level = Literal["output", "base", "label", "group", "sample", "rest"]
"""What a node stands for; "rest" is the sum of nodes that are not shown."""
_GROUPS = 10  # the strongest of all labels, which are shown
_LABELS = 10
_SAMPLES = 3  # of a group
_WIDEST = 46  # letters of a name in a printed tree


class GroupScores(NamedTuple):
    """The samples of a group.

    Attributes
    ----------
    indices, scores : (n,) their places in the training set and their scores, the strongest first
    level : Σ|score| of the samples of all groups
    """

    indices: Ints
    scores: Doubles
    level: float


@displayed("level", "name", "score", "count", "share", "children")
@dataclass(frozen=True, eq=False)
class TreeNode:
    """A part of an output. The scores of its children sum to its own.

    Print it to see the strongest labels and groups. ``outline`` returns these as a tree.

    Attributes
    ----------
    level : "output" at the root, then "base" and "label", "group", "sample"
    name : in words
    score : its part of the output; **positive supports the target**
    count : training samples that it is a sum over
    share : |score| as a part of that of all nodes of its level; 1 for the root, 0 for the base value
    index : of a sample, its place in the training set; of a group that of its medoid, the sample nearest to
        its centre; else None
    note : what a base value is
    parts : its children, where they are no samples
    samples : of a group, its samples
    pictures : samples to show, by their places
    """

    level: Level
    name: str
    score: float
    count: int = 0
    share: float = 0.0
    index: int | None = None
    note: str = ""
    parts: tuple[TreeNode, ...] = ()
    samples: GroupScores | None = None
    pictures: Mapping[int, Sample] = field(default_factory=dict)

    @property
    def children(self) -> tuple[TreeNode, ...]:
        """What it is the sum of: the base value first, then the strongest first, whatever their sign."""
        if self.samples is None:
            return self.parts
        level = self.samples.level or 1.0
        pairs = zip(self.samples.indices.tolist(), self.samples.scores.tolist(), strict=True)
        return tuple(
            TreeNode("sample", f"sample {i}", score, 1, abs(score) / level, i, pictures=self.pictures)
            for i, score in pairs
        )

    @property
    def sample(self) -> Sample | None:
        """The sample, or the medoid of a group; None where it is not shown."""
        return None if self.index is None else self.pictures.get(self.index)

    def walk(self) -> Iterator[TreeNode]:
        """Return the node, then all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def groups(self) -> list[TreeNode]:
        """All groups below, the strongest first."""
        found = [node for part in self.parts for node in ([part] if part.level == "group" else part.groups)]
        return sorted(found, key=lambda node: -abs(node.score))

    @property
    def held(self) -> float:
        """The share of Σ|score| over groups that the ten strongest hold."""
        return sum(group.share for group in self.groups[:_GROUPS])

    def describe(self, effects: bool) -> str:
        """Say what the parts of the output are."""
        n = len(self.groups)
        base = next((part for part in self.parts if part.level == "base"), None)
        if effects:
            text = "The effect of a group is the sum of those of its samples, to first order."
        elif base is None:
            text = f"It is the sum of the scores of {counted(self.count, 'training sample')}."
        else:
            text = (
                f"The base value is {base.note}. The list shows what sets this input apart from it: "
                f"{counted(self.count, 'training sample')}, by label and similarity."
            )
        if n <= _GROUPS:
            return text
        held = f"{percent(self.held)} of all group scores by absolute value"
        return f"{text} The {_GROUPS} strongest of {n} groups of similar samples hold {held}."

    def outline(self) -> TreeNode:
        """Return the tree with its strongest parts; the others are summed, so that all levels still add up.

        These are ten labels, the ten strongest groups of all labels, and three samples of each.
        """
        return self._cut({id(node) for node in self.groups[:_GROUPS]})

    def _cut(self, shown: set[int]) -> TreeNode:
        """Return the node with the children that are shown, and one for the sum of the others."""
        if self.level == "group":
            return self._with(list(self.children), _SAMPLES, "sample")
        labelled = any(part.level == "label" for part in self.parts)
        kept = [part for part in self.parts if labelled or part.level == "base" or id(part) in shown]
        if not kept:
            return replace(self, parts=())
        order = kept + [part for part in self.parts if part not in kept]
        n, thing = (_LABELS + 1, "label") if labelled else (len(kept), "group")
        return self._with([part._cut(shown) for part in order], n, thing)

    def _with(self, parts: list[TreeNode], n: int, thing: str) -> TreeNode:
        """Return the node with the first n parts and the sum of the others."""
        others = parts[n:]
        if not others:
            return replace(self, parts=tuple(parts), samples=None)
        rest = TreeNode(
            "rest",
            counted(len(others), f"other {thing}"),
            sum(part.score for part in others),
            sum(part.count for part in others),
            sum(part.share for part in others),
        )
        return replace(self, parts=(*parts[:n], rest), samples=None)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it in plain types that JSON takes; the samples of a group as two lists."""
        names = ("level", "name", "score", "count", "share", "index", "note")
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.samples is None:
            return {**plain, "parts": [part.to_dict() for part in self.parts]}
        return {**plain, "indices": self.samples.indices.tolist(), "scores": self.samples.scores.tolist()}

    def __str__(self) -> str:
        """Write a table of the strongest labels and groups."""
        rows = [("", "score", "samples", "share"), *_rows(self.outline(), 0)]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [
            f"{name:<{widths[0]}}  {score:>{widths[1]}}  {count:>{widths[2]}}  {share}"
            for name, score, count, share in rows
        ]
        return "\n".join(line.rstrip() for line in lines)


def _rows(node: TreeNode, depth: int) -> Iterator[tuple[str, str, str, str]]:
    name = plain_line(node.name)
    name = "  " * depth + (name if len(name) <= _WIDEST else f"{name[: _WIDEST - 1]}…")
    share = f"{percent(node.share):>7}" if depth and node.level != "base" else plain_line(node.note)
    yield name, signed(node.score), f"{node.count:,}" if node.count else "", share
    if node.level != "group":
        for child in node.children:
            yield from _rows(child, depth + 1)


class Branches(NamedTuple):
    """To which branch of a tree samples belong.

    Attributes
    ----------
    of : (s,) the group of each sample
    medoids, labels : (G,) of the groups: a sample, by its place in the training set, and a label
    names : of the labels; empty where groups have none, and then the tree has no level of labels
    """

    of: Ints
    medoids: Ints
    labels: Ints
    names: Mapping[int, str]


def grow(
    root: str,
    base: float | None,
    note: str,
    indices: Ints,
    scores: Doubles,
    branches: Branches,
    pictures: Mapping[int, Sample],
) -> TreeNode:
    """Grow a tree of the scores of one test.

    Parameters
    ----------
    root : what the output is, in words
    base, note : what scores start from, and what that is; None for scores that start from nothing
    indices, scores : (s,) samples and their scores
    branches : their groups
    pictures : samples to show, by their places, which may come later
    """
    groups, medoids, labels, names = branches
    order = np.lexsort((-np.abs(scores), groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    everything = float(np.abs(scores).sum())
    grown: list[tuple[int, TreeNode]] = []
    for rows in np.split(order, starts[1:]) if len(order) else []:
        group = int(groups[rows[0]])
        medoid, own = int(medoids[group]), GroupScores(indices[rows], scores[rows], everything)
        node = TreeNode("group", f"like sample {medoid}", float(own.scores.sum()), len(rows), index=medoid)
        grown.append((int(labels[group]), replace(node, samples=own, pictures=pictures)))
    shared = _shared([node for _, node in grown])
    parts = tuple(_strongest(shared))
    if names:
        nodes = []
        for label in dict.fromkeys(label for label, _ in grown):
            own_groups = [node for node, (of, _) in zip(shared, grown, strict=True) if of == label]
            score, count = sum(node.score for node in own_groups), sum(node.count for node in own_groups)
            nodes.append(TreeNode("label", names[label], score, count, parts=tuple(_strongest(own_groups))))
        parts = tuple(_strongest(_shared(nodes)))
    first = () if base is None else (TreeNode("base", "base value", base, note=note),)
    total = (base or 0.0) + sum(part.score for part in parts)
    return TreeNode("output", root, total, len(indices), 1.0, parts=(*first, *parts))


def _shared(nodes: list[TreeNode]) -> list[TreeNode]:
    """Return the nodes of a level with their shares."""
    level = sum(abs(node.score) for node in nodes) or 1.0
    return [replace(node, share=abs(node.score) / level) for node in nodes]


def _strongest(nodes: list[TreeNode]) -> list[TreeNode]:
    return sorted(nodes, key=lambda node: -abs(node.score))
