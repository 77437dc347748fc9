"""explain(): pairs that agree with the scores, maps whose sums are known, errors that say what is wrong."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.patches import PathPatch
from torch import Tensor, nn

import whence
from tests.helpers import explored
from tests.helpers.families import SMALL, TEXT
from whence import DualDA
from whence.data import as_training_set
from whence.errors import InvalidInputError, ModelError, NotFittedError, StoreError
from whence.features import FeatureBank
from whence.relevance import Concepts, Rules
from whence.relevance.captum import Captum
from whence.relevance.presets import EPSILON

K = 60  # more than there are training samples: every pair


class Cnn(nn.Module):
    """Two convolutions, pooling, a hidden layer."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, bias=bias),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1, bias=bias),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(32, 10, bias=bias),
            nn.ReLU(),
        )
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def images(n: int = 45) -> tuple[Tensor, Tensor]:
    """Images in which one of three corners is bright."""
    generator = torch.Generator().manual_seed(0)
    x, y = 0.4 * torch.rand(n, 3, 8, 8, generator=generator), torch.arange(n) % 3
    for corner in range(3):
        rows, columns = 4 * (corner // 2), 4 * (corner % 2)
        x[y == corner, :, rows : rows + 4, columns : columns + 4] += 0.5
    return x, y


def cnn(bias: bool = True) -> Cnn:
    """Return a network whose activations are near 1, next to which ε = 1e-6 is small."""
    torch.manual_seed(0)
    model = Cnn(bias).eval()
    with torch.no_grad():
        for parameter in model.body.parameters():
            parameter *= 3
    return model


def fitted(model: nn.Module, bias: bool = True, **options: Any) -> DualDA:
    explainer = DualDA(**{"C": 0.01, "metric": "raw", "bias": bias, "show_progress": False, **options})
    return explainer.fit(model, images(), class_names=("left", "right", "below"))


@pytest.fixture(scope="module")
def explainer() -> DualDA:
    return fitted(cnn())


def features(model: Cnn, x: Tensor, constant: float) -> Tensor:
    with torch.no_grad():
        f = model.body(x).double()
    return torch.cat([f, torch.full((len(f), 1), constant, dtype=torch.float64)], 1) if constant else f


@pytest.mark.parametrize("relative", [False, True])
def test_pairs_are_the_scores_of_a_loop(explainer: DualDA, relative: bool) -> None:
    """Relative to the mean training sample, scores are λ_ic z_i·(z(x) − z̄), and start from its logit."""
    x, y = images()
    model = cnn()
    lam = torch.from_numpy(explainer.lam_.toarray()).double()
    b = explainer.constant_
    train, test = features(model, x, b), features(model, x[:4], b)
    with torch.no_grad():
        probabilities = model(x[:4]).softmax(1)
    mean = train.mean(0) if relative else torch.zeros_like(train[0])
    for n, why in enumerate(explainer.explain(x[:4], k=3, truth=y[:4], relative=relative)):
        moved = test[n] - mean
        scores = torch.stack([lam[i, why.target] * (train[i] @ moved) for i in range(len(x))])
        weight = lam[:, why.target] @ train
        assert why.target == why.predicted == int(probabilities[n].argmax())
        assert why.probability == pytest.approx(float(probabilities[n].max()), rel=1e-5)
        assert why.surrogate_class == int(((lam.T @ train) @ test[n]).argmax())
        assert why.truth == int(y[n])
        assert why.relative == relative
        assert why.logit == pytest.approx(float(weight @ test[n]), abs=1e-5)
        assert why.base == pytest.approx(float(weight @ mean), abs=1e-5)
        assert why.logit == pytest.approx(why.base + float(scores.sum()), abs=1e-5)
        assert why.evidence_for == pytest.approx(float(scores.clamp(min=0).sum()), rel=1e-4)
        # What is left of the sum of scores where the map of the logit takes w·f(x).
        left = b * float(weight[-1]) - float(weight @ mean)
        assert why.bias == pytest.approx(left, abs=1e-5)
        assert [one.score for one in why.proponents] == pytest.approx(
            scores.topk(3).values.tolist(), rel=1e-4
        )
        assert [-one.score for one in why.opponents] == pytest.approx(
            (-scores).topk(3).values.tolist(), rel=1e-4
        )
        for one in why.pairs:
            assert one.score == pytest.approx(float(scores[one.index]), rel=1e-4)
            assert one.coefficient == pytest.approx(float(lam[one.index, why.target]), rel=1e-4)
            assert one.label == int(y[one.index])
            assert np.array_equal(one.sample.image, x[one.index].permute(1, 2, 0).numpy())  # type: ignore[arg-type]
            assert one.test_map.shape == one.train_map.shape == (3, 8, 8)
        assert (why.n_train, why.n_support) == (45, len(explainer.support_))


def test_a_test_costs_one_forward_pass_and_its_training_samples_another() -> None:
    model, sizes = cnn(), []
    model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    explainer = fitted(model)
    sizes.clear()
    explainer.explain(images()[0][:2], k=2)
    made_up, *sizes = sizes  # since the hook's list may be what the model depends on
    assert made_up == 4
    assert len(sizes) == 4
    assert sizes[0::2] == [1, 1]


OPTIONS: dict[str, dict[str, Any]] = {
    "raw": {}, "unit length": {"metric": "unit", "C": 0.5}, "centred": {"metric": "centred", "C": 0.1},
    "whitened": {"metric": "whitened", "C": 0.1}, "all layers": {"layers": "all", "C": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_maps_of_all_pairs_sum_to_that_of_the_logit(
    options: dict[str, Any], target: int, relative: bool
) -> None:
    explainer, x = fitted(cnn(), **options), images()[0][:1]
    why = explainer.explain(x, k=K, target=target, relative=relative)[0]
    near = 1e-4 if options else 1e-5
    assert why.base + sum(one.score for one in why.pairs) == pytest.approx(why.logit, abs=near)
    assert why.share_for == pytest.approx(float(bool(why.proponents)))
    total = why.maps["test"].astype(np.float64).sum(0)
    assert np.abs(total - why.logit_map).max() < 1e-5 * np.abs(why.maps["test"]).sum(0).max()
    assert why.sums["likeness"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    "method", [Rules(), "epsilon", "epsilon_plus_flat"], ids=["gradient", "epsilon", "epsilon_plus_flat"]
)
def test_maps_sum_to_the_scores_where_nothing_absorbs_relevance(
    options: dict[str, Any], method: str | Rules
) -> None:
    """Where a metric subtracts the mean, the part of the mean is left, which is not part of the input."""
    explainer = fitted(cnn(bias=False), bias=False, **options)
    near = 1e-4 if "metric" in options else 1e-5
    mean = options.get("metric") in ("centred", "whitened")
    for why in explainer.explain(images()[0][:3], k=4, method=method, relative=False):
        assert (abs(why.bias) > near) == mean
        size = max(abs(one.score) + abs(one.bias) for one in why.pairs)
        for one in why.pairs:
            assert float(one.test_map.sum()) == pytest.approx(one.score - one.bias, abs=near * size)
            if not mean:
                assert float(one.train_map.sum()) == pytest.approx(one.score, abs=near * size)
        start = why.logit - why.bias
        assert why.sums["logit_map"] == pytest.approx(start, abs=near * (why.evidence_for + abs(start)))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_concepts_sum_to_the_score_and_their_maps_to_its_map(options: dict[str, Any]) -> None:
    explainer, x = fitted(cnn(), bias=False, **options), images()[0]
    d = explainer.vectors_.shape[1]
    index = int(explainer.top_k(x[:1], 1, relative=False).proponents.indices[0, 0])
    why = explainer.explain_concepts(x[:1], index=index, n=d)[0]
    assert len(why.scores) == d == (96 + 32 + 10 if explainer.layers_ else 10)
    assert why.scores.sum() + why.bias == pytest.approx(why.score, rel=1e-4)
    pair = explainer.explain(x[:1], index=index, relative=False)[0].pairs[0]
    assert why.score == pytest.approx(pair.score, rel=1e-4)
    for side in ("test_map", "train_map"):
        total = sum(getattr(part, side).astype(np.float64) for part in why.parts)
        np.testing.assert_allclose(total, getattr(pair, side), atol=1e-4 * np.abs(getattr(pair, side)).max())
    principal = explainer.explain_concepts(x[:1], Concepts.principal(explainer.vectors_), index)[0]
    assert principal.scores.sum() == pytest.approx(why.score, rel=1e-4)


def test_training_maps_are_test_maps_with_the_samples_exchanged(explainer: DualDA) -> None:
    """λ f(x)_j f(x_i)_j knows no order: the map on x_i is λ_i/λ_x times that on x_i of the pair (x_i, x)."""
    x = images()[0]
    x_index = int(explainer.support_[0])
    why = explainer.explain(x[x_index][None], k=3, target=0, relative=False)[0]
    others = [one for one in why.pairs if one.index != x_index]
    assert others
    for one in others:
        back = explainer.explain(x[one.index][None], k=K, target=0, relative=False)[0]
        (same,) = (other for other in back.pairs if other.index == x_index)
        expected = same.test_map * (one.coefficient / same.coefficient)
        np.testing.assert_allclose(one.train_map, expected, atol=1e-5 * np.abs(expected).max())


def test_batches_and_their_sizes_do_not_matter(explainer: DualDA) -> None:
    x = images()[0]
    small = fitted(cnn(), batch_size=2)
    for one, other in zip(explainer.explain(x[:3]), small.explain(x[:3]), strict=True):
        assert [pair.index for pair in one.pairs] == [pair.index for pair in other.pairs]
        np.testing.assert_allclose(one.maps["test"], other.maps["test"], atol=1e-6)
        np.testing.assert_allclose(one.maps["train"], other.maps["train"], atol=1e-6)


@pytest.mark.parametrize("relative", [False, True])
def test_fewer_pairs_where_there_are_fewer(explainer: DualDA, relative: bool) -> None:
    why = explainer.explain(images()[0][:1], k=K, relative=relative)[0]
    scores = explainer.attribute(images()[0][:1], relative=relative)[0]
    assert len(why.proponents) == int((scores > 0).sum()) < K
    assert len(why.opponents) == int((scores < 0).sum())
    assert why.share_for == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:No training sample has class")
def test_a_class_that_nothing_speaks_for() -> None:
    """A class without training samples has no positive coefficient, and ReLU features no negative product."""
    x, y = images()
    explainer = DualDA(metric="raw", C=0.01, show_progress=False).fit(
        cnn(), (x[y < 2], y[y < 2]), class_names=("a", "b", "c")
    )
    why = explainer.explain(x[:1], target=2, relative=False)[0]
    assert why.proponents == ()
    assert why.evidence_for == 0
    assert "none" in [text.get_text() for text in why.plot().texts]


def test_a_sample_without_features_has_no_pairs_and_a_map_of_zeros() -> None:
    explainer = fitted(cnn(bias=False), bias=False)
    why = explainer.explain(torch.zeros(1, 3, 8, 8), method="epsilon", relative=False)
    assert why[0].pairs == ()
    assert why[0].logit == 0
    assert not why[0].logit_map.any()
    assert [text.get_text() for text in why[0].plot().texts].count("none") == 2
    assert "No training sample supports this class" in why.to_html()
    json.dumps(why.to_dict())


def test_values_are_explained_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(30, 5)
    explainer = DualDA(metric="raw", C=0.1, bias=False, show_progress=False).fit(
        model, (x, (x[:, 0] > 0).long())
    )
    why = explainer.explain(x[:1], k=2)[0]
    assert why.method == "epsilon"
    assert np.array_equal(why.sample.values, x[0].numpy())  # type: ignore[arg-type]
    for one in why.pairs:
        # Through ReLU, relevance is x times the gradient of the features' sum λ f(x)·f(x_i).
        point = x[0].clone().requires_grad_()
        with torch.no_grad():
            fixed = model[:2](x[one.index][None])[0]
        (gradient,) = torch.autograd.grad(one.coefficient * model[:2](point[None])[0] @ fixed, point)
        np.testing.assert_allclose(one.test_map, (x[0] * gradient).numpy(), atol=2e-5 * abs(one.score) + 1e-6)
    why.plot()


@pytest.mark.parametrize("method", [DualDA, whence.methods.Effects])
def test_features_alone_are_explained_as_the_inputs_of_a_linear_model(method: Any, tmp_path: Path) -> None:
    """A linear layer's inputs are its features: relevance on them is what propagation leaves there."""
    pandas = pytest.importorskip("pandas")
    rng, names = np.random.default_rng(0), ("age", "income", "height", "debt")
    y = np.arange(60) % 3
    X = (np.eye(3, 4)[y] * 2 + rng.normal(size=(60, 4))).astype(np.float32)
    layer = nn.Linear(4, 3)
    head = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    bank = FeatureBank.of(pandas.DataFrame(X, columns=names), y, head=head)
    by_features = method(C=0.1, show_progress=False).fit(features=bank)
    by_model = method(C=0.1, show_progress=False).fit(layer, X, y)
    tests = pandas.DataFrame(X[:4], columns=names)
    for ours, theirs in zip(by_features.explain(features=tests), by_model.explain(X[:4]), strict=True):
        np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-4, atol=1e-6)
        assert [pair.index for pair in ours.pairs] == [pair.index for pair in theirs.pairs]
        for name in ("logit", "test", "train"):
            np.testing.assert_allclose(ours.maps[name], theirs.maps[name], rtol=1e-3, atol=1e-5)
        assert ours.sample.names == names
        assert ours.verdict == theirs.verdict._replace(probability=ours.verdict.probability)
        assert ours.verdict.probability == pytest.approx(theirs.verdict.probability)
    why = by_features.explain(features=tests.iloc[2])
    assert len(why) == 1
    assert "Maps by no propagation, on features alone" in {text.get_text() for text in why[0].plot().texts}
    assert "no propagation, on features alone" in why.to_html()
    with pytest.raises(InvalidInputError, match="Either 'x' or 'features' must be given"):
        by_features.explain()
    with pytest.raises(NotFittedError, match="Pass features=…"):
        by_features.explain(X)
    by_features.save(tmp_path / "e.whence")
    with pytest.raises(InvalidInputError, match="a loaded explainer does not have them"):
        whence.load(tmp_path / "e.whence").explain(features=tests)


def test_another_shape_is_an_error_that_names_both(explainer: DualDA) -> None:
    with pytest.raises(
        InvalidInputError, match=r"shape of the training samples, \(3, 8, 8\)\. Got \(3, 12, 12\)"
    ):
        explainer.explain(torch.rand(1, 3, 12, 12))


def test_an_operation_without_a_rule_is_named() -> None:
    class Sorted(Cnn):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.cummax(-1).values)

    torch.manual_seed(0)
    explainer = fitted(Sorted().eval())
    with pytest.raises(ModelError, match="cummax"):
        explainer.explain(images()[0][:1])


def test_other_training_samples_than_the_fitted_are_refused(explainer: DualDA, tmp_path: Path) -> None:
    x, y = images()
    explainer.save(tmp_path / "corners.whence")
    with pytest.raises(InvalidInputError, match="'data' must be the training set that was fitted"):
        whence.load(tmp_path / "corners.whence", model=cnn(), data=(x.flip(0), y.flip(0)))
    other: Any = whence.load(tmp_path / "corners.whence", model=cnn(), data=(x, y))
    changed = as_training_set((x.flip(0), y.flip(0)))
    other.fitted_ = dataclasses.replace(other.fitted_, data=changed)  # as a set that changes afterwards
    with pytest.raises(StoreError, match=r"Training sample \d+ is not the one that was fitted"):
        other.explain(x[:1])


def test_a_loaded_explainer_explains_the_same(explainer: DualDA, tmp_path: Path) -> None:
    x, y = images()
    explainer.save(tmp_path / "corners.whence")
    with pytest.raises(NotFittedError, match=r"Pass it to whence\.load as 'data'"):
        whence.load(tmp_path / "corners.whence", model=cnn()).explain(x[:1])  # type: ignore[attr-defined]
    loaded: Any = whence.load(tmp_path / "corners.whence", model=cnn(), data=(x, y))
    for one, other in zip(explainer.explain(x[:2]), loaded.explain(x[:2]), strict=True):
        assert other.to_dict() == one.to_dict()
        assert np.array_equal(other.maps["train"], one.maps["train"])


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_method_of_captum_is_taken_and_named(explainer: DualDA, wrapped: bool) -> None:
    attr = pytest.importorskip("captum.attr")
    method = Captum(attr.IntegratedGradients, {"n_steps": 200}) if wrapped else attr.IntegratedGradients
    x = images()[0]
    why = explainer.explain(x[:1], k=1, method=method)
    assert why[0].method == "IntegratedGradients"
    assert "Maps by IntegratedGradients" in [text.get_text() for text in why.plot().texts]
    assert "Maps by IntegratedGradients" in why.to_html()
    # Integrated gradients are complete: they sum to the difference to an input of zeros.
    body, one = cnn().body, why[0].proponents[0]
    with torch.no_grad():
        f, f_0, f_i = (body(part) for part in (x[:1], torch.zeros_like(x[:1]), x[one.index][None]))
    expected = one.coefficient * float((f - f_0)[0] @ f_i[0])
    assert float(one.test_map.sum()) == pytest.approx(expected, rel=0.02)


def test_rules_are_named(explainer: DualDA) -> None:
    x = images()[0][:1]
    assert explainer.explain(x, method=EPSILON)[0].method == "epsilon"
    plus = EPSILON.with_layers({"body.3": "plus"})
    assert explainer.explain(x, method=plus)[0].method == "rules of one’s own"


def test_no_known_method_is_an_error(explainer: DualDA) -> None:
    with pytest.raises(InvalidInputError, match="'method' must be one of"):
        explainer.explain(images()[0][:1], method="deconvolution")
    with pytest.raises(InvalidInputError, match="'k' must be"):
        explainer.explain(images()[0][:1], k=0)


TEXTS = [
    "cats ran",
    "the dogs sat on mats",
    "old cats",
    "dogs ran on the old mats",
    "the cats sat",
    "dogs sat",
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, DualDA]:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tokeniser")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog mat ##s sat ran on old"
    (folder / "vocab.txt").write_text("\n".join(words.split()))
    tokeniser = transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=16)
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(**SMALL, **{**TEXT, "num_labels": 2})
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    explainer = DualDA(metric="raw", C=0.1, show_progress=False).fit(
        model, (TEXTS * 2, [0, 1, 0, 1, 0, 1] * 2), tokenizer=tokeniser, class_names=("cat", "dog")
    )
    return tokeniser, model, explainer


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
def test_texts_from_words_to_a_page(texts: tuple[Any, Any, DualDA], tmp_path: Path) -> None:
    explainer = texts[2]
    whys = explainer.explain(["the old cats sat", "dogs"], k=2)
    why = whys[0]
    assert why.method == "attn_lrp_cp"
    assert why.sample.tokens == ("", "the", " old", " cat", "s", " sat", "")
    assert why.logit_map.shape == (7,)
    for one in why.pairs:
        expected = TEXTS[one.index % 6]
        assert "".join(one.sample.tokens) == expected
        assert one.train_map.shape == (len(one.sample.tokens),)
        assert one.test_map.shape == (7,)
    figure = why.plot()
    figure.savefig(tmp_path / "text.png")
    assert {"old", "cat", "s", "sat"} <= {patch.get_label() for patch in figure.findobj(PathPatch)}
    html = whys.to_html()
    assert f'title="{whence_signed(why.logit_map[2])}">old</span>' in html
    record = json.loads(json.dumps(whys.to_dict()))
    assert record[1]["tokens"] == ["", "dog", "s", ""]


