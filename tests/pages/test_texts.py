"""Texts as readers write them: the spelling, the blanks and the headline."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from whence.data.items import WRITTEN, Prepare
from whence.errors import DataWarning
from whence.pages.samples import Sample, as_samples
from whence.pages.style import drawn, scale, strongest, unwritten
from whence.pages.texts import begun, breaks, headline, readable, words_of

transformers = pytest.importorskip("transformers")

TEXT = 'Profit up\n\nThe "bank\'s" profit rose 76% to $1.13bn ($600m), it said.  Zyx!'
PIECES = [
    *("profit", "up", "the", "bank", "s", "rose", "76", "to", "1", "13", "##bn", "600", "##m", "it", "said"),
    *"\"'%$.(),!",
]


def tokenizer():
    from tests.helpers.explored import tokenizer as made

    found = made(PIECES)
    found.backend_tokenizer.pre_tokenizer = __import__("tokenizers").pre_tokenizers.BertPreTokenizer()
    return found


def test_a_text_is_given_back_letter_by_letter() -> None:
    spelling = tokenizer()
    batch = dict(spelling([TEXT, "it"], padding=True, return_tensors="pt"))
    long, short = as_samples({**batch, WRITTEN: [TEXT, "it"]}, Prepare(tokenizer=spelling))
    assert long.tokens is not None
    assert "".join(long.tokens) == TEXT
    assert long.tokens[0] == long.tokens[-1] == ""  # [CLS] and [SEP]
    assert {"\n\nThe", " $", "1", ".", "13", "bn", "  Zyx"} <= set(long.tokens)  # the last is unknown
    assert short.tokens == ("", "it", "")
    cut = spelling([TEXT], truncation=True, max_length=7, return_tensors="pt")
    assert (
        "".join(as_samples({**cut, WRITTEN: [TEXT]}, Prepare(tokenizer=spelling))[0].tokens or ())
        == TEXT[:20]
    )


@pytest.mark.parametrize("texts", [None, ["another text"], [TEXT, TEXT]])
def test_without_the_text_words_and_signs_are_joined_as_english_is_written(texts: object) -> None:
    spelling = tokenizer()
    batch = dict(spelling([TEXT], return_tensors="pt"))
    tokens = as_samples(batch if texts is None else {**batch, WRITTEN: texts}, Prepare(tokenizer=spelling))[
        0
    ].tokens
    assert tokens is not None
    written = 'profit up the "bank\'s" profit rose 76% to $1.13bn ($600m), it said. [UNK]!'
    assert "".join(tokens) == written == " ".join(TEXT.split()).lower().replace("zyx", "[UNK]")


def test_letters_of_several_tokens_stay_whole() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {piece: i for i, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=letters, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    spelling = transformers.PreTrainedTokenizerFast(tokenizer_object=inner)
    text = "a é\n漢 b"
    ids = spelling([text], return_tensors="pt")["input_ids"]
    for batch in ({"input_ids": ids}, {"input_ids": ids, WRITTEN: [text]}):
        tokens = as_samples(batch, Prepare(tokenizer=spelling))[0].tokens
        assert tokens is not None
        assert "".join(tokens) == text
        assert len(tokens) == len(text.encode())
        assert "漢" in tokens


def test_numbers_are_shown_with_a_warning_that_names_the_remedy() -> None:
    batch = {"input_ids": torch.tensor([[5, 6, 0]]), "attention_mask": torch.tensor([[1, 1, 0]])}
    with pytest.warns(DataWarning, match="Pass it as 'tokenizer'"):
        assert as_samples(batch)[0].tokens == (" 5", " 6")


def test_relevance_of_tokens_that_are_not_shown_is_told_and_sets_no_scale() -> None:
    sample = Sample(tokens=("", "one", " two", "", ""))
    relevance = np.array([9, 1, -2, 0.5, 0.25], dtype=np.float32)
    assert drawn(sample, relevance).tolist() == [0, 1, -2, 0, 0]
    assert scale([drawn(sample, relevance)]) == 2
    assert unwritten(sample, relevance) == 9.75


def test_headlines() -> None:
    rest = " and so on" * 30

    def head(text: str) -> str:
        tokens = [*re.findall(r"\s*\w+|\s*[^\w\s]", text)]
        return "".join(tokens[: headline(tokens)])

    assert head("Short. Text.") == ""
    assert head("Profit up\n\nThe bank said. It" + rest) == "Profit up"
    assert head("The bank said so. It rose" + rest) == "The bank said so."
    assert 80 < len(head(rest)) <= 200
    assert headline(["", "Profit", " up", "\n", "The", *rest]) == 3


def test_words_and_what_is_strongest_in_them() -> None:
    tokens = ("", "Profit", "s", " rose", "", " 1", ".", "5", "")
    assert [list(word) for word in words_of(tokens)] == [[1, 2], [3, 4], [5, 6, 7, 8]]
    relevance = np.array([0, 1, 1, -1, 0, 0.5, 0.5, 2, 0], dtype=np.float32)
    assert strongest(Sample(tokens=tokens), relevance, 0, 2) == [("1.5", 3), ("Profits", 2)]
    assert strongest(Sample(tokens=tokens), relevance, 3, 9) == [("1.5", 3), ("rose", -1)]


@pytest.mark.parametrize(
    ("token", "text", "breaking"),
    [("", "", False), (" a", " a", False), ("\n\na", " a", True), ("\n", "↵", True), ("  ", " ␣", False)],
)
def test_tokens_on_a_line(token: str, text: str, breaking: bool) -> None:
    assert readable(token) == text
    assert breaks(token) == breaking


def test_a_text_that_goes_on_ends_in_dots() -> None:
    assert begun(["one", " two"], 2) == ("one", " two")
    assert begun(["one", " two", " three"], 2) == ("one", " two", " …")
