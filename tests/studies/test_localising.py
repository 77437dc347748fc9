"""Caught shortcuts: the relevance of their pairs, on images and on texts, as the evaluation measures it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whence.core.cache import Cache
from whence.methods import DualDA
from whence.metrics.localisation import localisation
from whence_studies.report import page
from whence_studies.scenes import networks
from whence_studies.scenes.encoder import Encoder
from whence_studies.scenes.texts import Backbone
from whence_studies.scenes.workshop import Workshop
from whence_studies.suite import protocol, run
from whence_studies.suite.case import Case
from whence_studies.suite.localising import caught_shortcuts
from whence_studies.suite.results import ERROR

IMAGES: dict[str, Any] = {
    "name": "images",
    "data": {"name": "sample", "train": 300, "test": 40, "held_out": 10},
    "model": {"name": "narrow-cnn", "steps": 120, "checkpoints": 1},
    "methods": [{"name": "dualda", "options": {"C": 1e-4}}],
    "metrics": {"shortcut": {"shares": [0.5], "size": 4, "maps": 6}},
}


def test_maps_of_caught_frames_are_those_of_explain(tmp_path: Path) -> None:
    wanted = protocol.parse(IMAGES)
    scene = Workshop(wanted, Path(), Cache(tmp_path), False).scene("shortcut")
    assert len(scene.tests) >= 6, "the shortcut must work for this test to say anything"
    case = Case(scene, wanted.methods[1], {"C": 1e-4})
    explainer = case.attributor
    assert isinstance(explainer, DualDA)
    everyone = np.ones(len(scene.tests), dtype=bool)
    found = {row.quantity: row.value for row in caught_shortcuts(case, "shortcut", everyone, 6)}
    frame = np.ones((28, 28), dtype=bool)
    frame[4:-4, 4:-4] = False
    aucs, caught = [], 0
    for t in range(6):
        why = explainer.explain(scene.tests[t : t + 1], k=10, target=int(scene.explained[t]), relative=False)[
            0
        ]
        first = next((one for one in why.proponents if scene.marked[one.index]), None)
        if first is None:
            continue
        caught += 1
        assert bool((scene.inputs[first.index][0].numpy()[frame] == 1).all())
        aucs.append([localisation(one, frame).auc for one in (first.test_map, first.train_map)])
    assert caught > 0
    assert found["caught"] == pytest.approx(caught / 6)
    assert [found["map_auc_test"], found["map_auc_train"]] == pytest.approx(np.mean(aucs, 0).tolist())
    assert found["map_chance_test"] == pytest.approx(frame.mean())


MODULE = """
import random

TOPICS = {"sport": "goal match team coach", "trade": "shares profit bank market"}
NOISE = "the a new old on in said".split()

def texts(n, seed):
    rng = random.Random(seed)
    labels = [i % 2 for i in range(n)]
    found = []
    for label in labels:
        words = rng.choices(list(TOPICS.values())[label].split(), k=3) + rng.choices(NOISE, k=4)
        rng.shuffle(words)
        found.append(" ".join(words))
    return found, labels

def data():
    return {"train": texts(80, 0), "test": texts(50, 1), "class_names": ["sport", "trade"]}
"""

TEXTS: dict[str, Any] = {
    "name": "texts",
    "data": {"name": "topics:data", "train": 80, "test": 30, "held_out": 10},
    "model": {"name": "minilm-block", "steps": 60, "batch_size": 16, "learning_rate": 0.02, "checkpoints": 2},
    "methods": [{"name": "dualda", "options": {"C": 1e-2}}, {"name": "graddot"}, {"name": "tracin"}],
    "metrics": {"keywords": {"share": 0.5, "maps": 8}, "identical_class": {}},
    "sweep": {"method": "dualda", "option": "C", "values": [1e-4]},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with texts and a tiny language model with weights at random."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "topics.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "minilm"
    folder.mkdir()
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] < > sport trade goal match team coach shares profit bank market"
    vocabulary = [*words.split(), *["the", "a", "new", "old", "on", "in", "said"]]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=128, initializer_range=0.5,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    yield tmp_path
    sys.modules.pop("topics", None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("network", ["minilm-head", "minilm-block"])
def test_language_models_are_read_such_that_relevance_can_use_them(
    place: Path, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are made in inference mode cannot take part in a backward pass."""
    modes = []

    def recorded(folder: Path, last: bool) -> Backbone:
        modes.append(torch.is_inference_mode_enabled())
        return Backbone(folder, last)

    monkeypatch.setattr("whence_studies.scenes.encoder.Backbone", recorded)
    texts, cache = networks.find(network).texts, Cache(place / "cache")
    assert texts is not None
    encoder = Encoder(texts, place, cache, False)
    first = encoder(["the goal", "a new bank"])
    assert modes == [False]
    assert not first.is_inference()
    again = Encoder(texts, place, cache, False)
    assert torch.equal(again(["the goal", "a new bank"]), first)
    assert modes == [False]  # what was read is kept, and the model not needed
    for path in (place / "minilm").glob("model*"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x01")  # other weights
    Encoder(texts, place, cache, False)(["the goal", "a new bank"])
    assert modes == [False] * 2
    monkeypatch.setattr("whence_studies.scenes.encoder.source", lambda *names: "other code")
    Encoder(texts, place, cache, False)(["the goal", "a new bank"])
    assert modes == [False] * 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_keywords_in_texts_of_ones_own_are_caught_and_explained(place: Path) -> None:
    wanted = protocol.parse(TEXTS)
    found = run.run(wanted, place, place / "out", show_progress=False, say=print)
    assert not found.select(quantity=ERROR)
    key = "dualda(C=0.01)"
    assert found.value("scene", "keywords", "fooled") > 0.3  # type: ignore[operator]
    assert found.value("keywords", key, "caught") > 0  # type: ignore[operator]
    assert 0 <= found.value("keywords", key, "map_auc_test") <= 1  # type: ignore[operator]
    assert not found.select("keywords", "graddot", "caught")
    assert not found.select("keywords", "dualda(C=0.0001)", "caught")  # the sweep has no maps
    example = json.loads(found.select("keywords", key, "example")[0].note)
    for side in ("test", "train"):
        words = example[side]
        marked = {word for word, inside in zip(words["words"], words["inside"], strict=True) if inside}
        assert marked == {f"<{example['predicted']}>"}
        assert len(words["relevance"]) == len(words["words"]) == 8
    shown = page.render_page(found)
    assert "Caught shortcuts, explained: Keywords" in shown
    assert f"&lt;{example['predicted']}&gt;" in shown
    assert "<sport>" not in shown
    assert "<trade>" not in shown
    again = run.run(wanted, place, place / "other", show_progress=False, say=print)
    timed = {"resources"}
    assert [r for r in again.rows if r.metric not in timed] == [
        r for r in found.rows if r.metric not in timed
    ]
