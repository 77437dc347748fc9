"""DualDA on features at unit length: as on features that were divided by hand, and exact everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whence
from tests.attribution.test_explain import cnn, images
from whence import DualDA, engine
from whence.errors import AgreementWarning, InvalidInputError
from whence.features import FeatureBank
from whence.features.metric import METRICS
from whence.features.rows import at_unit_length, lengths

N, D, CLASSES = 90, 6, 3


def unit_rows(X: Any) -> Any:
    """Rows as the metric reads them."""
    return METRICS["unit"].fit(X).rows(X)


def by_hand(X: Any) -> np.ndarray:
    """Rows over their lengths in float64, rows of zeros as they are."""
    found = []
    for row in np.asarray(X, np.float64):
        length = float(np.sqrt(sum(value * value for value in row)))
        found.append(row / length if length else row)
    return np.array(found)


def data(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[Any, Any]]:
    """Features of very different lengths, one of them of none."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % CLASSES
    X = (np.eye(CLASSES, D)[y] + 0.4 * rng.normal(size=(N, D))) * np.exp(rng.normal(size=(N, 1)))
    X[5] = 0.0
    tests = rng.normal(size=(8, D)) * np.exp(rng.normal(size=(8, 1)))
    head = rng.normal(size=(CLASSES, D)).astype(np.float32), rng.normal(size=CLASSES).astype(np.float32)
    return X.astype(dtype), y, tests.astype(dtype), head


def fitted(unit: bool, X: Any, y: Any, head: Any = None, **options: Any) -> DualDA:
    options = {"C": 0.3, "tol": 1e-9, "show_progress": False, **options}
    return DualDA(metric="unit" if unit else "raw", **options).fit(features=FeatureBank.of(X, y, head=head))


# Lengths


def test_lengths_of_any_size_and_of_nothing() -> None:
    rows = torch.tensor([[3.0, -4.0], [0.0, 0.0], [3e-30, 4e-30], [3e30, 4e30]])
    np.testing.assert_allclose(lengths(rows)[:, 0], [5.0, 1.0, 5e-30, 5e30], rtol=1e-6)
    np.testing.assert_allclose(at_unit_length(rows), [[0.6, -0.8], [0, 0], [0.6, 0.8], [0.6, 0.8]], rtol=1e-6)
    tiny = torch.tensor([[3e-300, 4e-300]], dtype=torch.float64)  # whose squares are 0
    np.testing.assert_allclose(at_unit_length(tiny), [[0.6, 0.8]], rtol=1e-12)
    assert at_unit_length(rows).dtype == torch.float32


def test_rows_beyond_memory_go_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = data()[0]
    expected = by_hand(X)
    np.testing.assert_allclose(unit_rows(X), expected, rtol=1e-6, atol=1e-7)
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("whence.features.rows.free_memory", lambda: 0)
    monkeypatch.setattr("whence.features.rows._BLOCK_BYTES", 7 * 4 * D)
    found = unit_rows(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, unit_rows(X))


# The surrogate


def test_all_is_as_on_features_that_were_divided_before() -> None:
    X, y, tests, head = data()
    ours, plain = fitted(True, X, y, head), fitted(False, by_hand(X).astype(np.float32), y)
    near = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(ours.coef_, plain.coef_, **near)
    U = by_hand(tests).astype(np.float32)
    for target in range(CLASSES):
        scores = ours.attribute(features=tests, target=target)
        torch.testing.assert_close(scores, plain.attribute(features=U, target=target), **near)
        sparse = ours.attribute(features=tests, target=target, sparse=True)
        np.testing.assert_allclose(sparse.toarray(), scores, **near)
        logits = by_hand(tests) @ ours.coef_[:, :D].T + ours.coef_[:, D]
        np.testing.assert_allclose(scores.double().sum(1), logits[:, target], rtol=1e-5, atol=1e-5)
        for side, other in zip(
            ours.top_k(features=tests, k=4, target=target)[:2],
            plain.top_k(features=U, k=4, target=target)[:2],
            strict=True,
        ):
            assert torch.equal(side.indices, other.indices)
    torch.testing.assert_close(ours.self_influence(), plain.self_influence(), **near)
    lam = ours.lam_.toarray()
    expected = lam[np.arange(N), y] * ((by_hand(X) ** 2).sum(axis=1) + ours.constant_**2)
    np.testing.assert_allclose(ours.self_influence(), expected, rtol=1e-4, atol=1e-6)


