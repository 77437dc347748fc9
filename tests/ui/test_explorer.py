"""The explorer's interface: its answers against other ways to get them, its types, and what it refuses."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers.browsing import Page
from tests.helpers.explored import (
    HOSTILE,
    NAMES,
    POST,
    SIZE,
    M,
    N,
    connect,
    features,
    get,
    network,
    picture_project,
    pictures,
    post,
    project,
    text_project,
    texts,
    value_project,
)
from whence import DualDA, Effects
from whence.audit import novel_inputs, wrong_labels
from whence.core import progress
from whence.errors import InvalidInputError, WhenceError
from whence.features import FeatureBank
from whence.project import Project
from whence.ui import pages, routes, server
from whence.ui.explorer import Explorer

POLICY = (
    "default-src 'none'; script-src 'sha256-[^ ]+'; style-src 'sha256-[^ ]+'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@pytest.fixture(scope="module")
def hostile() -> Explorer:
    return Explorer(picture_project(names=HOSTILE, path='x"><script>alert(2)<.whence'))


def lines(answer: Any) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def png(pixels: Any, form: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form, **options)
    return out.getvalue()


def test_info(client: Any, explorer: Explorer) -> None:
    info = get(client, "/api/info")
    model = explorer.project.explainer.fitted_.require_model().extractor.model
    x, y = pictures(M, 1)
    with torch.no_grad():
        predicted = model(x).argmax(1)
    assert info["accuracy"] == pytest.approx(float((predicted == y).double().mean()))
    surrogate = explorer.project.explainer.predict(x)
    assert info["agreement"] == pytest.approx(float((predicted == surrogate).double().mean()))
    assert info["title"] == "small"
    assert info["kind"] == "image"
    assert info["classes"] == list(NAMES)
    assert info["C"] in info["Cs"]
    assert info["Cs"] == sorted(info["Cs"])


def test_lists_of_tests(client: Any, explorer: Explorer) -> None:
    rows = get(client, "/api/tests?limit=200")["rows"]
    assert [row["index"] for row in rows] == list(range(M))
    assert [row["truth"] for row in rows] == pictures(M, 1)[1].tolist()
    shown = Image.open(io.BytesIO(base64.b64decode(rows[3]["sample"]["src"].split(",")[1])))
    np.testing.assert_allclose(np.asarray(shown) / 255, pictures(M, 1)[0][3, 0], atol=0.003)

    def expect(query: str, fits: Any) -> None:
        wanted = [row["index"] for row in rows if fits(row)]
        found = get(client, f"/api/tests?limit=200&{query}")
        assert found["total"] == len(wanted)
        assert [row["index"] for row in found["rows"]] == wanted

    expect("label=1", lambda row: row["truth"] == 1)
    expect("predicted=2", lambda row: row["predicted"] == 2)
    expect("wrong=true", lambda row: row["truth"] != row["predicted"])
    expect("disagree=true", lambda row: row["surrogate_class"] != row["predicted"])
    expect("label=0&wrong=true", lambda row: row["truth"] == 0 != row["predicted"])
    expect("search=7", lambda row: row["index"] == 7)
    expect("search=%20FRA", lambda row: 2 in (row["truth"], row["predicted"]))
    expect("search=" + "9" * 100, lambda row: False)
    expect("label=99", lambda row: False)
    part = get(client, "/api/tests?offset=20&limit=4")
    assert [row["index"] for row in part["rows"]] == [20, 21, 22, 23]
    assert get(client, "/api/tests?offset=1000")["rows"] == []


def test_an_explanation_runs_the_model_once_for_its_test_and_once_for_its_training_samples() -> None:
    model, sizes = network(), list[int]()
    model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    explorer = Explorer(project(model, pictures(N, 0), pictures(M, 1)))
    explorer.explain(0)  # reads the tests

    def run(index: int, **options: Any) -> Any:
        sizes.clear()
        why = explorer.explain(index, 3, **options)
        assert sizes == [1, len(why["pairs"])]
        return why

    assert run(1)["other_scores"] is None
    run(2, target=1)
    explorer.solved.effects.result()
    assert len(run(3)["other_scores"]) == 6
    assert len(run(4, question="would change")["other_scores"]) == 6


def test_an_explanation_is_what_the_dual_says(client: Any, explorer: Explorer) -> None:
    train, test = features(explorer)
    explainer = explorer.project.explainer
    found = get(client, "/api/tests/4/explanation?k=3&target=2")
    lam = explainer.lam_.toarray()[:, 2]
    mean = train.astype(np.float64).mean(0)
    scores = lam * (train @ (test[4] - mean))
    pairs = found["pairs"]
    best = [*np.argsort(-scores)[:3], *np.argsort(scores)[:3]]
    assert [pair["index"] for pair in pairs] == best
    np.testing.assert_allclose([pair["score"] for pair in pairs], scores[best], rtol=1e-4)
    np.testing.assert_allclose([pair["coefficient"] for pair in pairs], lam[best], rtol=1e-5)
    logit = explainer.coef_[2] @ np.append(test[4], 1)
    assert found["logit"] == pytest.approx(logit, rel=1e-4)
    base = explainer.coef_[2] @ np.append(mean, 1)
    assert found["base"] == pytest.approx(base, rel=1e-4)
    assert found["waterfall"][0] == [0, pytest.approx(base, rel=1e-4)]
    assert found["waterfall"][-1] == [int((scores != 0).sum()), pytest.approx(logit, rel=1e-4)]
    ordered = np.sort(np.abs(scores))[::-1]
    for count, share in found["sparsity"]:
        assert share == pytest.approx(ordered[:count].sum() / ordered.sum(), abs=1e-5)
    drawn = Image.open(io.BytesIO(base64.b64decode(pairs[0]["test_map"]["src"].split(",")[1])))
    steps = np.asarray(drawn.convert("L")).astype(int).ravel() - 128
    assert steps.size == SIZE * SIZE
    why = explainer.explain(pictures(M, 1)[0][[4]], 3, 2)[0]
    np.testing.assert_allclose(
        steps / 127 * pairs[0]["test_map"]["most"],
        why.proponents[0].test_map.ravel(),
        atol=pairs[0]["test_map"]["most"] / 200,
    )


def test_evidence_for_one_class_over_another(client: Any, explorer: Explorer) -> None:
    train, test = features(explorer)
    explainer = explorer.project.explainer
    lam, labels = explainer.lam_.toarray(), explainer.labels_
    weights = explainer.coef_
    model = explainer.fitted_.require_model().extractor.model
    with torch.no_grad():
        order = model(pictures(M, 1)[0][[4]])[0].argsort(descending=True).tolist()
    target, other = order[:2]
    mean = train[labels == other].astype(np.float64).mean(0)
    scores = (lam[:, target] - lam[:, other]) * (train @ (test[4] - mean))
    logit = (weights[target] - weights[other]) @ np.append(test[4], 1)
    base = (weights[target] - weights[other]) @ np.append(mean, 1)
    assert scores.sum() == pytest.approx(logit - base, rel=1e-4)  # what is compared with is itself a sum
    found = get(client, "/api/tests/4/explanation?k=3&against=runner-up")
    assert (found["target"], found["against"]) == (target, other)
    best = [*np.argsort(-scores)[:3], *np.argsort(scores)[:3]]
    assert [pair["index"] for pair in found["pairs"]] == best
    np.testing.assert_allclose([pair["score"] for pair in found["pairs"]], scores[best], rtol=1e-3)
    assert found["total"] == pytest.approx(logit - base, rel=1e-4)
    assert found["logit"] == pytest.approx(logit, rel=1e-4)
    assert found["base"] == pytest.approx(base, rel=1e-4)
    assert found["words"]["sign"] == [
        f"evidence for “{NAMES[a]}” over “{NAMES[b]}”" for a, b in ((target, other), (other, target))
    ]
    assert found["equation"].startswith(f"“{NAMES[target]}” over “{NAMES[other]}”: logit difference")
    named = get(client, f"/api/tests/4/explanation?k=3&against={other}")
    assert named["pairs"] == found["pairs"]
    assert get(client, "/api/info")["contrasts"]
    for query, message in (
        (f"against={target}", "another class than the target"),
        ("against=3", "'against'"),
        ("against=second", "against"),
        ("against=runner-up&question=would%20change", "'against' must be None"),
    ):
        answer = client.get(f"/api/tests/4/explanation?{query}")
        assert answer.status_code == 422
        assert message in answer.text


def test_an_explanation_at_another_C(client: Any, explorer: Explorer) -> None:
    train, test = features(explorer)
    C = get(client, "/api/info")["Cs"][1]
    path = lines(client.post(f"/api/path?C={C}", headers=POST))[-1]["result"]
    fresh = DualDA(metric="raw", C=C, tol=1e-9, show_progress=False).fit(
        features=FeatureBank.of(train, pictures(N, 0)[1].numpy())
    )
    assert path == {"C": C, "n_support": len(fresh.support_), "gap": pytest.approx(0, abs=1e-9)}
    found = get(client, f"/api/tests/2/explanation?C={C}&target=1")
    assert found["C"] == C
    assert found["logit"] == pytest.approx(fresh.coef_[1] @ np.append(test[2], 1), rel=1e-3)
    assert found["n_support"] == len(fresh.support_)
    strip = get(client, f"/api/tests/2/concepts?C={C}&target=1&pair={found['pairs'][0]['index']}")
    i, lam = strip["index"], fresh.lam_[[found["pairs"][0]["index"]], :].toarray()[0, 1]
    assert i == found["pairs"][0]["index"]
    assert strip["score"] == pytest.approx(lam * (train[i] @ test[2] + fresh.constant_**2), rel=1e-3)


def test_what_would_change(client: Any, explorer: Explorer) -> None:
    (result,) = [
        line["result"] for line in lines(client.post("/api/effects", headers=POST)) if "result" in line
    ]
    fitted = explorer.solved.effects.result()
    assert isinstance(fitted, Effects)
    assert result["description"] == "to first order, at the softmax surrogate of the whole training set"
    asked = {"question": "would change", "k": 3}
    found = client.get("/api/tests/4/explanation", params=asked).json()
    assert (found["question"], found["C"], found["test"]) == ("would change", fitted.C_, 4)
    x = explorer.project.tests.take([4])
    effects = fitted.attribute(x)[0]
    best = effects.topk(3)
    shown = [[pair["index"], *pair["alike"]] for pair in found["pairs"][:3]]  # near-duplicates are folded
    assert shown[0][0] == best.indices[0]
    assert set(best.indices.tolist()) <= {place for one in shown for place in one}
    for pair in found["pairs"]:
        assert pair["score"] == pytest.approx(float(effects[pair["index"]]), rel=1e-4)
    assert found["words"]["side"][0] == "raises the logit of"
    parts = explorer.project.explainer.attribute(x, relative=True)[0]
    for pair, other in zip(found["pairs"], found["other_scores"], strict=True):
        assert other == pytest.approx(float(parts[pair["index"]]), rel=1e-4, abs=1e-9)
    made_of = client.get("/api/tests/4/explanation", params={"k": 3}).json()
    for pair, other in zip(made_of["pairs"], made_of["other_scores"], strict=True):
        assert other == pytest.approx(float(effects[pair["index"]]), rel=1e-3, abs=1e-7)
    wrong = client.get("/api/tests/4/explanation", params={**asked, "C": explorer.project.explainer.C_})
    assert wrong.status_code == 422
    assert "'C' must be None" in wrong.json()["detail"]
    assert client.get("/api/tests/4/explanation", params={"question": "why"}).status_code == 422


def test_how_far_effects_are_and_stopping_them() -> None:
    explorer = Explorer(value_project())
    client = connect(explorer)
    held, heard = threading.Event(), threading.Event()
    real = Project.with_effects

    def slow(project: Project, max_seconds: float | None) -> Project:
        for done in range(1000):
            progress.report("Digits of the solution", done, 1000)
            heard.set()
            held.wait(0.05)
        return real(project, max_seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Project, "with_effects", slow)
        run = explorer.solved.effects.begin()
        assert heard.wait(30)
        assert run.progress.what == "Digits of the solution"
        assert (run.progress.total, run is explorer.solved.effects.begin()) == (1000, True)
        assert client.get("/api/tests/0/explanation").json()["other_scores"] is None  # all else goes on
        assert client.post("/api/effects/stop", headers=POST).status_code == 200
        with pytest.raises(WhenceError, match="The work was stopped"):
            run.result()
    again = post(client, "/api/effects")["result"]  # asked again, it begins again
    assert "softmax surrogate" in again["description"]
    assert client.get("/api/tests/0/explanation").json()["other_scores"] is not None


def test_what_effects_predict_of_what_if() -> None:
    explorer = Explorer(picture_project())
    client = connect(explorer)
    question = {"test": 5, "target": 0, "remove": [3, 4], "relabel": {8: 0}}

    def asked(**more: Any) -> Any:
        return lines(client.post("/api/whatif", json={**question, **more}, headers=POST))[-1]["result"]

    assert asked()["first_order"] is None  # not before effects are fitted
    effects = explorer.solved.effects.result()
    answer = asked()["first_order"]
    x = explorer.project.tests.take([5])
    expected = effects.effect_of(x, 0, remove=[3, 4], relabel={8: 0})  # which computes features again
    assert answer["predicted"] == pytest.approx(float(expected.first_order[0]), rel=1e-3)
    assert answer["exact"] == pytest.approx(float(expected.exact[0]), rel=1e-3)
    assert answer["disagree"] == (abs(answer["predicted"] - answer["exact"]) > 0.2 * abs(answer["exact"]))
    assert asked(remove=[], relabel={})["first_order"] is None


def test_stability(client: Any, explorer: Explorer) -> None:
    found = client.get("/api/tests/4/stability", params={"k": 3, "target": 1}).json()
    own = explorer.project.explainer
    expected = own.stability(explorer.project.train_bank).top_k(explorer.project.tests.take([4]), 3, 1)
    pairs = zip(expected.top.proponents.indices[0].tolist(), expected.proponents[0].tolist(), strict=True)
    assert found["k"] == 3
    assert found["halves"] == 20
    assert {int(i): n for i, n in found["among"].items()}.items() >= {(i, n) for i, n in pairs if i >= 0}


def test_how_typical_tests_are(client: Any, explorer: Explorer) -> None:
    own, bank = explorer.project.explainer, explorer.project.train_bank
    expected = novel_inputs(own, explorer.project.tests.take(list(range(30))), training=bank)
    assert get(client, "/api/tests?limit=30")["rows"][3]["novel"] in (None, bool(expected.novel[3]))
    listed = get(client, "/api/tests?limit=30&novel=true")["rows"]
    assert [row["index"] for row in listed] == np.flatnonzero(expected.novel).tolist()
    assert all(row["novel"] for row in listed)
    for test in (4, *(row["index"] for row in listed)):
        found = get(client, f"/api/tests/{test}/typicality")
        assert [near["index"] for near in found["neighbours"]] == expected.neighbours[test].tolist()
        assert found["share"] == pytest.approx(expected.shares[test])
        assert found["novel"] == bool(expected.novel[test])
        labels = [own.task_.label_text(own.labels_[near["index"]]) for near in found["neighbours"]]
        assert [near["label_text"] for near in found["neighbours"]] == labels
    picture = png((255 * explorer.project.tests.take([4])[0, 0].numpy()).astype(np.uint8))
    sent = client.post("/api/typicality", content=picture, headers={**POST, "content-type": "image/png"})
    assert len(sent.json()["neighbours"]) == 5
    report = pages.report_page(explorer, [4, 5], k=1, n_audit=1)
    assert '"typicality":{"4":{"novel":' in report


def test_concepts(client: Any, explorer: Explorer) -> None:
    found = get(client, "/api/tests/4/concepts?target=2")
    pair = get(client, "/api/tests/4/explanation?k=1&target=2")["pairs"][0]
    assert found["index"] == pair["index"]
    train, test = features(explorer)
    product = train[pair["index"]] @ test[4] + explorer.project.explainer.constant_**2
    assert found["score"] == pytest.approx(pair["coefficient"] * product, rel=1e-4)
    vectors = train[explorer.project.explainer.support_].astype(np.float64)
    axes = np.linalg.svd(vectors - vectors.mean(0), full_matrices=True)[2]
    for part in found["parts"]:
        axis = axes[int(part["name"].split()[1])]
        expected = pair["coefficient"] * (train[pair["index"]] @ axis) * (test[4] @ axis)
        assert part["score"] == pytest.approx(expected, rel=1e-3)


def test_what_if_equals_a_fresh_fit(client: Any, explorer: Explorer) -> None:
    train, test = features(explorer)
    labels = pictures(N, 0)[1].numpy().copy()
    pairs = get(client, "/api/tests/5/explanation?k=4&target=0")["pairs"]
    gone, other = [pair["index"] for pair in pairs[:3]], pairs[3]["index"]
    labels[other] = (labels[other] + 1) % 3
    question = {"test": 5, "target": 0, "remove": gone, "relabel": {other: int(labels[other])}}
    answer = lines(client.post("/api/whatif", json=question, headers=POST))[-1]["result"]
    keep = np.setdiff1d(np.arange(N), gone)

    def fresh(rows: Any, y: Any) -> DualDA:
        return DualDA(metric="raw", C=0.05, tol=1e-10, show_progress=False).fit(
            features=FeatureBank.of(train[rows], y[rows])
        )

    before, after = fresh(np.arange(N), pictures(N, 0)[1].numpy()), fresh(keep, labels)
    for side, solved in (("before", before), ("after", after)):
        logits = solved.coef_ @ np.append(test[5], 1)
        np.testing.assert_allclose(answer[side]["logits"], logits, rtol=1e-3, atol=1e-4)
        assert answer[side]["logit"] == pytest.approx(logits[0], rel=1e-3, abs=1e-4)
        assert answer[side]["predicted"] == logits.argmax()
    changed = (before.predict(features=test) != after.predict(features=test)).sum()
    assert answer["changed_tests"] == int(changed)
    assert answer["after"]["gap"] <= 1e-9


def test_audit_and_classes(client: Any, explorer: Explorer) -> None:
    explainer = explorer.project.explainer
    expected = wrong_labels(explainer, features=features(explorer)[0])
    found = get(client, "/api/audit?offset=2&limit=5")
    assert found["total"] == N
    assert [row["index"] for row in found["rows"]] == expected.indices[2:7].tolist()
    assert [row["suggested"] for row in found["rows"]] == expected.suggested[2:7].tolist()
    labels = pictures(N, 0)[1].numpy()
    for row in found["rows"]:
        assert row["neighbour_labels"] == labels[row["neighbours"]].tolist()
        assert row["label"] not in row["neighbour_labels"]
        assert len(row["neighbours"]) == min(row["disagreeing"], 5) == len(row["neighbour_samples"])
    lam = explainer.lam_.toarray()
    for c, one in enumerate(get(client, "/api/classes")["rows"]):
        own = lam[(labels == c) & lam.any(1), c]
        assert one["name"] == NAMES[c]
        assert one["n_support"] == len(own)
        assert one["bounded"] == pytest.approx((own > 0.05 * (1 - 1e-6)).mean())
        assert (lam[one["top"], c] > 0).all()


def test_an_own_picture(client: Any, explorer: Explorer) -> None:
    grey = (pictures(M, 1)[0][6, 0].numpy() * 255).round().astype(np.uint8)
    x = torch.from_numpy(grey / np.float32(255))[None, None]
    why = explorer.project.explainer.explain(x, 5)[0]
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned a quarter clockwise when it is shown
    forms = [
        png(grey),
        png(np.stack([grey] * 3, -1), "WEBP", lossless=True),
        png(grey, "BMP"),
        png(np.rot90(grey).copy(), exif=turned),
    ]
    for body in forms:
        headers = POST | {"content-type": "image/png"}
        answer = client.post("/api/explanation?k=5", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["test"], found["truth"]) == (None, None)
        assert found["logit"] == pytest.approx(why.logit, rel=1e-4)
        assert [pair["index"] for pair in found["pairs"]] == [pair.index for pair in why.pairs]
    large = np.kron(grey, np.ones((4, 4), np.uint8))
    answer = client.post("/api/explanation", content=png(large), headers=POST | {"content-type": "image/png"})
    assert answer.json()["sample"]["width"] == SIZE


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/tests/30/explanation", r"'tests' must lie in \[0, 30\)"),
        ("/api/tests/-1/explanation", r"'tests' must lie in \[0, 30\)"),
        ("/api/tests/0/explanation?target=3", r"'target' must be a class in \[0, 3\). Got 3"),
        ("/api/tests/0/explanation?C=7", r"'C' must be one of .*Got 7"),
        ("/api/tests/0/concepts?pair=99999", "support vectors"),
        ("/api/tests/0/concepts?target=9", "'target' must be a class"),
        ("/api/tests/0/explanation?k=0", "greater than or equal to 1"),
        ("/api/tests/0/explanation?k=51", "less than or equal to 50"),
        ("/api/tests/0/explanation?C=nan", "greater than 0"),
        ("/api/tests/x/explanation", "valid integer"),
        ("/api/tests?limit=201", "less than or equal to 200"),
        ("/api/tests?search=" + "x" * 101, "at most 100"),
        ("/api/audit?offset=-1", "greater than or equal to 0"),
    ],
)
def test_mistakes_are_reported(client: Any, path: str, message: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 422
    assert re.search(message, json.dumps(answer.json(), ensure_ascii=False))


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"test": 0, "remove": [N]}, "'remove' must lie in"),
        ({"test": 0, "relabel": {"3": 7}}, "'relabel' must give classes"),
        ({"test": M}, "'tests' must lie in"),
        ({"test": 0, "target": 5}, "'target' must be a class"),
        ({"test": 0, "remove": list(range(N))}, "leave a training sample"),
    ],
)
def test_mistaken_questions_are_reported_in_the_stream(client: Any, question: Any, message: str) -> None:
    assert message in lines(client.post("/api/whatif", json=question, headers=POST))[-1]["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"test": NaN}', "finite"),
        (b'{"test": Infinity}', "finite"),
        (b'{"test": 0, "remove": [-Infinity]}', "finite"),
        (b'{"test": 1e400}', "finite"),
        (b'{"test": "\\ud800"}', "unicode"),
        (b'{"test": 0, "\\ud800": 1}', "string"),
        (b'{"test": 0, "relabel": {"\\udfff": 1}}', "unicode"),
        (b'{"test": "\xed\xa0\x80"}', "body"),
        (b'{"test": ' + b"9" * 5000 + b"}", "body"),
        (b"[" * 100_000, "body"),
        (b"\xff\xfe", "body"),
        (b"", "required"),
    ],
)
def test_what_json_should_not_hold_is_refused(client: Any, body: bytes, message: str) -> None:
    headers = POST | {"content-type": "application/json"}
    answer = client.post("/api/whatif", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert message in json.dumps(answer.json())


def test_a_long_text_is_refused_before_it_is_read(client: Any) -> None:
    headers = POST | {"content-type": "text/plain"}
    answer = client.post("/api/explanation", content=b"word " * 4001, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "A text may have at most 20,000 characters. Got 20,004."


def bomb() -> bytes:
    """A small file of a picture with many pixels."""
    return png(np.zeros((4001, 4000), np.uint8))


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"not a picture", "image/png", "cannot be read"),
        (
            png(np.random.default_rng(0).integers(0, 256, (20, 20), np.uint8))[:99],
            "image/png",
            "cannot be read",
        ),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", "cannot be read"),
        (b"", "image/png", "cannot be read"),
        (b"hello", "text/plain", "tokenizer"),
        (b"\xff\xfe", "text/plain", "UTF-8"),
        (b"  ", "text/plain; charset=utf-8", "empty"),
        (b"{}", "application/json", "Got application/json"),
        (b"x", "", "Got no content type"),
        (bomb(), "image/png", "16 megapixels. Got 4000×4001"),
    ],
    ids=["no picture", "cut", "svg", "nothing", "text", "bytes", "blank", "json", "untyped", "large"],
)
def test_uploads_that_are_no_use(client: Any, body: bytes, kind: str, message: str) -> None:
    answer = client.post("/api/explanation", content=body, headers=POST | {"content-type": kind})
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


def test_uploads_are_bounded(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BYTES", 1 << 20)
    for path in ("/api/explanation", "/api/whatif", "/api/path?C=1"):
        answer = client.post(
            path, content=b"x" * ((1 << 20) + 1), headers=POST | {"content-type": "image/png"}
        )
        assert answer.status_code == 413
        assert answer.json()["detail"] == "An upload may have 1 MiB."

    def parts() -> Any:
        yield b"x"

    assert client.post("/api/explanation", content=parts(), headers=POST).status_code == 411


def test_a_picture_for_a_model_of_values_and_of_unknown_scale() -> None:
    values = Explorer(value_project())
    assert values.info()["kind"] == "values"
    with pytest.raises(InvalidInputError, match="another shape"):
        routes.image_input(values, np.zeros((4, 4, 3), np.uint8))
    x, y = pictures(N, 0)
    scaled = Explorer(project(network(), (4 * x - 2, y), pictures(M, 1)))
    with pytest.raises(InvalidInputError, match="scaling of the training samples is unknown"):
        routes.image_input(scaled, np.zeros((4, 4, 3), np.uint8))


def test_texts() -> None:
    pytest.importorskip("transformers")
    explorer = Explorer(text_project())
    client = connect(explorer)
    assert get(client, "/api/info")["kind"] == "text"
    row = get(client, "/api/tests?limit=1")["rows"][0]
    assert row["sample"]["tokens"][0] == ""  # [CLS], which no reader wrote
    assert "".join(row["sample"]["tokens"]) == texts(M, 1)[0][0]
    text = "".join(row["sample"]["tokens"][1:-1]).strip()
    stored = get(client, "/api/tests/0/explanation?k=2")
    own = client.post(
        "/api/explanation?k=2", content=text.encode(), headers=POST | {"content-type": "text/plain"}
    )
    assert own.json()["sample"]["tokens"] == stored["sample"]["tokens"]
    assert own.json()["logit"] == pytest.approx(stored["logit"], rel=1e-4)
    assert len(stored["pairs"][0]["test_map"]["values"]) == len(stored["sample"]["tokens"])
    page = pages.report_page(explorer, [0, 1], n_audit=3)
    assert json.loads(Page(page).data)["rows"][0]["sample"]["kind"] == "text"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "127.0.0.2:8000", "localhost"]
)
def test_only_this_machines_names_are_served(client: Any, host: str) -> None:
    answer = client.get("/api/info", headers={"host": host})
    assert answer.status_code == 421


def test_a_token_is_asked_for(explorer: Explorer) -> None:
    client = connect(explorer, token="word & more words")
    for path in ("/", "/api/info", "/nothing", "/openapi.json", "/?token=", "/?token=word"):
        assert client.get(path).status_code == 401
    assert client.get("/", headers={"cookie": "whence=other"}).status_code == 401
    answer = client.get("/?token=word+%26+more+words", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "./"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200
    client.cookies.clear()
    assert client.get("/api/info").status_code == 401
    assert (
        client.get("/api/info?token=word+%26+more+words", headers={"host": "machine.example"}).status_code
        == 200
    )


def test_requests_of_other_pages_are_refused(client: Any) -> None:
    for path in ("/api/whatif", "/api/path?C=1", "/api/explanation"):
        assert client.post(path, content=b"{}", headers={"x-whence": ""}).status_code == 403
    answer = client.options("/api/whatif", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_every_answer_has_the_policy(
    client: Any, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        client.get(path)
        for path in (
            "/",
            "/static/main.js",
            "/../pages.py",
            "/api/info",
            "/nothing",
            "/api/tests/99/explanation",
        )
    ]
    answers.append(client.get("/", headers={"host": "evil.example"}))
    answers.append(client.post("/api/whatif"))
    answers.append(client.post("/api/whatif", json={"test": 0}, headers=POST))
    answers.append(connect(explorer, token="x" * 16).get("/"))

    def break_down() -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(explorer, "info", break_down)
    answers.append(client.get("/api/info"))
    assert answers[-1].status_code == 500
    assert answers[-1].json() == {"detail": "RuntimeError: broken"}
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert re.fullmatch(POLICY, policy), policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_interface_is_documented(client: Any) -> None:
    found = get(client, "/openapi.json")
    assert set(found["paths"]) == {
        "/api/info", "/api/tests", "/api/tests/{test}/explanation", "/api/tests/{test}/concepts",
        "/api/explanation", "/api/audit", "/api/classes", "/api/confusion", "/api/whatif", "/api/path",
        "/api/effects",
        "/api/effects/stop", "/api/training", "/api/whatif/tests", "/api/gallery", "/api/comparison",
        "/api/ranking", "/api/novelty",
        "/api/tests/{test}/stability", "/api/tests/{test}/typicality", "/api/typicality",
        "/api/changes", "/api/changes/undo", "/api/changes/clear", "/api/changes/{entry}/remove",
        "/api/whatif/first", "/api/export", "/api/slices", "/api/slices/compare", "/api/slices/{name}/delete",
        "/api/map", "/api/map/points", "/api/map/colours", "/api/map/samples",
        "/api/map/supported/{index}", "/api/duplicates",
    }  # fmt: skip
    assert all(way["description"] for path in found["paths"].values() for way in path.values())


def test_parallel_answers_equal_serial_ones(client: Any) -> None:
    paths = [f"/api/tests/{test}/explanation?k=3&target={test % 3}" for test in range(8)]
    paths += ["/api/classes", "/api/audit?limit=3", "/api/tests/3/concepts"]
    serial = [client.get(path).json() for path in paths]
    with ThreadPoolExecutor(8) as pool:
        parallel = list(pool.map(lambda path: client.get(path).json(), paths))
    assert parallel == serial


def test_hostile_names_stay_text(hostile: Explorer, explorer: Explorer) -> None:
    for evil, plain in (
        (pages.live_page(hostile), pages.live_page(explorer)),
        (pages.report_page(hostile, [0, 1]), pages.report_page(explorer, [0, 1])),
    ):
        found, like = Page(evil), Page(plain)
        assert [tag for tag, _ in found.tags] == [tag for tag, _ in like.tags]
        assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
        assert hostile.project.path.stem in found.text
        assert "1522756" not in found.text
    data = json.loads(found.data)
    assert data["info"]["classes"] == list(HOSTILE)
    assert not re.search("[<>&]", found.data)
    assert HOSTILE[0] in found.text


def test_a_report_needs_nothing_else(explorer: Explorer) -> None:
    html = pages.report_page(explorer, [3, 1], k=2, n_audit=4)
    found = Page(html)
    assert not any(name in ("src", "srcset", "action") for _, attributes in found.tags for name in attributes)
    links = [attributes["href"] for _, attributes in found.tags if "href" in attributes]
    assert links == ["data:,", "#explanation"]
    data = json.loads(found.data)
    assert [row["index"] for row in data["rows"]] == [3, 1]
    assert set(data["explanations"]) == set(data["concepts"]) == {"3", "1"}
    assert data["concepts"]["3"]["index"] == data["explanations"]["3"]["pairs"][0]["index"]
    assert len(data["audit"]["rows"]) == 4
    assert "import " not in pages.bundle().split("function", 1)[0]
    assert not re.search(r"^(import|export)\b", pages.bundle(), re.MULTILINE)
    with pytest.raises(InvalidInputError, match="'tests'"):
        pages.report_page(explorer, [M])
