"""Calls that a new user makes by mistake are refused in words, before any work is done."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whence
from tests.helpers.nets import mlp
from whence.errors import InvalidInputError, ModelError, NotFittedError, WhenceError
from whence.features import FeatureBank
from whence.methods import get, names
from whence.tasks import Classes

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


def quantised() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(network(), {nn.Linear})


def exported() -> Any:
    return torch.export.export(network(), (data()[0],))


def scripted() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(network())


def traced() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(network(), data()[0])


def of_sklearn() -> Any:
    from sklearn.linear_model import LogisticRegression

    X, y = data()
    return LogisticRegression().fit(X.numpy(), y.numpy())


MODELS = {
    "scripted": (scripted, "scripted"),
    "traced": (traced, "scripted"),
    "quantised": (quantised, "quantised"),
    "exported": (exported, "ExportedProgram.*the nn.Module that was exported"),
    "exported module": (lambda: exported().module(), "exported"),
    "scikit-learn": (of_sklearn, "nn.Module.*LogisticRegression.*FeatureBank"),
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


@pytest.mark.parametrize("call", ["extract", "predict", "load"])
def test_functions_of_a_model_refuse_what_is_none(call: str, fitted: whence.DualDA, tmp_path: Any) -> None:
    from whence.features import extract
    from whence_studies import predict

    fitted.save(tmp_path / "explainer.whence")
    calls: dict[str, Any] = {
        "extract": lambda: extract(of_sklearn(), data()),
        "predict": lambda: predict(of_sklearn(), data()),
        "load": lambda: whence.load(tmp_path / "explainer.whence", of_sklearn()),
    }
    with refused("nn.Module.*LogisticRegression", ModelError):
        calls[call]()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("device", ["cuda", "cuda:7", torch.device("cuda"), "xpu", "nonsense", 3.5, ""])
def test_a_device_that_is_not_there_is_refused(device: Any) -> None:
    with refused("'device' must be.*cpu"):
        explainer(device=device).fit(network(), data())
    with refused("'device' must be.*cpu"):
        explainer(device=device).fit(features=FeatureBank.of(*data()))


@pytest.mark.parametrize(
    "target", ["bee", ["bee"] * 3, 1.0, [0.0, 1.0, 2.0], np.array([2**63] * 3, np.uint64)]
)
def test_a_target_that_is_no_class_is_refused(target: Any, fitted: whence.DualDA) -> None:
    X, _ = data()
    for call in (fitted.attribute, fitted.explain, fitted.explain_concepts):
        with refused("'target' must"):
            call(X[:3], target=target)
    with refused("'target' must"):
        fitted.top_k(X[:3], 2, target)


def test_a_target_may_be_any_integer_type(fitted: whence.DualDA) -> None:
    X, _ = data()
    expected = fitted.attribute(X[:3], 1)
    for target in (
        np.uint64(1),
        torch.tensor(1, dtype=torch.uint8),
        np.array([1, 1, 1], np.uint16),
        [1, 1, 1],
    ):
        assert torch.equal(fitted.attribute(X[:3], target), expected)


def test_inputs_with_labels_are_refused_where_inputs_alone_are_wanted(fitted: whence.DualDA) -> None:
    X, y = data()
    for call in (fitted.faithfulness, fitted.attribute, fitted.top_k, fitted.predict):
        with refused("(?s)takes one input.*got 2|x alone", WhenceError):
            call((X, y))


def test_a_single_image_without_its_batch_is_refused() -> None:
    X, y = images()
    found = explainer().fit(image_network(), (X, y))
    for x in (X[0], X[0, 0], X[0].numpy()):
        with refused("(?s)batch", WhenceError):
            found.attribute(x)


def test_bytes_for_a_model_of_floats_are_refused_with_the_remedy() -> None:
    X, y = images()
    raw = (X * 255).byte()
    with refused(r"(?s)uint8.*float", WhenceError):
        explainer().fit(image_network(), (raw, y))
    with refused(r"(?s)uint8.*float", WhenceError):
        explainer().fit(image_network(), (X, y)).attribute(raw)


def test_labels_beyond_64_bits_are_refused_and_other_unsigned_ones_taken() -> None:
    X, y = data()
    expected = explainer().fit(network(), (X, y)).coef_
    small = y.numpy().astype(np.uint64)
    assert np.array_equal(explainer().fit(network(), (X, small)).coef_, expected)
    assert np.array_equal(explainer().fit(network(), (X, torch.from_numpy(small))).coef_, expected)
    large = small.copy()
    large[3] = 2**64 - 1
    with refused("18446744073709551615"):
        explainer().fit(network(), (X, large))
    with refused("18446744073709551615"):
        explainer().fit(features=FeatureBank.of(X, large))
    with refused("18446744073709551615"):
        whence.svm.solve(X.numpy(), large, C=0.1)


@pytest.mark.parametrize("task", [None, Classes(3)])
def test_a_label_of_a_million_is_refused_at_once(task: Classes | None) -> None:
    X, y = data()
    y[5] = 1_000_000
    with refused("'labels' must be below n_classes = 3. Got 1000000|'labels'.*1,000,001.*n_classes"):
        explainer().fit(features=FeatureBank.of(X, y, task=task))


def test_complex_features_are_refused(fitted: whence.DualDA) -> None:
    X, y = data()
    f = features()
    for call in (fitted.attribute, fitted.predict, fitted.faithfulness):
        with refused("'features' must hold real numbers.*complex64"):
            call(features=f.to(torch.complex64))
        with refused("'features' must hold real numbers.*complex128"):
            call(features=f.numpy().astype(complex))
    with refused("'features' must hold real numbers.*complex64"):
        explainer().fit(features=FeatureBank.of(X.to(torch.complex64), y))
    with refused("complex", WhenceError):
        explainer().fit(network(), (X.to(torch.complex64), y))


@pytest.mark.parametrize(
    "relabel", [{0: 1.5}, {0.5: 1}, {0: "1"}, {0: None}, {"0": 1}, [0, 1], {0: 3}, {0: -1}]
)
def test_new_labels_that_are_no_classes_are_refused(relabel: Any, fitted: whence.DualDA) -> None:
    with refused("'relabel' must"):
        fitted.what_if(features(), relabel=relabel)


@pytest.mark.parametrize("remove", [[0.5], ["a"], 3, [24], [-1], [None]])
def test_removed_samples_that_are_not_there_are_refused(remove: Any, fitted: whence.DualDA) -> None:
    with refused("'remove' must"):
        fitted.what_if(features(), remove=remove)


@pytest.mark.parametrize("given", [["a", "b"], ["a", "b", "c", "d"], "abc", [1, 2, 3], ["a", "a", "b"], 3])
def test_class_names_that_do_not_name_each_class_once_are_refused(given: Any) -> None:
    with refused("'class_names' must"):
        explainer().fit(network(), data(), class_names=given)


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
            lambda: unfitted.what_if(features()),
            lambda: unfitted.attribute(features=features()),
            lambda: unfitted.top_k(features=features()),
        ]
    for call in calls:
        with pytest.raises(NotFittedError, match="Call fit"):
            call()