def test_features_of_zeros_are_met(recwarn: pytest.WarningsRecorder) -> None:
    X, y, tests, head = data()
    ours = fitted(True, X, y, head)
    zero = np.zeros((1, D), np.float32)
    scores = ours.attribute(features=np.vstack([tests, zero]), target=1)
    assert scores.isfinite().all()
    # Of two vectors of zeros only the bias is left.
    np.testing.assert_allclose(scores[-1], ours.lam_.toarray()[:, 1] * ours.constant_**2, rtol=1e-5)
    alone = fitted(True, np.zeros((6, 2), np.float32), np.arange(6) % 2, C=0.1)
    assert np.isfinite(alone.coef_).all()


# What the model says stays its own


def test_agreement_and_faithfulness_are_with_the_head_on_features_as_they_are() -> None:
    X, y, tests, head = data()
    ours = fitted(True, X, y, head)
    theirs = tests @ head[0].T + head[1]
    mine = by_hand(tests) @ ours.coef_[:, :D].T + ours.coef_[:, D]
    faith = ours.faithfulness(features=tests)
    assert faith.agreement == pytest.approx((mine.argmax(1) == theirs.argmax(1)).mean())
    a, b = (each - each.mean(1, keepdims=True) for each in (mine, theirs))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert faith.logit_cosine == pytest.approx(cosines.mean(), abs=1e-5)
    model = X @ head[0].T + head[1]
    said = by_hand(X) @ ours.coef_[:, :D].T + ours.coef_[:, D]
    assert ours.agreement_ == pytest.approx((said.argmax(1) == model.argmax(1)).mean())
    assert ours.top_k(features=tests).target.tolist() == theirs.argmax(1).tolist()


def test_C_is_chosen_by_agreement_with_the_head_on_features_as_they_are() -> None:
    rng = np.random.default_rng(2)
    y = np.arange(400) % CLASSES
    X = (np.eye(CLASSES, D)[y] + 0.5 * rng.normal(size=(400, D))) * np.exp(rng.normal(size=(400, 1)))
    head = rng.normal(size=(CLASSES, D)), 2 * rng.normal(size=CLASSES)
    X = X.astype(np.float32)
    with pytest.warns(
        AgreementWarning, match="predicts the model's class"
    ):  # such a head has little to do with the labels
        ours = fitted(True, X, y, head, C="auto", tol=1e-6)
    U = unit_rows(X)
    direct = whence.svm.choose_C(U, y, head=head, head_features=X, bias=ours.constant_, n_classes=CLASSES)
    assert ours.C_path_.path == direct.path
    blind = whence.svm.choose_C(U, y, head=head, bias=ours.constant_, n_classes=CLASSES)
    assert [p.agreement for p in blind.path] != [p.agreement for p in direct.path]
    scale = len(U) * float(((U - U.mean(0)) ** 2).sum(1).mean())
    for point in direct.path:
        assert point.kappa == pytest.approx(point.C * scale, rel=1e-4)
    with pytest.raises(InvalidInputError, match=r"'head_features' must have shape \(400, 6\)"):
        whence.svm.choose_C(U, y, head_features=X[:3])


# Changes of the training set


