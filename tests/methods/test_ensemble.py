"""Ensembles against plain loops over their members."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whence
from tests.helpers.nets import mlp
from whence.core import store
from whence.errors import InvalidInputError, NotFittedError, StoreError
from whence.features import extract
from whence.methods import Attributor, Ensemble, Representer, Similarity

K, D, N, B = 3, 4, 40, 6


def member(l2: float = 0.01) -> Representer:
    return Representer(l2, show_progress=False)


def problem(n: int = 3) -> tuple[list[nn.Module], Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    models: list[nn.Module] = [mlp(D, 5, K, seed=None, activation=nn.Tanh) for _ in range(n)]
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


def test_every_model_runs_once_per_test() -> None:
    models, x, y, tests = problem(2)
    rows: list[tuple[int, int]] = []
    for m, model in enumerate(models):
        model.register_forward_pre_hook(lambda _, inputs, m=m: rows.append((m, len(inputs[0]))))
    ensemble = Ensemble(whence.DualDA(C=0.1, show_progress=False)).fit(models, (x, y))

    def passes() -> list[tuple[int, int]]:
        """Return the passes, but those of four made-up inputs: a hook's list may change what a model does."""
        found = [row for row in sorted(rows) if row[1] != 4]
        rows.clear()
        return found

    passes()
    ensemble.top_k(tests[:1])
    assert passes() == [(0, 1), (1, 1)]
    why = ensemble.explain(tests[:1], k=3)[0]
    n = len(why.pairs)
    assert n > 4
    assert passes() == [(0, 1), (0, n), (1, 1), (1, n)]  # the test, and its training samples in a batch


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
    with pytest.raises(InvalidInputError, match=r"same classes\. Got models with \[3, 4\] classes"):
        Ensemble(member).fit([models[0], nn.Linear(D, 4)], (x, y))
    ensemble = Ensemble(member).fit(models, (x, y))
    with pytest.raises(InvalidInputError, match="'target' must lie in"):
        ensemble.attribute(tests, K)
    with pytest.raises(InvalidInputError, match="'members' must be a method's name or class"):
        Ensemble(3).fit(models, (x, y))
    with pytest.raises(InvalidInputError, match=r"'checkpoints' must be of one model\. Got 3"):
        Ensemble(member).fit(models, (x, y), checkpoints=[models[0].state_dict()])


