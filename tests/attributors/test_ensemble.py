"""Ensembles against plain loops over their members."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from whence.attributors import Attributor, Ensemble, Representer, Similarity
from whence.errors import InvalidInputError, NotFittedError, StoreError

K, D, N, B = 3, 4, 40, 6


def member(l2: float = 0.01) -> Representer:
    return Representer(l2, show_progress=False)


def problem(n: int = 3) -> tuple[list[nn.Module], Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    models: list[nn.Module] = [nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, K)) for _ in range(n)]
    y = torch.arange(N) % K
    return models, torch.eye(K, D)[y] + 0.7 * torch.randn(N, D), y, torch.randn(B, D)


def test_scores_are_the_mean_of_standardised_scores() -> None:
    models, x, y, tests = problem()
    ensemble = Ensemble(member).fit(models, (x, y))
    expected = np.zeros((B, N))
    own = np.zeros(N)
    for model in models:
        one = member().fit(model, (x, y))
        scores = one.attribute(tests, 1).double().numpy()
        for b in range(B):
            expected[b] += scores[b] / np.std(scores[b]) / len(models)
        influence = one.self_influence().double().numpy()
        own += influence / np.std(influence) / len(models)
    np.testing.assert_allclose(ensemble.attribute(tests, 1), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ensemble.self_influence(), own, rtol=1e-5)
    assert (ensemble.n_train_, ensemble.n_classes_) == (N, K)
    assert ensemble.cache_bytes_ == sum(m.cache_bytes_ for m in ensemble.members_)
    assert ensemble.fit_seconds_ > 0


def test_one_member_keeps_signs_and_order() -> None:
    """Even where all scores are positive, which subtracting the mean would undo."""
    models, x, y, tests = problem(1)
    alike = torch.zeros(N, dtype=torch.int64)  # one label only: every sample speaks for it
    for labels in (y, alike):
        single = Similarity("l2", show_progress=False).fit(models[0], (x, labels)).attribute(tests, 0)
        found = (
            Ensemble(lambda: Similarity("l2", show_progress=False))
            .fit(models[0], (x, labels))
            .attribute(tests, 0)
        )
        assert torch.equal(found.sign(), single.sign())
        assert torch.equal(found.argsort(1), single.argsort(1))
    assert (found > 0).all()


def test_members_may_differ_and_stay_untouched() -> None:
    models, x, y, tests = problem(2)
    members: list[Attributor] = [member(0.1), whence.DualDA(C=0.01, show_progress=False)]
    ensemble = Ensemble(members).fit(models, (x, y))
    assert [type(m) for m in ensemble.members_] == [Representer, whence.DualDA]
    assert ensemble.attribute(tests).shape == (B, N)
    with pytest.raises(NotFittedError):
        members[0].attribute(tests)


def test_no_target_is_the_class_of_most_members() -> None:
    models, x, y, tests = problem()
    ensemble = Ensemble(member).fit(models, (x, y))
    with torch.no_grad():
        votes = torch.stack([model(tests).argmax(1) for model in models])
    expected = [np.bincount(v, minlength=K).argmax() for v in votes.T.numpy()]
    assert (votes != votes[0]).any()
    assert ensemble.top_k(tests, 2).target.tolist() == expected
    torch.testing.assert_close(ensemble.attribute(tests), ensemble.attribute(tests, expected))


def test_a_member_that_says_nothing_counts_as_zero() -> None:
    models, x, y, tests = problem(2)
    speaking = member().fit(models[0], (x, y)).attribute(tests, 1)
    with torch.no_grad():
        models[1][0].weight.zero_()
        models[1][0].bias.zero_()  # features of zero: all similarities are zero
    members: list[Attributor] = [member(), Similarity("dot", show_progress=False)]
    found = Ensemble(members).fit(models, (x, y)).attribute(tests, 1)
    expected = speaking / speaking.std(1, correction=0, keepdim=True) / 2
    torch.testing.assert_close(found, expected)


def test_bad_input_is_named(tmp_path: Any) -> None:
    models, x, y, tests = problem()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        Ensemble(member).attribute(tests)
    with pytest.raises(InvalidInputError, match=r"each of the 2 members\. Got 3"):
        Ensemble([member(), member()]).fit(models, (x, y))
    with pytest.raises(InvalidInputError, match="at least one model"):
        Ensemble(member).fit([], (x, y))
    with pytest.raises(InvalidInputError, match=r"same classes\. Got numbers of classes \[3, 4\]"):
        Ensemble(member).fit([models[0], nn.Linear(D, 4)], (x, y))
    ensemble = Ensemble(member).fit(models, (x, y))
    with pytest.raises(InvalidInputError, match="'target' must lie in"):
        ensemble.attribute(tests, K)
    with pytest.raises(StoreError, match="Save each of its members_"):
        ensemble.save(tmp_path / "x")
