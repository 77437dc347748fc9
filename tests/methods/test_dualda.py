"""DualDA against closed forms in float64, scikit-learn and plain loops."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import matthews_corrcoef
from torch import Tensor, nn

import whence
from tests.helpers.nets import train
from whence.errors import InvalidInputError, StoreError
from whence.features import FeatureBank
from whence.surrogate.scores import Expansion, Vectors
from whence.tasks import Classes

K, D, N, B = 4, 7, 90, 11


def data(dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    X = np.eye(K, D)[y] + 0.6 * rng.normal(size=(N, D))
    return X.astype(dtype), y, rng.normal(size=(B, D)).astype(dtype)


def fitted(dtype: Any = np.float64, **options: Any) -> whence.DualDA:
    X, y, _ = data(dtype)
    return whence.DualDA(metric="raw", **{"C": 0.05, "show_progress": False, **options}).fit(
        features=FeatureBank.of(X, y)
    )


def root_mean_square(X: np.ndarray) -> float:
    """The features' length: what follows them to carry the bias."""
    return float(np.sqrt(np.mean([(x**2).sum() for x in X.astype(np.float64)])))


def tau(e: whence.DualDA, X: np.ndarray, tests: np.ndarray, classes: np.ndarray, bias: bool) -> np.ndarray:
    """λ_ic (f_i·f(x) + b²) by plain loops in float64."""
    square = root_mean_square(X) ** 2 if bias else 0.0
    lam = e.lam_.toarray()
    out = np.zeros((len(tests), len(X)))
    for b, x in enumerate(tests.astype(np.float64)):
        for i, f in enumerate(X.astype(np.float64)):
            out[b, i] = lam[i, classes[b]] * (f @ x + square)
    return out


class Net(nn.Module):
    def __init__(self, softmax: bool = False) -> None:
        super().__init__()
        self.body = nn.Linear(D, 6)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, K)
        self.softmax = softmax

    def forward(self, x: Tensor) -> Tensor:
        if x.isinf().any():
            raise RuntimeError("in the middle")
        z: Tensor = self.fc(self.drop(torch.relu(self.norm(self.body(x)))))
        return z.softmax(1) if self.softmax else z


@functools.cache
def trained_once() -> tuple[Net, Tensor, Tensor]:
    torch.manual_seed(0)
    X, y, _ = data(np.float32)
    model, inputs, labels = Net(), torch.as_tensor(X), torch.as_tensor(y)
    train(model, inputs, labels, 60, 0.02)
    return model, inputs, labels


def trained(softmax: bool = False) -> tuple[Net, Tensor, Tensor]:
    """A trained model, its inputs and labels, for each test to spoil."""
    model, inputs, labels = copy.deepcopy(trained_once())
    model.softmax = softmax
    return model, inputs, labels


# The mathematics


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("target", [None, 2, "each"])
def test_scores_are_the_coefficients_times_inner_products(bias: bool, target: Any) -> None:
    X, _, tests = data()
    e = fitted(bias=bias)
    W = e.coef_
    logits = tests @ W[:, :D].T + (W[:, D] if bias else 0)
    classes = logits.argmax(1) if target is None else np.full(B, 2)
    if target == "each":
        target = classes = np.arange(B) % K
    expected = tau(e, X, tests, classes, bias)
    scores = e.attribute(features=tests, target=target)
    assert scores.dtype == torch.float64
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(scores.sum(1), logits[np.arange(B), classes], rtol=1e-9, atol=1e-12)
    sparse = e.attribute(features=tests, target=target, sparse=True)
    assert sparse.has_sorted_indices
    np.testing.assert_allclose(sparse.toarray(), expected, rtol=1e-12, atol=1e-14)
    assert sparse.nnz == np.count_nonzero(e.lam_.toarray()[:, classes])


