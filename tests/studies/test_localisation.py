"""How much relevance lies on a shortcut: against loops, closed forms and the tokens' own text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from whence.errors import InvalidInputError
from whence.methods import DualDA
from whence.metrics.localisation import caught_pairs, localisation
from whence.model.extractor import Extractor
from whence_studies.scenes.shortcuts import CentreBox, Frame
from whence_studies.suite.localising import Marked, localise, tokens_inside, words_of

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(12,), (4, 5), (3, 4, 5)])
def test_localisation_is_what_a_loop_counts(shape: tuple[int, ...]) -> None:
    places = shape[-2:]
    relevance = RNG.integers(-3, 4, shape).astype(np.float64)  # with ties
    inside = RNG.random(places) < 0.3
    inside.flat[:2] = True, False
    found = localisation(relevance, inside)

    sums = relevance.sum(0) if len(shape) == 3 else relevance
    wins, positive, covered = [], 0.0, 0.0
    for place in np.ndindex(places):
        value = sums[place]
        positive += max(value, 0)
        covered += max(value, 0) * inside[place]
        if inside[place]:
            others = [sums[other] for other in np.ndindex(places) if not inside[other]]
            wins += [1.0 if value > other else 0.5 if value == other else 0.0 for other in others]
    assert found.auc == pytest.approx(sum(wins) / len(wins))
    assert found.share == pytest.approx(covered / positive)
    assert found.chance == pytest.approx(inside.sum() / inside.size)


def test_localisation_knows_signs_and_chance() -> None:
    inside = np.array([True, False, False, False])
    assert localisation(np.array([2.0, 0.0, 0.0, -1.0]), inside) == (1.0, 1.0, 0.25)
    assert localisation(np.array([-2.0, 0.0, 0.0, 1.0]), inside) == (0.0, 0.0, 0.25)
    assert localisation(np.ones(4), inside) == (0.5, 0.25, 0.25)
    assert localisation(-np.ones(4), inside) == (0.5, 0.0, 0.25)
    assert localisation(torch.tensor([2.0, 0.0, 0.0, -1.0]), torch.from_numpy(inside)).auc == 1.0


def test_localisation_counts_larger_places_by_their_sums() -> None:
    relevance = np.array([-1.0, 3.0, 0.5, -2.0, 1.5, 1.0])
    inside = np.array([True, True, False, False, False, False])
    places = np.array([7, 7, 2, 2, -1, 4])  # sums 2, -1.5, 1.5, 1
    assert localisation(relevance, inside).auc == pytest.approx(5 / 8)
    assert localisation(relevance, inside, places) == pytest.approx((1.0, 2 / 4.5, 1 / 4))
    assert localisation(relevance, np.arange(6) == 0, places).chance == 1 / 4  # a part of it is enough
    with pytest.raises(InvalidInputError, match=r"some of the 4 places and not all\. Got 4"):
        localisation(relevance, np.array([True, False, True, False, True, True]), places)
    with pytest.raises(InvalidInputError, match="'places' must have shape"):
        localisation(relevance, inside, places[:5])


@pytest.mark.parametrize(
    ("relevance", "inside", "message"),
    [
        (np.ones(3), np.zeros(3, bool), r"'inside' must mark some of the 3 places and not all. Got 0"),
        (np.ones(3), np.ones(3, bool), "Got 3"),
        (np.ones(3), np.array([1, 0, 0]), r"'inside' must be booleans"),
        (np.ones(4), np.array([True, False, False]), r"'relevance' must have shape \(3,?\). Got \(4,\)"),
        (np.ones((2, 2, 2)), np.eye(3, dtype=bool), r"'relevance' must have shape \(any, 3, 3\)"),
        (np.array([1.0, np.nan, 0.0]), np.array([True, False, False]), r"'relevance' must be finite"),
    ],
)
def test_localisation_refuses(relevance: Any, inside: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        localisation(relevance, inside)


@pytest.mark.parametrize("each", [False, True])
def test_caught_pairs_are_the_first_poisoned_of_the_strongest(each: bool) -> None:
    T, N, k, pairs = 6, 30, 8, 2
    scores, poisoned = RNG.normal(size=(T, N)), RNG.random((T, N) if each else N) < 0.3
    expected = []
    for test in range(T):
        mine = poisoned[test] if each else poisoned
        strongest = sorted(range(N), key=lambda i: -scores[test, i])[:k]
        hits = [i for i in strongest if mine[i] and scores[test, i] > 0]
        expected += [[test, i] for i in hits[:pairs]]
    assert caught_pairs(scores, poisoned, k, pairs).tolist() == expected


def test_a_sample_that_does_not_speak_for_the_class_is_not_caught() -> None:
    scores = np.array([[0.0, -1.0, 0.0], [0.0, 0.5, 0.5]])
    poisoned = np.array([True, True, True])
    assert caught_pairs(scores, poisoned, k=5, pairs=5).tolist() == [[1, 1], [1, 2]]
    assert caught_pairs(-np.ones((2, 3)), poisoned).shape == (0, 2)
    with pytest.raises(InvalidInputError, match="'poisoned_mask' must have shape"):
        caught_pairs(scores, np.array([True, False]))
    with pytest.raises(InvalidInputError, match="'k'"):
        caught_pairs(scores, poisoned, k=0)


def _bert(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] < > sp ##ort news of the day a"
    (folder / "vocab.txt").write_text("\n".join(words.split()))
    return transformers.BertTokenizerFast(str(folder / "vocab.txt"))


def _byte_level(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["news of the day", "a sport"],
        trainers.BpeTrainer(
            vocab_size=290, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
        ),
    )
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
@pytest.mark.parametrize("make", [_bert, _byte_level])
@pytest.mark.parametrize("text", ["news of <Sport> the day", "<Sport> news", "a day of <Sport>"])
def test_tokens_of_a_word_are_those_that_spell_it(make: Any, text: str, tmp_path: Path) -> None:
    tokeniser = make(tmp_path)
    inside = tokens_inside(tokeniser, text, "<Sport>", 128)
    pieces = tokeniser.convert_ids_to_tokens(tokeniser(text)["input_ids"])
    assert inside.shape == (len(pieces),)
    spelt = "".join(piece.strip("Ġ#") for piece, hit in zip(pieces, inside, strict=True) if hit)
    assert spelt.lower() == "<sport>"
    words = words_of(tokeniser, text, 128)
    assert words.shape == inside.shape
    for number, word in enumerate(text.split()):
        mine = [piece.strip("Ġ#") for piece, at in zip(pieces, words.tolist(), strict=True) if at == number]
        assert "".join(mine).lower() == word.lower()
    special = set(tokeniser.all_special_tokens)
    alone = [at for piece, at in zip(pieces, words.tolist(), strict=True) if piece in special]
    assert alone == [-1, -2][: len(alone)]
    assert len(words) == sum(at >= 0 for at in words) + len(alone)
    assert not any(hit for piece, hit in zip(pieces, inside, strict=True) if piece in special)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
def test_tokens_of_a_word_that_is_cut_off_or_repeated(tmp_path: Path) -> None:
    tokeniser = _bert(tmp_path)
    text = "news of the day <sport>"  # [CLS] and four words before the four tokens of the word, and [SEP]
    assert tokens_inside(tokeniser, text, "<sport>", 128).tolist() == [False] * 5 + [True] * 4 + [False]
    assert tokens_inside(tokeniser, text, "<sport>", 8).tolist() == [False] * 5 + [True] * 2 + [False]
    assert not tokens_inside(tokeniser, text, "<sport>", 6).any()
    assert tokens_inside(tokeniser, "a day a", "a", 128).tolist() == [False, True, True, True, False]
    with pytest.raises(InvalidInputError, match=r"'word' must be in the text. Got '<tech>'"):
        tokens_inside(tokeniser, text, "<tech>", 128)
    with pytest.raises(InvalidInputError, match="'tokenizer' must be a fast tokenizer"):
        tokens_inside(str.split, text, "<sport>", 128)


def test_pixels_of_a_frame_and_of_a_box() -> None:
    frame, box = Frame(2, value=0.5).covers(8, 6), CentreBox(2, value=1.0).covers(8, 6)
    for row, column in np.ndindex(8, 6):
        assert frame[row, column] == (min(row, column, 7 - row, 5 - column) < 2)
        assert box[row, column] == (row in (3, 4) and column in (2, 3))


N, K = 24, 3


@pytest.fixture
def images() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor, DualDA]:
    """A linear model of images, whose relevance has a closed form, and a DualDA of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * 16, 5, bias=False), nn.Linear(5, K))
    x, y = torch.randn(N, 2, 4, 4), torch.arange(N) % K
    return model, x, y, DualDA(metric="raw", C=0.1, show_progress=False).fit(model, (x, y))


