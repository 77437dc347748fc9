"""Caught shortcuts: XDA of a fooled test and a training sample with the same shortcut."""

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

_PROPONENTS = 10  # a sample with the shortcut is caught if it is among so many proponents
_EXAMPLES = 4  # pairs of texts that are stored word by word


@displayed()
class PairLocalisation(NamedTuple):
    """Where the relevance of a pair lies on its test and on its training sample.

    Attributes
    ----------
    test, train : the measures
    on_test, on_train : (…) or (channels, …) relevance
    """

    test: Localisation
    train: Localisation
    on_test: Array
    on_train: Array


class Marked(NamedTuple):
    """A sample with a shortcut: its inputs, a batch of one, and the arguments of ``localisation``."""

    inputs: Any
    inside: Mask
    places: Ints | None = None


def too_weak(scene: Scene) -> str:
    """Return a note if a shortcut fools too few tests for a reliable score, else an empty text."""
    facts = scene.facts
    if facts["fooled"] >= facts["needed"]:
        return ""
    return (
        f"the shortcut fooled {facts['fooled']:.0%} of the tests of other classes "
        f"({facts['n_fooled']:.0f}), less than the {facts['needed']:.0%} wanted"
    )


def caught_shortcuts(case: Case, metric: str, fooled: Mask, n_tests: int) -> list[Row]:
    """Explain caught shortcuts, and measure how much of the relevance lies on them.

    For each test, the pair with the strongest proponent among the first ten that has the test's shortcut is
    explained. The rows have the share of tests with such a pair, the means of ``localisation`` over these
    pairs on both samples, and for texts some pairs word by word. There are no rows for methods other than
    DualDA and for methods of a sweep.

    Parameters
    ----------
    case
        A case in a scene with a shortcut on training samples and on all tests.
    metric
        Metric of the rows.
    fooled : (T,)
        True for tests whose prediction follows the shortcut.
    n_tests
        Maximum number of fooled tests to explain.
    """
    scene = case.scene
    explainer: Any = case.attributor
    if not explainer.capabilities.dual or case.method.sweep:
        return []
    whole = scene.trainer.whole(scene.trained.model)
    rows = np.flatnonzero(fooled)[:n_tests]
    # For cached states, the layers of the full model are unknown.
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
    """Return the shortcut of each sample, (n,) objects, None for none."""
    shortcuts = np.full(len(samples), None)
    for mark in samples.samples.marks:
        shortcuts[mark.where] = mark.change
    return shortcuts


def _marked(scene: Scene, inputs: Any, shortcut: Word | Painted) -> Marked:
    """Return a sample as the full model takes it, with the places of its shortcut."""
    if isinstance(shortcut, Painted):
        return Marked(inputs[None], shortcut.covers(*inputs.shape[-2:]))
    assert scene.trainer.encoder is not None
    return marked_text(scene.trainer.encoder.backbone, inputs, shortcut.word)


def _words(text: str, marked: Marked, relevance: Array) -> dict[str, list[str] | list[float]]:
    """Return a text's words with their relevance, up to the last token that the model reads."""
    words, places = text.split(), np.asarray(marked.places)
    here = [k for k in range(len(words)) if (places == k).any()]
    return {
        "words": [words[k] for k in here],
        "relevance": [float(relevance[places == k].sum()) for k in here],
        "inside": [float(marked.inside[places == k].any()) for k in here],
    }


def tokens_inside(tokenizer: Any, text: str, word: str, length: int) -> Mask:
    """Return a mask (T,) of the tokens of a text that have a character of a word.

    Parameters
    ----------
    tokenizer
        A fast tokenizer of transformers.
    text, word
        The word as it is in the text; all its occurrences count.
    length
        Number of tokens that are read. A word after them is not marked.
    """
    if not word or word not in text:
        raise InvalidInputError(f"'word' must be in the text. Got {word!r} for {text!r}.")
    starts, ends = _characters(tokenizer, text, length)
    covered = np.zeros(len(text) + 1, dtype=np.int64)
    for occurrence in re.finditer(f"(?={re.escape(word)})", text):  # occurrences may overlap
        covered[occurrence.start() + 1 : occurrence.start() + len(word) + 1] = 1
    before = np.cumsum(covered)  # characters of the word before each place
    return before[ends] > before[starts]


