"""The explorer's views of many samples: what if, classes compared, concepts, the training set, the start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.explored import (
    NAMES,
    POST,
    M,
    N,
    connect,
    features,
    get,
    picture_project,
    pictures,
    post,
    text_project,
)
from whence import DualDA
from whence.audit import wrong_labels
from whence.features import FeatureBank
from whence.ui.explorer import Explorer


def whole(explorer: Explorer) -> list[np.ndarray]:
    """The same, with what carries the bias of the whole training set, whichever part of it is fitted."""
    constant = np.float32(explorer.project.explainer.constant_)
    return [np.c_[one, np.full(len(one), constant)] for one in features(explorer)]


def fresh(train: np.ndarray, labels: np.ndarray, rows: Any) -> DualDA:
    bank = FeatureBank.of(train[rows], labels[rows])
    return DualDA(metric="raw", C=0.05, bias=False, tol=1e-10, show_progress=False).fit(features=bank)


LABELS = pictures(N, 0)[1].numpy()


def test_what_was_loaded(client: Any) -> None:
    info = get(client, "/api/info")
    assert info["n_parameters"] == 6 * 9 + 6 + 150 * 12 + 12 + 12 * 3 + 3
    assert (info["n_features"], info["n_train"], info["n_tests"]) == (12, N, M)
    assert info["metric"] == "raw"
    assert info["model"] == "Sequential"
    assert info["size"] is None  # of a project without a file
    rows = get(client, "/api/tests?limit=200")["rows"]
    assert info["n_wrong"] == sum(row["truth"] != row["predicted"] for row in rows)
    assert info["n_differing"] == sum(row["surrogate_class"] != row["predicted"] for row in rows)


def test_the_least_certain_tests_come_first(client: Any) -> None:
    rows = get(client, "/api/tests?limit=200")["rows"]
    found = get(client, "/api/tests?limit=200&order=least+certain&label=1")["rows"]
    wanted = sorted((row for row in rows if row["truth"] == 1), key=lambda row: row["probability"])
    assert [row["index"] for row in found] == [row["index"] for row in wanted]
    assert client.get("/api/tests?order=best").status_code == 422


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", np.arange(N)),
        ("label=1", np.flatnonzero(LABELS == 1)),
        ("search=3", [3]),
        ("search=3,%2017;%2040-42%2089-99", [3, 17, 40, 41, 42, 89]),
        ("search=FRAM", np.flatnonzero(LABELS == 2)),
        ("search=o&label=1", np.flatnonzero(LABELS == 1)),
        ("search=nothing", []),
    ],
)
def test_training_samples_are_listed(client: Any, query: str, wanted: Any) -> None:
    found = get(client, f"/api/training?limit=200&{query}")
    assert [row["index"] for row in found["rows"]] == list(wanted)
    assert found["total"] == len(wanted)
    assert all(row["label"] == LABELS[row["index"]] for row in found["rows"])


def test_mistaken_searches_are_refused(client: Any) -> None:
    answer = client.get("/api/training?search=9-3")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "'search' must have ascending ranges. Got 9-3."
    assert client.get("/api/training?search=" + "x" * 201).status_code == 422


def test_texts_are_searched() -> None:
    pytest.importorskip("transformers")
    explorer = Explorer(text_project())
    client = connect(explorer)
    data = explorer.project.explainer.fitted_.require_data()
    wanted = [i for i in range(N) if "coach won" in data[i][0]]
    assert wanted
    assert [row["index"] for row in get(client, "/api/training?search=Coach+won")["rows"]] == wanted
    assert get(client, "/api/training?search=coach&label=0")["total"] == 0


def test_what_changes_without_a_class_or_with_other_labels(client: Any, explorer: Explorer) -> None:
    train, test = whole(explorer)
    labels = LABELS.copy()
    groups = [{"by": "samples", "label": 2, "search": "0-40"}, {"by": "samples", "search": "50-60", "to": 0}]
    gone = [i for i in range(41) if labels[i] == 2]
    labels[50:61] = 0
    found = post(client, "/api/whatif/tests", {"groups": groups})["result"]
    before = fresh(train, LABELS, np.arange(N))
    after = fresh(train, labels, np.setdiff1d(np.arange(N), gone))
    classes = [np.asarray(one.predict(features=test)) for one in (before, after)]
    moved = np.flatnonzero(classes[0] != classes[1])
    truth = pictures(M, 1)[1].numpy()
    assert (found["n_removed"], found["n_relabelled"]) == (len(gone), int((LABELS[50:61] != 0).sum()))
    assert found["changed_tests"] == len(moved) > 0
    assert [one["row"]["index"] for one in found["changed"]] == moved.tolist()
    assert [one["class_before"] for one in found["changed"]] == classes[0][moved].tolist()
    assert [one["class_after"] for one in found["changed"]] == classes[1][moved].tolist()
    right = [one == truth for one in classes]
    assert found["fixed"] == int((right[1] & ~right[0]).sum())
    assert found["broken"] == int((right[0] & ~right[1]).sum())
    for side, name in enumerate(("before", "after")):
        assert found[name]["accuracy"] == pytest.approx(right[side].mean())
    changed = [*gone, *(50 + np.flatnonzero(LABELS[50:61] != 0))]
    for one in found["changed"]:
        f = test[one["row"]["index"]]
        logits = [solved.coef_[one["class_before"]] @ f for solved in (before, after)]
        assert one["logits"] == pytest.approx(logits, rel=1e-3, abs=1e-4)
        scores = explorer.project.explainer.attribute(
            explorer.project.tests.take([one["row"]["index"]]), one["class_before"]
        )
        assert one["tau"] == pytest.approx(float(scores[0][changed].sum()), rel=1e-3, abs=1e-5)


def test_the_wrong_labels_that_were_found_are_changed_at_once(client: Any, explorer: Explorer) -> None:
    train, test = whole(explorer)
    ranked = wrong_labels(explorer.project.explainer, features=features(explorer)[0])
    wrong = (ranked.scores > 0) & (ranked.suggested != ranked.labels)
    assert post(client, "/api/ranking")["result"] == {"total": N}
    assert get(client, "/api/audit")["likely_wrong"] == int(wrong.sum()) > 0
    labels = LABELS.copy()
    labels[ranked.indices[wrong]] = ranked.suggested[wrong]
    group = {"by": "wrong labels", "to": "suggested"}
    found = post(client, "/api/whatif/tests", {"groups": [group]})["result"]
    assert found["n_relabelled"] == int(wrong.sum())
    after = np.asarray(fresh(train, labels, np.arange(N)).predict(features=test))
    assert found["after"]["accuracy"] == pytest.approx((after == pictures(M, 1)[1].numpy()).mean())
    kept = int(ranked.indices[wrong][0])  # one by one comes before groups
    more = {"groups": [group], "relabel": {kept: int(LABELS[kept])}}
    assert post(client, "/api/whatif/tests", more)["result"]["n_relabelled"] == int(wrong.sum()) - 1
    one = post(client, "/api/whatif", {"test": 3, "groups": [group]})["result"]
    logits = fresh(train, labels, np.arange(N)).coef_ @ test[3]
    np.testing.assert_allclose(one["after"]["logits"], logits, rtol=1e-3, atol=1e-4)


def test_effects_of_all_tests_that_change() -> None:
    explorer = Explorer(picture_project())
    client, effects = connect(explorer), explorer.solved.effects.result()
    gone = np.flatnonzero(LABELS == 1).tolist()
    found = post(client, "/api/whatif/tests", {"remove": gone})["result"]["changed"]
    places = [one["row"]["index"] for one in found]
    assert places
    x = explorer.project.tests.take(places)
    expected = effects.effect_of(x, [one["class_before"] for one in found], remove=gone)
    np.testing.assert_allclose([one["effect"] for one in found], expected.first_order, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "'changes' must change at least one training sample"),
        ({"relabel": {0: int(LABELS[0])}}, "'changes' must change at least one training sample"),
        ({"groups": [{"by": "samples"}]}, "leave a training sample"),
        ({"groups": [{"by": "samples", "label": 3}]}, r"'label' must be a class in [0, 3). Got 3."),
        ({"groups": [{"by": "samples", "label": 1, "to": 9}]}, "'relabel' must give classes"),
        ({"remove": [N]}, "'remove' must lie in"),
    ],
)
def test_mistaken_changes_are_reported(client: Any, changes: Any, message: str) -> None:
    assert message in post(client, "/api/whatif/tests", changes)["error"]


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": [{"by": "magic"}]},
        {"groups": [{"by": "samples", "more": 1}]},
        {"groups": [{"by": "samples", "to": "suggested"}]},
        {"groups": [{"by": "wrong labels"}] * 21},
        {"test": 0},
    ],
)
def test_changes_of_another_form_are_refused(client: Any, changes: Any) -> None:
    assert client.post("/api/whatif/tests", json=changes, headers=POST).status_code == 422


def test_the_gallery_of_concepts(client: Any, explorer: Explorer) -> None:
    train, test = features(explorer)
    explainer = explorer.project.explainer
    found = post(client, "/api/gallery?limit=200")["result"]
    assert 3 < found["total"] == len(found["rows"]) < 12  # without those that no sample has
    vectors = train[explainer.support_].astype(np.float64)
    axes = np.linalg.svd(vectors - vectors.mean(0), full_matrices=True)[2]
    predicted = np.asarray(explorer.tests.predicted)
    means = np.stack([test[predicted == c].mean(0) for c in range(3)]).astype(np.float64)
    W = explainer.coef_[:, :12]
    for concept in found["rows"]:
        axis = axes[int(concept["name"].split()[1])]
        shown = vectors @ axis * np.sign(vectors.mean(0) @ axis)
        np.testing.assert_allclose(
            shown[np.searchsorted(explainer.support_, concept["most"])], np.sort(shown)[::-1][:8], rtol=1e-4
        )
        np.testing.assert_allclose(
            shown[np.searchsorted(explainer.support_, concept["least"])], np.sort(shown)[:8], rtol=1e-4
        )
        for use in concept["uses"]:
            part = (W[use["label"]] @ axis) * (means[use["label"]] @ axis)
            assert use["part"] == pytest.approx(part, rel=1e-3, abs=1e-5)
    for c in range(3):  # all parts of a class are its mean logit, without the bias; the least are left out
        parts = [use["part"] for concept in found["rows"] for use in concept["uses"] if use["label"] == c]
        assert sum(parts) == pytest.approx(W[c] @ means[c], rel=2e-2)
    used = [concept["used"] for concept in found["rows"]]
    assert used == sorted(used, reverse=True)
    part = post(client, "/api/gallery?offset=2&limit=2")["result"]["rows"]
    assert [one["name"] for one in part] == [one["name"] for one in found["rows"][2:4]]
    assert post(client, "/api/gallery?offset=100")["result"]["rows"] == []


def test_two_classes_compared(client: Any, explorer: Explorer) -> None:
    train, _ = features(explorer)
    explainer = explorer.project.explainer
    found = post(client, "/api/comparison?one=0&other=2")["result"]
    lam, W = explainer.lam_.toarray(), explainer.coef_
    extended = np.c_[train, np.ones(N)].astype(np.float64)
    direction = W[0] - W[2]
    scaled = np.append(direction[:-1], direction[-1] / explainer.constant_)
    shares = (lam[:, 0] - lam[:, 2]) * (extended @ direction) / (scaled @ scaled)
    assert shares.sum() == pytest.approx(1, rel=1e-4)
    truth, said = pictures(M, 1)[1].numpy(), np.asarray(explorer.tests.predicted)
    for side, own, other, sign in ((0, 0, 2, 1), (1, 2, 0, -1)):
        one = found["sides"][side]
        pulling = np.flatnonzero((sign * (lam[:, 0] - lam[:, 2]) > 0) & (shares > 0))
        best = pulling[np.argsort(-shares[pulling], kind="stable")][:8]
        assert [each["index"] for each in one["separating"]] == best.tolist()
        assert [each["share"] for each in one["separating"]] == pytest.approx(shares[best], rel=1e-3)
        border = (own == LABELS) & (lam[:, other] < 0)
        assert one["n_border"] == int(border.sum())
        margins = sign * extended @ direction
        assert [each["margin"] for each in one["border"]] == pytest.approx(
            np.sort(margins[border])[:8], rel=1e-3, abs=1e-4
        )
        assert one["n_tests"] == int((truth == own).sum())
        assert one["mistaken"] == int(((truth == own) & (said == other)).sum())
    assert found["similarity"] == pytest.approx(
        W[0] @ W[2] / np.linalg.norm(W[0]) / np.linalg.norm(W[2]), rel=1e-5
    )


def test_a_class_and_all_others(client: Any, explorer: Explorer) -> None:
    found = post(client, "/api/comparison?one=1")["result"]
    truth, said = pictures(M, 1)[1].numpy(), np.asarray(explorer.tests.predicted)
    lam = explorer.project.explainer.lam_.toarray()
    assert (found["other"], found["similarity"], found["shared"]) == (None, None, [])
    assert found["sides"][0]["mistaken"] == int(((truth == 1) & (said != 1)).sum())
    assert found["sides"][1]["mistaken"] == int(((truth != 1) & (said == 1)).sum())
    for rival in found["rivals"]:
        c = rival["other"]
        held = ((LABELS == 1) & (lam[:, c] < 0)).sum() + ((c == LABELS) & (lam[:, 1] < 0)).sum()
        assert rival["n_border"] == int(held)
        assert rival["taken_for"] == int(((truth == 1) & (said == c)).sum())
        assert rival["taken_from"] == int(((truth == c) & (said == 1)).sum())
    assert {rival["other"] for rival in found["rivals"]} <= {0, 2}


@pytest.mark.parametrize(
    ("query", "message"),
    [("one=3", "'one' must be a class"), ("one=1&other=1", "'other' must be another class than 'one'")],
)
def test_mistaken_comparisons_are_reported(client: Any, query: str, message: str) -> None:
    assert message in post(client, f"/api/comparison?{query}")["error"]


def test_pages_of_classes_and_what_is_confused(client: Any, explorer: Explorer) -> None:
    found = get(client, "/api/classes?offset=1&limit=1")
    assert (found["total"], [one["name"] for one in found["rows"]]) == (3, [NAMES[1]])
    truth, said = pictures(M, 1)[1].numpy(), np.asarray(explorer.tests.predicted)
    for kind in found["confused"]:
        wanted = int(((truth == kind["truth"]) & (said == kind["predicted"])).sum())
        assert kind["count"] == wanted > 0
    assert sum(kind["count"] for kind in found["confused"]) == int((truth != said).sum())
