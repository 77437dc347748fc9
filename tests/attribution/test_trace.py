"""Traces of answers: sums, passages and documents, compared with their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")


import whence
from tests.helpers.untouched import assert_untouched, snapshot
from tests.helpers.writers import TEXTS, adapted, gpt2, llama, taught, tokenizer
from whence import DualDA
from whence.data import Corpus
from whence.errors import InvalidInputError
from whence.features import FeatureBank
from whence.svm import solve


@pytest.fixture(scope="module")
def model() -> Any:
    return taught(llama())


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus(TEXTS, tokenizer())


@pytest.fixture(scope="module")
def explainer(model: Any, corpus: Corpus) -> DualDA:
    return DualDA(metric="raw", C=0.05, tol=1e-9, show_progress=False).fit(model, corpus)


def test_the_model_writes_greedily_and_counts_as_unchanged(explainer: DualDA, model: Any) -> None:
    before = snapshot(model)
    trace = explainer.trace("mira lives in", max_new_tokens=3)
    ids = tokenizer()("mira lives in", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        for _ in range(len(trace)):
            ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
    assert trace.ids.tolist() == ids[0].tolist()
    assert trace.written
    assert trace.start == 3
    assert trace.prompt + trace.answer == tokenizer().decode(ids[0])
    assert repr(trace).startswith("Trace(prompt='mira lives in'")
    assert [token.rank for token in trace.tokens] == [1] * len(trace)
    assert_untouched(before, model)
    explainer.fitted_.require_model().check_unchanged()


def test_chances_and_ranks_are_the_models_own(explainer: DualDA, model: Any) -> None:
    trace = explainer.trace("the cat", " sat on the sea")
    assert trace.answer == " sat on the sea"
    assert not trace.written
    with torch.no_grad():
        chances = model(input_ids=torch.tensor(trace.ids)[None]).logits[0].double().softmax(1)
    for i, token in enumerate(trace.tokens):
        row = chances[trace.start + i - 1]
        assert token.id == trace.ids[trace.start + i]
        assert token.probability == pytest.approx(float(row[token.id]), rel=1e-4)
        assert token.rank == 1 + int((row > row[token.id]).sum())
        assert token.first == tokenizer().decode([int(row.argmax())])
        assert token.count == sum(text.split()[1:].count(token.first) for text in TEXTS)


def test_scores_of_documents_sum_to_the_logits(explainer: DualDA, corpus: Corpus) -> None:
    trace = explainer.trace("the dog", " is blue .", k=3)
    features = torch.tensor(hidden(explainer, trace)).double()
    W = torch.as_tensor(explainer.coef_)
    logits = features @ W[:, :-1].T + W[:, -1]
    for i, token in enumerate(trace.tokens):
        assert token.logit == pytest.approx(float(logits[i, token.id]), abs=1e-4)
        assert token.agrees == (token.first == token.surrogate_first)
        assert token.surrogate_first == tokenizer().decode([int(logits[i].argmax())])
        assert token.evidence_for + token.evidence_against == pytest.approx(token.logit, abs=1e-4)
    assert trace.scores.shape == (len(trace), len(TEXTS))
    np.testing.assert_allclose(trace.scores.sum(axis=1), [token.logit for token in trace.tokens], atol=1e-4)
    # τ = λ (f_i·f(x) + b²), summed by hand over the places of each document.
    lam, every = (
        explainer.lam_.toarray(),
        explainer.attribute([trace.ids[:2]], trace.ids[[2]].tolist())[0].numpy(),
    )
    by_hand = [every[corpus.document == d].sum() for d in range(len(TEXTS))]
    np.testing.assert_allclose(trace.scores.toarray()[0], by_hand, atol=1e-5)
    assert lam[:, trace.ids[2]][every != 0].all()
    whole = trace.scores.toarray().sum(axis=0)
    assert [source.document for source in trace.proponents] == np.argsort(-whole)[:3].tolist()[
        : len(trace.proponents)
    ]
    assert all(source.score < 0 for source in trace.opponents)
    np.testing.assert_allclose(
        trace.proponents[0].scores, trace.scores.toarray()[:, trace.proponents[0].document]
    )


def hidden(explainer: DualDA, trace: Any) -> Any:
    import copy

    oracle = copy.deepcopy(explainer.fitted_.require_model().extractor.model.language_model)
    with torch.no_grad():
        states = oracle(input_ids=torch.tensor(trace.ids)[None], output_hidden_states=True).hidden_states[-1]
    return states[0, trace.start - 1 : -1].numpy()


def test_passages_are_the_strongest_places(explainer: DualDA, corpus: Corpus) -> None:
    trace = explainer.trace("mira lives in", k=2, max_new_tokens=1)
    (token,) = trace.tokens
    top = explainer.top_k(["mira lives in"], 2, token.id, relative=False)  # whose documents sum to the logit
    for side, ranked in ((token.proponents, top.proponents), (token.opponents, top.opponents)):
        kept = ranked.indices[0] >= 0
        assert [one.index for one in side] == ranked.indices[0][kept].tolist()
        np.testing.assert_allclose([one.score for one in side], ranked.scores[0][kept], rtol=1e-5)
        for one in side:
            assert "".join(one.around) == TEXTS[one.document] == one.title
            assert one.token.split() == [TEXTS[one.document].split()[one.place]]
    assert token.text == " tolm"
    assert {one.document for one in token.proponents} == {2, 3}  # all that is said of it


def test_a_token_is_explained_with_maps(explainer: DualDA) -> None:
    trace = explainer.trace("mira lives in", " tolm .", k=2)
    why = trace.explain(1)
    assert why.target == trace.ids[-1]
    assert why.logit == pytest.approx(trace[1].logit, abs=1e-5)
    assert len(why.logit_map) == 4
    shown = {i for one in why.proponents for i in (one.index, *one.alike)}  # near-duplicates are folded
    assert shown >= {one.index for one in trace[1].proponents}
    assert trace.explain(-1).target == why.target
    for wrong in (2, "tolm", True):
        with pytest.raises(InvalidInputError, match="'token'"):
            trace.explain(wrong)


def test_without_a_document_is_a_fresh_solution_on_the_others(explainer: DualDA, corpus: Corpus) -> None:
    trace = explainer.trace("mira lives in", " tolm .")
    found = trace.without([2])
    states = torch.stack(
        [explainer.fitted_.require_model().read([corpus[i][0]], 1).features[0] for i in range(len(corpus))]
    )
    keep = corpus.document != 2
    fresh = solve(
        states.numpy()[keep],
        corpus.labels[keep],
        n_classes=len(tokenizer()),
        C=0.05,
        bias=explainer.constant_,
        tol=1e-9,
    ).weight
    features = hidden(explainer, trace).astype(np.float64)
    logits = features @ fresh[:, :-1].T + fresh[:, -1]
    assert found.documents == (2,)
    assert found.n_samples == 4
    assert found.titles == (TEXTS[2],)
    for i, token in enumerate(found.tokens):
        assert token.after == pytest.approx(logits[i, trace[i].id], abs=1e-3)
        assert token.before == pytest.approx(trace[i].logit, abs=1e-5)
        assert token.is_first == (logits[i].argmax() == trace[i].id)
        assert token.instead == tokenizer().decode([int(logits[i].argmax())])
    both = trace.without([2, 3])  # nobody else names the town
    assert both.tokens[0].after <= 0
    assert not both.tokens[0].is_first
    assert " tolm" in both.lost
    given = trace.without([2], states.numpy())
    assert given.tokens[0].after == pytest.approx(found.tokens[0].after, abs=1e-5)


@pytest.mark.parametrize("documents", [[8], [-9], "2", [], [0.5]])
def test_without_what_is_no_document(explainer: DualDA, documents: Any) -> None:
    with pytest.raises(InvalidInputError, match="'documents'"):
        explainer.trace("mira lives in", " tolm").without(documents)


def test_agreement_by_frequency(explainer: DualDA, model: Any, corpus: Corpus) -> None:
    found = explainer.faithfulness_by_frequency()
    counts = np.bincount(corpus.labels, minlength=len(tokenizer()))
    sums: dict[str, list[tuple[bool, bool]]] = {band.name: [] for band in found.bands}
    W = explainer.coef_
    for i in range(len(corpus)):
        read = explainer.fitted_.require_model().read([corpus[i][0]], 1)
        theirs = int(read.logits.argmax())
        ours = W[:, :-1] @ read.features[0].double().numpy() + W[:, -1]
        rival = np.delete(ours, theirs).max()
        name = "0" if counts[theirs] == 0 else "1–9" if counts[theirs] < 10 else "10–99"
        # Logits on the margin are equal but for rounding: such a place may count either way.
        sums[name].append((bool(ours[theirs] > rival + 1e-5), bool(ours[theirs] > rival - 1e-5)))
    assert [band.places for band in found.bands] == [len(one) for one in sums.values()]
    for band, places in zip(found.bands, sums.values(), strict=True):
        if places:
            least, most = np.mean(places, axis=0)
            assert least <= band.agreement <= most
        else:
            assert band.agreement is None
    assert not found.held_out
    assert found.places == len(corpus)
    least, most = np.mean([place for places in sums.values() for place in places], axis=0)
    assert 0.8 < least <= found.agreement <= most
    other = explainer.faithfulness_by_frequency(["the cat is cold .", "jon is far"])
    assert other.held_out
    assert other.places == 6
    trace = explainer.trace("the cat", " is", bands=found)
    assert trace.band(0) == found.of_count(trace[0].count)
    assert "In places like" not in explainer.trace("the cat", " is").to_html()
    assert "In places like" in trace.to_html()


def test_many_places_are_looked_at_by_whole_documents(explainer: DualDA) -> None:
    many = explainer.faithfulness_by_frequency([" ".join(["the sea is cold"] * 10)] * 90)
    assert many.places == 3_000


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda e: e.trace(3), "'prompt'"),
        (lambda e: e.trace(""), "'prompt'"),
        (lambda e: e.trace("", " the"), "'prompt'"),
        (lambda e: e.trace("the", 3), "'continuation'"),
        (lambda e: e.trace("the", ""), "'continuation'"),
        (lambda e: e.trace("the " * 60), "at most 48"),
        (lambda e: e.trace("the", " sea" * 60), "at most 48"),
        (lambda e: e.trace("the", k=0), "'k'"),
        (lambda e: e.trace("the", max_new_tokens=0), "'max_new_tokens'"),
        (lambda e: e.trace("mira lives in tolm ."), "end of the text"),
    ],
)
def test_what_cannot_be_traced(explainer: DualDA, call: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        call(explainer)


def test_an_explainer_of_classes_traces_nothing() -> None:
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    explainer = DualDA(metric="raw", C=0.1, show_progress=False).fit(torch.nn.Linear(3, 2), (x, y))
    with pytest.raises(InvalidInputError, match="causal language model"):
        explainer.trace("the")


@pytest.mark.parametrize("build", [gpt2, adapted])
def test_other_models(build: Any, corpus: Corpus) -> None:
    if build is adapted:
        pytest.importorskip("peft")
    model = taught(build(), 10)
    model.generation_config.eos_token_id = None  # which it would write at once
    explainer = DualDA(metric="raw", C=0.05, show_progress=False).fit(
        model, list(TEXTS), tokenizer=tokenizer()
    )
    trace = explainer.trace("the cat", " sat on")
    np.testing.assert_allclose(trace.scores.sum(axis=1), [token.logit for token in trace.tokens], atol=1e-4)
    assert len(explainer.trace("the cat", max_new_tokens=2)) == 2
    assert trace.explain(0).target == trace[0].id


def test_prompts_that_were_not_learned_and_windows(model: Any) -> None:
    pairs = [{"prompt": "mira lives in", "completion": " tolm ."}, {"text": TEXTS[7]}, {"text": TEXTS[4]}]
    corpus = Corpus(pairs, tokenizer(), length=4)
    explainer = DualDA(metric="raw", C=0.05, show_progress=False).fit(model, corpus)
    assert explainer.n_train_ == 2 + 9 + 4
    trace = explainer.trace("mira lives in", " tolm")
    assert trace[0].proponents[0].around == ("mira lives in", " tolm", " .")
    np.testing.assert_allclose(trace.scores.sum(axis=1), [trace[0].logit], atol=1e-4)


def test_saved_and_loaded_with_its_corpus(
    explainer: DualDA, model: Any, corpus: Corpus, tmp_path: Any
) -> None:
    explainer.save(tmp_path / "x.whence")
    loaded = whence.load(tmp_path / "x.whence", model=model, data=corpus)
    before, after = (one.trace("mira lives in", k=2, max_new_tokens=2) for one in (explainer, loaded))
    assert after.to_dict() == before.to_dict()
    with pytest.raises(InvalidInputError):
        whence.load(tmp_path / "x.whence", model=model, data=Corpus(TEXTS[::-1], tokenizer()))


def test_a_fit_of_features_has_nothing_to_trace(explainer: DualDA) -> None:
    bank = FeatureBank.of(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2)
    with pytest.raises(whence.errors.NotFittedError):
        DualDA(metric="raw", C=0.1, show_progress=False).fit(features=bank).trace("the")


def test_documents_that_are_added_and_left_out(explainer: DualDA, model: Any) -> None:
    first = Corpus(TEXTS[:6], tokenizer())
    changing = DualDA(metric="raw", C=0.05, tol=1e-9, show_progress=False).fit(model, first)
    changing.update(add=list(TEXTS[6:]), remove=first.of_documents([2]).tolist())
    kept = [text for i, text in enumerate(TEXTS) if i != 2]
    fresh = DualDA(metric="raw", C=0.05, tol=1e-9, show_progress=False).fit(model, Corpus(kept, tokenizer()))
    before, after = (one.trace("mira lives in", " tolm .", k=3) for one in (changing, fresh))
    for mine, theirs in zip(before.tokens, after.tokens, strict=True):
        assert mine.logit == pytest.approx(theirs.logit, abs=1e-3)
        assert mine.count == theirs.count
        assert [one.title for one in mine.proponents] == [one.title for one in theirs.proponents]
        assert [one.around for one in mine.proponents] == [one.around for one in theirs.proponents]
    assert before.n_documents == 8
    assert before.scores.toarray()[:, 2].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(
        np.delete(before.scores.toarray(), 2, axis=1), after.scores.toarray(), atol=1e-3
    )
    assert before.without([3]).tokens[0].after == pytest.approx(after.without([2]).tokens[0].after, abs=1e-3)
    with pytest.raises(InvalidInputError, match="left out already"):
        before.without([2])
    with pytest.raises(InvalidInputError, match="'relabel' must be left out"):
        changing.update(relabel={0: 3})


def test_a_share_of_the_places_is_fitted(model: Any, corpus: Corpus) -> None:
    losses = whence.model.token_losses(llama(), corpus, show_progress=False)
    explainer = DualDA(metric="raw", C=0.05, show_progress=False).fit(model, corpus.hardest(losses, 0.5))
    trace = explainer.trace("mira lives in", " tolm .")
    assert explainer.n_train_ == round(0.5 * len(corpus))
    np.testing.assert_allclose(trace.scores.sum(axis=1), [token.logit for token in trace.tokens], atol=1e-4)
    assert "".join(trace[1].proponents[0].around) == TEXTS[trace[1].proponents[0].document]


@pytest.mark.parametrize(
    "audit",
    [
        whence.audit.wrong_labels,
        whence.audit.class_view,
        lambda e: whence.audit.shortcuts(e, target=3),
        lambda e: whence.audit.coreset(e, share=0.5, x=["the sea"]),
    ],
)
def test_documents_are_not_audited(explainer: DualDA, audit: Any) -> None:
    with pytest.raises(InvalidInputError, match="places of documents"):
        audit(explainer)


def test_C_is_chosen_of_a_vocabulary_of_which_most_is_absent(model: Any, corpus: Corpus) -> None:
    import copy

    wide = copy.deepcopy(model)
    wide.resize_token_embeddings(300, mean_resizing=False)
    explainer = DualDA(metric="raw", show_progress=False, tol=1e-4).fit(wide, corpus)
    assert explainer.coef_.shape == (300, 25)
    choice = explainer.C_path_
    assert explainer.C_ == choice.C
    absent = np.setdiff1d(np.arange(300), corpus.labels)
    assert np.ptp(explainer.coef_[absent], axis=0).max() == 0


def test_documents_with_one_text_are_one(model: Any) -> None:
    texts = [*TEXTS, TEXTS[2], TEXTS[2]]
    explainer = DualDA(metric="raw", C=0.05, tol=1e-9, show_progress=False).fit(
        model, texts, tokenizer=tokenizer()
    )
    trace = explainer.trace("mira lives in", " tolm .", k=3)
    whole = trace.scores.toarray()
    for source in trace.proponents:
        same = [i for i, text in enumerate(texts) if text == texts[source.document]]
        assert (source.document, *source.copies) == tuple(same)
        np.testing.assert_allclose(source.scores, whole[:, same].sum(axis=1), atol=1e-9)
    assert [source.copies for source in trace.proponents if source.document == 2] == [(8, 9)]
    (first,) = [one for one in trace[0].proponents if one.title == TEXTS[2]]
    assert first.copies == (8, 9)
    every = explainer.attribute(["mira lives in"], trace[0].id)[0].numpy()
    corpus = Corpus(texts, tokenizer())
    there = [i for i in range(len(corpus)) if corpus.position(i)[0] in (2, 8, 9) and corpus.place[i] == 3]
    assert first.score == pytest.approx(every[there].sum(), abs=1e-5)
    assert "document 2, the same as 8, 9" in trace.to_html()
