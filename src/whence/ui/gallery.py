"""The gallery of concepts: the samples that show each, and the classes that use it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.core.arrays import Doubles, Ints
from whence.errors import InvalidInputError
from whence.relevance import Concepts
from whence.ui import schema
from whence.ui.explorer import Explorer

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
        found: Doubles = self.parts[self.classes == c].sum(axis=0)
        return found


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


def gallery(explorer: Explorer, offset: int = 0, limit: int = 12) -> schema.Gallery:
    """A page of the concepts, those that the classes use most first."""
    if not explorer.task.has_classes:
        raise InvalidInputError("The gallery must be of a model of classes. These outputs are not.")
    (classes, parts, activations), all_of_them = uses(explorer), explorer.solved.components
    shares = parts / np.maximum(np.abs(parts).sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    used = np.abs(shares).mean(axis=0)
    known = np.argsort(-used, kind="stable")[: int((used > _UNUSED).sum())]
    order = known[offset : offset + limit]
    explainer = explorer.project.explainer
    chosen = Concepts(all_of_them.vectors[order], tuple(all_of_them.names[j] for j in order))
    shown = chosen.activations(explainer.vectors_.cpu()) if len(order) else np.zeros((0, 0))
    ranked = np.argsort(-shown, axis=0, kind="stable")
    ends = [explainer.support_[ranked[:_SHOWN]].T, explainer.support_[ranked[::-1][:_SHOWN]].T]
    wanted = np.unique(np.concatenate([end.ravel() for end in ends])).tolist()
    samples = dict(zip(wanted, explorer.training.samples(wanted), strict=True))
    rows = []
    for j, place in enumerate(order.tolist()):
        best = np.argsort(-np.abs(shares[:, place]), kind="stable")[:_USERS].tolist()
        most, least = (end[j].tolist() for end in ends)
        rows.append(
            schema.Concept(
                name=chosen.names[j],
                used=float(used[place]),
                uses=[
                    schema.Use(
                        label=int(classes[c]),
                        shows=bool(activations[c, place] >= 0),
                        part=float(parts[c, place]),
                        share=float(shares[c, place]),
                    )
                    for c in best
                    if abs(shares[c, place]) > _UNUSED
                ],
                most=most,
                most_labels=explainer.labels_[most].tolist(),
                most_samples=[samples[i] for i in most],
                least=least,
                least_labels=explainer.labels_[least].tolist(),
                least_samples=[samples[i] for i in least],
            )
        )
    return schema.Gallery(total=len(known), rows=rows)
