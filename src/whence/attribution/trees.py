"""Trees of one test's scores: from the groups of a surrogate and the scores of its support vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.attribution.fitted import Fitted
from whence.core.arrays import Ints
from whence.explanation import Sample, TreeNode
from whence.explanation.tree import Branches, grow
from whence.explanation.wording import MADE_OF, OUTPUTS
from whence.pages.pictures import smaller
from whence.pages.samples import as_samples
from whence.pages.style import one_line
from whence.relevance.sources import one_of
from whence.surrogate.scores import Contrast, Scored

_SIDE = 48  # pixels per side of a picture: a page has some 40 of a test


class TreeBuilder:
    """Makes the tree of each test of a fitted explainer; samples that several show are read once.

    Parameters
    ----------
    fitted : with a model, a training set, and a surrogate
    """

    def __init__(self, fitted: Fitted) -> None:
        self.fitted, self.surrogate, self.task = fitted, fitted.require_surrogate(), fitted.task
        self._pictures: dict[str, dict[int, Sample]] = {}

    def __call__(self, scored: Scored, contrast: Contrast, inputs: Sequence[str]) -> list[TreeNode]:
        """Return the tree of a test's scores, for each input of the model by its name.

        Samples to show are read in one batch, and the model does not run on them.
        """
        groups, support = self.surrogate.groups, self.surrogate.support
        classes = self.surrogate.grouped_by_class
        branches = Branches(
            groups.of[np.searchsorted(support, scored.indices)],
            support[groups.medoids],
            groups.labels,
            {c: self.task.label_text(c) for c in np.unique(groups.labels).tolist()} if classes else {},
        )
        base = None if self.fitted.effect else self.surrogate.base_value(contrast)
        if not (contrast.relative or base):
            base = None
        pictures = [self._pictures.setdefault(name, {}) for name in inputs]
        root, note = self._root(contrast), self._note(contrast)
        trees = [grow(root, base, note, scored.indices, scored.scores, branches, shown) for shown in pictures]
        self._read(trees[0], inputs)
        return trees

    def _root(self, contrast: Contrast) -> str:
        """Name what the tree is of."""
        effect, names = self.fitted.effect, [one_line(name) for name in self.task.output_names]
        numbers = self.task.label_kind == "number"
        output = MADE_OF[self.task.label_kind].output
        if effect is not None:
            output = f"all effects on the {output if numbers else OUTPUTS[effect.output]}"
        if numbers and len(names) == 1:
            return output
        over = "" if contrast.against is None else f" over {names[contrast.against]}"
        return f"{output} of {names[contrast.target]}{over}"

    def _note(self, contrast: Contrast) -> str:
        """Say what the base value is."""
        if not contrast.relative:
            return "the mean of the training targets"
        note = f"the {MADE_OF[self.task.label_kind].output} of the average training sample"
        if contrast.against is None:
            return note
        return f"{note} labelled {one_line(self.task.output_names[contrast.against])}"

    def _read(self, tree: TreeNode, inputs: Sequence[str]) -> None:
        """Read the samples that an outline shows and that were not read before."""
        known = self._pictures[inputs[0]]
        wanted: Ints = np.unique([node.index for node in tree.outline().walk() if node.index is not None])
        missing = [int(i) for i in wanted if int(i) not in known]
        if not missing:
            return
        read = self.fitted.require_data().take(missing)
        prepare = self.fitted.require_data().prepare
        for name in inputs:
            samples = as_samples(one_of(read, name) if name else read, prepare)
            shown = [smaller(sample, _SIDE) for sample in samples]
            self._pictures[name].update(zip(missing, shown, strict=True))