@pytest.mark.parametrize("bias", [True, False])
def test_float32_scores_sum_to_the_logit_up_to_rounding(bias: bool) -> None:
    X, y, tests = data(np.float32)
    e = whence.DualDA(metric="raw", C=0.05, bias=bias, show_progress=False).fit(features=FeatureBank.of(X, y))
    W = np.zeros((K, D + bias))
    rows = (
        X.astype(np.float64)
        if not bias
        else np.c_[X.astype(np.float64), np.full(N, root_mean_square(X.astype(np.float64)) ** 2)]
    )
    for lam, f in zip(e.lam_.toarray(), rows, strict=True):
        W += np.outer(lam, f)
    np.testing.assert_allclose(e.coef_, W, rtol=1e-9, atol=1e-12)
    logits = tests.astype(np.float64) @ W[:, :D].T + (W[:, D] if bias else 0)
    for c in range(K):
        scores = e.attribute(features=tests, target=c)
        assert scores.dtype == torch.float32
        mass = scores.abs().sum(1).double().numpy()
        assert np.all(np.abs(scores.double().sum(1).numpy() - logits[:, c]) <= 1e-6 * mass)


def test_coefficients_are_feasible_and_global_attributions() -> None:
    _, y, _ = data()
    e = fitted()
    lam = e.lam_.toarray()
    np.testing.assert_allclose(lam.sum(1), 0, atol=1e-12)
    own = lam[np.arange(N), y]
    assert own.min() >= 0
    assert own.max() <= e.C_ * (1 + 1e-12)
    lam_others = lam.copy()
    lam_others[np.arange(N), y] = 0
    assert lam_others.max() <= 0
    assert np.array_equal(e.support_, np.flatnonzero(np.abs(lam).sum(1)))
    assert e.gap_ <= 1e-6


def test_a_planted_sample_has_the_right_sign() -> None:
    """The own class's sample speaks for a test, the other's against it."""
    e = whence.DualDA(metric="raw", C=1.0, bias=False, show_progress=False).fit(
        features=FeatureBank.of(np.eye(2), [0, 1])
    )
    # By hand: λ_0 = (a, −a) and λ_1 = (−b, b) give the dual a + b − a² − b², largest at a = b = ½.
    np.testing.assert_allclose(e.coef_, [[0.5, -0.5], [-0.5, 0.5]], atol=1e-3)
    np.testing.assert_allclose(e.attribute(features=[[2.0, 1.0]], target=0), [[1.0, -0.5]], atol=1e-3)
    np.testing.assert_allclose(e.attribute(features=[[2.0, 1.0]], target=1), [[-1.0, 0.5]], atol=1e-3)


# Ranking


@pytest.mark.filterwarnings("ignore:No training sample has class")
def test_a_class_without_support_vectors_scores_zero() -> None:
    X, y, tests = data()
    e = whence.DualDA(metric="raw", C=0.05, bias=False, show_progress=False).fit(
        features=FeatureBank.of(X, y % 2, task=Classes(K))
    )
    lam = e.lam_.tolil()
    lam[:, 3] = 0
    part = Expansion(Vectors(X), np.arange(N), lam.tocsr(), constant=0.0)
    classes = torch.full((B,), 3)
    assert not part.dense(torch.as_tensor(tests), classes).any()
    assert part.sparse(torch.as_tensor(tests), classes).nnz == 0
    assert (part.top_k(torch.as_tensor(tests), classes, 2)[0].indices == -1).all()


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e3])
@pytest.mark.parametrize("C", [0.05, "auto"])
def test_features_in_other_units_give_the_same_attributions(scale: float, C: Any) -> None:
    X, y, tests = data()
    head = np.eye(K, D), np.zeros(K)
    plain = whence.DualDA(metric="raw", C=C, tol=1e-9, show_progress=False).fit(
        features=FeatureBank.of(X, y, head=head)
    )
    other_C = C if C == "auto" else C / scale**2
    scaled = whence.DualDA(metric="raw", C=other_C, tol=1e-9, show_progress=False).fit(
        features=FeatureBank.of(X * scale, y, head=head)
    )
    assert pytest.approx(plain.C_ / scale**2) == scaled.C_
    assert scaled.constant_ == pytest.approx(plain.constant_ * scale)
    want = plain.attribute(features=tests, target=1)
    np.testing.assert_allclose(
        scaled.attribute(features=tests * scale, target=1), want, atol=1e-3 * want.abs().max()
    )


