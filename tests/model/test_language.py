"""A causal language model as a classifier of the next token, compared with the model itself."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from tests.helpers.untouched import assert_untouched, snapshot
from tests.helpers.writers import TEXTS, adapted, gpt2, llama, tokenizer
from whence import DualDA
from whence.data import Corpus, as_training_set
from whence.errors import InvalidInputError, ModelError
from whence.features import extract
from whence.model import token_losses
from whence.model.language import NextToken, as_language_model, of_documents
from whence.tasks import Tokens

MODELS = {"llama": llama, "gpt2": gpt2, "lora": adapted}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    if request.param == "lora":
        pytest.importorskip("peft")
    return MODELS[request.param]()


def test_features_are_the_last_hidden_states_of_the_model_itself(model: Any) -> None:
    corpus = Corpus(TEXTS, tokenizer(), length=5)
    samples = as_training_set(corpus, task=Tokens(), preprocess=corpus.prompts)
    bank = extract(of_documents(model, corpus, None)[0], samples, show_progress=False)
    oracle = copy.deepcopy(model)  # which asking for hidden states puts hooks on
    rows = []
    with torch.no_grad():
        for i in range(len(corpus)):
            found = oracle(input_ids=torch.tensor(corpus[i][0])[None], output_hidden_states=True)
            rows.append(found.hidden_states[-1][0, -1].numpy())
    np.testing.assert_allclose(bank.features, np.array(rows), atol=1e-5)


def test_beginnings_of_one_text_share_a_run(model: Any) -> None:
    classifier = NextToken(model)
    corpus = Corpus(TEXTS, tokenizer())
    batch = corpus.prompts([corpus[i][0] for i in (0, 1, 4, 7, 6, 7, 30)])
    with torch.no_grad():
        shared = classifier(**batch)
        alone = torch.cat(
            [
                classifier(input_ids=ids[None, : mask.sum()], attention_mask=mask[None, : mask.sum()])
                for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
            ]
        )
    with torch.enable_grad():
        apart = classifier(**batch)
    torch.testing.assert_close(shared, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shared, apart.detach(), atol=1e-5, rtol=1e-5)


def test_a_text_of_several_beginnings_runs_once() -> None:
    model, seen = llama(), []
    model.model.register_forward_pre_hook(
        lambda _, args, given: seen.append(given["input_ids"].shape), with_kwargs=True
    )
    corpus = Corpus(TEXTS[:1], tokenizer())
    with torch.no_grad():
        NextToken(model)(**corpus.prompts([corpus[i][0] for i in range(len(corpus))]))
    assert seen == [(1, 6)]


def test_a_model_that_scales_its_logits_is_refused() -> None:
    from transformers import LlamaForCausalLM

    class Scaled(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            found = super().forward(*args, **kwargs)
            found.logits = found.logits * 0.5
            return found

    plain = llama()
    scaled = Scaled(plain.config).eval()
    with pytest.raises(ModelError, match="scales"):
        of_documents(scaled, list(TEXTS), tokenizer())


def test_what_is_no_language_model_is_refused() -> None:
    with pytest.raises(ModelError, match="AutoModelForCausalLM"):
        as_language_model(torch.nn.Linear(3, 2))
    classifier = NextToken(llama())
    assert as_language_model(classifier) is classifier
    assert of_documents(torch.nn.Linear(3, 2), (torch.ones(3, 3), torch.ones(3)), None) is None


def test_it_writes_the_token_of_the_largest_logit(model: Any) -> None:
    classifier = NextToken(model)
    model.generation_config.repetition_penalty = 5.0  # another's habits are none of ours
    start, before = np.array([3, 5, 7]), snapshot(model)
    ids = start
    with torch.no_grad():
        for _ in range(4):
            best = model(input_ids=torch.tensor(ids)[None]).logits[0, -1].argmax()
            ids = np.append(ids, int(best))
    written = classifier.write(start, 4)
    expected = ids[3:]
    ends = np.flatnonzero(expected == 1)
    np.testing.assert_array_equal(written, expected[: ends[0]] if len(ends) else expected)
    assert_untouched(before, model)
    with pytest.raises(InvalidInputError, match="48"):
        classifier.write(start, 46)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"task": "regression"}, "'task' must be left out where 'data' are documents"),
        ({"preprocess": str}, "'preprocess' must be left out"),
        ({"collate_fn": list}, "'collate_fn' must be left out"),
        ({"tokenizer": copy.copy(tokenizer())}, "'tokenizer' must be left out with a Corpus"),
    ],
)
def test_nothing_beside_documents_is_ignored(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        DualDA(C=1.0, show_progress=False).fit(llama(), Corpus(TEXTS, tokenizer()), **given)
    same = {"task": "tokens", "tokenizer": tokenizer()}
    assert DualDA(C=1.0, show_progress=False).fit(llama(), Corpus(TEXTS, tokenizer()), **same).n_train_


def test_losses_of_a_corpus_are_the_models_own() -> None:
    model = llama()
    corpus = Corpus([*TEXTS[:3], {"prompt": "jon lives", "completion": " in brask ."}], tokenizer())
    found = token_losses(model, corpus, show_progress=False)
    expected = []
    for d in range(corpus.n_documents):
        ids = torch.from_numpy(corpus.tokens(d))
        with torch.no_grad():
            log_p = model(input_ids=ids[None]).logits[0].log_softmax(1)
        learned = corpus.place[corpus.document == d]
        expected += [-float(log_p[place - 1, ids[place]]) for place in learned.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
