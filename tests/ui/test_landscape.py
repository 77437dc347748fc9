"""The map's interface, against scikit-learn, the network itself and written-out sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA

from tests.helpers.explored import M, N, features, get, pictures, post
from whence.audit import wrong_labels
from whence.ui.explorer import Explorer


def values(client: Any, path: str) -> np.ndarray:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    return np.frombuffer(answer.content, "<f4")


def test_the_header_says_what_is_shown(client: Any) -> None:
    made = post(client, "/api/map")["result"]
    header = get(client, "/api/map")
    assert made == header
    assert (header["n_train"], header["n_tests"], header["method"]) == (N, M, "pca")
    assert header["classes"] == ["bar", "dot", "frame"]
    assert [one["name"] for one in header["colourings"]] == [
        "label", "predicted", "label doubt", "self-influence", "score",
    ]  # fmt: skip


def test_places_are_principal_components_of_the_training_set(client: Any, explorer: Explorer) -> None:
    train, tests = features(explorer)
    theirs = PCA(2, svd_solver="full").fit(train.astype(np.float64))
    signs = np.sign(theirs.components_[[0, 1], np.abs(theirs.components_).argmax(1)])
    points = values(client, "/api/map/points").reshape(N + M, 2)
    np.testing.assert_allclose(points, theirs.transform(np.concatenate([train, tests])) * signs, atol=1e-3)
    np.testing.assert_allclose(
        get(client, "/api/map")["share"], theirs.explained_variance_ratio_.sum(), rtol=1e-4
    )


def test_colours_are_labels_predictions_and_sizes(client: Any, explorer: Explorer) -> None:
    model = explorer.project.explainer.fitted_.require_model().extractor.model
    (x, y), (t, z) = pictures(N, 0), pictures(M, 1)
    np.testing.assert_array_equal(values(client, "/api/map/colours?by=label"), torch.cat([y, z]).numpy())
    with torch.no_grad():
        predicted = model(torch.cat([x, t])).argmax(1).numpy()
    np.testing.assert_array_equal(values(client, "/api/map/colours?by=predicted"), predicted)
    own = values(client, "/api/map/colours?by=self-influence")
    lam = explorer.project.explainer.surrogate_.lam.toarray()[np.arange(N), y.numpy()]
    squares = (features(explorer)[0] ** 2).sum(1) + (explorer.project.explainer.constant_ or 0) ** 2
    np.testing.assert_allclose(own[:N], lam * squares, rtol=1e-4, atol=1e-6)
    assert np.isnan(own[N:]).all()
    doubts = values(client, "/api/map/colours?by=label doubt")
    ranked = wrong_labels(explorer.project.explainer)
    np.testing.assert_allclose(doubts[ranked.indices], ranked.scores, rtol=1e-5)
    assert np.isnan(doubts[N:]).all()


def test_scores_of_a_test_sum_to_its_logit_without_the_base(client: Any, explorer: Explorer) -> None:
    scores, why = values(client, "/api/map/colours?by=score&test=3"), explorer.explain(3, k=4)
    by_index = {pair["index"]: pair["score"] for pair in why["pairs"]}
    np.testing.assert_allclose(scores[list(by_index)], list(by_index.values()), rtol=1e-4)
    train, tests = features(explorer)
    lam = explorer.project.explainer.surrogate_.lam.toarray()
    target = why["target"]
    # λ_ic z_i·(z(x) − z̄)
    expected = lam[:, target] * (train @ (tests[3] - train.mean(0)))
    np.testing.assert_allclose(scores[:N], expected, rtol=1e-3, atol=1e-5)


def test_a_training_sample_names_the_tests_it_supports(client: Any, explorer: Explorer) -> None:
    train, tests = features(explorer)
    explainer = explorer.project.explainer
    lam, targets = explainer.surrogate_.lam.toarray(), np.asarray(explorer.tests.targets)
    index = int(explainer.support_[0])
    expected = lam[index, targets] * ((tests - train.mean(0)) @ train[index])
    answer = get(client, f"/api/map/supported/{index}")
    assert answer["total"] == (expected > 0).sum()
    first = answer["tests"][0]
    assert first["index"] == expected.argmax()
    np.testing.assert_allclose(first["score"], expected.max(), rtol=1e-4)
    spare = next(i for i in range(N) if i not in explainer.support_)
    assert get(client, f"/api/map/supported/{spare}") == {"total": 0, "tests": []}


def test_samples_come_with_labels_and_predictions(client: Any) -> None:
    answer = get(client, "/api/map/samples?training=5,2&tests=4")
    labels = pictures(N, 0)[1]
    assert [(one["index"], one["label"]) for one in answer["training"]] == [(5, labels[5]), (2, labels[2])]
    assert all(one["sample"]["src"] for one in answer["training"])
    assert answer["tests"][0]["index"] == 4


def test_wrong_requests_are_refused(client: Any) -> None:
    for path, message in {
        "/api/map/colours?by=score": "'test' must be the index of a test",
        "/api/map/colours?by=label&test=3": "'test' must be None",
        "/api/map/colours?by=effect&test=3": "'by' must be 'score' until effects are fitted",
        f"/api/map/colours?by=score&test={M}": "'tests' must",
        f"/api/map/samples?training={N}": "'training' must be indices",
        f"/api/map/samples?training={','.join('1' * 49)}": "may name 48",
    }.items():
        answer = client.get(path)
        assert answer.status_code == 422, path
        assert message in answer.json()["detail"]
    assert client.get("/api/map/points", headers={"x-whence": "0"}).status_code == 403