# Fitting a model


def test_only_the_support_vectors_features_are_kept() -> None:
    model, inputs, labels = trained()
    e = whence.DualDA(metric="raw", C=1.0, show_progress=False).fit(model, (inputs, labels))
    assert 0 < len(e.support_) < N
    assert e.surrogate_.vectors.shape == (len(e.support_), 6)
    arrays = [v for v in vars(e.surrogate_).values() if isinstance(v, np.ndarray | Tensor)]
    assert not any(v.shape == (N, 6) for v in arrays)


def test_faithfulness_matches_its_definitions() -> None:
    model, inputs, labels = trained()
    e = whence.DualDA(metric="raw", C=0.01, show_progress=False).fit(model, (inputs, labels))
    model.eval()
    with torch.no_grad():
        f = torch.relu(model.norm(model.body(inputs))).double().numpy()
        theirs = model(inputs).double().numpy()
    ours = f @ e.coef_[:, :6].T + e.coef_[:, 6]
    faith = e.faithfulness(inputs)
    assert faith.agreement == pytest.approx((ours.argmax(1) == theirs.argmax(1)).mean())
    assert faith.mcc == pytest.approx(matthews_corrcoef(theirs.argmax(1), ours.argmax(1)))
    # A cosine of centred vectors is Pearson's correlation; columns of W are centred over classes.
    rows = [np.corrcoef(a, b)[0, 1] for a, b in zip(ours, theirs, strict=True)]
    assert faith.logit_cosine == pytest.approx(np.mean(rows), abs=1e-6)
    a, b = (W - W.mean(0) for W in (e.coef_[:, :6], model.fc.weight.detach().double().numpy()))
    assert faith.weight_cosine == pytest.approx(
        (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()), abs=1e-6
    )
    assert faith.n_tests == N


