"""The change list and the slices of the explorer, against NumPy and changes that are named in full."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.explored import M, N, connect, get, picture_project, pictures, post
from whence.audit import wrong_labels
from whence.core.ranges import parse_ranges
from whence.project import Project
from whence.ui.explorer import Explorer


@pytest.fixture
def desk(explorer: Explorer) -> Any:
    """A client of an explorer whose change list is empty."""
    explorer.project.work.clear()
    for one in explorer.project.work.slices:
        explorer.project.work.delete_slice(one.name)
    return connect(explorer)


def test_the_list_is_kept_and_taken_back(desk: Any) -> None:
    empty = get(desk, "/api/changes")
    assert (empty["entries"], empty["saved"], empty["counts"]["changed"]) == ([], None, 0)
    post(desk, "/api/changes", {"action": "remove", "samples": [3, 1, 2, 6], "why": "blurred", "who": "Ada"})
    post(desk, "/api/changes", {"action": "flag", "samples": "20-24"})
    answer = post(desk, "/api/changes", {"action": "relabel", "label": 2, "samples": [6, 9, 8]})  # 8 is 2
    assert answer["marks"] == {"remove": "1-3", "flag": "20-24", "keep": "8", "relabel": {"2": "6,9"}}
    assert answer["counts"] == {"keep": 1, "flag": 5, "remove": 3, "relabel": 2, "changed": 5}
    first = answer["entries"][0]
    assert (first["n"], first["samples"], first["why"], first["who"]) == (4, "1-3,6", "blurred", "Ada")
    assert (answer["entries"][2]["label"], answer["entries"][2]["who"]) == (2, empty["who"])
    last = answer["entries"][2]["id"]
    assert post(desk, f"/api/changes/{last}/remove")["marks"]["remove"] == "1-3,6"
    assert post(desk, "/api/changes/clear")["entries"] == []
    assert len(post(desk, "/api/changes/undo")["entries"]) == 2
    assert post(desk, "/api/changes/undo")["marks"]["relabel"] == {"2": "6,9"}


def test_groups(desk: Any, explorer: Explorer) -> None:
    labels = pictures(N, 0)[1].numpy()
    post(desk, "/api/slices", {"name": "begin", "of": "training", "samples": "0-29"})
    group = {"by": "samples", "label": 1, "slice": "begin"}
    answer = post(desk, "/api/changes", {"action": "flag", "group": group})
    wanted = np.flatnonzero(labels[:30] == 1)
    assert parse_ranges(answer["entries"][-1]["samples"], N).tolist() == wanted.tolist()

    ranking = wrong_labels(explorer.project.explainer, features=explorer.project.train_bank)
    above = float(np.sort(ranking.scores)[-4])  # three are above
    audit = {"by": "wrong labels", "above": above}
    answer = post(desk, "/api/changes", {"action": "relabel", "label": "suggested", "group": audit})
    top = ranking.scores > above
    said = {(int(i), int(c)) for i, c in zip(ranking.indices[top], ranking.suggested[top], strict=True)}
    assert {(i, c) for i, c in said if labels[i] != c} == set(explorer.project.work.marks().relabel.items())
    answer = post(desk, "/api/changes", {"action": "remove", "group": {"by": "wrong labels"}})
    assert answer["counts"]["remove"] == int(ranking.likely.sum())
    one = int(ranking.indices[ranking.likely][0])
    answer = post(desk, "/api/changes", {"action": "relabel", "label": "suggested", "samples": [one]})
    assert answer["entries"][-1]["label"] == int(ranking.suggested[ranking.likely][0])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"action": "remove", "samples": [N]}, "'samples' must lie in"),
        ({"action": "remove"}, "'samples' or 'group'"),
        ({"action": "remove", "samples": [1], "group": {"by": "wrong labels"}}, "'samples' or 'group'"),
        ({"action": "remove", "samples": "x"}, "indices such as"),
        ({"action": "relabel", "label": 3, "samples": [1]}, "'label' must lie in"),
        ({"action": "remove", "label": 1, "samples": [1]}, "only then"),
        ({"action": "relabel", "label": "suggested", "samples": [N]}, "'samples' must lie in"),
        ({"action": "remove", "group": {"by": "samples", "search": "none of them"}}, "matches none"),
        ({"action": "remove", "group": {"by": "samples", "slice": "gone"}}, "name of a slice"),
        ({"action": "remove", "group": {"by": "samples", "to": 1}}, "Extra inputs"),
        ({"action": "burn", "samples": [1]}, "'keep'"),
        ({"action": "flag", "samples": [1], "why": "x" * 501}, "at most 500"),
        ({"action": "flag", "samples": [1.5]}, "valid integer"),
    ],
)
def test_wrong_markings_are_refused(desk: Any, body: Any, words: str) -> None:
    answer = desk.post("/api/changes", json=body)
    assert answer.status_code == 422
    assert words in answer.text, answer.text
    assert get(desk, "/api/changes")["entries"] == []


def test_the_saved_list_is_asked_about(desk: Any) -> None:
    post(desk, "/api/changes", {"action": "remove", "samples": "0-8"})
    post(desk, "/api/changes", {"action": "relabel", "label": 1, "samples": [2, 3]})
    post(desk, "/api/changes", {"action": "keep", "samples": [0]})
    post(desk, "/api/changes", {"action": "flag", "samples": [40, 41]})
    by_list = post(desk, "/api/whatif/tests", {"saved": True, "remove": [50], "relabel": {5: 1}})["result"]
    named = {"remove": [1, 4, 6, 7, 8, 50], "relabel": {2: 1, 3: 1, 5: 1}}
    by_name = post(desk, "/api/whatif/tests", named)["result"]
    assert (by_list["n_removed"], by_list["n_relabelled"]) == (6, 3)
    assert [by_list[key] for key in ("after", "changed")] == [by_name[key] for key in ("after", "changed")]
    one = post(desk, "/api/whatif", {"test": 4, "saved": True})["result"]
    assert one["before"] != one["after"]


def test_slices_filter_the_lists(desk: Any, explorer: Explorer) -> None:
    x, y = pictures(M, 1)
    with torch.no_grad():
        predicted = explorer.project.explainer.fitted_.require_model().extractor.model(x).argmax(1)
    wrong = np.flatnonzero((predicted != y).numpy())
    post(desk, "/api/slices", {"name": "wrong ones", "of": "tests", "filters": {"wrong": True}})
    post(desk, "/api/slices", {"name": "tail & more", "of": "training", "filters": {"search": "80-89"}})
    answer = post(desk, "/api/slices", {"name": "some", "of": "tests", "samples": [0, 1, 2]})
    assert [(s["name"], s["of"], s["n"]) for s in answer["slices"]] == [
        ("wrong ones", "tests", len(wrong)), ("tail & more", "training", 10), ("some", "tests", 3),
    ]  # fmt: skip
    rows = get(desk, "/api/tests?slice=wrong%20ones&limit=200")["rows"]
    assert [row["index"] for row in rows] == wrong.tolist()
    assert get(desk, "/api/training?slice=tail%20%26%20more&label=2")["total"] == int(
        (pictures(N, 0)[1][80:90] == 2).sum()
    )
    assert desk.get("/api/tests?slice=tail%20%26%20more").status_code == 422
    assert len(post(desk, "/api/slices/tail%20%26%20more/delete")["slices"]) == 2
    assert desk.post("/api/slices/gone/delete").status_code == 422
    assert desk.post("/api/slices", json={"name": "a/b", "of": "tests", "samples": [1]}).status_code == 422


def test_slices_are_compared(desk: Any, explorer: Explorer) -> None:
    post(desk, "/api/slices", {"name": "tests", "of": "tests", "samples": "0-9"})
    post(desk, "/api/slices", {"name": "train", "of": "training", "samples": "0-19"})
    tests, train = get(desk, "/api/slices/compare?names=tests&names=train")["slices"]
    explainer = explorer.project.explainer
    model = explainer.fitted_.require_model().extractor.model
    for row, (x, y), n in ((tests, pictures(M, 1), 10), (train, pictures(N, 0), 20)):
        with torch.no_grad():
            logits = model(x[:n]).double()
        assert row["n"] == n
        assert row["accuracy"] == pytest.approx(float((logits.argmax(1) == y[:n]).double().mean()))
        doubt = 1 - logits.softmax(1)[torch.arange(n), y[:n]]
        assert row["doubt"] == pytest.approx(float(doubt.mean()), rel=1e-4)
        assert row["labels"] == np.bincount(y[:n], minlength=3).tolist()
    # Scores relative to the mean training sample, by their definition: λ_ic z_i·(z(x) − mean).
    surrogate = explainer.surrogate_
    z = explorer.tests.features.double().numpy()
    lam, vectors = surrogate.lam.toarray(), surrogate.vectors.double().cpu().numpy()
    targets, mean = explorer.tests.targets, surrogate.solution.means[0]
    scores = np.zeros((M, N))
    scores[:, surrogate.support] = (z - mean) @ vectors.T * lam[surrogate.support][:, targets].T
    assert tests["evidence_for"] == pytest.approx(scores[:10].clip(0).sum(1).mean(), rel=1e-4)
    assert tests["evidence_against"] == pytest.approx(scores[:10].clip(None, 0).sum(1).mean(), rel=1e-4)
    assert train["evidence_for"] == pytest.approx(scores[:, :20].clip(0).sum(1).mean(), rel=1e-4)
    assert train["evidence_against"] == pytest.approx(scores[:, :20].clip(None, 0).sum(1).mean(), rel=1e-4)
    assert (tests["evidence_tests"], train["evidence_tests"]) == (10, M)


def test_a_list_outlives_the_server(tmp_path: Path) -> None:
    made = picture_project()
    path = tmp_path / "small.whence"
    made.explainer.save(path)

    def opened() -> Any:
        return connect(Explorer(Project(path, made.configuration, made.attributor, made.tests)))

    answer = post(opened(), "/api/changes", {"action": "remove", "samples": "5-9"})
    assert answer["saved"] == f"{path}.work.json"
    assert get(opened(), "/api/changes")["marks"]["remove"] == "5-9"
    file = Path(answer["saved"])
    file.write_text(json.dumps(json.loads(file.read_text()) | {"n_train": N + 1}))
    refused = opened().get("/api/changes")
    assert refused.status_code == 422
    assert "another training set" in refused.text
    assert opened().get("/api/training").status_code == 200, "the rest of the page still works"


def test_first_order_is_answered_at_once(desk: Any, explorer: Explorer) -> None:
    fresh = connect(Explorer(explorer.project))
    waits = post(fresh, "/api/whatif/first", {"remove": [1]})
    assert (waits["ready"], waits["start"], waits["n_removed"]) == (False, "/api/effects", 1)
    assert "POST /api/effects" in waits["words"]

    effects = explorer.solved.effects.result()
    gone, new = list(range(0, 60, 3)), {1: 2, 4: 0}
    post(desk, "/api/changes", {"action": "remove", "samples": gone})
    answer = post(desk, "/api/whatif/first", {"saved": True, "relabel": new})
    x, y = pictures(M, 1)
    logits = effects.decision_function(x).double().numpy()
    order = np.argsort(-logits, axis=1, kind="stable")
    columns = answer["tests"]
    assert (columns["class"], columns["runner_up"]) == (order[:, 0].tolist(), order[:, 1].tolist())
    moves = np.stack(
        [effects.effect_of(x, c, remove=gone, relabel=new).first_order for c in range(3)], axis=1
    )
    rows = np.arange(M)
    assert columns["change"] == pytest.approx(moves[rows, order[:, 0]], rel=1e-3, abs=1e-6)
    assert columns["change_runner_up"] == pytest.approx(moves[rows, order[:, 1]], rel=1e-3, abs=1e-6)
    after = (logits + moves).argmax(1)
    flips = np.flatnonzero(after != order[:, 0])
    assert len(flips) > 0
    assert [(one["index"], one["class_after"]) for one in answer["changed"]] == [(i, after[i]) for i in flips]
    truths = y.numpy()
    assert answer["fixed"] == int((truths == after)[flips].sum())
    assert answer["broken"] == int((truths == order[:, 0])[flips].sum())
    assert "first-order" in answer["words"]

    nothing = post(desk, "/api/whatif/first", {})
    assert nothing["changed"] == []
    assert not any(nothing["tests"]["change"])
    assert desk.post("/api/whatif/first", json={"remove": [N]}).status_code == 422


def test_the_list_is_exported(desk: Any) -> None:
    post(desk, "/api/changes", {"action": "remove", "samples": [3]})
    answer = desk.get("/api/export")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert set(archive.namelist()) == {"changes.csv", "indices.json", "retrain.py"}
        assert json.loads(archive.read("indices.json"))["remove"] == [3]
