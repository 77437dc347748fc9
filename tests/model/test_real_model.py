"""What is called the model is the model: its real output, its inputs, its weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import dropout, relu

import whence
from whence.errors import ModelError, StoreError

N, D, K = 120, 6, 3


@pytest.fixture
def data():
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(N) % K
    x = 0.3 * torch.rand(N, D, generator=rng) + torch.eye(K, D)[y] * 0.5
    return x, y


class Plain(nn.Module):
    """Features, a head, and what a subclass does in between and after."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.act, self.head = nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, K)
        self.norm = nn.BatchNorm1d(16)
        self.scale = 1.0

    def features(self, x):
        return self.scale * self.norm(self.act(self.body(x)))

    def forward(self, x):
        return self.head(self.features(x))


class Rolling(Plain):
    """Names another class where the first input is large, which the first eight samples are not."""

    def forward(self, x):
        logits = super().forward(x)
        return torch.where((x[:, :1] > 0.6), logits.roll(1, dims=1), logits)


class Noisy(Plain):
    def features(self, x):
        return dropout(super().features(x), 0.5, training=True)


class BatchBound(Plain):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16, track_running_stats=False)


class InPlace(Plain):
    def forward(self, x):
        return super().forward(x.sub_(0.2).relu_())


def fitted(model, data, **options):
    return whence.DualDA(C=0.1, show_progress=False, **options).fit(model, data)


@pytest.mark.parametrize("first", [13, None], ids=["among those that are probed", "later"])
def test_a_model_that_differs_from_its_head_is_refused_by_sample(data, first):
    x, y = data
    late = x[:, 0] > 0.6
    alike, others = (torch.nonzero(which)[:, 0] for which in (~late, late))
    first = len(alike) if first is None else first
    order = torch.cat([alike[:first], others, alike[first:]])
    for batch_size in (16, N):
        with pytest.raises(ModelError, match=rf"sample {first} of 'data'"):
            fitted(Rolling(), (x[order], y[order]), batch_size=batch_size)


def test_tests_on_which_the_model_differs_from_its_head_are_refused(data):
    x, y = data
    early = x[:, 0] <= 0.6
    model = Rolling()
    explainer = fitted(model, (x[early], y[early]))
    tests = torch.cat([x[early][:5], x[~early][:2]])
    calls = explainer.attribute, explainer.top_k, explainer.explain, explainer.faithfulness
    for call in calls:
        with pytest.raises(ModelError, match="test 5 of 'x'"):
            call(tests)


def test_a_named_layer_must_rank_the_classes_as_the_model_does_on_every_batch(data):
    x, y = data

    class Twisted(Rolling):
        def forward(self, x):
            return super().forward(x).softmax(1)

    order = torch.argsort(x[:, 0])
    with pytest.raises(ModelError, match="of 'data'"):
        whence.DualDA(C=0.1, show_progress=False, batch_size=16).fit(
            Twisted(), (x[order], y[order]), layer="head"
        )


def test_the_explained_class_and_probability_are_those_of_the_models_own_output(data):
    x, y = data

    class Cool(Plain):
        def forward(self, x):
            return (super().forward(x) / 7).softmax(1)

    model = Cool().eval()
    explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y), layer="head")
    output = model(x[:6]).detach()
    for why, row in zip(explainer.explain(x[:6], k=1), output, strict=True):
        assert why.predicted == int(row.argmax())
        assert why.probability == pytest.approx(float(row.max()), abs=1e-6)


def test_a_random_model_is_refused_with_what_was_seen(data):
    with pytest.raises(ModelError, match="same batch ran twice"):
        fitted(Noisy(), data)


def test_a_model_whose_samples_depend_on_their_batch_is_refused_with_what_was_seen(data):
    with pytest.raises(ModelError, match="batch was split"):
        fitted(BatchBound(), data)


@pytest.mark.parametrize("kind", ["tensor", "array", "list"])
def test_a_model_that_writes_into_its_input_leaves_the_users_samples_alone(data, kind):
    x, y = data
    rows = {
        "tensor": x.clone(),
        "array": x.numpy().copy(),
        "list": [(row.clone(), int(c)) for row, c in zip(x, y, strict=True)],
    }
    given = rows[kind] if kind == "list" else (rows[kind], y)
    model = InPlace().eval()
    features = model.features(relu(x - 0.2)).detach()
    explainer = fitted(model, given)
    np.testing.assert_allclose(explainer.model_.read(x.clone(), N).features, features, rtol=1e-5, atol=1e-6)
    tests = x[:4].clone()
    explainer.attribute(tests)
    explainer.explain(tests, k=1)
    whence.methods.GradDot(show_progress=False).fit(model, given).attribute(tests)
    assert torch.equal(tests, x[:4])
    now = torch.stack([row for row, _ in rows[kind]]) if kind == "list" else torch.as_tensor(rows[kind])
    assert torch.equal(now, x)


def swapped(model):
    model.act = nn.GELU()


def by_data(model):
    model.body.weight.data.mul_(1.01)


def by_view(model):
    model.body.weight.detach().numpy()[0, 0] += 0.5


def by_swap(model):
    model.head.weight.data = model.head.weight.data.flip(0).clone()


def by_rows_in_place(model):
    model.body.weight.data.copy_(model.body.weight.data.flip(0))


def by_attribute(model):
    model.scale = 2.0


def by_eps(model):
    model.norm.eps = 0.1


CHANGES = [swapped, by_data, by_view, by_swap, by_rows_in_place, by_attribute, by_eps]


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_changed_after_fitting_or_before_loading_is_noticed(data, change, tmp_path):
    model = Plain().eval()
    explainer = fitted(model, data)
    explainer.attribute(data[0][:2])
    explainer.save(tmp_path / "a.whence")
    whence.load(tmp_path / "a.whence", model=Plain().eval())
    change(model)
    with pytest.raises(ModelError, match="changed after fitting"):
        explainer.attribute(data[0][:2])
    with pytest.raises(StoreError, match="another model"):
        whence.load(tmp_path / "a.whence", model=model)


class Counting(Plain):
    """Takes notes of its own whenever it runs."""

    def __init__(self):
        super().__init__()
        self.calls, self.last = 0, None

    def forward(self, x):
        self.calls, self.last = self.calls + 1, x.detach()
        return super().forward(x)


def test_what_a_model_notes_when_it_runs_is_no_change(data, tmp_path):
    model = Counting().eval()
    explainer = fitted(model, data)
    for _ in range(2):
        explainer.attribute(data[0][:2])
        explainer.explain(data[0][:1], k=1)
    explainer.save(tmp_path / "a.whence")
    again = whence.load(tmp_path / "a.whence", model=model, data=data)
    for _ in range(2):
        again.attribute(data[0][:2])
        again.explain(data[0][:1], k=1)


def test_a_model_whose_class_moved_to_another_file_still_loads(data, tmp_path):
    fitted(Plain().eval(), data).save(tmp_path / "a.whence")
    elsewhere = type("Plain", (nn.Module,), dict(vars(Plain)))
    elsewhere.__module__, elsewhere.__init__ = "elsewhere", lambda self: nn.Module.__init__(self)
    model = elsewhere()
    model.__dict__.update(Plain().eval().__dict__)
    whence.load(tmp_path / "a.whence", model=model)
