"""A corpus as a training set: which tokens were learned, and what the model saw before each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

from tests.helpers.writers import TEXTS, tokenizer
from whence.data import Corpus
from whence.data.corpus import around, cut
from whence.errors import InvalidInputError


def ids(text: str) -> list[int]:
    table = tokenizer().get_vocab()
    return [table[word] for word in text.split()]


def test_every_token_after_the_first_was_learned() -> None:
    corpus = Corpus(TEXTS[:2], tokenizer())
    first, second = ids(TEXTS[0]), ids(TEXTS[1])
    assert corpus.labels.tolist() == first[1:] + second[1:]
    assert corpus.document.tolist() == [0] * 6 + [1] * 6
    assert corpus.place.tolist() == [1, 2, 3, 4, 5, 6] * 2
    inputs, label = corpus[8]
    assert inputs.tolist() == second[:3]
    assert label == second[3]
    assert corpus.position(8) == (1, 3)
    assert corpus.of_documents([1]).tolist() == list(range(6, 12))
    assert corpus.tokens(1).tolist() == second
    assert corpus[-1][1] == second[-1]
    with pytest.raises(IndexError, match="12"):
        corpus[12]


def test_of_prompts_and_completions_only_the_completion_was_learned() -> None:
    pairs = [{"prompt": "mira lives in", "completion": " tolm ."}, {"text": "the sea"}, "jon lives"]
    corpus = Corpus(pairs, tokenizer(), titles=["one", "two", "three"])
    assert corpus.labels.tolist() == [*ids("tolm ."), *ids("sea"), *ids("lives")]
    assert corpus[0][0].tolist() == ids("mira lives in")
    assert corpus.text(0) == "mira lives in tolm ."
    assert corpus.title(2) == "three"


def test_a_document_longer_than_what_the_model_sees_is_read_in_windows() -> None:
    text = TEXTS[7]  # ten tokens
    corpus = Corpus([text], tokenizer(), length=4)
    whole = ids(text)
    for i in range(len(corpus)):
        place = i + 1
        window = whole[:4] if place <= 4 else whole[4:8] if place <= 8 else whole[8:]
        start = 0 if place <= 4 else 4 if place <= 8 else 8
        inputs, label = corpus[i]
        assert inputs.tolist() == window[: place - start]
        assert label == whole[place]


@pytest.mark.parametrize(
    ("documents", "options", "words"),
    [
        ("the sea", {}, "several texts"),
        (7, {}, "several texts"),
        ([3], {}, "number 0"),
        ([{"prompt": "the"}], {}, "prompt and completion"),
        (["the", ""], {}, "follows another"),
        (["the sea"], {"length": 1}, "'length'"),
        (["the sea"], {"titles": ["a", "b"]}, "'titles'"),
    ],
)
def test_what_is_no_corpus(documents: Any, options: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Corpus(documents, tokenizer(), **options)


def test_the_tokenizer_must_be_one() -> None:
    with pytest.raises(InvalidInputError, match=r"AutoTokenizer\.from_pretrained"):
        Corpus(["the sea"], str.split)


def test_names_of_tokens_are_all_different() -> None:
    names = Corpus(TEXTS, tokenizer()).prompts.names(40)
    assert len(set(names)) == len(names) == 40
    assert names[ids("tolm")[0]] == "tolm"


def test_prompts_are_padded_on_the_right_and_refused_where_empty() -> None:
    prompts = Corpus(TEXTS, tokenizer()).prompts
    batch = prompts(["the sea", np.array(ids("mira lives in"))])
    assert batch["input_ids"].tolist() == [[*ids("the sea"), 0], ids("mira lives in")]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    with pytest.raises(InvalidInputError, match="at least one token"):
        prompts(["the", ""])


def test_the_words_around_a_place_are_those_of_the_document() -> None:
    corpus = Corpus(TEXTS, tokenizer())
    for index in range(len(corpus)):
        found = around(corpus, index)
        assert "".join(found) == TEXTS[corpus.document[index]]
        assert found.token.strip() == TEXTS[corpus.document[index]].split()[corpus.place[index]]
    long = Corpus([" ".join(["the sea is blue"] * 30)], tokenizer())
    before, token, after = around(long, 59)
    assert before.startswith("… ")
    assert after.endswith(" …")
    assert (before.split()[1:], after.split()[:-1]) == (
        ["the", "sea", "is", "blue"] * 7,
        ["sea", "is", "blue", "the"] * 3 + ["sea", "is"],
    )
    assert token == " the"


def test_a_text_is_cut_between_the_bytes_of_a_character() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=bytewise)
    tokens = np.array(made("aé b")["input_ids"])
    assert cut(made, tokens, [1, 3, 4]) == ["a", "é", " ", "b"]
    assert cut(made, tokens, [2]) == ["a\ufffd", "\ufffd b"]


def test_a_share_of_the_places_stays_by_their_losses() -> None:
    corpus = Corpus(TEXTS[:2], tokenizer())
    losses = np.array([5.0, 1, 2, 9, 0, 0, 7, 3, 3, 3, 0, 1])
    kept = corpus.hardest(losses, 0.5)
    assert kept.position(0) == (0, 1)
    order = sorted(range(12), key=lambda i: -losses[i])[:6]
    assert [(d, p) for d, p in zip(kept.document, kept.place, strict=True)] == [
        tuple(corpus.position(i)) for i in sorted(order)
    ]
    assert kept.labels.tolist() == corpus.labels[sorted(order)].tolist()
    assert (len(kept), kept.n_documents, len(corpus)) == (6, 2, 12)
    assert kept[1][0].tolist() == corpus[int(sorted(order)[1])][0].tolist()
    assert kept.of_documents([1]).tolist() == [i for i, place in enumerate(sorted(order)) if place >= 6]
    assert len(corpus.hardest(losses, 1.0)) == 12
    assert len(corpus.hardest(losses, 1e-9)) == 1


@pytest.mark.parametrize(
    ("losses", "share", "words"),
    [
        (np.zeros(3), 0.5, r"one number per sample, shape \(12,\)\. Got \(3,\)"),
        (np.full(12, np.nan), 0.5, "'losses' must be finite. Got nan at"),
        (np.zeros(12), 0.0, "'share'"),
        (np.zeros(12), 1.5, "'share'"),
    ],
)
def test_what_is_no_share(losses: Any, share: float, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Corpus(TEXTS[:2], tokenizer()).hardest(losses, share)


def test_corpora_one_after_the_other_are_one_of_all_documents() -> None:
    first = Corpus(TEXTS[:3], tokenizer(), titles=["a", "b", "c"])
    made = Corpus.joined([first, first.more(list(TEXTS[3:5])), first.more(list(TEXTS[5:]))])
    whole = Corpus(TEXTS, tokenizer())
    assert made.labels.tolist() == whole.labels.tolist()
    assert made.document.tolist() == whole.document.tolist()
    assert made.place.tolist() == whole.place.tolist()
    for i in range(len(whole)):
        assert made[i][0].tolist() == whole[i][0].tolist()
    assert [made.text(i) for i in range(8)] == list(TEXTS)
    assert [made.title(i) for i in range(8)] == ["a", "b", "c", *TEXTS[3:]]
    assert made.tokens(6).tolist() == whole.tokens(6).tolist()
    assert first.n_documents == 3
    assert first.more(first) is first
    with pytest.raises(InvalidInputError, match="lengths 512 and 4"):
        Corpus.joined([first, Corpus(TEXTS[:1], tokenizer(), length=4)])
