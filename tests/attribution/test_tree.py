"""The tree of an explanation: all its levels sum exactly, to what numpy finds by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whence
from whence import DualDA, Effects, Ensemble
from whence.explanation import Explanation, TreeNode

NAMES = ("left", "right", "below")
N = 90


def model(n_outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, n_outputs)).eval()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Values around one of three centres, each sample there twice: near-duplicates."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(N // 2) % 3, 2)
    x = np.eye(3, 6)[y] + 0.5 * np.repeat(rng.normal(size=(N // 2, 6)), 2, axis=0)
    return torch.from_numpy(x).float(), torch.from_numpy(y)


@pytest.fixture(scope="module", params=["raw", "whitened"])
def explainer(request: Any) -> DualDA:
    made = DualDA(C=0.05, metric=request.param, tol=1e-10, show_progress=False)
    return made.fit(model(), data(), class_names=NAMES)


def check_sums(tree: TreeNode) -> None:
    for node in (*tree.walk(), *tree.outline().walk()):
        if node.children:
            assert sum(child.score for child in node.children) == pytest.approx(node.score, abs=1e-9)
            assert sum(child.count for child in node.children) == node.count


def explained(explainer: DualDA, **options: Any) -> Explanation:
    return explainer.explain(data()[0][:1], target="left", **options)[0]


@pytest.mark.parametrize("against", [None, 1])
@pytest.mark.parametrize("relative", [True, False])
def test_levels_sum_to_the_logit(explainer: DualDA, relative: bool, against: int | None) -> None:
    why = explained(explainer, relative=relative, against=against)
    surrogate, y = explainer.surrogate_, data()[1].numpy()
    # By hand, from λ and the features as the surrogate reads them.
    z = torch.nn.Sequential(*list(model())[:2])(data()[0]).detach()
    z = surrogate.stored.transform(z).double().numpy()
    test, b = z[0], explainer.constant_
    lam = surrogate.lam.toarray()
    lam = lam[:, 0] - (0 if against is None else lam[:, against])
    mean = z.mean(axis=0) if against is None else z[y == against].mean(axis=0)
    scores = lam * (z @ (test - mean)) if relative else lam * (z @ test + b**2)
    logit = lam @ (z @ test + b**2)
    tree = why.tree
    assert tree is not None
    check_sums(tree)
    assert tree.score == pytest.approx(logit, abs=1e-4) == pytest.approx(why.logit, abs=1e-4)
    base = [node for node in tree.children if node.level == "base"]
    assert [node.score for node in base] == pytest.approx(
        [logit - scores.sum()] if relative else [], abs=1e-4
    )
    labels = [node for node in tree.children if node.level == "label"]
    assert {node.name for node in labels} == set(NAMES)
    for node in labels:
        assert node.score == pytest.approx(scores[y == NAMES.index(node.name)].sum(), abs=1e-4)
        for group in node.children:
            places = [leaf.index for leaf in group.children]
            assert set(y[places]) == {NAMES.index(node.name)}
            assert group.score == pytest.approx(scores[places].sum(), abs=1e-4)
            assert group.children[0].score == pytest.approx(
                scores[places][np.abs(scores[places]).argmax()], abs=1e-4
            )
    assert sum(group.share for group in tree.groups) == pytest.approx(1)


def test_outline_shows_samples_and_text_and_json_have_the_sums(explainer: DualDA) -> None:
    why = explained(explainer)
    assert why.tree is not None
    for node in why.tree.outline().walk():
        if node.level in ("group", "sample"):
            assert node.sample is not None
            assert node.sample.values is not None
            assert node.index is not None
            assert np.array_equal(node.sample.values, data()[0][node.index].numpy())
    text = str(why.tree)
    assert "logit of left" in text
    assert "the logit of the average training sample" in text
    plain = json.loads(json.dumps(why.to_dict()))["tree"]
    groups = [group for label in plain["parts"][1:] for group in label["parts"]]
    total = plain["parts"][0]["score"] + sum(sum(group["scores"]) for group in groups)
    assert total == pytest.approx(why.logit, abs=1e-4)
    page = whence.explanation.Explanations([why]).to_html()
    assert "What the logit of left is made of" in page
    assert "<script" not in page


def test_duplicates_are_folded_into_the_sample_that_is_shown(explainer: DualDA) -> None:
    why = explained(explainer, k=4)
    x = data()[0].numpy()
    by_place = dict(zip(explainer.surrogate_.support.tolist(), why.scores, strict=False))
    seen: list[int] = []
    for pair in why.pairs:
        twin = pair.index ^ 1  # samples 2i and 2i + 1 are equal
        assert np.array_equal(x[twin], x[pair.index])
        if twin in by_place:
            assert twin in pair.alike
            assert f"and {len(pair.alike)} like it" in pair.alike_words
        seen += [pair.index, *pair.alike]
    assert len(seen) == len(set(seen))
    chosen = explained(explainer, index=[0, 1, 2, 3])
    assert all(not pair.alike for pair in chosen.pairs)
    everything = explained(explainer, k=N)
    assert sum(pair.score for pair in everything.pairs) == pytest.approx(everything.total, abs=1e-4)


def test_effects_regression_and_many_labels_have_trees_that_fit_them_and_ensembles_none() -> None:
    x, y = data()
    effects = Effects(show_progress=False).fit(model(), (x, y), class_names=NAMES).explain(x[:1])[0]
    assert effects.tree is not None
    assert all(node.level == "label" for node in effects.tree.children)
    check_sums(effects.tree)
    assert effects.tree.score == pytest.approx(effects.total, abs=1e-9)
    several = torch.nn.functional.one_hot(y, 3).float()
    for labels, outputs, task in ((x[:, :1] * 3, 1, "regression"), (several, 3, "many-labels")):
        fit = DualDA(C=0.1, show_progress=False).fit(model(outputs), (x, labels), task=task)
        for why in fit.explain(x[:2], target=0):
            assert why.tree is not None
            assert why.tree.groups
            assert {node.level for node in why.tree.children} <= {"base", "group"}
            check_sums(why.tree)
            assert why.tree.score == pytest.approx(why.logit, abs=1e-3)
    members = [DualDA(C=0.05, show_progress=False) for _ in range(2)]
    ensemble = Ensemble(members, show_progress=False).fit([model(), model()], (x, y))
    assert ensemble.explain(x[:1])[0].tree is None
