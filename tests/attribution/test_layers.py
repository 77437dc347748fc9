"""DualDA on features of several layers: exact sums, also over layers and in relevance maps, kept in files."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whence
from tests.attribution.test_explain import cnn, images
from tests.helpers.families import BERT, FAMILIES, Family
from tests.helpers.untouched import assert_untouched, snapshot
from whence import DualDA
from whence.core import store
from whence.errors import InvalidInputError, StoreError
from whence.features import FeatureBank, extract
from whence.methods import GradDot, Similarity
from whence.model.extractor import Extractor
from whence.relevance.lrp import trace
from whence.relevance.presets import EPSILON

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:transformers", "ignore::DeprecationWarning:peft"
)
EXACT = replace(EPSILON, epsilon=1e-12)


def fitted(layers: Any = "all", model: nn.Module | None = None, **options: Any) -> DualDA:
    options = {"C": 0.1, "show_progress": False, **options}
    return DualDA(metric="raw", layers=layers, **options).fit(cnn() if model is None else model, images())


@pytest.fixture(scope="module")
def explainer() -> DualDA:
    return fitted()


def features_by_hand(explainer: DualDA, x: torch.Tensor) -> torch.Tensor:
    """What goes into the layers of the network, in float64, with the scales that were measured."""
    body = cnn().body.double()
    with torch.no_grad():
        z = body[:3](x.double())  # (B, 6, 4, 4)
        flat = body[:7](x.double())
        last = body(x.double())
    scales = [block.scale for block in explainer.layers_.blocks]
    parts = zip([z.flatten(1), flat, last], scales, strict=True)
    return torch.cat([part / scale for part, scale in parts], 1)


def test_scores_sum_to_the_surrogate_and_are_products_of_features(explainer: DualDA) -> None:
    x = images()[0]
    assert explainer.layers_.names == ("body.3", "body.7", "head")
    f = features_by_hand(explainer, x)
    for target in range(3):
        scores = explainer.attribute(x[:5], target).double()
        lam = torch.from_numpy(explainer.lam_.toarray())[:, target]
        expected = lam * (f[:5] @ f.T + explainer.constant_**2)
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)
        w = torch.from_numpy(explainer.coef_[target])
        torch.testing.assert_close(scores.sum(1), f[:5] @ w[:-1] + w[-1], rtol=1e-4, atol=1e-5)


def test_what_belongs_to_the_model_stays_the_models_own(explainer: DualDA) -> None:
    x = images()[0]
    with torch.no_grad():
        logits = cnn()(x)
    assert explainer.top_k(x).target.tolist() == logits.argmax(1).tolist()
    f = torch.from_numpy(features_by_hand(explainer, x).numpy())
    ours, theirs = explainer.predict(x), logits.argmax(1)
    faith = explainer.faithfulness(x)
    assert faith.agreement == pytest.approx(float((ours == theirs).double().mean()))
    assert explainer.faithfulness(features=f).agreement == faith.agreement
    # The head has no weight before its own layer, so the cosine sees the surrogate's weights there too.
    W, H = explainer.coef_[:, :-1], explainer.head_.weight
    W, H = W - W.mean(0), H - H.mean(0)
    assert faith.weight_cosine == pytest.approx((W * H).sum() / np.linalg.norm(W) / np.linalg.norm(H))


def test_the_last_layer_is_what_it_always_was() -> None:
    plain = DualDA(metric="raw", C=0.1, show_progress=False).fit(cnn(), images())
    for layers in ("last", 1):
        other = fitted(layers)
        assert np.array_equal(other.coef_, plain.coef_)
        assert torch.equal(other.attribute(images()[0]), plain.attribute(images()[0]))
    assert plain.layers_ is None


# Relevance


def test_relevance_starts_at_each_layer_with_the_part_of_its_block() -> None:
    explainer = fitted(model=cnn(bias=False).double(), bias=False)
    x, layers = images()[0].double(), explainer.layers_
    extractor = explainer.fitted_.require_model().extractor
    f, i = extractor(x), int(explainer.support_[0])
    lam = float(explainer.lam_[i, 1])
    flow = trace(extractor, x[:1], EXACT)
    whole = flow.maps(lam * f[i][None])["input"]
    total, maps = 0.0, torch.zeros_like(whole)
    for place in layers.places.values():
        own = torch.zeros_like(f[i])
        own[place] = f[i, place]
        part, found = lam * float(f[i, place] @ f[0, place]), flow.maps(lam * own[None])["input"]
        assert float(found.sum()) == pytest.approx(part, rel=1e-9)
        total, maps = total + part, maps + found
    torch.testing.assert_close(maps, whole, rtol=1e-9, atol=1e-12)
    assert total == pytest.approx(float(explainer.attribute(x[:1], 1)[0, i]), rel=1e-5)


def test_a_projected_block_gives_back_all_that_it_got() -> None:
    torch.manual_seed(0)
    body = nn.Linear(12, 1500, bias=False), nn.ReLU(), nn.Linear(1500, 6, bias=False), nn.ReLU()
    model = nn.Sequential(*body, nn.Linear(6, 3)).double()
    x, y = torch.randn(30, 12).double(), torch.arange(30) % 3
    explainer = DualDA(metric="raw", C=0.1, bias=False, layers="all", show_progress=False).fit(model, (x, y))
    assert explainer.layers_.widths == (1024, 6)
    for one in explainer.explain(x[:1], k=3, method=EXACT, relative=False)[0].pairs:
        assert float(one.test_map.sum()) == pytest.approx(one.score, rel=1e-5)


def test_captum_and_texts(explainer: DualDA) -> None:
    captum = pytest.importorskip("captum.attr")
    assert explainer.explain(images()[0][:1], k=1, method=captum.InputXGradient)[0].pairs
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = BERT()
    items = [{**{k: v[i] for k, v in inputs.items()}, "labels": i % 5} for i in range(10)]
    before = snapshot(model)
    text = DualDA(metric="raw", C=0.1, layers="auto", show_progress=False).fit(model, items)
    with pytest.warns(whence.DataWarning, match="Tokens are shown as numbers"):
        why = text.explain({k: v[:1] for k, v in inputs.items()}, k=20)[0]
    assert len(why.logit_map) == 7  # tokens without padding
    total = np.sum([one.test_map for one in why.pairs], axis=0, dtype=np.float64)
    np.testing.assert_allclose(total, why.logit_map, atol=1e-4 * np.abs(why.logit_map).max())
    assert_untouched(before, model)


# What is kept


def test_a_saved_explainer_makes_the_same_features(explainer: DualDA, tmp_path: Path) -> None:
    x = images()[0]
    explainer.save(tmp_path / "x.whence")
    loaded = whence.load(tmp_path / "x.whence", model=cnn(), data=images())
    assert loaded.layers == "all"
    assert loaded.layers_ == explainer.layers_
    assert torch.equal(loaded.attribute(x), explainer.attribute(x))
    ours, theirs = (one.explain(x[:1], k=2)[0].maps["test"] for one in (loaded, explainer))
    np.testing.assert_array_equal(ours, theirs)
    loaded.save(tmp_path / "y.whence")
    assert (tmp_path / "y.whence").read_bytes() == (tmp_path / "x.whence").read_bytes()
    alone = whence.load(tmp_path / "x.whence")
    f = extract(cnn(), images(), layers=explainer.layers_, show_progress=False).features
    torch.testing.assert_close(
        alone.attribute(features=f[:3]), explainer.attribute(x[:3]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "nowhere"}, "it has no 'nowhere'"),
        ({"name": "head"}, "named once"),
        ({"scale": 0.0}, "size and a scale"),
        ({"width": 10**9}, "size and a scale"),
        ({"kind": "any"}, "kind"),
        ({"width": 20}, "made-up inputs differ"),
        (
            {"channels": 10**12, "width": 10**12, "kind": "vector", "sides": [], "grid": []},
            "cannot run on inputs of the same shape",
        ),
    ],
)
def test_a_crafted_file_is_refused(
    explainer: DualDA, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    explainer.save(tmp_path / "x.whence")
    arrays, manifest = store.read(tmp_path / "x.whence")
    manifest["layers"]["blocks"][0] |= change
    store.write(tmp_path / "y.whence", arrays, manifest)
    with pytest.raises(StoreError, match=why):
        whence.load(tmp_path / "y.whence", model=cnn())


def test_layers_of_a_method_that_has_none_are_refused(explainer: DualDA, tmp_path: Path) -> None:
    DualDA(metric="raw", C=0.1, show_progress=False).fit(cnn(), images()).save(tmp_path / "x.whence")
    arrays, manifest = store.read(tmp_path / "x.whence")
    store.write(tmp_path / "y.whence", arrays, manifest | {"layers": asdict(explainer.layers_)})
    with pytest.raises(StoreError, match="'layers' must be those of its parameters"):
        whence.load(tmp_path / "y.whence", model=cnn())


# Banks


def test_a_bank_must_be_of_the_layers_that_are_asked_for(explainer: DualDA) -> None:
    bank = extract(cnn(), images(), layers="all", show_progress=False)
    found = DualDA(metric="raw", C=0.1, layers="all", show_progress=False).fit(features=bank)
    assert np.array_equal(found.coef_, explainer.coef_)
    plain = extract(cnn(), images(), show_progress=False)
    for method, given in (
        (DualDA(metric="raw"), bank),
        (DualDA(metric="raw", layers="all"), plain),
        (DualDA(metric="raw", layers=2), bank),
    ):
        with pytest.raises(
            InvalidInputError, match=r"'features' must come from the layers of DualDA, layers="
        ):
            method.fit(features=given)
    for other in (Similarity(), GradDot()):
        with pytest.raises(InvalidInputError, match=r"layers='last'. Got those of layers='all'"):
            other.fit(features=bank)
    arrays = FeatureBank.of(bank.features, bank.labels, head=bank.head)  # which nobody can say the layers of
    assert np.array_equal(
        DualDA(metric="raw", C=0.1, show_progress=False).fit(features=arrays).coef_, explainer.coef_
    )


def test_audits_and_questions_what_if_read_the_same_features(explainer: DualDA) -> None:
    found = whence.audit.wrong_labels(explainer)
    assert len(found) == 45
    bank = extract(cnn(), images(), layers=explainer.layers_, show_progress=False)
    other = explainer.what_if(remove=[0], training_features=bank.features).explainer
    assert other.layers_ == explainer.layers_
    assert not other.attribute(images()[0][:2])[:, 0].any()


# Networks


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_families(family: Family) -> None:
    if (missing := family.missing()) is not None:
        pytest.skip(missing)
    model, inputs = family.made()
    if isinstance(inputs, dict):
        items: Any = [{**{k: v[i] for k, v in inputs.items()}, "labels": i % 5} for i in range(10)]
    else:
        items = (inputs, torch.arange(len(inputs)) % 5)
    explainer = DualDA(metric="raw", C=0.1, layers="auto", show_progress=False).fit(model, items)
    assert_sums(explainer, inputs)


def assert_sums(explainer: DualDA, inputs: Any) -> None:
    """Scores sum to the surrogate's logit, whose features are the extractor's."""
    extractor: Extractor = explainer.fitted_.require_model().extractor
    f = extractor(inputs).double().numpy()
    tau = explainer.attribute(inputs, 1).double().sum(1).numpy()
    np.testing.assert_allclose(
        tau, f @ explainer.coef_[1, :-1] + explainer.coef_[1, -1], rtol=1e-4, atol=1e-4
    )
