"""Caught shortcuts: a test that a shortcut fooled with a training sample that has it, explained by XDA."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from whence.core.arrays import Array, Mask
from whence.methods import DualDA
from whence.metrics.localisation import Marked, caught_pairs, localise, marked_text
from whence.model.extractor import Extractor, find_head
from whence.relevance.lrp import default_rules
from whence_studies.scenes.shortcuts import Painted, Word
from whence_studies.scenes.views import View
from whence_studies.scenes.workshop import Scene
from whence_studies.suite.case import Case
from whence_studies.suite.results import Row

_PROPONENTS = 10  # of a test, among which a sample with the shortcut counts as caught
_EXAMPLES = 4  # pairs of texts that are kept word by word


def too_weak(scene: Scene) -> str:
    """Say so where a shortcut fools fewer tests than a score should be measured on."""
    facts = scene.facts
    if facts["fooled"] >= facts["needed"]:
        return ""
    return (
        f"the shortcut fooled {facts['fooled']:.0%} of the tests of other classes "
        f"({facts['n_fooled']:.0f}), less than the {facts['needed']:.0%} wanted"
    )


def caught_shortcuts(case: Case, metric: str, fooled: Mask, n_tests: int) -> list[Row]:
    """Explain caught shortcuts, and tell how much of the relevance lies on them.

    Of each test, the strongest proponent with the test's shortcut among the first ten is explained. Gives the
    share of the tests that have one, and over these pairs and for both samples the means of what
    ``localisation`` measures; of texts also some pairs word by word. Of other methods than DualDA, and of
    those of a sweep, nothing.

    Parameters
    ----------
    case
        In a scene with a shortcut on training samples and on all tests.
    metric
        That the rows belong to.
    fooled : (T,)
        True for tests that follow the shortcut against what they are.
    n_tests
        How many of these to look at, the first ones.
    """
    scene, explainer = case.scene, case.attributor
    if not isinstance(explainer, DualDA) or case.method.sweep:
        return []
    whole = scene.trainer.whole(scene.trained.model)
    rows = np.flatnonzero(fooled)[:n_tests]
    # Of cached states, the layers of the whole model are unknown.
    layered = explainer.layers_ is not None and whole is not scene.trained.model
    if whole is None or layered or not len(rows):
        return []
    train, tests, names = scene.train, scene.test, scene.train.class_names or ()
    on_tests, on_train = _shortcuts(tests), _shortcuts(train)
    pairs = caught_pairs(case.scores[rows], on_tests[rows, None] == on_train, _PROPONENTS)
    found = [
        case.row(metric, "caught", len(pairs) / len(rows)),
        case.row(metric, "caught_of", len(rows)),
    ]
    if not len(pairs):
        return found
    places = [(int(rows[test]), sample) for test, sample in pairs.tolist()]
    marked = [
        (_marked(scene, tests[t][0], on_tests[t]), _marked(scene, train[i][0], on_train[i]))
        for t, i in places
    ]
    first = marked[0][0].inputs
    extractor = Extractor(whole, find_head(whole, first), layers=explainer.layers_)
    rules = default_rules(extractor, first)
    measured = [
        localise(explainer, extractor, *both, i, int(scene.explained[t]), rules)
        for (t, i), both in zip(places, marked, strict=True)
    ]
    for side in ("test", "train"):
        for name in ("auc", "share", "chance"):
            values = [getattr(getattr(one, side), name) for one in measured]
            found.append(case.row(metric, f"map_{name}_{side}", float(np.mean(values))))
    if isinstance(train[0][0], str):
        some = zip(places[:_EXAMPLES], marked, measured, strict=False)
        for k, ((t, i), (test, sample), one) in enumerate(some):
            told = {
                "predicted": names[scene.explained[t]],
                "true": names[tests.true_labels[t]],
                "test": _words(tests[t][0], test, one.on_test),
                "train": _words(train[i][0], sample, one.on_train),
            }
            found.append(case.row(metric, "example", float(case.scores[t, i]), k, json.dumps(told)))
    return found


def _shortcuts(samples: View) -> Array:
    """Return the shortcut of each sample, (n,) of objects, None for none."""
    found = np.full(len(samples), None)
    for mark in samples.samples.marks:
        found[mark.where] = mark.change
    return found


def _marked(scene: Scene, inputs: Any, shortcut: Word | Painted) -> Marked:
    """Return a sample as the whole model takes it, with the places of its shortcut."""
    if isinstance(shortcut, Painted):
        return Marked(inputs[None], shortcut.covers(*inputs.shape[-2:]))
    assert scene.trainer.encoder is not None
    return marked_text(scene.trainer.encoder.backbone, inputs, shortcut.word)


def _words(text: str, marked: Marked, relevance: Array) -> dict[str, list[str] | list[float]]:
    """Return a text's words with the relevance of each; what lies behind the last token read is left out."""
    words, places = text.split(), np.asarray(marked.places)
    here = [k for k in range(len(words)) if (places == k).any()]
    return {
        "words": [words[k] for k in here],
        "relevance": [float(relevance[places == k].sum()) for k in here],
        "inside": [float(marked.inside[places == k].any()) for k in here],
    }
