"""Language models by the command line: fit --causal, explain --prompt, and what else opens such a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.helpers.commands import mistake, place_of, run
from tests.helpers.writers import TEXTS

MODULE = """
from tests.helpers.writers import TEXTS, llama, taught, tokenizer
from whence.data import Corpus

texts = list(TEXTS)
held_out = ["the cat is cold .", "jon is far from the sea ."]
more = ["the mat is blue ."]

def model():
    return taught(llama(), 40)

def corpus():
    return Corpus(texts, tokenizer(), titles=[f"sentence {i}" for i in range(len(texts))])
"""
NAMED = ("--model", "my_words:model", "--data", "my_words:texts", "--tokenizer", "my_words:tokenizer")
FIT = ("fit", "--causal", *NAMED, "--C", "0.05", "--out", "x.whence")


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return place_of(tmp_path, monkeypatch, "my_words", MODULE)


def test_fit_explain_and_info(words: Path) -> None:
    said = run(*FIT, "--test", "my_words:held_out").stdout
    assert "24 features to 29 tokens" in said
    assert "51 rows × 24" in said
    assert "on 10 places of held-out documents" in said
    assert "whence explain x.whence --trust --prompt TEXT --out why" in said
    assert json.loads((words / "x.whence.json").read_text())["task"] == "tokens"
    page = run("explain", "x.whence", "--prompt", "mira lives in", "--max-new-tokens", "2", "--out", "why")
    assert page.stdout.strip() == str(words / "why" / "index.html")
    found = json.loads((words / "why" / "trace.json").read_text())
    assert found["written"]
    assert found["tokens"][0]["text"] == " tolm"
    assert {one["title"] for one in found["tokens"][0]["proponents"]} == {TEXTS[2], TEXTS[3]}
    assert sum(band["places"] for band in found["bands"]) == 10
    html = (words / "why" / "index.html").read_text()
    assert "that it has not seen" in html
    run("explain", "x.whence", "--prompt", "the", "--continuation", " sea is", "--out", "given", "-k", "2")
    assert json.loads((words / "given" / "trace.json").read_text())["answer"] == " sea is"
    info = run("info", "x.whence").stdout
    assert "tokens" in info
    assert "51" in info
    run("explain", "x.whence", "--tests", "0", "--out", "test", "-k", "2")
    assert (words / "test" / "test-0.png").exists()
    named = run("attribute", "x.whence", "--tests", "1", "-k", "2").stdout
    assert "cold" in named or "brown" in named or "." in named


def test_a_corpus_by_its_name(words: Path) -> None:
    data = ("--model", "my_words:model", "--data", "my_words:corpus")
    run("fit", "--causal", *data, "--C", "0.05", "--no-cache", "--out", "x.whence")
    run("explain", "x.whence", "--prompt", "mira lives in", "--continuation", " tolm", "--out", "why")
    found = json.loads((words / "why" / "trace.json").read_text())
    assert {one["title"] for one in found["tokens"][0]["proponents"]} == {"sentence 2", "sentence 3"}
    run("fit", "--config", "x.whence.json", "--out", "again.whence")
    assert (words / "again.whence").exists()


def test_what_is_refused(words: Path) -> None:
    data = ("--model", "my_words:model", "--data", "my_words:texts", "--out", "x.whence")
    assert "--tokenizer" in str(mistake("fit", "--causal", *data))
    assert "--causal" in str(mistake("fit", "--causal", *data, "--task", "classes"))
    assert "--prompt" in str(mistake("explain", "x.whence", "--out", "why"))
    both = ("--tests", "0", "--prompt", "the")
    for wrong in (("--prompt", "the", "--effects"), ("--tests", "0", "--continuation", "the")):
        assert f"{wrong[2]} must be left out" in str(mistake("explain", "x.whence", "--out", "why", *wrong))
    assert "tests and prompt" in str(mistake("explain", "x.whence", "--out", "why", *both))


def test_several_corpora_and_updates_are_of_all_documents(words: Path) -> None:
    data = ("--model", "my_words:model", "--tokenizer", "my_words:tokenizer")
    fit = ("fit", "--causal", *data, "--C", "0.05", "--out", "both.whence")
    assert "55 rows" in run(*fit, "--data", "my_words:texts+my_words:more").stdout
    run(*FIT)
    said = run("update", "x.whence", "--add", "my_words:more", "--remove", "2").stdout
    assert "4 samples added, 4 samples removed" in said
    for name, titles in (("both", {TEXTS[2], TEXTS[3]}), ("x", {TEXTS[3]})):
        run(
            "explain", f"{name}.whence", "--prompt", "mira lives in", "--continuation", " tolm", "--out", name
        )
        found = json.loads((words / name / "trace.json").read_text())
        assert {one["title"] for one in found["tokens"][0]["proponents"]} == titles
    run("explain", "x.whence", "--prompt", "the mat is", "--continuation", " blue", "--out", "new")
    found = json.loads((words / "new" / "trace.json").read_text())
    assert "the mat is blue ." in {one["title"] for one in found["tokens"][0]["proponents"]}
    run("update", "x.whence", "--remove", "3")
    run("explain", "x.whence", "--prompt", "mira lives in", "--continuation", " tolm", "--out", "none")
    assert not json.loads((words / "none" / "trace.json").read_text())["tokens"][0]["proponents"]
    assert "left out already" in str(mistake("update", "x.whence", "--remove", "2"))
    assert "'relabel'" in str(mistake("update", "x.whence", "--relabel", "0=3"))


def test_what_is_of_classes_says_what_to_do_instead(words: Path) -> None:
    run(*FIT, "--test", "my_words:held_out")
    for view in ("labels", "classes", "coreset", "shortcut", "novelty"):
        assert "trace(prompt)" in str(mistake("audit", "x.whence", "--view", view))
    assert "explain --prompt" in str(mistake("report", "x.whence", "--tests", "0", "--out", "r.html"))


def test_a_classifier_writes_nothing(fitted: Path) -> None:
    wrong = mistake("explain", "x.whence", "--prompt", "the", "--out", "why")
    assert "causal language model" in str(wrong)