def test_what_if_update_and_stability_read_unit_lengths_too() -> None:
    X, y, tests, head = data()
    ours = fitted(True, X, y, head)
    U = by_hand(X).astype(np.float32)
    plain = fitted(False, U, y)
    near = {"rtol": 1e-3, "atol": 1e-4}
    for changes in ({"remove": [0, 7]}, {"relabel": {3: 1}}, {"C": 0.01}):
        one, other = (
            ours.what_if(**changes, training_features=X).explainer,
            plain.what_if(**changes, training_features=U).explainer,
        )
        np.testing.assert_allclose(one.coef_, other.coef_, **near)
        assert one.metric == "unit"
        torch.testing.assert_close(
            one.attribute(features=tests, target=0),
            other.attribute(features=by_hand(tests), target=0),
            **near,
        )
    found, expected = (each.stability(F, halves=3) for each, F in ((ours, X), (plain, U)))
    one, other = (
        each.top_k(features=T, k=3, target=1) for each, T in ((found, tests), (expected, by_hand(tests)))
    )
    assert torch.equal(one.proponents, other.proponents)
    assert torch.equal(one.top.proponents.indices, other.top.proponents.indices)
    more = 5 * tests[:3], np.array([0, 1, 2])
    ours.update(add=more, remove=[1], features=X)
    anew = fitted(False, np.vstack([U, by_hand(more[0])]).astype(np.float32)[keep := np.arange(N + 3) != 1],
                  np.r_[y, more[1]][keep])  # fmt: skip
    np.testing.assert_allclose(ours.coef_, anew.coef_, **near)
    sizes = np.linalg.norm(ours.vectors_, axis=1)
    np.testing.assert_allclose(sizes[sizes > 0], 1.0, rtol=1e-6)


class Divided(engine.Local):
    """Here, in as many shards as it is asked for."""

    def shards(self, on_disk: bool) -> int:
        """Divide by three."""
        return 3


def test_shards_solve_and_rank_alike() -> None:
    X, y, tests, head = data()
    ours = fitted(True, X, y, head)
    with engine.using(Divided()):
        divided = fitted(True, X, y, head)
        ranked = ours.top_k(features=tests, k=4, target=1)
    np.testing.assert_allclose(divided.coef_, ours.coef_, rtol=1e-3, atol=1e-4)
    for side, other in zip(ranked[:2], ours.top_k(features=tests, k=4, target=1)[:2], strict=True):
        assert torch.equal(side.indices, other.indices)
        torch.testing.assert_close(side.scores, other.scores)


# With a model: maps, concepts, files


def test_saved_and_loaded_from_a_copy_and_from_a_bank(tmp_path: Path) -> None:
    x, y = images()
    explainer = DualDA(C=0.5, metric="unit", show_progress=False)
    explainer.fit(cnn(), (x, y), cache_dir=tmp_path / "cache")
    explainer.save(tmp_path / "copy.whence")
    explainer.save(tmp_path / "bank.whence", features="bank")
    copy = whence.load(tmp_path / "copy.whence", model=cnn(), data=(x, y))
    bank = whence.load(tmp_path / "bank.whence", model=cnn(), data=(x, y), cache_dir=tmp_path / "cache")
    assert copy.metric == "unit"
    assert bank.surrogate_.stored.mapped
    assert torch.equal(copy.attribute(x), explainer.attribute(x))
    torch.testing.assert_close(bank.attribute(x), explainer.attribute(x))
    torch.testing.assert_close(bank.vectors_, explainer.vectors_)
    np.testing.assert_array_equal(
        copy.explain(x[:1], k=2)[0].maps["train"], explainer.explain(x[:1], k=2)[0].maps["train"]
    )
    plain = DualDA(C=0.5, show_progress=False).fit(cnn(), (x, y), cache_dir=tmp_path / "cache")
    assert "metric" in plain.origins_["solution"]  # the other's solution is not taken for its own
    assert not np.allclose(plain.coef_, explainer.coef_)


def test_audits_read_unit_lengths_too() -> None:
    X, y, tests, head = data()
    ours, plain = fitted(True, X, y, head), fitted(False, U := by_hand(X).astype(np.float32), y)
    near = {"rtol": 1e-3, "atol": 1e-4}
    group, other = (
        whence.audit.group_attribution(one, features=T, target=1)
        for one, T in ((ours, tests), (plain, by_hand(tests)))
    )
    np.testing.assert_allclose(group.mean, other.mean, **near)
    np.testing.assert_allclose(group.mean, ours.attribute(features=tests, target=1).mean(0), **near)
    blind = fitted(True, X, y)  # without the model, whose own logits have a say otherwise
    for ranking in ("confidence", "slack", "self_influence"):
        found, want = (
            whence.audit.wrong_labels(one, features=F, ranking=ranking) for one, F in ((blind, X), (plain, U))
        )
        np.testing.assert_allclose(found.scores, want.scores, **near)
    with_head = whence.audit.wrong_labels(ours, features=X).scores
    assert np.isfinite(with_head).all()
