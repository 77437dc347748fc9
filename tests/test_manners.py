"""Manners of the API: objects that tell what they are, parameters, data sets, names."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

import whence
import whence_studies
from tests.helpers.nets import mlp
from whence import methods
from whence.core.display import brief, table
from whence.errors import InvalidInputError, NotFittedError
from whence.features import FeatureBank, extract
from whence.methods import Attributor, get

METHODS = methods.names()
N, K = 48, 3
EVIL = '<script>alert("x")</script>'
NAMES = ["Sandal", "Ankle boot", EVIL]


@functools.cache
def network() -> nn.Sequential:
    return mlp(4, 6, K).eval()


@functools.cache
def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(N, 4), torch.arange(N) % K


@functools.cache
def fitted(method: str = "dualda") -> Attributor:
    made = get(method)(show_progress=False)
    return made.fit(network(), *data(), class_names=NAMES, **more(made))


@functools.cache
def explainer() -> whence.DualDA:
    return whence.DualDA(C=0.1, show_progress=False).fit(network(), *data(), class_names=NAMES)


def more(made: Attributor) -> dict[str, Any]:
    return {"checkpoints": [network().state_dict()]} if made.capabilities.needs_checkpoints else {}


def check_shown(thing: Any) -> None:
    """One line, and HTML in which no text acts."""
    text, html = repr(thing), thing._repr_html_()
    assert "\n" not in text
    assert len(text) < 260, text
    assert " object at 0x" not in text
    assert "<script" not in html
    assert html.startswith("<div")
    opened = [tag for tag in re.findall(r"<(\w+)", html) if tag not in ("img", "br")]
    assert sorted(opened) == sorted(re.findall(r"</(\w+)", html))


# What objects say of themselves


def results() -> list[Any]:
    x, y = data()
    e, audit = explainer(), whence.audit
    features = extract(network(), data(), show_progress=False)
    effects = whence.Effects(layers="last", show_progress=False).fit(network(), x, y, class_names=NAMES)
    why = e.explain(x[:4], 2)
    solution = whence.svm.solve(features.features, y.numpy(), C=0.1)
    outputs = np.random.default_rng(0).normal(size=(2, 8, 4))
    masks = whence_studies.random_subsets(N, 8, seed=0)
    scores = {name: np.random.default_rng(1).normal(size=(4, N)) for name in ("a", EVIL)}
    return [
        e.top_k(x[:3], 4),
        e.top_k(x[:3], 4).proponents,
        e.stability(halves=2).top_k(x[:2], 2),
        e.faithfulness(x),
        e.data_,
        features,
        FeatureBank.of(np.eye(3), np.arange(3)),
        solution,
        whence.svm.choose_C(features.features, y.numpy()),
        why,
        why[0],
        why[0].pairs[0],
        e.explain_concepts(x[:1])[0],
        e.explain_concepts(x[:1])[0].parts[0],
        effects,
        effects.effect_of(x[:2], remove=[1, 2]),
        audit.wrong_labels(e),
        audit.wrong_labels(e, ids=[EVIL] * N),
        audit.class_view(e),
        audit.class_view(e).classes[0],
        audit.coreset(e, x),
        audit.group_attribution(e, x),
        audit.novel_inputs(e, x),
        audit.shortcuts(e, x[y == y[0]], int(y[0])),
        audit.values(effects, x, y),
        whence.relevance.Concepts.neurons(6),
        whence_studies.compare_lds(scores, masks, outputs, draws=20),
        whence_studies.measure(lambda: explainer(), x[:2]).resources,
    ]


def test_results_are_shown_in_a_line_and_in_a_notebook() -> None:
    for thing in results():
        check_shown(thing)


def test_text_is_escaped_and_long_text_cut() -> None:
    html = table(EVIL, {EVIL: EVIL}, {EVIL: [EVIL, "a\x1b[31m"]})
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;" in html
    assert brief("a" * 100) == repr("a" * 39 + "…")
    assert brief(list(range(100))) == "100 items"
    assert brief(np.zeros((2, 3), np.float32)) == "float32 2 × 3"
    assert brief(torch.zeros(10_000)) == "float32 10,000"
    assert brief(0.000123456) == "0.0001235"
    assert "… 5 more" in table("t", {"n": 1}, {"a": range(15)})


def public_records() -> list[type]:
    packages = ("methods", "audit", "svm", "features", "explanation", "relevance", "data")
    modules = [importlib.import_module(f"whence.{name}") for name in packages]
    modules.append(importlib.import_module("whence_studies"))
    public = [getattr(module, name) for module in modules for name in module.__all__]
    kinds = {kind for kind in public if isinstance(kind, type)}
    return sorted(
        (k for k in kinds if dataclasses.is_dataclass(k) or hasattr(k, "_fields")),
        key=lambda kind: kind.__name__,
    )


# What is no result but a part that users write or choose: its fields are few, and printed as Python does it.
PARTS = {
    "BoxAndFrame", "Boxed", "Captum", "Case", "CentreBox", "Column", "CrammerSinger", "Curves",
    "EpsilonInsensitive", "Frame", "Hinges", "Capabilities", "Network", "NewSamples", "Numbers",
    "OneClassProblem",
    "Prepare", "Problem", "Row", "Rules", "Source", "TextInputs", "Tube", "Word", "Flow", "Pass",
    "Picture", "Sample", "Metric", "Check", "Summary", "LayerRule", "OperationRule",
    "SharingRule", "SpreadingRule",
}  # fmt: skip


@pytest.mark.parametrize("kind", public_records(), ids=lambda kind: kind.__name__)
def test_every_public_result_is_shown_in_notebooks(kind: type) -> None:
    assert kind.__name__ in PARTS or hasattr(kind, "_repr_html_")


@pytest.mark.parametrize("method", METHODS)
def test_an_attributor_tells_its_parameters_and_then_what_it_found(method: str) -> None:
    made = get(method)(batch_size=7)
    assert repr(made) == f"{type(made).__name__}(batch_size=7)"
    check_shown(made)
    assert "not fitted" in made._repr_html_()
    found = fitted(method)
    check_shown(found)
    assert f"samples={N}" in repr(found)
    assert f"classes={K}" in repr(found)


def test_an_explainer_tells_c_agreement_gap_and_support_vectors() -> None:
    e = explainer()
    expected = {"C": 0.1, "agreement": e.agreement_, "gap": e.gap_, "support_vectors": len(e.support_)}
    for name, value in expected.items():
        assert f"{name}={brief(value)}" in repr(e)
        assert f">{brief(value, quoted=False)}</td>" in e._repr_html_()


def test_an_own_method_is_shown_too() -> None:
    @dataclasses.dataclass(eq=False)
    class Own(methods.Similarity):
        name = "own"
        depth: int = 3

    assert repr(Own(depth=4)) == "Own(depth=4)"
    assert Own(depth=4).get_params()["depth"] == 4


def test_an_explanation_shows_its_figure() -> None:
    why = explainer().explain(data()[0][:5], 2)
    assert why[0]._repr_html_().count('src="data:image/png;base64,iVBOR') == 1
    html = why._repr_html_()
    assert html.count("<img") == 3
    assert "2 more explanations" in html
    assert repr(why) == "Explanations of 5 predictions"


# Parameters, as scikit-learn has them


@pytest.mark.parametrize("method", METHODS)
def test_parameters_are_read_set_and_cloned(method: str) -> None:
    made = get(method)(batch_size=7, show_progress=False)
    params = made.get_params()
    assert params["batch_size"] == 7
    copied = clone(made)
    assert type(copied) is type(made)
    assert copied is not made
    assert copied.get_params(deep=False) == made.get_params(deep=False)
    again = clone(fitted(method))
    with pytest.raises(NotFittedError):
        again.attribute(data()[0])
    assert made.set_params(batch_size=9) is made
    assert made.batch_size == 9
    with pytest.raises(InvalidInputError, match=r"must be one of .*batch_size.*Got 'batchsize'"):
        made.set_params(batchsize=9)


def test_parameters_of_members_are_reached_through_the_ensemble() -> None:
    e = whence.Ensemble(whence.DualDA(C=0.5))
    assert e.get_params()["members__C"] == 0.5
    assert "members__C" not in e.get_params(deep=False)
    e.set_params(members__C=0.25, batch_size=3)
    assert (e.members.C, e.batch_size) == (0.25, 3)
    copied = clone(e)
    assert copied.members is not e.members
    assert copied.members.C == 0.25


# What scikit-learn's classifiers have


def test_classes_decision_and_score_are_those_of_the_surrogate() -> None:
    (x, y), e = data(), explainer()
    assert e.classes_.tolist() == [0, 1, 2]
    features = e.metric_(network()[:2](x).detach()).double()
    expected = features @ torch.as_tensor(e.coef_[:, :6]).T + torch.as_tensor(e.coef_[:, 6])
    torch.testing.assert_close(e.decision_function(x), expected, rtol=1e-5, atol=1e-6)
    assert (e.decision_function(x).argmax(1) == e.predict(x)).all()
    assert e.score(x, y) == pytest.approx(accuracy_score(y, e.predict(x)))
    assert e.score(x, [NAMES[c] for c in y]) == e.score(x, y) == e.score(TensorDataset(x, y))
    with pytest.raises(InvalidInputError, match="'y' must be the true labels"):
        e.score(x)
    with pytest.raises(InvalidInputError, match="'y' must be classes"):
        e.score(x, y[:4])


def test_two_classes_have_one_decision() -> None:
    x, y = data()
    e = whence.DualDA(C=0.1, show_progress=False).fit(nn.Linear(4, 2), x, y % 2)
    decided = e.decision_function(x)
    assert decided.shape == (N,)
    assert ((decided > 0).long() == e.predict(x)).all()


def test_the_score_of_numbers_is_r2() -> None:
    x, _ = data()
    y = x.sum(1)
    e = whence.DualDA(show_progress=False).fit(nn.Linear(4, 1), x, y, task="regression")
    assert e.score(x, y) == pytest.approx(r2_score(y, e.predict(x)))
    with pytest.raises(InvalidInputError, match="must have classes"):
        _ = e.classes_


# Labels apart, targets by name, data sets and loaders


@pytest.mark.parametrize("method", METHODS)
def test_labels_may_come_beside_the_inputs(method: str) -> None:
    x, y = data()
    made = get(method)(show_progress=False)
    pair = made.fit(network(), (x, y), **more(made)).attribute(x[:5])
    assert torch.equal(fitted(method).attribute(x[:5]), pair)


def test_columns_of_pandas_are_inputs_and_labels() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = data()
    frame = pandas.DataFrame(x.numpy(), index=range(100, 100 + N))
    label = pandas.Series([NAMES[c] for c in y], index=frame.index)
    e = whence.DualDA(C=0.1, show_progress=False).fit(network(), (x, y), class_names=NAMES)
    own = whence.DualDA(C=0.1, show_progress=False).fit(network(), frame, label, class_names=NAMES)
    assert np.array_equal(own.coef_, e.coef_)


@pytest.mark.parametrize("method", METHODS)
def test_targets_go_by_name(method: str) -> None:
    x, e = data()[0][:3], fitted(method)
    assert torch.equal(e.attribute(x, "Ankle boot"), e.attribute(x, 1))
    assert torch.equal(e.attribute(x, ["Sandal", EVIL, "Sandal"]), e.attribute(x, [0, 2, 0]))
    assert e.top_k(x, 2, "Ankle boot").target.tolist() == [1, 1, 1]
    with pytest.raises(InvalidInputError, match=r"'target' must be one of Sandal.*Did you mean 'Sandal'\?"):
        e.attribute(x, "sandals")


def test_targets_go_by_name_in_explanations_and_audits() -> None:
    (x, y), e = data(), explainer()
    assert e.explain(x[:1], target="Sandal", truth="Ankle boot")[0].target == 0
    assert e.explain_concepts(x[:1], target="Sandal")[0].target == 0
    by_name = whence.audit.group_attribution(e, x, "Sandal")
    assert np.array_equal(by_name.mean, whence.audit.group_attribution(e, x, 0).mean)
    assert whence.audit.shortcuts(e, x[y == 0], "Sandal").target == 0
    moved = e.what_if(relabel={3: "Sandal"}, training_features=network()[:2](x).detach()).explainer
    assert moved.labels_[3] == 0


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(zip(*data(), strict=True))


class Mappings(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        x, y = data()
        return {"pixels": x[index], "label": int(y[index])}


def stacked(items: list[Any]) -> Any:
    return torch.stack([x for x, _ in items]), None


def forms() -> dict[str, Any]:
    whole = TensorDataset(*data())
    return {
        "dataset": whole,
        "unlabelled": TensorDataset(data()[0]),
        "loader": DataLoader(whole, 7),
        "shuffled": DataLoader(whole, 7, shuffle=True, drop_last=True),
        "own collate": DataLoader(whole, 7, collate_fn=stacked),
        "stream": DataLoader(Stream(), 7),
        "mappings": Mappings(),
        "view": whence_studies.view(data()),
    }


@pytest.mark.parametrize("form", forms())
@pytest.mark.parametrize("method", METHODS)
def test_tests_come_as_data_sets_and_loaders(method: str, form: str) -> None:
    x, e, given = data()[0], fitted(method), forms()[form]
    torch.testing.assert_close(e.attribute(given, 1), e.attribute(x, 1), rtol=1e-4, atol=1e-5)
    top, expected = e.top_k(given, 2), e.top_k(x, 2)
    assert torch.equal(top.target, expected.target)
    torch.testing.assert_close(top.proponents.scores, expected.proponents.scores, rtol=1e-3, atol=1e-4)


def test_loaders_are_explained_and_judged() -> None:
    (x, y), e = data(), explainer()
    some = Subset(TensorDataset(x, y), [4, 2])
    why = e.explain(DataLoader(some, 1), 2)
    assert [w.scores.tolist() for w in why] == [w.scores.tolist() for w in e.explain(x[[4, 2]], 2)]
    assert e.faithfulness(TensorDataset(x, y)) == e.faithfulness(x)
    assert torch.equal(e.predict(DataLoader(some, 1)), e.predict(x[[4, 2]]))
    whole = whence.audit.group_attribution(e, TensorDataset(x, y)).mean
    np.testing.assert_allclose(whole, whence.audit.group_attribution(e, x).mean)
    sampled = DataLoader(some, 1, sampler=torch.utils.data.WeightedRandomSampler([1, 1], 2))
    with pytest.raises(InvalidInputError, match="'x' is a DataLoader with its own sampler"):
        e.attribute(sampled)


def test_a_test_that_cannot_be_read_is_named() -> None:
    class Torn(Mappings):
        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 5:
                raise OSError("the disk has a hole")
            return super().__getitem__(index)

    with pytest.raises(InvalidInputError, match=r"'x' must give every sample\. Sample 5 .* hole"):
        explainer().attribute(Torn())


# Given training samples


def test_given_training_samples_are_explained() -> None:
    x, e = data()[0][:2], explainer()
    scores = e.attribute(x, relative=True)
    chosen = e.support_[[0, 3, 5]].tolist()
    for why, row in zip(e.explain(x, index=chosen), scores, strict=True):
        shown = {pair.index: pair.score for pair in why.pairs}
        assert shown == {i: pytest.approx(float(row[i]), rel=1e-4) for i in chosen if row[i] != 0}
        assert [pair.score for pair in why.proponents] == sorted([s for s in shown.values() if s > 0])[::-1]
    one = e.explain(x, index=chosen[0])
    assert {pair.index for why in one for pair in why.pairs} <= {chosen[0]}
    never = np.setdiff1d(np.arange(N), e.support_)
    for wrong, message in (([N], "must lie in"), ([], "Got none"), ("a", "'index' must")):
        with pytest.raises(InvalidInputError, match=message):
            e.explain(x, index=wrong)
    if len(never):
        with pytest.raises(InvalidInputError, match="whose scores are all 0"):
            e.explain(x, index=[int(never[0])])


# Names, rooms, the cache


def test_names_of_what_is_registered_go_whatever_their_case() -> None:
    assert get("DualDA") is get("dualda") is whence.DualDA
    assert get("TRAK") is methods.TRAK
    assert (
        whence.DualDA(C=0.1, show_progress=False).fit(network(), *data(), task="Classes").task_.name
        == "classes"
    )
    assert isinstance(whence.Ensemble("Similarity", show_progress=False).fit([network()], data()).members_[0],
                      methods.Similarity)  # fmt: skip


def test_rooms_are_there_when_they_are_asked_for() -> None:
    code = """
