"""Layers are found by what they read, and what they read becomes a vector per sample, by known formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.helpers.families import BERT, IMAGES, Family, ResNet, Vgg, lora
from tests.helpers.nets import Network
from tests.helpers.untouched import assert_untouched, snapshot
from whence.errors import InvalidInputError, ModelError
from whence.model import blocks as module
from whence.model.blocks import BUDGET, Block
from whence.model.extractor import Extractor, find_head
from whence.model.layers import Layers, check_layers
from whence.model.modules import unwrap
from whence.model.tracing import auto, choose_layers

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:transformers", "ignore::DeprecationWarning:peft"
)


def chosen(model: nn.Module, inputs: Any, asked: Any = "all") -> Layers:
    head = find_head(model, inputs)
    inner = unwrap(model)
    return choose_layers(inner, inputs, head, Extractor(inner, head).head().weight.shape[1], asked)


def extractor(model: nn.Module, inputs: Any, asked: Any = "all") -> Extractor:
    return Extractor(model, find_head(model, inputs), layers=chosen(model, inputs, asked))


def parts(extractor: Extractor, inputs: Any) -> dict[str, Tensor]:
    found = extractor(inputs)
    return {name: found[:, place] for name, place in extractor.layers.places.items()}


class Taking(nn.Module):
    """A model that writes into what its layers have read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        y = self.second(z)
        z.zero_()
        y.relu_()
        return self.head(y)


# Which layers


def test_a_tensor_that_several_layers_read_counts_once() -> None:
    assert chosen(ResNet(), IMAGES).names == (
        "layers.0.first.0", "layers.0.second.0", "layers.1.first.0", "layers.1.second.0", "fc",
    )  # fmt: skip


def test_queries_keys_and_values_read_the_same() -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = BERT()
    of_block = ["attention.self.query", "attention.output.dense", "intermediate.dense", "output.dense"]
    expected = [f"bert.encoder.layer.{i}.{name}" for i in range(2) for name in of_block]
    assert chosen(model, inputs).names == (*expected, "bert.pooler.dense", "classifier")


def test_the_last_ones_of_all_and_those_that_are_named() -> None:
    model = Vgg()
    assert chosen(model, IMAGES, 1).names == ("classifier.3",)
    assert chosen(model, IMAGES, 2).names == ("classifier.0", "classifier.3")
    assert chosen(model, IMAGES, 3).names == chosen(model, IMAGES, "all").names
    # In the order in which they run, the head with them; the first convolution reads the image itself.
    named = chosen(model, IMAGES, ("classifier.0", "features.0.0"))
    assert named.names == ("features.0.0", "classifier.0", "classifier.3")
    with pytest.raises(InvalidInputError, match=r"'layers' must be at most 3.*Got 4.*\"all\""):
        chosen(model, IMAGES, 4)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("features", "not a linear or convolutional layer"),
        ("unused", "does not run"),
        ("mixing", "per sample"),
    ],
)
def test_a_layer_that_cannot_be_taken_is_named(name: str, why: str) -> None:
    class Mixing(Vgg):
        def __init__(self) -> None:
            super().__init__()
            self.unused, self.mixing = nn.Linear(2, 2), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            z = self.classifier[:3](torch.flatten(self.features(x), 1))
            self.mixing(z.mean(0, keepdim=True))
            return self.classifier[3](z)

    with pytest.raises(InvalidInputError, match=rf"'layers'.*{name!r}: .*{why}.*'classifier\.0'"):
        chosen(Mixing(), IMAGES, (name,))
    assert "mixing" not in chosen(Mixing(), IMAGES).names


def test_what_wraps_the_head_reads_the_same_as_it() -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    model, inputs = lora(BERT, ["classifier"])()
    inner = "base_model.model.classifier.base_layer"
    layers = choose_layers(model, inputs, inner, 16, 2)
    assert layers.names == ("base_model.model.bert.pooler.dense", inner)


def test_time_before_samples_is_left_out() -> None:
    model = Network(
        lambda self, x: self.head(self.second(self.first(x.movedim(1, 0))).mean(0)),
        first=nn.Linear(4, 6), second=nn.Linear(6, 6), head=nn.Linear(6, 3),
    )  # fmt: skip
    assert chosen(model, torch.randn(3, 2, 4)).names == ("head",)
    assert chosen(model, torch.randn(2, 2, 4)).names == ("head",)  # by values, not by shapes


def test_auto_takes_few_and_the_last_two() -> None:
    assert auto(1) == [0]
    assert auto(5) == [0, 1, 2, 3, 4]
    assert auto(6) == [0, 1, 3, 4, 5]
    for n in range(6, 200):
        found = auto(n)
        assert len({*found}) == 5
        assert found == sorted(found)
        assert (found[0], *found[-2:]) == (0, n - 2, n - 1)
        assert np.ptp(np.diff(found[:-1])) <= 1