def whence_signed(value: float) -> str:
    return f"{value:+#.3g}".replace("-", "−").rstrip(".")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
def test_maps_of_all_pairs_of_a_text_sum_to_that_of_the_logit(texts: tuple[Any, Any, DualDA]) -> None:
    why = texts[2].explain(["the old cats sat"], k=K)[0]
    total = why.maps["test"].astype(np.float64).sum(0)
    assert np.abs(total - why.logit_map).max() < 1e-5 * np.abs(why.maps["test"]).sum(0).max()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
def test_padding_is_left_out_on_both_sides(texts: tuple[Any, Any, DualDA]) -> None:
    tokeniser, model, _ = texts
    data = dict(tokeniser(TEXTS, padding=True, return_tensors="pt")), [0, 1, 0, 1, 0, 1]
    explainer = DualDA(metric="raw", C=0.1, show_progress=False).fit(model, data, tokenizer=tokeniser)
    alone = explainer.explain(dict(tokeniser(["dogs"], return_tensors="pt")), k=2)[0]
    padded = tokeniser(["dogs", "the old dogs ran on the mats"], padding=True, return_tensors="pt")
    padded_batch = explainer.explain(dict(padded), k=2)[0]
    assert padded_batch.logit_map.shape == alone.logit_map.shape == (4,)
    assert padded_batch.sample.tokens == alone.sample.tokens == ("", "dog", "s", "")
    np.testing.assert_allclose(padded_batch.logit_map, alone.logit_map, atol=1e-5)
    np.testing.assert_allclose(padded_batch.maps["test"], alone.maps["test"], atol=1e-5)
    for one in padded_batch.pairs:
        assert len(one.train_map) == len(one.sample.tokens) == int(data[0]["attention_mask"][one.index].sum())


