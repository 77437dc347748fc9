"""Caught shortcuts: XDA of a test that a shortcut fooled and a training sample that has the shortcut."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Ints, Mask
from whence.core.display import displayed
from whence.errors import InvalidInputError
from whence.methods import DualDA
from whence.metrics.localisation import Localisation, caught_pairs, localisation
from whence.model.extractor import Extractor, find_head
from whence.relevance.lrp import default_rules
from whence.relevance.xda import Method, only, pair_maps, start
from whence_studies.scenes.shortcuts import Painted, Word, word_starts
from whence_studies.scenes.texts import LENGTH, Backbone
from whence_studies.scenes.views import View
from whence_studies.scenes.workshop import Scene
from whence_studies.suite.case import Case
from whence_studies.suite.results import Row

_PROPONENTS = 10  # of a test, among which a sample with the shortcut counts as caught
_EXAMPLES = 4  # pairs of texts that are kept word by word


@displayed()
class PairLocalisation(NamedTuple):
    """Where the relevance of a pair lies on its test and on its training sample.

    Attributes
    ----------
    test, train : what was measured
    on_test, on_train : (…) or (channels, …), the relevance itself
    """

    test: Localisation
    train: Localisation
    on_test: Array
    on_train: Array


class Marked(NamedTuple):
    """A sample with a shortcut: its inputs, a batch of one, and arguments of ``localisation``."""

    inputs: Any
    inside: Mask
    places: Ints | None = None


def too_weak(scene: Scene) -> str:
    """Return a note where a shortcut fools fewer tests than a score should be measured on."""
    facts = scene.facts
    if facts["fooled"] >= facts["needed"]:
        return ""
    return (
        f"the shortcut fooled {facts['fooled']:.0%} of the tests of other classes "
        f"({facts['n_fooled']:.0f}), less than the {facts['needed']:.0%} wanted"
    )


def caught_shortcuts(case: Case, metric: str, fooled: Mask, n_tests: int) -> list[Row]:
    """Explain caught shortcuts, and measure how much of the relevance lies on them.

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
    scene = case.scene
    explainer: Any = case.attributor
    if not explainer.capabilities.dual or case.method.sweep:
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
    results = [case.row(metric, "caught", len(pairs) / len(rows)), case.row(metric, "caught_of", len(rows))]
    if not len(pairs):
        return results
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
            results.append(case.row(metric, f"map_{name}_{side}", float(np.mean(values))))
    if isinstance(train[0][0], str):
        examples = zip(places[:_EXAMPLES], marked, measured, strict=False)
        for k, ((t, i), (test, sample), one) in enumerate(examples):
            words = {
                "predicted": names[scene.explained[t]],
                "true": names[tests.true_labels[t]],
                "test": _words(tests[t][0], test, one.on_test),
                "train": _words(train[i][0], sample, one.on_train),
            }
            results.append(case.row(metric, "example", float(case.scores[t, i]), k, json.dumps(words)))
    return results


def _shortcuts(samples: View) -> Array:
    """Return the shortcut of each sample, (n,) of objects, None for none."""
    shortcuts = np.full(len(samples), None)
    for mark in samples.samples.marks:
        shortcuts[mark.where] = mark.change
    return shortcuts


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


def tokens_inside(tokeniser: Any, text: str, word: str, length: int) -> Mask:
    """Return which tokens of a text belong to a word, (T,): those that have a character of it.

    Parameters
    ----------
    tokeniser
        A fast tokeniser of transformers.
    text, word
        The word as it stands in the text; all its occurrences count.
    length
        Tokens that are read. Where the word lies behind them, nothing is True.
    """
    if not word or word not in text:
        raise InvalidInputError(f"'word' must stand in the text. Got {word!r} for {text!r}.")
    starts, ends = _characters(tokeniser, text, length)
    covered = np.zeros(len(text) + 1, dtype=np.int64)
    for occurrence in re.finditer(f"(?={re.escape(word)})", text):  # occurrences may overlap
        covered[occurrence.start() + 1 : occurrence.start() + len(word) + 1] = 1
    before = np.cumsum(covered)  # characters of the word in front of each place
    return before[ends] > before[starts]