def test_localise_has_the_closed_form_of_a_linear_model(images: Any) -> None:
    model, x, _, explainer = images
    tests = torch.randn(2, 2, 4, 4)
    inside = np.zeros((4, 4), bool)
    inside[1:3, 1:3] = True
    columns = np.tile([0, 1, 2, 2], (4, 1))
    inside[:, 2:] = True
    pairs = [(t, int(i)) for t in (1, 0) for i in explainer.support_[:3]]
    target = [2, 0, 1, 2, 0, 1]
    W = model[1].weight.detach()  # f = W x, so that λ f·f_i = Σ_p x_p λ (Wᵀ f_i)_p
    for (t, i), c in zip(pairs, target, strict=True):
        both = Marked(tests[t : t + 1], inside), Marked(x[i : i + 1], ~inside, columns)
        pair = localise(explainer, Extractor(model, "2"), *both, i, c, "epsilon")
        lam = float(explainer.lam_[[i]][:, [c]].toarray()[0, 0])
        f, f_i = W @ tests[t].flatten(), W @ x[i].flatten()
        on_test = (lam * tests[t].flatten() * (W.T @ f_i)).detach().reshape(2, 4, 4)
        on_train = (lam * x[i].flatten() * (W.T @ f)).detach().reshape(2, 4, 4)
        np.testing.assert_allclose(pair.test, localisation(on_test, inside), rtol=0, atol=1e-4)
        np.testing.assert_allclose(pair.train, localisation(on_train, ~inside, columns), rtol=0, atol=1e-4)


def test_localise_refuses_other_samples_than_were_fitted(images: Any) -> None:
    model, x, y, explainer = images
    inside = np.eye(4, dtype=bool)

    def other(explainer: DualDA, index: int) -> None:
        both = Marked(x[:1], inside), Marked(x[index + 1 : index + 2], inside)
        localise(explainer, Extractor(model, "2"), *both, index, 0, "epsilon")

    with pytest.raises(InvalidInputError, match=r"The features of sample \d+ differ by"):
        other(explainer, int(explainer.support_[0]))
    far = torch.zeros(N, 2, 4, 4)
    far[:, 0, 0, :K] = 10 * nn.functional.one_hot(y)
    easy = DualDA(metric="raw", C=10.0, show_progress=False).fit(model, (far + 0.1 * x, y))
    idle = sorted(set(range(N)) - set(easy.support_.tolist()))
    with pytest.raises(InvalidInputError, match="'index' must be a support vector"):
        other(easy, idle[0])
