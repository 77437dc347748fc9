"""Tuning on states that were computed once, answers without writing, and gradients in the last block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from benchmarks.language import gradients, tuning
from benchmarks.language.asking import Query, asked
from benchmarks.language.facts import Fact, Kind
from benchmarks.language.tuning import Language, losses, tune
from torch.nn.functional import cross_entropy

from tests.helpers.writers import TEXTS, llama, taught, tokenizer
from whence.data.text import Prompts


@pytest.fixture
def language() -> Language:
    return Language(taught(llama(), 20).requires_grad_(False), Prompts(tokenizer()), blocks=1)


def plain_losses(model: Any, text: str) -> torch.Tensor:
    ids = torch.tensor([tokenizer()(text)["input_ids"]])
    logits = model(input_ids=ids).logits[0, :-1]
    return cross_entropy(logits, ids[0, 1:], reduction="none")


def test_losses_and_their_slopes_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ROWS", 3)
    torch.manual_seed(0)
    last, weight = torch.randn(8, 5, dtype=torch.float64), torch.randn(11, 5, dtype=torch.float64)
    labels, each = torch.arange(8) % 11, torch.randn(8, dtype=torch.float64)
    mine, theirs = last.clone().requires_grad_(), last.clone().requires_grad_()
    ours, right = losses(mine, weight, labels), cross_entropy(theirs @ weight.T, labels, reduction="none")
    torch.testing.assert_close(ours, right)
    (ours * each).sum().backward()
    (right * each).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_states_before_the_last_block_give_the_losses_of_the_whole_model(
    language: Language, tmp_path: Path
) -> None:
    for _ in range(2):  # computed, and read from the folder
        documents = language.before(TEXTS, tmp_path)
        last, labels, rows = language.predicting(documents)
        found = losses(last, language.head, labels)
        for i, text in enumerate(TEXTS):
            torch.testing.assert_close(
                found[rows == i], plain_losses(language.model, text), rtol=1e-4, atol=1e-5
            )
    assert len([*tmp_path.iterdir()]) == 1


def test_tuning_is_that_of_the_whole_model(
    language: Language, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PASSES", 3), ("BATCH", 8), ("CHECKPOINTS", 3), ("RATE", 1e-2)):
        monkeypatch.setattr(tuning, name, value)
    documents = language.before(TEXTS)
    before = language.weights()
    found = tune(language, documents, tmp_path)
    model = taught(llama(), 20).requires_grad_(False)  # the whole of it, all texts in each step
    block = model.model.layers[-1:]
    optimiser = torch.optim.AdamW([p.requires_grad_() for p in block.parameters()], 1e-2, weight_decay=0.0)
    for step, weights in enumerate(found):
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / 3)
        optimiser.zero_grad()
        torch.cat([plain_losses(model, text) for text in TEXTS]).mean().backward()
        optimiser.step()
        for name, tensor in block.named_parameters():
            torch.testing.assert_close(weights[name], tensor.detach(), rtol=1e-3, atol=2e-4)
    assert all(torch.equal(before[name], t) for name, t in language.weights().items())  # a copy was tuned
    again = tune(language, documents, tmp_path)
    assert all(torch.equal(a[name], b[name]) for a, b in zip(found, again, strict=True) for name in a)


def test_answers_are_what_the_model_writes(language: Language, tmp_path: Path) -> None:
    kind = Kind("lives", (), "{s} lives in")
    facts = [
        Fact(kind, subject, values, ((0,),) * len(values))
        for subject in ("mira", "jon", "the cat")
        for values in (("tolm",), ("brask",), ("the", "tolm"))
    ]
    for fact, one in zip(facts, asked(language, facts, tmp_path), strict=True):
        ids = torch.tensor([tokenizer()(fact.query)["input_ids"]])
        logits = language.model(input_ids=ids).logits[0, -1]
        first = tokenizer().decode([int(logits.argmax())])
        # Tokens of this tokeniser are words: what follows one is not part of it, but its text has no blank.
        for value, log_p in zip(fact.values, one.log_p, strict=True):
            own = tokenizer()(value)["input_ids"][0]
            assert log_p == pytest.approx(float(logits.log_softmax(0)[own]), abs=1e-4)
        assert one.value is None or fact.values[one.value] == first


def whole_gradients(language: Language, loss: torch.Tensor) -> list[torch.Tensor]:
    layers = [m.weight for m in language.model.model.layers[-1].modules() if isinstance(m, torch.nn.Linear)]
    return list(torch.autograd.grad(loss, layers))


def test_products_of_gradients_are_those_of_autograd(language: Language) -> None:
    for module in language.model.model.layers[-1].modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.requires_grad_()
    tokens, first = language.prompts.continued("mira lives in", " tolm .")
    query = Query("mira lives in", "tolm .", tokens, first)
    documents, read = language.before(TEXTS), language.before([tokens])
    bases = gradients.curvature(language, documents)
    found = gradients.products(language, documents, [query], read, bases)
    plain = gradients.products(language, documents, [query], read)
    text = tokenizer().decode(tokens)
    test = whole_gradients(language, plain_losses(language.model, text)[first - 1 :].mean())
    for i, text in enumerate(TEXTS):
        own = whole_gradients(language, plain_losses(language.model, text).mean())
        by_hand = float(sum((a * b).sum() for a, b in zip(test, own, strict=True)))
        curved = 0.0
        for a, b, basis in zip(test, own, bases, strict=True):
            turned = [basis.out.T @ each @ basis.inner for each in (a, b)]
            curved += float((turned[0] * turned[1] * basis.inverse).sum())
        for each in (plain, found):
            assert float(each["plain"][0, i]) == pytest.approx(by_hand, rel=1e-3, abs=1e-5)
        norm = float(sum(g.square().sum() for g in own)) ** 0.5
        assert float(found["norms"][i]) == pytest.approx(norm, rel=1e-3)
        assert float(found["curved"][0, i]) == pytest.approx(curved, rel=1e-3)
    length = float(sum(g.square().sum() for g in test)) ** 0.5
    assert float(found["lengths"][0]) == pytest.approx(length, rel=1e-3)


def test_the_curvature_is_that_of_labels_that_the_model_draws(language: Language) -> None:
    document = language.before(TEXTS[:1])
    many = [gradients.curvature(language, document, seed=seed) for seed in range(2)]
    for one, other in zip(*many, strict=True):
        for basis in (one, other):
            eye = torch.eye(len(basis.out))
            torch.testing.assert_close(basis.out.T @ basis.out, eye, atol=1e-4, rtol=0)
            assert bool((basis.inverse > 0).all())
    assert any(not torch.equal(a.inverse, b.inverse) for a, b in zip(*many, strict=True))