@pytest.mark.parametrize(
    "value", ["first", 0, -1, True, None, 1.5, [], ["a", 3], ["a", "a"], {"a": 1}, b"ab"]
)
def test_what_is_no_choice_of_layers_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="'layers' must"):
        check_layers("layers", value)


@pytest.mark.parametrize("value", ["last", "all", "auto", 3, np.int64(3), ["a", "b"], ("a", "b")])
def test_choices_have_a_plain_form(value: Any) -> None:
    expected = tuple(value) if isinstance(value, list | tuple) else value
    assert check_layers("layers", value) == expected


# What they give


def test_vectors_are_what_the_layers_read() -> None:
    torch.manual_seed(0)
    model = Vgg().eval()
    found = parts(extractor(model, IMAGES), IMAGES)
    with torch.no_grad():
        z = F.max_pool2d(F.relu(model.features[0](IMAGES)), 2)  # (10, 8, 16, 16), of which 8 × 11 × 11 fit
        flat = F.adaptive_avg_pool2d(F.relu(model.features[3](z)), 2).flatten(1)
        hidden = F.relu(model.classifier[0](flat))
    assert torch.equal(found["features.3.0"], F.adaptive_avg_pool2d(z, 11).flatten(1))
    assert torch.equal(found["classifier.0"], flat)
    assert torch.equal(found["classifier.3"], hidden)


def test_what_the_model_writes_later_does_not_count() -> None:
    torch.manual_seed(0)
    model, x = Taking(), torch.randn(6, 5)
    with torch.no_grad():
        z = model.first(x)
        y = model.second(z).relu()
    found = parts(extractor(model, x), x)
    assert torch.equal(found["second"], z)
    assert torch.equal(found["head"], y)


def test_of_a_layer_that_runs_several_times_the_last_time_counts() -> None:
    def run(self: Network, x: Tensor) -> Any:
        z = self.stem(x)
        for _ in range(3):
            z = self.turn(z).tanh()
        logits = self.head(z)
        self.turn(z * 0)  # after the head, of which features cannot come
        return logits

    torch.manual_seed(0)
    model = Network(run, stem=nn.Linear(5, 4), turn=nn.Linear(4, 4), head=nn.Linear(4, 3))
    x = torch.randn(6, 5)
    with torch.no_grad():
        z = model.turn(model.turn(model.stem(x)).tanh()).tanh()
    assert torch.equal(parts(extractor(model, x), x)["turn"], z)


def test_a_grid_is_averaged_to_fit_and_the_rest_added_up_by_signs() -> None:
    image = Block.of("a", "grid", 16, False, (16, 16))
    assert (image.grid, image.width) == ((8, 8), BUDGET)
    x = torch.randn(3, 16, 16, 16)
    expected = x.reshape(3, 16, 8, 2, 8, 2).mean((3, 5)).flatten(1)
    torch.testing.assert_close(image.vectors(x, 3), expected)
    assert Block.of("a", "grid", 512, False, (7, 7)).grid == (2, 2)  # no coarser
    assert Block.of("a", "grid", 512, False, (7, 7)).width == BUDGET
    assert Block.of("a", "grid", 3, False, (1000,)).grid == (341,)
    assert Block.of("a", "grid", 4, False, (2, 100)).grid == (2, 100)
    assert Block.of("a", "grid", 40, False, (2, 100)).grid == (2, 12)
    assert Block.of("a", "vector", 10, True, ()).width == 10


def test_signs_keep_inner_products_and_are_always_the_same() -> None:
    long = Block.of("fc1", "vector", 5000, True, ())
    assert long.width == BUDGET
    torch.manual_seed(0)
    a, b = torch.randn(2, 400, 5000, dtype=torch.float64)
    b = 0.5 * a + b
    before, after = (a * b).sum(1), (long.vectors(a, 400) * long.vectors(b, 400)).sum(1)
    spread = torch.sqrt(((a * a).sum(1) * (b * b).sum(1) + before**2) / BUDGET)  # of any such signs
    assert float(((after - before) / spread).square().mean()) == pytest.approx(1, abs=0.25)
    assert abs(float(((after - before) / spread).mean())) < 4 / math.sqrt(400)
    # Each number goes into one sum: the images of unit vectors have one entry of 1 or −1.
    units = long.vectors(torch.eye(5000), 5000)
    assert (units.abs().sum(1) == 1).all()
    assert (units.abs().sum(0) <= math.ceil(5000 / BUDGET)).all()
    assert 0.45 < float((units.sum(1) > 0).float().mean()) < 0.55
    module._signs.cache_clear()
    assert torch.equal(long.vectors(torch.eye(5000), 5000), units)
    assert not torch.equal(Block.of("fc2", "vector", 5000, True, ()).vectors(torch.eye(5000), 5000), units)