def test_one_line_and_its_spread() -> None:
    """A class, its name, or an attributor with options of its own, for every model."""
    models, x, y, tests = problem()
    ensemble = whence.Ensemble(whence.DualDA(C=0.01, show_progress=False)).fit(models, (x, y))
    each = []
    for model in models:
        scores = whence.DualDA(C=0.01, show_progress=False).fit(model, (x, y)).attribute(tests, 2)
        each.append((scores / scores.std(1, correction=0, keepdim=True)).double().numpy())
    np.testing.assert_allclose(ensemble.attribute(tests, 2), np.mean(each, 0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ensemble.spread(tests, 2), np.std(each, 0, ddof=1), rtol=1e-4, atol=1e-6)
    top = ensemble.top_k(tests, 3, target=2)
    order = np.argsort(-np.mean(each, 0), axis=1)[:, :3]  # of τ: an ensemble's scores are not relative
    np.testing.assert_array_equal(top.proponents.indices, order)
    for members in ("similarity", Similarity):
        made = whence.Ensemble(members, show_progress=False).fit(models, (x, y))
        assert [type(m) for m in made.members_] == [Similarity] * 3
    assert not whence.Ensemble(member).fit(models[0], (x, y)).spread(tests).any()


def test_checkpoints_and_banks_stand_for_models(tmp_path: Any) -> None:
    models, x, y, tests = problem()
    expected = Ensemble(member).fit(models, (x, y)).attribute(tests, 1)
    torch.save(models[1].state_dict(), tmp_path / "one.pt")
    before = {name: value.clone() for name, value in models[0].state_dict().items()}
    weights = [models[0].state_dict(), tmp_path / "one.pt", models[2]]
    found = Ensemble(member).fit(models[0], (x, y), checkpoints=weights)
    torch.testing.assert_close(found.attribute(tests, 1), expected)
    assert all(torch.equal(value, before[name]) for name, value in models[0].state_dict().items())
    banks = [extract(model, (x, y), show_progress=False) for model in models]
    torch.testing.assert_close(Ensemble(member).fit(features=banks).attribute(tests, 1), expected)


def test_it_comes_back_from_one_file(tmp_path: Any) -> None:
    models, x, y, tests = problem()
    ensemble = whence.Ensemble(whence.DualDA(C=0.01, show_progress=False)).fit(models, (x, y))
    ensemble.save(tmp_path / "e.whence")
    back = whence.load(tmp_path / "e.whence", models, (x, y))
    assert torch.equal(back.attribute(tests), ensemble.attribute(tests))
    assert torch.equal(back.spread(tests), ensemble.spread(tests))
    assert len(back.members_[1].explain(tests[:1], k=1)) == 1
    with pytest.raises(InvalidInputError, match=r"the 3 models of the ensemble, in order\. Got 2"):
        whence.load(tmp_path / "e.whence", models[:2])
    with pytest.raises(StoreError, match="another model"):
        whence.load(tmp_path / "e.whence", models[::-1])
    assert isinstance(whence.load(tmp_path / "e.whence"), whence.Ensemble)


def test_a_crafted_file_is_refused(tmp_path: Any) -> None:
    models, x, y, _ = problem(2)
    whence.Ensemble(whence.DualDA(C=0.01, show_progress=False)).fit(models, (x, y)).save(tmp_path / "e")
    arrays, manifest = store.read(tmp_path / "e")
    first = manifest["members"][0]
    for members in ([], [first], [first, {"method": "ensemble"}], [first, {"method": "no"}], [first, {}], 3):
        store.write(tmp_path / "f", arrays, {**manifest, "members": members})
        with pytest.raises(StoreError):
            whence.load(tmp_path / "f")
    fewer = {name: array for name, array in arrays.items() if not name.startswith("1/")}
    store.write(tmp_path / "f", fewer, manifest)
    with pytest.raises(StoreError):
        whence.load(tmp_path / "f")


@pytest.mark.parametrize("labels", [torch.arange(N) % K, torch.linspace(-1, 1, N)])
def test_explanations_are_means_of_the_members_in_comparable_units(labels: Tensor) -> None:
    models, x, _, tests = problem()
    if labels.is_floating_point():
        models = [mlp(D, 5, 1, seed=None, activation=nn.Tanh) for _ in range(3)]
    dual = whence.DualDA(C=0.05, tol=1e-9, show_progress=False)
    ensemble = Ensemble(dual).fit(models, (x, labels))
    (why,) = ensemble.explain(tests[:1], k=4, target=0)
    scores, spread = ensemble.attribute(tests[:1], 0)[0], ensemble.spread(tests[:1], 0)[0]
    top = ensemble.top_k(tests[:1], 4, 0)
    assert [pair.index for pair in why.proponents] == [
        i for i in top.proponents.indices[0].tolist() if i >= 0
    ]
    assert [pair.index for pair in why.opponents] == [i for i in top.opponents.indices[0].tolist() if i >= 0]
    maps: dict[int, Any] = {pair.index: [np.zeros(D), np.zeros(D)] for pair in why.pairs}
    logit = np.zeros(D)
    for member in ensemble.members_:
        unit = float(member.attribute(tests[:1], 0).double().std(correction=0)) * len(models)
        (own,) = member.explain(tests[:1], k=N, target=0, relative=False)
        logit += own.logit_map / unit
        for pair in own.pairs:
            for side, found in enumerate((pair.test_map, pair.train_map)):
                if pair.index in maps:
                    maps[pair.index][side] += found / unit
    np.testing.assert_allclose(why.logit_map, logit, atol=1e-5)
    for pair in why.pairs:
        assert pair.score == pytest.approx(float(scores[pair.index]), abs=1e-5)
        assert pair.spread == pytest.approx(float(spread[pair.index]), abs=1e-5)
        np.testing.assert_allclose(pair.test_map, maps[pair.index][0], atol=1e-5)
        np.testing.assert_allclose(pair.train_map, maps[pair.index][1], atol=1e-5)
    assert why.total == pytest.approx(float(scores.sum()), abs=1e-4)
    assert len(why.members) == 3
    page = whence.explanation.Explanations([why]).to_html()
    assert "means over 3 models" in page
    assert " ± " in page
    why.plot()
    json.dumps(why.to_dict())


def test_what_an_ensemble_says_is_by_the_mean_of_probabilities() -> None:
    models, x, y, tests = problem()
    ensemble = Ensemble(whence.DualDA(C=0.05, show_progress=False)).fit(models, (x, y))
    with torch.no_grad():
        chances = torch.stack([model(tests).softmax(1) for model in models]).mean(0)
    for why, chance in zip(ensemble.explain(tests, k=1, truth=y[:B]), chances, strict=True):
        assert why.predicted == int(chance.argmax())
        assert why.probability == pytest.approx(float(chance.max()), abs=1e-5)


def test_members_without_pairs_are_not_explained() -> None:
    models, x, y, tests = problem()
    ensemble = Ensemble(member).fit(models, (x, y))
    with pytest.raises(InvalidInputError, match="'members' must be DualDA or Effects"):
        ensemble.explain(tests)
    duals = Ensemble(whence.DualDA(C=0.05, show_progress=False)).fit(models, (x, y))
    with pytest.raises(InvalidInputError, match="'novelty' must be None for an ensemble"):
        duals.explain(tests, novelty=duals.members_[0].novelty())
