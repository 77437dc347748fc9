"""DualDA on features at unit length: as on features that were divided by hand, and exact everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC
from torch import Tensor

import whence
from tests.helpers import oracle
from tests.methods.test_explain import K, cnn, images
from whence import DualDA, engine
from whence.errors import AgreementWarning, InvalidInputError
from whence.features import FeatureBank
from whence.features.rows import at_unit_length, lengths, row_lengths, unit_rows
from whence.relevance import Concepts
from whence.relevance.presets import EPSILON
from whence_studies import pair_flipping
from whence_studies.suite.localising import Marked, localise

N, D, CLASSES = 90, 6, 3


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


def fitted(normalise: bool, X: Any, y: Any, head: Any = None, **options: Any) -> DualDA:
    options = {"C": 0.3, "tol": 1e-9, "show_progress": False, **options}
    return DualDA(normalise=normalise, **options).fit(features=FeatureBank.of(X, y, head=head))


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
    np.testing.assert_allclose(row_lengths(X)[:, None] * expected, X, rtol=1e-6, atol=1e-7)
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("whence.features.rows.free_memory", lambda: 0)
    monkeypatch.setattr("whence.features.rows._BLOCK_BYTES", 7 * 4 * D)
    found = unit_rows(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, unit_rows(X))


# The surrogate


@pytest.mark.parametrize("bias", [True, False])
def test_the_weights_are_those_of_a_generic_solver_on_divided_features(bias: bool) -> None:
    X, y, _, _ = data(np.float64)
    explainer = fitted(True, X, y, bias=bias)
    U = by_hand(X)
    b = float(np.sqrt((U**2).sum(axis=1).mean())) if bias else 0.0
    assert explainer.constant_ == pytest.approx(b)
    _, W = oracle.qp(np.hstack([U, np.full((N, 1), b)]) if bias else U, y, CLASSES, 0.3, False)
    if bias:
        W[:, -1] *= b
    np.testing.assert_allclose(explainer.coef_, W, atol=1e-4 * np.linalg.norm(W))


def test_the_classes_are_those_of_scikit_learn_on_divided_features() -> None:
    X, y, tests, _ = data(np.float64)
    peer = LinearSVC(multi_class="crammer_singer", C=0.3, fit_intercept=False, tol=1e-9, random_state=0)
    peer.fit(by_hand(X), y)
    ours = fitted(True, X, y, bias=False)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=2e-3)
    assert ours.predict(features=tests).tolist() == peer.predict(by_hand(tests)).tolist()


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


def test_nothing_changes_with_the_lengths_but_what_the_head_says() -> None:
    X, y, tests, head = data()
    scale = np.exp(np.random.default_rng(1).normal(size=(N, 1))).astype(np.float32)
    ours, other = fitted(True, X, y, head), fitted(True, X * scale, y, head)
    np.testing.assert_allclose(ours.coef_, other.coef_, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        ours.attribute(features=tests, target=1),
        other.attribute(features=3 * tests, target=1),
        rtol=1e-3,
        atol=1e-4,
    )


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
        AgreementWarning, match="names the model's class"
    ):  # such a head has little to do with the labels
        ours = fitted(True, X, y, head, C="auto", tol=1e-6)
    assert ours.C_path_ is not None
    U = unit_rows(X)
    direct = whence.svm.choose_C(
        U, y, head=head, lengths=row_lengths(X), bias=ours.constant_, n_classes=CLASSES
    )
    assert ours.C_path_.path == direct.path
    blind = whence.svm.choose_C(U, y, head=head, bias=ours.constant_, n_classes=CLASSES)
    assert [p.agreement for p in blind.path] != [p.agreement for p in direct.path]
    scale = len(U) * float(((U - U.mean(0)) ** 2).sum(1).mean())
    for point in direct.path:
        assert point.kappa == pytest.approx(point.C * scale, rel=1e-4)
    for wrong in (np.ones(3), -np.ones(400), np.full(400, np.nan), np.zeros(400)):
        with pytest.raises(InvalidInputError, match="'lengths' must be 400 finite numbers above 0"):
            whence.svm.choose_C(U, y, lengths=wrong)


# Changes of the training set


def test_what_if_update_and_stability_read_unit_lengths_too() -> None:
    X, y, tests, head = data()
    ours = fitted(True, X, y, head)
    U = by_hand(X).astype(np.float32)
    plain = fitted(False, U, y)
    near = {"rtol": 1e-3, "atol": 1e-4}
    for changes in ({"remove": [0, 7]}, {"relabel": {3: 1}}, {"C": 0.01}):
        one, other = ours.what_if(X, **changes), plain.what_if(U, **changes)
        np.testing.assert_allclose(one.coef_, other.coef_, **near)
        assert one.normalise
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


def explained(bias: bool = False, **options: Any) -> DualDA:
    options = {"C": 0.5, "normalise": True, "bias": bias, "show_progress": False, **options}
    return DualDA(**options).fit(cnn(bias=bias), images())


def unit_features(model: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.from_numpy(by_hand(model.body(x)))


def test_maps_conserve_the_scores_on_either_sample() -> None:
    explainer, x = explained(), images()[0]
    f = unit_features(cnn(bias=False), x)
    lam = explainer.lam_.toarray()
    for n, why in enumerate(explainer.explain(x[:3], k=4, method=EPSILON)):
        for one in why.pairs:
            expected = lam[one.index, why.target] * float(f[n] @ f[one.index])
            assert one.score == pytest.approx(expected, rel=1e-4)
            assert float(one.test_map.sum()) == pytest.approx(expected, rel=1e-4)
            assert float(one.train_map.sum()) == pytest.approx(expected, rel=1e-4)
        assert float(why.logit_map.sum()) == pytest.approx(why.logit, rel=1e-3)


def test_maps_of_all_pairs_sum_to_that_of_the_logit() -> None:
    explainer = explained(bias=True)
    why = explainer.explain(images()[0][:1], k=K, target=1)[0]
    assert sum(one.score for one in why.pairs) == pytest.approx(why.logit, abs=1e-4)
    total = why.maps["test"].astype(np.float64).sum(0)
    assert np.abs(total - why.logit_map).max() < 1e-5 * np.abs(why.maps["test"]).sum(0).max()


def test_concepts_sum_to_the_score_and_their_maps_to_its_map() -> None:
    explainer, x = explained(), images()[0]
    why = explainer.explain_concepts(x[:1], n=10)[0]
    assert why.scores.sum() == pytest.approx(why.score, rel=1e-4)
    pair = explainer.explain(x[:1], index=why.index)[0].pairs[0]
    assert why.score == pytest.approx(pair.score, rel=1e-4)
    for side in ("test_map", "train_map"):
        total = sum(getattr(part, side).astype(np.float64) for part in why.parts)
        np.testing.assert_allclose(total, getattr(pair, side), atol=1e-4 * np.abs(getattr(pair, side)).max())
    principal = explainer.explain_concepts(x[:1], Concepts.principal(explainer.vectors_))[0]
    assert principal.scores.sum() == pytest.approx(why.score, rel=1e-4)


def test_flipped_and_localised_pairs_have_scores_at_unit_length() -> None:
    explainer, x = explained(), images()[0]
    f, lam = unit_features(cnn(bias=False), x), explainer.lam_.toarray()
    found = pair_flipping(explainer, x[:2], baseline=0.0, steps=4)
    classes = explainer.top_k(x[:2]).target.tolist()
    for test, train, score in zip(found.tests, found.trains, found.scores, strict=True):
        expected = lam[train, classes[test]] * float(f[test] @ f[train])
        assert score == pytest.approx(expected, rel=1e-4)
    i, inside = int(explainer.support_[0]), np.arange(64).reshape(8, 8) < 9
    extractor = explainer.fitted_.require_model().extractor
    both = [Marked(x[[j]], inside) for j in (0, i)]
    target = int(images()[1][i])
    pair = localise(explainer, extractor, both[0], both[1], i, target, EPSILON)
    expected = lam[i, target] * float(f[0] @ f[i])
    assert pair.on_test.sum() == pytest.approx(expected, rel=1e-4)
    assert pair.on_train.sum() == pytest.approx(expected, rel=1e-4)


def test_saved_and_loaded_from_a_copy_and_from_a_bank(tmp_path: Path) -> None:
    x, y = images()
    explainer = DualDA(C=0.5, normalise=True, show_progress=False)
    explainer.fit(cnn(), (x, y), cache_dir=tmp_path / "cache")
    explainer.save(tmp_path / "copy.whence")
    explainer.save(tmp_path / "bank.whence", features="bank")
    copy = whence.load(tmp_path / "copy.whence", model=cnn(), data=(x, y))
    bank = whence.load(tmp_path / "bank.whence", model=cnn(), data=(x, y), cache_dir=tmp_path / "cache")
    assert isinstance(copy, DualDA)
    assert isinstance(bank, DualDA)
    assert copy.normalise
    assert bank.surrogate_.stored.mapped
    assert torch.equal(copy.attribute(x), explainer.attribute(x))
    torch.testing.assert_close(bank.attribute(x), explainer.attribute(x))
    torch.testing.assert_close(bank.vectors_, explainer.vectors_)
    np.testing.assert_array_equal(
        copy.explain(x[:1], k=2)[0].maps["train"], explainer.explain(x[:1], k=2)[0].maps["train"]
    )
    plain = DualDA(C=0.5, show_progress=False).fit(cnn(), (x, y), cache_dir=tmp_path / "cache")
    assert "normalise" in plain.origins_["solution"]  # the other's solution is not taken for its own
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
    shared, expected = (
        whence.audit.shared_evidence(one, target=1, features=F, C=1e-3) for one, F in ((ours, X), (plain, U))
    )
    np.testing.assert_allclose(shared.mean, expected.mean, rtol=1e-3, atol=1e-5)
    blind = fitted(True, X, y)  # without the model, whose own logits have a say otherwise
    for ranking in ("confidence", "slack", "self_influence"):
        found, want = (
            whence.audit.wrong_labels(one, features=F, ranking=ranking) for one, F in ((blind, X), (plain, U))
        )
        np.testing.assert_allclose(found.scores, want.scores, **near)
    with_head = whence.audit.wrong_labels(ours, features=X).scores
    assert np.isfinite(with_head).all()


def test_several_layers_and_ensembles() -> None:
    x, y = images()
    several = DualDA(C=0.5, normalise=True, layers="all", show_progress=False).fit(cnn(), (x, y))
    scores = several.attribute(x[:4], 2).double()
    np.testing.assert_allclose(np.linalg.norm(several.vectors_, axis=1), 1.0, rtol=1e-6)
    torch.testing.assert_close(scores.sum(1), several.decision_function(x[:4])[:, 2], rtol=1e-4, atol=1e-5)
    one = several.explain(x[:1], k=K, target=1)[0]
    total = one.maps["test"].astype(np.float64).sum(0)
    assert np.abs(total - one.logit_map).max() < 1e-5 * np.abs(one.maps["test"]).sum(0).max()
    both = whence.Ensemble(DualDA(C=0.5, normalise=True, show_progress=False))
    both.fit([cnn(), cnn()], (x, y))
    assert both.explain(x[:1], k=2)[0].pairs