def test_padding_has_no_part_in_means() -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = BERT()
    found = extractor(model, inputs)
    more = {name: F.pad(value, (0, 5)) for name, value in inputs.items()}
    torch.testing.assert_close(found(more), found(inputs), rtol=1e-4, atol=1e-5)
    alone = {name: value[1:2, :3] for name, value in inputs.items()}  # the second text has 3 tokens
    torch.testing.assert_close(found(alone), found(inputs)[1:2], rtol=1e-4, atol=1e-5)
    # By hand, of the second block's input.
    model.eval()
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states[1]  # (10, 8, 16)
    expected = torch.stack(
        [row[keep.bool()].mean(0) for row, keep in zip(states, inputs["attention_mask"], strict=True)]
    )
    name = "bert.encoder.layer.1.attention.self.query"
    torch.testing.assert_close(parts(found, inputs)[name], expected, rtol=1e-4, atol=1e-5)


def test_padding_may_hold_anything() -> None:
    block, x = Block.of("a", "mean", 2, True, ()), torch.randn(2, 3, 2)
    x[1, 2] = torch.nan
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    expected = torch.stack([x[0].mean(0), x[1, :2].mean(0)])
    torch.testing.assert_close(block.vectors(x, 2, mask), expected)
    torch.testing.assert_close(block.vectors(x.reshape(6, 2), 2, mask), expected)  # tokens that lie flat


def test_blocks_are_scaled_and_the_head_with_them() -> None:
    torch.manual_seed(0)
    model, x = Taking(), torch.randn(6, 5)
    found = extractor(model, x)
    plain = parts(found, x)
    found.layers = found.layers.scaled([4.0, 9.0])
    halves = parts(found, x)
    torch.testing.assert_close(halves["second"], plain["second"] / 2)
    torch.testing.assert_close(halves["head"], plain["head"] / 3)
    weight, bias = found.head()
    assert not weight[:, :4].any()
    logits = found(x).numpy() @ weight.T + bias
    with torch.no_grad():
        np.testing.assert_allclose(logits, model(x), rtol=1e-5, atol=1e-6)


def test_every_family_has_features_of_its_layers(family: Family) -> None:
    model, inputs = family.made()
    model.train()
    before = snapshot(model)
    found = extractor(model, inputs)
    features = found(inputs)
    assert_untouched(before, model)
    assert found.layers.names[-1] == family.head
    assert max(found.layers.widths[:-1], default=0) <= BUDGET
    assert not any(".lora_" in name for name in found.layers.names)
    # The last block gives the logits, and every sample has its own row, alone too.
    weight, bias = found.head()
    logits = features.double().numpy() @ weight.T.astype(np.float64) + (0 if bias is None else bias)
    np.testing.assert_allclose(logits, found.read(inputs).logits.double(), rtol=1e-3, atol=1e-4)
    one = {k: v[1:2] for k, v in inputs.items()} if isinstance(inputs, dict) else inputs[1:2]
    np.testing.assert_allclose(found(one), features[1:2], rtol=1e-3, atol=1e-4)


def test_hooks_go_when_the_model_fails() -> None:
    class Failing(Taking):
        fails = False

        def forward(self, x: Tensor) -> Tensor:
            z = super().forward(x)
            if self.fails:
                raise ValueError("no such luck")
            return z

    model, x = Failing(), torch.randn(6, 5)
    before = snapshot(model)
    found = extractor(model, x)
    model.fails = True
    with pytest.raises(ModelError, match="no such luck"):
        found(x)
    with pytest.raises(ModelError, match="no such luck"):
        choose_layers(model, x, "head", 4, "all")
    assert_untouched(before, model)


def test_a_layer_that_does_not_run_for_a_batch_is_named() -> None:
    class Sometimes(Taking):
        def forward(self, x: Tensor) -> Tensor:
            z = self.first(x)
            return self.head(self.second(z) if x.shape[0] > 1 else z)

    model, x = Sometimes(), torch.randn(6, 5)
    layers = Layers("all", (Block("second", "vector", 4, width=4), Block("head", "vector", 4, width=4)))
    found = Extractor(model, "head", layers=layers)
    assert found(x).shape == (6, 8)
    with pytest.raises(ModelError, match="Layer 'second' must run before the head"):
        found(x[:1])
