"""Caught shortcuts: a test that a shortcut fooled with a training sample that has it, explained by XDA."""

from __future__ import annotations

import json

import numpy as np

from whence.attributors import DualDA
from whence.core.arrays import Array, Ints, Mask
from whence.evaluate.metrics.localisation import Marked, caught_pairs, localise, marked_text
from whence.evaluate.scenes.shortcuts import Painted, Word
from whence.evaluate.scenes.views import View
from whence.evaluate.scenes.workshop import Scene
from whence.evaluate.suite.case import Case
from whence.evaluate.suite.results import Row
from whence.model.extractor import Extractor, find_head
from whence.relevance.lrp import default_rules

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
    if whole is None or not len(rows):
        return []
    scores = case.scores
    train, tests, names = scene.train, scene.test, scene.train.class_names or ()
    of_test, of_train = _marks(tests, train)
    same = (of_test[rows, None] == of_train) & (of_train >= 0)
    pairs = caught_pairs(scores[rows], same, _PROPONENTS)
    found = [
        case.row(metric, "caught", len(pairs) / len(rows)),
        case.row(metric, "caught_of", len(rows)),
    ]
    if not len(pairs):
        return found
    pairs[:, 0] = rows[pairs[:, 0]]
    first = _marked(scene, tests, int(pairs[0, 0])).inputs
    extractor = Extractor(whole, find_head(whole, first))
    measured = localise(
        explainer,
        extractor,
        pairs,
        scene.explained[pairs[:, 0]],
        lambda t: _marked(scene, tests, t),
        lambda i: _marked(scene, train, i),
        default_rules(extractor, first),
    )
    for side in ("test", "train"):
        for name in ("auc", "share", "chance"):
            values = [getattr(getattr(one, side), name) for one in measured]
            found.append(case.row(metric, f"map_{name}_{side}", float(np.mean(values))))
    if isinstance(train[0][0], str):
        for k, ((t, i), one) in enumerate(zip(pairs[:_EXAMPLES].tolist(), measured, strict=False)):
            told = {
                "predicted": names[scene.explained[t]],
                "true": names[tests.true_labels[t]],
                "test": _words(scene, tests, t, one.on_test),
                "train": _words(scene, train, i, one.on_train),
            }
            found.append(case.row(metric, "example", float(scores[t, i]), k, json.dumps(told)))
    return found


def _marks(tests: View, train: View) -> tuple[Ints, Ints]:
    """Number the shortcut of each sample, the same one by the same number; −1 for none."""
    kinds = list(dict.fromkeys(shortcut for view in (tests, train) for shortcut, _, _ in view.samples.marks))
    numbers = []
    for view in (tests, train):
        of = np.full(len(view), -1)
        for shortcut, where, _ in view.samples.marks:
            of[where] = kinds.index(shortcut)
        numbers.append(of)
    return numbers[0], numbers[1]


def _marked(scene: Scene, view: View, index: int) -> Marked:
    """Give a sample as the whole model takes it, with the places of its shortcut."""
    inputs = view[index][0]
    shortcut = next(shortcut for shortcut, where, _ in view.samples.marks if where[index])
    if isinstance(shortcut, Word):
        assert scene.trainer.encoder is not None
        return marked_text(scene.trainer.encoder.backbone, inputs, shortcut.word)
    assert isinstance(shortcut, Painted)
    return Marked(inputs[None], shortcut.covers(*inputs.shape[-2:]))


def _words(scene: Scene, view: View, index: int, relevance: Array) -> dict[str, list[str] | list[float]]:
    """Give a text's words with the relevance of each; what lies behind the last token read is left out."""
    marked = _marked(scene, view, index)
    assert marked.places is not None
    text = view[index][0].split()
    places = np.asarray(marked.places)
    here = [k for k in range(len(text)) if (places == k).any()]
    return {
        "words": [text[k] for k in here],
        "relevance": [float(relevance[places == k].sum()) for k in here],
        "inside": [float(np.asarray(marked.inside)[places == k].any()) for k in here],
    }