import time
started = time.perf_counter()
import whence
took = time.perf_counter() - started
import sys
assert not {"torch", "numpy", "whence.audit"} & set(sys.modules)
assert whence.audit.wrong_labels and whence.svm.solve and "audit" in dir(whence)
assert "sklearn" not in sys.modules
assert whence.svm.CrammerSingerSVC
try:
    whence.nothing
except AttributeError as error:
    assert "'nothing'" in str(error)
print(took)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_cache_is_remembered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    e = whence.DualDA(C=0.1).fit(model, *data(), cache_dir=tmp_path)
    assert e.reading_["cache_dir"] == tmp_path
    e.save(tmp_path / "e.whence")
    for later in (
        lambda: whence.audit.wrong_labels(e),
        lambda: e.stability(halves=2),
        lambda: e.update(remove=[3]),
    ):
        capsys.readouterr()
        later()
        assert "eatures" not in capsys.readouterr().err  # they are kept from the fit
    loaded = whence.load(tmp_path / "e.whence", model, data())
    loaded.update(remove=[3], cache_dir=tmp_path)
    assert "Features: reused (" in capsys.readouterr().err
    whence.audit.wrong_labels(whence.load(tmp_path / "e.whence", model, data()))
    said = capsys.readouterr().err
    assert "Reading features" in said
    assert "reused" not in said


def test_progress_says_what_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    e = whence.DualDA(show_progress=True).fit(network(), *data())
    e.explain(data()[0][:5], 1)
    said = capsys.readouterr().err
    for what in ("Reading features", "Choosing C", "Solving to a gap of 1e-06", "Explaining"):
        assert re.search(rf"{what}: .*100%.*\d\d:\d\d so far", said), what
    assert re.search(r"48/48 samples, \d\d:\d\d so far, \d\d:\d\d left", said)