def test_maps_of_texts_in_one_batch_are_those_of_one_pair_at_a_time() -> None:
    model = explored.text_project().explainer.fitted_.require_model().extractor.model
    words, labels = explored.texts(60, 0)
    words = [" ".join(text.split()[: 4 + i % 5]) for i, text in enumerate(words)]
    explainer = DualDA(C=0.05, show_progress=False).fit(
        model, (words, labels), tokenizer=explored.tokenizer()
    )
    x = words[3:4]
    whole = explainer.explain(x, k=4)[0]
    assert len({len(pair.train_map) for pair in whole.pairs}) > 1  # texts that are padded in the batch
    for pair in whole.pairs:
        alone = explainer.explain(x, index=pair.index)[0].pairs[0]
        np.testing.assert_allclose(alone.score, pair.score, rtol=1e-6)
        np.testing.assert_allclose(alone.train_map, pair.train_map, atol=1e-5 * np.abs(pair.train_map).max())
        np.testing.assert_allclose(alone.test_map, pair.test_map, atol=1e-5 * np.abs(pair.test_map).max())


def test_one_call_fits_and_explains() -> None:
    model, (x, y) = cnn(), images()
    options = {"C": 0.05, "metric": "raw", "show_progress": False}
    why = whence.explain(model, (x, y), x[:3], k=2, target=1, class_names=("a", "b", "c"), **options)
    same = DualDA(**options).fit(model, (x, y), class_names=("a", "b", "c"))
    assert [one.to_dict() for one in why] == [one.to_dict() for one in same.explain(x[:3], 2, 1)]
    assert why.explainer.C == why[0].explainer.C == 0.05
    assert why[1:].explainer is why.explainer
    with pytest.raises(InvalidInputError, match=r"hyper-parameters of DualDA.* of fit.* Got 'kernel'"):
        whence.explain(model, (x, y), x, kernel="rbf")


def test_explanations_print_their_strongest_samples(explainer: DualDA) -> None:
    why = explainer.explain(images()[0][:12], k=2)
    text = str(why)
    assert text.startswith(f"Test 0: {why[0].summary.claim}")
    assert text.endswith("… 2 more explanations")
    strongest = why[0].proponents[0]
    assert [str(strongest.index), strongest.label_text] in [line.split()[1:] for line in text.splitlines()]


def test_what_users_see_of_an_explainer_is_what_they_call(explainer: DualDA) -> None:
    names = dir(explainer)
    hooks = {"learn", "score_tests", "score_self", "restored", "packed", "capabilities"}
    assert not [name for name in names if name.startswith("_") or name in hooks]
    assert {"fit", "explain", "what_if", "serve", "report", "C", "metric", "lam_", "labels_"} < set(names)
    assert all(hasattr(explainer, name) for name in names)
    assert not [name for name in dir(DualDA()) if name.endswith("_")]
