"""Calls that a new user makes by mistake are refused in words, before any work is done."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import whence
from tests.helpers.nets import mlp
from whence.errors import InvalidInputError, ModelError, NotFittedError, WhenceError
from whence.features import FeatureBank, extract
from whence.methods import get, names
from whence.tasks import Classes
from whence_studies import predict

METHODS = names()


def network() -> nn.Sequential:
    return mlp(4, 6, 3)


def image_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))


def data(n: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3


def images(n: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3


def features() -> torch.Tensor:
    """Those of the training set, inputs of the last layer."""
    return network()[:2](data()[0]).detach()


def explainer(**options: Any) -> whence.DualDA:
    return whence.DualDA(C=0.1, show_progress=False, **options)


@pytest.fixture(scope="module")
def fitted() -> whence.DualDA:
    return explainer().fit(network(), data())


def refused(message: str, kind: type[WhenceError] = InvalidInputError) -> Any:
    return pytest.raises(kind, match=message)


def quietly(make: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


@pytest.mark.parametrize("method", METHODS)
def test_labels_given_apart_must_be_labels_of_inputs(method: str) -> None:
    X, y = data()
    with refused("'y' must be labels.*'layer'"):
        get(method)().fit(network(), (X, y), "2")
    with refused(r"'data' must be the inputs.*\(X, y\)"):
        get(method)().fit(network(), (X, y), y)
    with refused("'data' must be the inputs"):
        get(method)().fit(network(), y=y)
    if not get(method).capabilities.needs_checkpoints:
        with refused("'data' must give one label per sample"):
            get(method)().fit(network(), X, y[:5])


MODELS: dict[str, tuple[Any, str]] = {
    "scripted": (lambda: quietly(lambda: torch.jit.script(network())), "scripted"),
    "traced": (lambda: quietly(lambda: torch.jit.trace(network(), data()[0])), "scripted"),
    "quantised": (
        lambda: quietly(lambda: torch.ao.quantization.quantize_dynamic(network(), {nn.Linear})),
        "quantised",
    ),
    "exported": (
        lambda: torch.export.export(network(), (data()[0],)),
        "ExportedProgram.*the nn.Module that was exported",
    ),
    "exported module": (lambda: torch.export.export(network(), (data()[0],)).module(), "exported"),
    "scikit-learn": (LogisticRegression, "fitted and end in a linear model.*LogisticRegression.*FeatureBank"),
    "function": (lambda: lambda x: x, "nn.Module.*function"),
    "class": (lambda: nn.Linear, "nn.Module.*the class Linear.*instance"),
    "none": (lambda: None, "nn.Module.*NoneType"),
    "lazy": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LazyLinear(3)), "LazyLinear|lazy"),
    "without weights": (lambda: nn.Sequential(nn.ReLU()), "linear layer"),
    "on the meta device": (lambda: network().to("meta"), "meta"),
}


@pytest.mark.parametrize(
    ("kind", "method"), [*((kind, "dualda") for kind in MODELS), *(("function", name) for name in METHODS)]
)
def test_what_is_no_model_to_explain_is_refused_by_what_it_is(kind: str, method: str) -> None:
    make, message = MODELS[kind]
    with refused(f"(?s){message}", ModelError):
        get(method)(show_progress=False).fit(make(), data())


def test_functions_of_a_model_refuse_what_is_none(fitted: whence.DualDA, tmp_path: Any) -> None:
    path = tmp_path / "explainer.whence"
    fitted.save(path)
    for call in (lambda m: extract(m, data()), lambda m: predict(m, data()), lambda m: whence.load(path, m)):
        with refused("(nn.Module|fitted).*LogisticRegression", ModelError):
            call(LogisticRegression())


X, Y = data()
ARRAYS = FeatureBank.of
LARGE = np.where(np.arange(24) == 3, np.uint64(2**64 - 1), Y.numpy().astype(np.uint64))
COMPLEX = "'features' must hold real numbers.*complex64"
INPUTS_ALONE = "(?s)takes one input.*got 2|x alone"
NO_DEVICE = [] if torch.cuda.is_available() else ["cuda", "cuda:7", torch.device("cuda")]

CALLS: list[tuple[str, Any, list[Any]]] = [
    # message, call of a fitted explainer and a value, values
    (
        "'device' must be.*cpu",
        lambda e, device: explainer(device=device).fit(network(), data()),
        [*NO_DEVICE, "xpu", "nonsense", 3.5, ""],
    ),
    (
        "'device' must be.*cpu",
        lambda e, device: explainer(device=device).fit(features=ARRAYS(X, Y)),
        ["nonsense"],
    ),
    *(
        ("'target' must", call, ["bee", ["bee"] * 3, 1.0, [0.0, 1.0, 2.0], np.array([2**63] * 3, np.uint64)])
        for call in (
            lambda e, target: e.attribute(X[:3], target),
            lambda e, target: e.top_k(X[:3], 2, target),
            lambda e, target: e.explain(X[:3], target=target),
            lambda e, target: e.explain_concepts(X[:3], target=target),
        )
    ),
    (
        INPUTS_ALONE,
        lambda e, call: getattr(e, call)((X, Y)),
        ["faithfulness", "attribute", "top_k", "predict"],
    ),
    (
        "(?s)batch",
        lambda e, x: explainer().fit(image_network(), images()).attribute(x),
        [images()[0][0, 0], images()[0][0, 0].numpy()],
    ),
    (
        r"(?s)uint8.*float",
        lambda e, x: explainer().fit(image_network(), x),
        [((images()[0]).byte(), images()[1])],
    ),
    (
        r"(?s)uint8.*float",
        lambda e, x: explainer().fit(image_network(), images()).attribute(x),
        [images()[0].byte()],
    ),
    ("18446744073709551615", lambda e, y: explainer().fit(network(), (X, y)), [LARGE]),
    ("18446744073709551615", lambda e, y: explainer().fit(features=ARRAYS(X, y)), [LARGE]),
    ("18446744073709551615", lambda e, y: whence.svm.solve(X.numpy(), y, C=0.1), [LARGE]),
    (
        "'labels' must be below n_classes = 3. Got 1000000|'labels'.*1,000,001.*n_classes",
        lambda e, task: explainer().fit(
            features=ARRAYS(X, np.where(np.arange(24) == 5, 10**6, Y), task=task)
        ),
        [None, Classes(3)],
    ),
    *(
        (COMPLEX, lambda e, f, call=call: getattr(e, call)(features=f), [features().to(torch.complex64)])
        for call in ("attribute", "predict", "faithfulness")
    ),
    (COMPLEX, lambda e, f: explainer().fit(features=ARRAYS(f, Y)), [X.to(torch.complex64)]),
    ("complex", lambda e, x: explainer().fit(network(), (x, Y)), [X.to(torch.complex64)]),
    (
        "'relabel' must",
        lambda e, relabel: e.what_if(relabel=relabel, training_features=features()).explainer,
        [{0: 1.5}, {0.5: 1}, {0: "1"}, {0: None}, {"0": 1}, [0, 1], {0: 3}, {0: -1}],
    ),
    (
        "'remove' must",
        lambda e, remove: e.what_if(remove=remove, training_features=features()).explainer,
        [[0.5], ["a"], 3, [24], [-1], [None]],
    ),
    (
        "'class_names' must",
        lambda e, names: explainer().fit(network(), data(), class_names=names),
        [["a", "b"], ["a", "b", "c", "d"], "abc", [1, 2, 3], ["a", "a", "b"], 3],
    ),
]


@pytest.mark.parametrize(
    ("message", "call", "value"),
    [(message, call, value) for message, call, values in CALLS for value in values],
)
def test_what_makes_no_sense_is_refused(message: str, call: Any, value: Any, fitted: whence.DualDA) -> None:
    with refused(message, WhenceError):
        call(fitted, value)


def test_a_target_may_be_any_integer_type(fitted: whence.DualDA) -> None:
    expected = fitted.attribute(X[:3], 1)
    for target in (np.uint64(1), torch.tensor(1, dtype=torch.uint8), np.array([1] * 3, np.uint16), [1, 1, 1]):
        assert torch.equal(fitted.attribute(X[:3], target), expected)


def test_labels_may_be_of_any_unsigned_type() -> None:
    expected, small = explainer().fit(network(), data()).coef_, Y.numpy().astype(np.uint64)
    for labels in (small, torch.from_numpy(small)):
        assert np.array_equal(explainer().fit(network(), (X, labels)).coef_, expected)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_fitted_says_so(method: str, tmp_path: Any) -> None:
    unfitted, X = get(method)(), data()[0]
    calls: list[Any] = [
        lambda: unfitted.attribute(X),
        lambda: unfitted.top_k(X, 2),
        unfitted.self_influence,
        lambda: unfitted.save(tmp_path / "a.whence"),
    ]
    if isinstance(unfitted, whence.DualDA):
        calls += [
            lambda: unfitted.explain(X),
            lambda: unfitted.explain_concepts(X),
            lambda: unfitted.faithfulness(X),
            lambda: unfitted.what_if(training_features=features()).explainer,
            lambda: unfitted.attribute(features=features()),
            lambda: unfitted.top_k(features=features()),
        ]
    for call in calls:
        with pytest.raises(NotFittedError, match="Call fit"):
            call()
