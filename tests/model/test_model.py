"""The head is found by value, features are its inputs, and the model is left as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers.untouched import assert_untouched, snapshot
from whence.errors import InvalidInputError, ModelError
from whence.features import extract
from whence.model.extractor import Extractor, find_head
from whence.model.modules import evaluating


class Net(nn.Module):
    """Layers defined out of order of use, so that names and order say nothing."""

    def __init__(self, after: str = "nothing") -> None:
        super().__init__()
        self.out = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.body = nn.Linear(4, 5)
        self.unused = nn.Linear(5, 3)
        self.after = after

    def forward(self, x: Tensor) -> Any:
        z = self.out(self.drop(torch.relu(self.body(self.norm(x)))))
        if self.after == "softmax":
            return z.softmax(1)
        if self.after == "negate":
            return -z
        if self.after == "tuple":
            return z.mean(), x, z
        if self.after == "dict":
            return {"features": x, "scores": z}
        if self.after == "named":
            return {"embedding": self.body(x), "logits": z}
        if self.after == "object":
            return SimpleNamespace(embedding=self.body(x), logits=z)
        if self.after == "both":
            return z, self.body(x)
        if self.after == "set":
            return {z}
        if self.after == "row":
            return z[0]
        if self.after == "written":
            return z.mul_(2)
        if self.after == "raise":
            raise RuntimeError("in the middle")
        if self.after == "twice":
            return self.out(torch.relu(self.body(x))) + z
        return z


def net(after: str = "nothing") -> Net:
    torch.manual_seed(0)
    return Net(after)


X = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(12) % 3


def expected_features(model: Net, x: Tensor) -> Tensor:
    """f(x) by plain linear algebra in float64."""
    n = model.norm
    scale = n.weight.double() / (n.running_var.double() + n.eps).sqrt()
    z = (x.double() - n.running_mean.double()) * scale + n.bias.double()
    return torch.relu(z @ model.body.weight.double().T + model.body.bias.double()).detach()


def test_the_head_is_found_by_value() -> None:
    assert find_head(net(), X) == "out"


def test_a_softmax_after_the_head_is_found_by_value() -> None:
    assert find_head(net("softmax"), X) == find_head(net("softmax"), X, layer="out") == "out"
    model = nn.Sequential(net(), nn.Softmax(1), nn.Softmax(1))
    with pytest.raises(ModelError, match=r"'0.out' \(5→3\).*'0.body' \(4→5\).*'layer'"):
        find_head(model, X)
    assert find_head(model, X, layer="0.out") == "0.out"


@pytest.mark.parametrize(
    ("after", "layer", "message"),
    [
        ("nothing", "norm", "must name a linear layer.*'norm'"),
        ("nothing", "nowhere", "must name a linear layer"),
        ("nothing", "body", "rank the classes"),
        ("negate", "out", "rank the classes"),
        ("nothing", "unused", "ran 0 times"),
        ("twice", "out", "ran 2 times"),
        ("set", None, "must return logits.*set"),
        ("row", None, r"must return logits.*\(3,\)"),
        ("both", None, r"several linear layers: 'out' made \(8, 3\), 'body' made \(8, 5\).*'layer'"),
        ("both", "norm", "must name a linear layer"),
    ],
)
def test_a_layer_that_is_no_head_is_refused(after: str, layer: str | None, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        find_head(net(after), X, layer)


@pytest.mark.parametrize("after", ["tuple", "dict", "named", "object"])
def test_logits_are_taken_from_any_output(after: str) -> None:
    model = net(after)
    assert find_head(model, X) == "out"
    np.testing.assert_allclose(Extractor(model, "out")(X).double(), expected_features(model, X), rtol=1e-5)


def test_a_layer_chooses_among_several_outputs() -> None:
    assert find_head(net("both"), X, layer="out") == "out"


def test_a_model_may_write_into_its_logits() -> None:
    model = net("written")
    with pytest.raises(ModelError, match="No linear layer"):
        find_head(model, X)
    assert find_head(model, X, layer="out") == "out"
    assert torch.equal(Extractor(model, "out")(X), Extractor(net(), "out")(X))


def test_a_long_list_of_layers_is_cut() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)), nn.Linear(4, 3), nn.Tanh())
    with pytest.raises(ModelError, match=r"Its linear layers: '20' \(4→3\), '0' \(4→4\).* and 9 more\."):
        find_head(model, X)


def test_models_without_a_linear_layer_are_refused() -> None:
    with pytest.raises(ModelError, match=r"no nn\.Linear"):
        find_head(nn.Sequential(nn.Flatten(), nn.ReLU()), X)


def test_a_subclass_counts_for_what_it_does() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    class Cosine(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(nn.functional.normalize(x))

    model = nn.Sequential(Scaled(4, 3))
    weight, bias = Extractor(model, find_head(model, X)).head()
    assert torch.equal(torch.as_tensor(weight), 2 * model[0].weight.detach())
    assert torch.equal(torch.as_tensor(bias), 2 * model[0].bias.detach())
    with pytest.raises(ModelError, match="No linear layer"):
        find_head(nn.Sequential(Cosine(4, 3)), X)


def test_weight_normalisation_is_taken_in() -> None:
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    model.parametrizations.weight.original0.data.mul_(3)
    weight, _ = Extractor(model, find_head(model, X)).head()
    np.testing.assert_allclose(weight, model.weight.detach(), rtol=1e-6)


class Named(nn.Module):
    """Takes its inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, tokens: Tensor, scale: Tensor | None = None) -> Tensor:
        return self.out(tokens if scale is None else tokens * scale)