def test_arrays_need_be_neither_writable_nor_contiguous() -> None:
    model, inputs, labels = trained()
    expected = (
        whence.DualDA(metric="raw", C=0.01, show_progress=False)
        .fit(model, (inputs, labels))
        .attribute(inputs, 0)
    )
    backwards = np.ascontiguousarray(inputs.numpy()[::-1])[::-1]
    backwards.flags.writeable = False
    y = labels.numpy()
    y.flags.writeable = False
    e = whence.DualDA(metric="raw", C=0.01, show_progress=False).fit(model, (backwards, y))
    assert torch.equal(e.attribute(backwards, 0), expected)
    X, y, tests = data()
    X.flags.writeable = tests.flags.writeable = False
    e = whence.DualDA(metric="raw", C=0.05, show_progress=False).fit(features=FeatureBank.of(X[:, ::-1], y))
    assert e.attribute(features=tests[:, ::-1]).shape == (B, N)


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, x: e.attribute(features=x[:, :3]), rf"shape \(tests, {D}\).*\({B}, 3\)"),
        (lambda e, x: e.attribute(features=x[:0]), r"Got \(0, 7\)"),
        (lambda e, x: e.attribute(features=np.where(np.arange(D) == 4, np.nan, x)), "row 0, column 4"),
        (lambda e, x: e.attribute(features=x, target=-1), "'target' must lie in"),
        (lambda e, x: e.faithfulness(features=x), "'head'"),
        (
            lambda e, x: whence.DualDA(metric="raw", C="best").fit(features=FeatureBank.of(x, [0] * B)),
            "'C' must be \"auto\" or a number",
        ),
        (
            lambda e, x: whence.DualDA(metric="raw", C=-1.0).fit(
                features=FeatureBank.of(x, [0, 1] * 5 + [0])
            ),
            "'C' must be",
        ),
        (lambda e, x: e.fit(features=FeatureBank.of(x, [0] * (B - 1))), "'labels'"),
        (
            lambda e, x: e.fit(features=FeatureBank.of(x, np.arange(B), task=Classes(3))),
            "'labels' must be below",
        ),
        (lambda e, x: e.fit(features=FeatureBank.of(x[:0], [])), "at least one row"),
        (
            lambda e, x: e.fit(features=FeatureBank.of(x, np.arange(B), head=(np.ones((2, 3)), None))),
            "'head' must be",
        ),
        (
            lambda e, x: e.fit(features=FeatureBank.of(x, np.arange(B), head=(np.ones((11, D)), np.ones(3)))),
            "'head' must be",
        ),
    ],
)
def test_bad_input_names_the_argument(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(fitted(), data()[2])


# Saving


def test_a_saved_explainer_comes_back_exactly(tmp_path: Path) -> None:
    model, inputs, labels = trained()
    e = whence.DualDA(metric="raw", seed=5, tol=1e-5, show_progress=False).fit(model, (inputs, labels))
    e.save(tmp_path / "x.whence")
    back = whence.load(tmp_path / "x.whence", model=model)
    assert torch.equal(back.attribute(inputs), e.attribute(inputs))
    assert torch.equal(back.self_influence(), e.self_influence())
    assert np.array_equal(back.lam_.toarray(), e.lam_.toarray())
    assert np.array_equal(back.support_, e.support_)
    assert str(back.C_path_) == str(e.C_path_)
    assert (back.C_, back.gap_, back.seed, back.tol, back.C) == (e.C_, e.gap_, 5, 1e-5, "auto")
    assert back.faithfulness(inputs) == e.faithfulness(inputs)
    back.save(tmp_path / "again.whence")
    assert (tmp_path / "again.whence").read_bytes() == (tmp_path / "x.whence").read_bytes()


def test_an_explainer_of_features_has_no_model(tmp_path: Path) -> None:
    _, _, tests = data()
    e = fitted(bias=False)
    e.save(tmp_path / "x")
    assert torch.equal(whence.load(tmp_path / "x").attribute(features=tests), e.attribute(features=tests))
    with pytest.raises(StoreError, match="fitted on features"):
        whence.load(tmp_path / "x", model=nn.Linear(D, K))


def test_a_common_offset_of_the_features_hardly_changes_the_surrogate():
    # The head uses the features' mean direction as much as any other. With a short constant an offset would
    # make that direction expensive, since the bias must take back what a weight along it adds to all logits.
    rng = np.random.default_rng(0)
    X = np.maximum(rng.normal(size=(800, 32)) @ rng.normal(size=(32, 32)) / np.sqrt(32), 0)
    y = (X @ rng.normal(size=(32, 5)) + rng.normal(size=5)).argmax(1)

    def logits(offset):
        fitted = whence.DualDA(metric="raw", C=1.0, show_progress=False).fit(
            features=FeatureBank.of(X + offset, y, task=Classes(5))
        )
        return (X + offset) @ fitted.coef_[:, :32].T + fitted.coef_[:, 32]

    plain = logits(0.0)
    for offset in (10.0, 100.0):
        assert np.linalg.norm(logits(offset) - plain) <= 0.03 * np.linalg.norm(plain)


@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (1, 100), (1e3, 0), (1e-3, 0)])
@pytest.mark.parametrize("C", [1e-3, 1.0])
def test_scores_sum_to_the_logit_whatever_the_scale_of_the_features(scale, offset, C):
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = (scale * (np.eye(3, 8)[y] + 0.5 * rng.normal(size=(150, 8)) + offset)).astype(np.float32)
    explainer = whence.DualDA(metric="raw", C=C / scale**2, show_progress=False).fit(
        features=FeatureBank.of(X, y)
    )
    W = explainer.coef_.astype(np.longdouble)
    exact = (X.astype(np.longdouble) @ W[:, :8].T + W[:, 8])[:, 1]
    for scores in (
        explainer.attribute(features=X, target=1).numpy(),
        explainer.attribute(features=X, target=1, sparse=True).toarray(),
    ):
        error = np.abs(scores.sum(axis=1, dtype=np.float64) - exact.astype(np.float64))
        assert error.max() <= 1e-4
    logits = explainer.surrogate_.logits(explainer.fitted_.check_features(X))[:, 1]
    assert np.abs(logits.numpy() - exact.astype(np.float64)).max() <= 1e-9 * max(1, np.abs(exact).max())
