"""The tokeniser inside of what makes a model's inputs."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from whence.data import as_training_set
from whence.data.items import WRITTEN, Prepare
from whence.data.text import find_tokenizer
from whence.errors import InvalidInputError


class Spelling:
    """What is asked of a tokeniser; to call it is a mistake here."""

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"t{i}" for i in ids]


SPELLING = Spelling()
MADE: list[Spelling] = []


@functools.cache
def made() -> Spelling:
    MADE.append(Spelling())
    return MADE[-1]


def uses_its_module(batch: Any) -> Any:
    return SPELLING, batch


def uses_what_is_made_once(batch: Any) -> Any:
    return made(), batch


class Collator:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, batch: Any) -> Any:
        raise AssertionError

    def method(self, batch: Any) -> Any:
        raise AssertionError


def enclosing(tokenizer: Any) -> Any:
    return lambda batch: tokenizer(batch)


def with_default(batch: Any, tokenizer: Any = SPELLING) -> Any:
    raise AssertionError


def takes(tokenizer: Any, batch: Any) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    "function",
    [
        SPELLING,
        uses_its_module,
        enclosing(SPELLING),
        with_default,
        functools.partial(takes, SPELLING),
        functools.partial(takes, tokenizer=SPELLING),
        Collator(SPELLING),
        Collator(SPELLING).method,
        functools.partial(Collator(Collator(SPELLING))),
        {"text": enclosing(SPELLING)},
    ],
)
def test_it_is_found_wherever_a_function_keeps_it(function: Any) -> None:
    assert find_tokenizer(None, function) is SPELLING
    assert Prepare(preprocess=function).find_tokenizer() is SPELLING
    assert Prepare(collate_fn=function).find_tokenizer() is SPELLING


def test_what_is_made_once_is_taken_and_never_made() -> None:
    assert find_tokenizer(uses_what_is_made_once) is None
    assert not MADE
    assert made() is find_tokenizer(uses_what_is_made_once)
    assert len(MADE) == 1


def test_where_there_is_none() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for thing in (None, len, torch.stack, lambda x: x, loop, Spelling, torch.nn.Linear(2, 2)):
        assert find_tokenizer(thing) is None


def test_another_one_can_be_named_and_must_be_one() -> None:
    other, data = Spelling(), ([[1, 2]] * 9, [0, 1, 0] * 3)
    samples = as_training_set(data, preprocess=enclosing(SPELLING), tokenizer=other)
    assert samples.prepare.find_tokenizer() is other
    with pytest.raises(InvalidInputError, match=r"'tokenizer' must be None or a tokenizer .* Got <class"):
        as_training_set(data, tokenizer=Spelling)
    with pytest.raises(InvalidInputError, match="'tokenizer' must be given where the samples are first read"):
        as_training_set(samples, tokenizer=other)


def test_tokens_keep_the_texts_they_were_made_of() -> None:
    def tokens(texts: Any) -> Any:
        texts = texts["text"] if isinstance(texts, dict) else texts
        return {"input_ids": torch.tensor([[len(text), 1] for text in texts])}

    prepare = Prepare(preprocess=tokens)
    assert prepare.inputs(["ab", "c"])[WRITTEN] == ["ab", "c"]
    assert prepare.labelled([{"text": "ab", "n": 1, "label": 0}])[0][WRITTEN] == ["ab"]
    assert WRITTEN not in prepare.inputs({"text": ["ab"], "author": ["x"]})  # which of the two?
    assert WRITTEN not in Prepare().inputs({"input_ids": torch.ones(1, 2)})
    assert not WRITTEN.isidentifier()  # no model has an argument of this name