@pytest.mark.parametrize(
    ("inputs", "factor"),
    [
        ({"tokens": X}, 1),
        ({"tokens": X.numpy(), "scale": np.full((12, 1), 2.0), "text": ["a"] * 12, "idx": Y}, 2),
        ({"image": X, "name": ["a"] * 12}, 1),
        ((X, torch.full((12, 1), 3.0)), 3),
    ],
    ids=["by name", "with more than it takes", "under another name", "by place"],
)
def test_inputs_go_in_by_name_or_by_place(inputs: Any, factor: int) -> None:
    model = Named()
    assert find_head(model, inputs) == "out"
    assert torch.equal(Extractor(model, "out")(inputs), factor * X)


def test_a_head_that_its_model_leaves_out_is_named() -> None:
    class Sometimes(Named):
        def forward(self, tokens: Tensor, scale: Tensor | None = None) -> Tensor:
            z = self.out(tokens[:, None])[:, 0]
            return z if scale is None else z.detach()

    model = Sometimes()
    assert find_head(model, {"tokens": X}) == "out"
    with pytest.raises(ModelError, match=r"'out' must make the model's logits.*\(12, 1, 3\)"):
        Extractor(model, "out")((X, X))


@pytest.mark.parametrize("training", [True, False])
def test_features_are_the_heads_inputs_in_eval_mode(training: bool) -> None:
    model = net()
    model(X)  # moves the running statistics away from their start
    model.train(training)
    expected = expected_features(model, X)
    np.testing.assert_allclose(Extractor(model, "out")(X).double(), expected, rtol=1e-5, atol=1e-6)
    bank = extract(model, (X, Y), batch_size=5, show_progress=False)
    np.testing.assert_allclose(bank.features, expected, rtol=1e-5, atol=1e-6)
    assert bank.features.dtype == np.float32
    assert bank.labels.tolist() == Y.tolist()


def test_a_batch_of_one_and_double_inputs() -> None:
    model = net()
    assert Extractor(model, "out")(X[:1]).shape == (1, 5)
    assert Extractor(model, "out")(X.double().numpy()).dtype == torch.float32


def test_the_head_is_copied() -> None:
    model = net()
    head = Extractor(model, "out").head()
    before = head.weight.copy()
    with torch.no_grad():
        model.out.weight.zero_()
    assert np.array_equal(head.weight, before)
    assert head.bias is not None
    assert Extractor(nn.Sequential(nn.Linear(2, 2, bias=False)), "0").head().bias is None


@pytest.mark.parametrize("after", ["nothing", "raise"])
def test_the_model_is_left_as_it_was(after: str) -> None:
    model = net()
    model(X).sum().backward()
    model.train()
    model.norm.eval()  # a frozen normalisation must stay frozen next to modules that train
    model.body.bias.requires_grad_(False)
    model.register_forward_hook(lambda *_: None)
    model.after = after
    before = snapshot(model)
    if after == "raise":
        with pytest.raises(ModelError, match="in the middle"):
            extract(model, (X, Y), show_progress=False)
        with pytest.raises(ModelError, match="in the middle"):
            Extractor(model, "out")(X)
    else:
        extract(model, (X, Y), batch_size=5, show_progress=False)
    assert_untouched(before, model)


def test_flags_come_back_when_eval_itself_fails() -> None:
    class Stubborn(nn.Module):
        def eval(self) -> Any:
            super().eval()
            raise RuntimeError("no")

    model = Stubborn()
    with pytest.raises(RuntimeError, match="no"), evaluating(model):
        pass
    assert model.training
    assert torch.is_grad_enabled()


def test_an_input_without_a_batch_axis_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(0), nn.Linear(4, 3))
    with pytest.raises(ModelError, match=r"shape \(B, K\).*Is the input a batch"):
        Extractor(model, "1")(X[0])
    model = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(ModelError, match="one row per sample"):
        Extractor(nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 3)), "1")(X[None])


def test_a_collate_that_loses_samples_is_refused() -> None:
    class Short(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            return X[i], int(Y[i])

    loader = torch.utils.data.DataLoader(Short(), batch_size=4, collate_fn=lambda s: (X[:2], Y[:3]))
    with pytest.raises(InvalidInputError, match="one label per sample"):
        extract(net(), loader, show_progress=False)
    loader = torch.utils.data.DataLoader(Short(), batch_size=4, collate_fn=lambda s: (X[:2], Y[: len(s)]))
    with pytest.raises(InvalidInputError, match="one label per input"):
        extract(net(), loader, show_progress=False)
