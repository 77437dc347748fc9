"""How much of the relevance of a pair lies on the shortcut that both samples have."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whence.core.arrays import Array, Ints, Mask
from whence.core.checks import check_count, check_that, to_array
from whence.core.display import displayed
from whence.errors import InvalidInputError
from whence.methods import DualDA
from whence.metrics.arrays import classes, mask, numbers, split_mask
from whence.model.extractor import Extractor
from whence.relevance.xda import Method, only, pair_maps, start
from whence_studies.scenes.shortcuts import word_starts
from whence_studies.scenes.texts import LENGTH, Backbone


@displayed()
class Localisation(NamedTuple):
    """Where the relevance of a map lies.

    Attributes
    ----------
    auc : area under the ROC curve of relevance as a detector of the shortcut's places, in [0, 1]; chance is
        0.5, and 1 says that every place of the shortcut has more relevance than any other
    share : of the positive relevance, the part on the shortcut, in [0, 1]; 0 where there is none
    chance : of the places, the part on the shortcut: the share of relevance that is the same everywhere
    """

    auc: float
    share: float
    chance: float


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


def localisation(relevance: Any, inside: Any, places: Any = None) -> Localisation:
    """Measure how well a map finds the places of a shortcut.

    Parameters
    ----------
    relevance : (…) or (channels, …)
        Relevance of each place, such as (T,) for tokens and (C, H, W) for an image, whose channels are
        summed. Positive is evidence for the explained class.
    inside : (…)
        True for the places of the shortcut: some, and not all.
    places : (…)
        Numbers of larger places that are counted instead, each with the sum of its relevance, such as the
        words that tokens belong to (``words_of``). One that is partly inside is inside.

    Examples
    --------
    >>> import numpy as np
    >>> localisation(np.array([0.1, 0.6, -0.2, 0.1]), np.array([False, True, False, False]))
    Localisation(auc=1, share=0.75, chance=0.25)
    """
    from sklearn.metrics import roc_auc_score

    where = mask("inside", inside, (None,) * to_array("inside", inside).ndim)
    with_channels = to_array("relevance", relevance).ndim == where.ndim + 1
    values: Array = numbers("relevance", relevance, (None, *where.shape) if with_channels else where.shape)
    values = values.astype(np.float64)
    values = (values.sum(0) if with_channels else values).ravel()
    where = where.ravel()
    if places is not None:
        found = classes("places", to_array("places", places).ravel(), len(where))
        _, numbered = np.unique(found, return_inverse=True)
        values, where = np.bincount(numbered, values), np.bincount(numbered, where) > 0
    where = split_mask("inside", where, len(where), "places")
    positive = values.clip(min=0)
    total = float(positive.sum())
    return Localisation(
        float(roc_auc_score(where, values)),
        float(positive[where].sum()) / total if total else 0.0,
        float(where.mean()),
    )


def caught_pairs(scores: Any, poisoned_mask: Any, k: int = 10, pairs: int = 1) -> Ints:
    """Find the training samples with the shortcut that attribution puts first: (m, 2), a test and a sample.

    Of each test, the first ``pairs`` of its k strongest proponents that have the shortcut, strongest first.
    Proponents have scores above 0; of equal ones the first stored comes first.

    Parameters
    ----------
    scores : (T, N)
        Of tests that the shortcut fooled, for the class it stands for.
    poisoned_mask : (N,) or (T, N)
        True where a training sample has the shortcut: any, or the one of that test.
    k
        Proponents to look at.
    pairs
        To keep of a test.

    Examples
    --------
    >>> import numpy as np
    >>> caught_pairs(np.array([[3.0, 2.0, 1.0], [-1.0, 0.0, 1.0]]), np.array([True, True, False]), k=2)
    array([[0, 0]])
    """
    k = check_count("k", k)
    pairs = check_count("pairs", pairs)
    found = numbers("scores", scores, (None, None))
    T, N = found.shape
    each = to_array("poisoned_mask", poisoned_mask).ndim == 2
    poisoned = np.broadcast_to(mask("poisoned_mask", poisoned_mask, (T, N) if each else (N,)), (T, N))
    caught: list[tuple[int, int]] = []
    for test, row in enumerate(found):
        order = np.argsort(-row, kind="stable")[:k]
        hits = order[poisoned[test, order] & (row[order] > 0)][:pairs]
        caught += [(test, int(i)) for i in hits]
    return np.array(caught, dtype=np.int64).reshape(-1, 2)


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
    for found in re.finditer(f"(?={re.escape(word)})", text):  # occurrences may overlap
        covered[found.start() + 1 : found.start() + len(word) + 1] = 1
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
    rule = "be a fast one of transformers, which knows the characters of its tokens"
    check_that(getattr(tokeniser, "is_fast", False), "tokeniser", rule, type(tokeniser))
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
    own, theirs = (explainer.surrogate_.stored.divisors(one.features.detach()) for one in (here, there))
    weight = torch.as_tensor(explainer.coef_[target, : there.features.shape[1]]) / own[0].cpu()
    each = (lam[:, None].to(own) / (own * theirs)).to(there.features)
    maps = only(pair_maps(here, there, each * there.features, each * here.features, weight))
    on_test, on_train = (one[0].cpu().numpy() for one in (maps.test, maps.train))
    measured = localisation(on_test, *test[1:]), localisation(on_train, *train[1:])
    return PairLocalisation(*measured, on_test, on_train)


def _check_features(explainer: DualDA, index: int, features: Tensor) -> None:
    """Raise unless a training sample has the features, (1, d), that it was fitted with."""
    check_that(
        index in explainer.support_, "index", "be that of a support vector, other samples score 0", index
    )
    fitted = explainer.vectors_[int(np.searchsorted(explainer.support_, index))]
    found = explainer.surrogate_.stored.as_read(features.detach())[0]
    apart = float((found.to(fitted) - fitted).norm() / fitted.norm())
    if not apart < 0.01:  # rounding and padding leave less
        raise InvalidInputError(
            f"'train' must be the sample that was fitted. The features of sample {index} differ by "
            f"{apart:.0%}."
        )