def words_of(tokenizer: Any, text: str, length: int) -> Ints:
    """Return the index (T,) of the word, separated by white space, that each token of a text belongs to.

    A tokenizer splits a keyword such as "<sport>" into several tokens, and relevance may be on one of them
    only. Each special token is a word with an index below 0.

    Parameters
    ----------
    tokenizer, text, length
        As for ``tokens_inside``.
    """
    starts, ends = _characters(tokenizer, text, length)
    # A token may include the white space before it, never that after it.
    number = np.searchsorted(word_starts(text), ends - 1, side="right") - 1
    special = starts == ends
    number[special] = -1 - np.arange(special.sum())
    return number


def _characters(tokenizer: Any, text: str, length: int) -> tuple[Ints, Ints]:
    """Return the start and end (T,) of each token in a text; special tokens are empty."""
    if not getattr(tokenizer, "is_fast", False):
        raise InvalidInputError(
            "'tokenizer' must be a fast tokenizer of transformers, which has offsets of its tokens. "
            f"Got {type(tokenizer).__name__}."
        )
    read = tokenizer(text, truncation=True, max_length=length, return_offsets_mapping=True)
    starts, ends = np.array(read["offset_mapping"], dtype=np.int64).reshape(-1, 2).T
    return starts, ends


def marked_text(backbone: Backbone, text: str, word: str) -> Marked:
    """Convert a text with a word in it to arguments of ``localise``; relevance is summed per word."""
    tokenizer = backbone.tokenizer
    inside = tokens_inside(tokenizer, text, word, LENGTH)
    return Marked(backbone.tokens([text]), inside, words_of(tokenizer, text, LENGTH))


def localise(
    explainer: DualDA,
    extractor: Extractor,
    test: Marked,
    train: Marked,
    index: int,
    target: int,
    method: Method,
) -> PairLocalisation:
    """Explain a pair by XDA, and measure how much of the relevance lies on the shortcut of each sample.

    Parameters
    ----------
    explainer
        A fitted explainer; its inputs may be others with the same features, such as cached states.
    extractor
        Extractor of the full model, from the explained inputs.
    test, train, index
        The samples, and the index of the training sample.
    target
        Class to explain.
    method
        As for ``DualDA.explain``, such as "attn_lrp".
    """
    here, there = (start(extractor, one.inputs, method) for one in (test, train))
    _check_features(explainer, index, there.features)
    lam = torch.as_tensor(explainer.lam_[[index]][:, [target]].toarray()[:, 0])
    feature_map, f, g = explainer.surrogate_.metric, here.features.detach(), there.features.detach()
    on_test, _ = feature_map.pull(lam[:, None].to(g) * feature_map(g), f)
    on_train, _ = feature_map.pull(lam[:, None].to(f) * feature_map(f), g)
    weight, _ = feature_map.pull(torch.as_tensor(explainer.coef_[[target], : f.shape[1]], device=f.device), f)
    maps = only(pair_maps(here, there, on_test, on_train, weight[0]))
    of_test, of_train = (one[0].cpu().numpy() for one in (maps.test, maps.train))
    measured = localisation(of_test, *test[1:]), localisation(of_train, *train[1:])
    return PairLocalisation(*measured, of_test, of_train)


def _check_features(explainer: DualDA, index: int, features: Tensor) -> None:
    """Raise unless a training sample has the features (1, d) that it was fitted with."""
    if index not in explainer.support_:
        raise InvalidInputError(f"'index' must be a support vector; other samples have score 0. Got {index}.")
    fitted = explainer.vectors_[int(np.searchsorted(explainer.support_, index))]
    read = explainer.surrogate_.stored.transform(features.detach())[0]
    apart = float((read.to(fitted) - fitted).norm() / fitted.norm())
    if not apart < 0.01:  # rounding and padding change less
        raise InvalidInputError(
            f"'train' must be the sample of the fit. The features of sample {index} differ by {apart:.0%}."
        )
