"""The gallery of concepts: the samples that show each, and the classes that use it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError
from whence.relevance import Concepts
from whence.ui.explorer import Explorer
from whence.ui.requests import Answer

_SHOWN = 8  # samples at either end of a concept
_USERS = 4  # classes of a concept
_UNUSED = 1e-3  # share of a concept below which it is left out


class Uses(NamedTuple):
    """How classes use concepts.

    Attributes
    ----------
    classes : (k,) that the model gives to a test; of the others nothing is known
    parts : (k, q) of each class's mean logit, (w_c·v)(μ_c·v), μ_c being the mean of the features of the tests
        that the model gives class c. Over all concepts, which are a basis, the parts of a class sum to its
        mean logit without the bias
    activations : (k, q) how strongly these tests show each concept in the mean, μ_c·v
    """

    classes: Ints
    parts: Doubles
    activations: Doubles

    def of(self, c: int) -> Doubles:
        """Return the parts (q,) of a class; 0 where it is given to no test."""
        parts: Doubles = self.parts[self.classes == c].sum(axis=0)
        return parts


def uses(explorer: Explorer) -> Uses:
    """Return how all classes use all concepts."""
    tests, explainer = explorer.tests, explorer.project.explainer
    features = explainer.surrogate_.stored.as_read(tests.features).double().cpu().numpy()[tests.valid]
    classes, given = np.unique(tests.predicted[tests.valid], return_inverse=True)
    means = np.zeros((len(classes), features.shape[1]))
    np.add.at(means, given, features)
    means /= np.bincount(given)[:, None]
    v = explorer.solved.components.vectors
    activations = means @ v.T
    weights = explainer.coef_[classes, : features.shape[1]]
    return Uses(classes, (weights @ v.T) * activations, activations)


def gallery(explorer: Explorer, offset: int = 0, limit: int = 12) -> Answer:
    """A page of the concepts, those that the classes use most first.

    Of each the support vectors that show it ``most``, and those that show its opposite most, ``least``.
    ``uses`` are the parts of classes' mean logits through it, over the tests that are given the class;
    ``shows`` says whether these show the concept, or its opposite.
    """
    if not explorer.task.has_classes:
        raise InvalidInputError("The gallery must be of a model of classes. These outputs are not.")
    (classes, parts, activations), components = uses(explorer), explorer.solved.components
    shares = parts / np.maximum(np.abs(parts).sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    used = np.abs(shares).mean(axis=0)
    known = np.argsort(-used, kind="stable")[: int((used > _UNUSED).sum())]
    order = known[offset : offset + limit]
    explainer = explorer.project.explainer
    chosen = Concepts(components.vectors[order], tuple(components.names[j] for j in order))
    shown = chosen.activations(explainer.vectors_.cpu()) if len(order) else np.zeros((0, 0))
    ranked = np.argsort(-shown, axis=0, kind="stable")
    ends = {
        "most": explainer.support_[ranked[:_SHOWN]].T,
        "least": explainer.support_[ranked[::-1][:_SHOWN]].T,
    }
    wanted = np.unique(np.concatenate([end.ravel() for end in ends.values()])).tolist()
    samples = dict(zip(wanted, explorer.training.samples(wanted), strict=True))
    rows = []
    for j, place in enumerate(order.tolist()):
        best = np.argsort(-np.abs(shares[:, place]), kind="stable")[:_USERS].tolist()
        row: Answer = {"name": chosen.names[j], "used": float(used[place])}
        row["uses"] = [
            {
                "label": int(classes[c]),
                "shows": bool(activations[c, place] >= 0),
                "part": float(parts[c, place]),
                "share": float(shares[c, place]),
            }
            for c in best
            if abs(shares[c, place]) > _UNUSED
        ]
        for name, end in ends.items():
            row[name] = end[j].tolist()
            row[f"{name}_labels"] = explainer.labels_[row[name]].tolist()
            row[f"{name}_samples"] = [samples[i] for i in row[name]]
        rows.append(row)
    return {"total": len(known), "rows": rows}