def words_of(tokeniser: Any, text: str, length: int) -> Ints:
    """Number the words, between blanks, that the tokens of a text belong to, (T,).

    A tokeniser breaks a keyword such as "<sport>" into several tokens, of which relevance may be on one only.
    Each special token is a word of its own, numbered below 0.

    Parameters
    ----------
    tokeniser, text, length
        As for ``tokens_inside``.
    """
    starts, ends = _characters(tokeniser, text, length)
    # A token may have the blank before it, and never one behind.
    number = np.searchsorted(word_starts(text), ends - 1, side="right") - 1
    special = starts == ends
    number[special] = -1 - np.arange(special.sum())
    return number


def _characters(tokeniser: Any, text: str, length: int) -> tuple[Ints, Ints]:
    """Return where in a text its tokens start and end, (T,) each; special tokens end where they start."""
    if not getattr(tokeniser, "is_fast", False):
        raise InvalidInputError(
            "'tokeniser' must be a fast one of transformers, which knows the characters of its tokens. "
            f"Got {type(tokeniser).__name__}."
        )
    read = tokeniser(text, truncation=True, max_length=length, return_offsets_mapping=True)
    starts, ends = np.array(read["offset_mapping"], dtype=np.int64).reshape(-1, 2).T
    return starts, ends


def marked_text(backbone: Backbone, text: str, word: str) -> Marked:
    """Make what ``localise`` takes of a text with a word in it; relevance is counted by words."""
    tokeniser = backbone.tokeniser
    inside = tokens_inside(tokeniser, text, word, LENGTH)
    return Marked(backbone.tokens([text]), inside, words_of(tokeniser, text, LENGTH))


def localise(
    explainer: DualDA,
    extractor: Extractor,
    test: Marked,
    train: Marked,
    index: int,
    target: int,
    method: Method,
) -> PairLocalisation:
    """Explain a pair by XDA, and measure how much of the relevance lies on the shortcut of either sample.

    Parameters
    ----------
    explainer
        Fitted, on any inputs that have the features of the extractor's model: cached states will do.
    extractor
        The whole model, from the inputs that are explained.
    test, train, index
        The samples, and the place of the one for training.
    target
        Class that the pair is explained for.
    method
        As for ``DualDA.explain``, such as "attn_lrp".
    """
    here, there = (start(extractor, one.inputs, method) for one in (test, train))
    _check_features(explainer, index, there.features)
    lam = torch.as_tensor(explainer.lam_[[index]][:, [target]].toarray()[:, 0])
    own_divisors, their_divisors = (
        explainer.surrogate_.stored.divisors(one.features.detach()) for one in (here, there)
    )
    weight = torch.as_tensor(explainer.coef_[target, : there.features.shape[1]]) / own_divisors[0].cpu()
    factor = (lam[:, None].to(own_divisors) / (own_divisors * their_divisors)).to(there.features)
    maps = only(pair_maps(here, there, factor * there.features, factor * here.features, weight))
    on_test, on_train = (one[0].cpu().numpy() for one in (maps.test, maps.train))
    measured = localisation(on_test, *test[1:]), localisation(on_train, *train[1:])
    return PairLocalisation(*measured, on_test, on_train)


def _check_features(explainer: DualDA, index: int, features: Tensor) -> None:
    """Raise unless a training sample has the features, (1, d), that it was fitted with."""
    if index not in explainer.support_:
        raise InvalidInputError(
            f"'index' must be that of a support vector, other samples score 0. Got {index}."
        )
    fitted = explainer.vectors_[int(np.searchsorted(explainer.support_, index))]
    read = explainer.surrogate_.stored.as_read(features.detach())[0]
    apart = float((read.to(fitted) - fitted).norm() / fitted.norm())
    if not apart < 0.01:  # rounding and padding leave less
        raise InvalidInputError(
            f"'train' must be the sample that was fitted. The features of sample {index} differ by "
            f"{apart:.0%}."
        )
