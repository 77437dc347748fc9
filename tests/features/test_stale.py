"""Where anything that features depend on changed, they are computed anew; where nothing did, they are not."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Dataset, Subset

import whence
from whence.core.cache import Cache
from whence.core.fingerprint import Digest, code, settled, source, structure
from whence.data import as_training_set
from whence.errors import StoreError
from whence.features import extract
from whence.svm import solve

N, D, K = 203, 6, 3
PLACE = 100  # a sample that no check of a few samples sees
SCALE = 1.0
TABLE = {"offset": [0.0]}


def helper(x: Tensor) -> Tensor:
    return x * SCALE + TABLE["offset"][0]


class Base(nn.Module):
    shift = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, D)
        self.act: nn.Module = nn.LeakyReLU(0.1)
        self.norm = nn.BatchNorm1d(D)
        self.fc = nn.Linear(D, K)
        self.scale = 1.0
        self._scale = 1.0
        self.scales = {"all": 1.0}
        self.array = np.ones(D, np.float32)
        self.tensor = torch.ones(D)
        self.nested = [{"x": (torch.zeros(1), SimpleNamespace(by=0.0))}]
        self.inner = Scaled(1.0)
        self.hidden = [nn.Linear(D, D)]
        nn.init.eye_(self.hidden[0].weight)
        nn.init.zeros_(self.hidden[0].bias)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        z = self.norm(self.act(self.body(x))) * self.scale * self._scale * self.scales["all"]
        z = z * torch.from_numpy(self.array) * self.tensor + self.nested[0]["x"][0] + self.shift
        z = self.hidden[0](helper(self.inner(z + self.nested[0]["x"][1].by)))
        return self.fc(z + self.offset())

    def offset(self) -> float:
        return 0.0


class Net(Base):
    """All its code is inherited."""


class Scaled:
    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.by


def transform(x: Tensor) -> Tensor:
    return x * transform.by  # type: ignore[attr-defined]


transform.by = 1.0  # type: ignore[attr-defined]


class Lazy(Dataset[tuple[Tensor, int]]):
    """Samples made on demand."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = torch.from_numpy(rng.normal(size=(N, 5)).astype(np.float32))
        self.targets = rng.integers(0, K, N)
        self._labels = self.targets.copy()
        self._more = {PLACE: 0.0}
        self.array = np.zeros(N, np.float32)
        self.transform: Any = Scaled(1.0)
        self.function = transform
        self.seen: list[int] = []

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.seen.append(i)
        x = self.x[i] + self._more.get(i, 0.0) + self.array[i]
        return (self.function(self.transform(x)) if i == PLACE else x), self.label(i)

    def label(self, i: int) -> int:
        return int(self._labels[i])


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def setting(path: str, value: Any) -> Callable[[Any, Any], None]:
    """Set an attribute of the model or the data, such as ``model.act.negative_slope``."""

    def change(model: Net, data: Lazy) -> None:
        *way, last = path.split(".")
        thing: Any = {"model": model, "data": data}[way[0]]
        for name in way[1:]:
            thing = getattr(thing, name)
        setattr(thing, last, value)

    return change


def doing(text: str) -> Callable[[Any, Any], None]:
    """Run a statement on the model or the data, without what autograd says to it."""

    def change(model: Net, data: Lazy) -> None:
        with torch.no_grad():
            exec(text, {"model": model, "data": data, "torch": torch, "nn": nn, "PLACE": PLACE})

    return change


def twice(self: Any, x: Tensor) -> Tensor:
    return Base.forward(self, 2 * x)


def instance_forward(model: Net, data: Lazy) -> None:
    model.forward = functools.partial(twice, model)  # type: ignore[method-assign]


def of_base(model: Net, data: Lazy) -> None:
    old = Base.forward
    Base.forward = lambda self, x: old(self, 2 * x)  # type: ignore[method-assign]


def other_label(model: Net, data: Lazy) -> None:
    data._labels[PLACE] = (data._labels[PLACE] + 1) % K


MODEL = {
    "public number": setting("model.scale", 2.0),
    "private number": setting("model._scale", 2.0),
    "dict": doing("model.scales['all'] = 2.0"),
    "array": doing("model.array[2] = 2.0"),
    "tensor": doing("model.tensor[2] = 2.0"),
    "nested tensor": doing("model.nested[0]['x'][0].fill_(1.0)"),
    "namespace": doing("model.nested[0]['x'][1].by = 1.0"),
    "object with slots": setting("model.inner.by", 2.0),
    "module in a list": doing("model.hidden[0].weight.mul_(2.0)"),
    "class attribute": lambda model, data: setattr(Base, "shift", 1.0),
    "setting of a layer": setting("model.act.negative_slope", 0.2),
    "eps": setting("model.norm.eps", 0.5),
    "another activation": doing("model.act = nn.GELU()"),
    "another class": lambda model, data: setattr(model, "__class__", type("Net", (Net,), {"forward": twice})),
    "weight through data": doing("model.body.weight.data[0, 0] += 1"),
    "weight through numpy": doing("model.body.weight.detach().numpy()[0, 0] += 1"),
    "buffer": doing("model.norm.running_mean.add_(1)"),
    "forward of the instance": instance_forward,
    "forward of a base class": of_base,
    "method of a base class": lambda model, data: setattr(Base, "offset", lambda self: 1.0),
    "forward hook": doing("model.act.register_forward_hook(lambda m, i, o: 2 * o)"),
    "forward pre-hook": doing("model.act.register_forward_pre_hook(lambda m, i: (2 * i[0],))"),
    "hook on all modules": lambda model, data: nn.modules.module.register_module_forward_hook(double),
    "helper": lambda model, data: globals().update(helper=lambda x: 2 * x),
    "constant": lambda model, data: globals().update(SCALE=2.0),
    "constant in a container": lambda model, data: TABLE["offset"].__setitem__(0, 1.0),
    "code of a torch layer": lambda model, data: setattr(nn.LeakyReLU, "forward", lambda self, x: x),
    "method of an attribute": lambda model, data: setattr(Scaled, "__call__", lambda self, x: 2 * x),
}

DATA = {
    "input": doing("data.x[PLACE, 0] += 1"),
    "private dict": doing("data._more[PLACE] = 1.0"),
    "array": doing("data.array[PLACE] = 1.0"),
    "label that targets does not give": other_label,
    "label by a method": lambda model, data: setattr(Lazy, "label", lambda self, i: i % K),
    "transform": setting("data.transform", Scaled(2.0)),
    "attribute of the transform": setting("data.transform.by", 2.0),
    "transform is a partial": setting("data.transform", functools.partial(torch.mul, 2.0)),
    "transform is another function": setting("data.transform", torch.negative),
    "attribute of a function": lambda model, data: setattr(transform, "by", 2.0),
    "code of the transform": lambda model, data: setattr(Scaled, "__call__", lambda self, x: 2 * x),
    "code of getitem": lambda model, data: setattr(
        Lazy, "__getitem__", lambda self, i: (self.x[i] + (i == PLACE), self.label(i))
    ),
}


def double(module: nn.Module, inputs: Any, output: Any) -> Any:
    return 2 * output if isinstance(module, nn.LeakyReLU) else None


@pytest.fixture(autouse=True)
def undone() -> Any:
    """Put back what changes of classes and of this module leave."""
    classes = [(kind, dict(vars(kind))) for kind in (Base, Scaled, Lazy, nn.LeakyReLU)]
    before, offset, by = {"helper": helper, "SCALE": SCALE}, TABLE["offset"][0], transform.by  # type: ignore[attr-defined]
    yield
    globals().update(before)
    TABLE["offset"][0] = offset
    transform.by = by  # type: ignore[attr-defined]
    nn.modules.module._global_forward_hooks.clear()
    for kind, members in classes:
        for name, value in members.items():
            if isinstance(value, FunctionType | float):
                setattr(kind, name, value)


def quiet(model: nn.Module, data: Any, **options: Any) -> Any:
    return extract(model, data, show_progress=False, **options)


@pytest.mark.parametrize(("what", "name"), [*(("model", n) for n in MODEL), *(("data", n) for n in DATA)])
def test_a_change_is_seen_by_the_fingerprint(tmp_path: Path, what: str, name: str) -> None:
    bank = quiet(net(), Lazy(), cache_dir=tmp_path)
    assert bank.note == "computed"
    assert quiet(net(), Lazy(), cache_dir=tmp_path).note == "reused"
    model, data = net(), Lazy()
    {"model": MODEL, "data": DATA}[what][name](model, data)
    fresh = quiet(model, data)
    changed = not np.array_equal(fresh.features, bank.features) or (fresh.labels != bank.labels).any()
    assert changed, "the change must matter, or the test says nothing"
    found = quiet(model, data, cache_dir=tmp_path)
    assert found.note.startswith(("computed, since ", "computed again, since "))
    assert np.array_equal(found.features, fresh.features)
    assert np.array_equal(found.labels, fresh.labels)
    assert quiet(model, data, cache_dir=tmp_path).note == "reused"


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(N)), lambda d: ConcatDataset([d])])
def test_what_stays_the_same_is_reused(tmp_path: Path, wrap: Callable[[Any], Any]) -> None:
    def run(model: nn.Module, **options: Any) -> str:
        data = as_training_set(wrap(Lazy()), preprocess=lambda x: 2 * x)
        note: str = quiet(model, data, cache_dir=tmp_path, **options).note
        return note

    model = net()
    assert run(model) == "computed"
    assert run(model) == "reused"  # though the model counts its calls
    assert run(net().eval()) == "reused"
    model.body.register_full_backward_hook(lambda m, i, o: None)  # features do not go backward
    assert run(model, num_workers=1) == "reused"


SCRIPT = """
import json, sys
import torch
from tests.features.test_stale import Lazy, net
from tests.helpers.writers import llama
from whence.core.fingerprint import Digest, source, structure
digest = Digest()
digest.add(llama().generation_config)
lines = structure(net()).lines
print(json.dumps([lines, Digest().of(Lazy()), source("whence.svm"), digest.hexdigest()]))
"""


def test_fingerprints_are_the_same_in_every_process() -> None:
    pytest.importorskip("transformers")
    root = Path(__file__).parents[2]
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", SCRIPT], cwd=root, env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True, check=True, text=True,
            ).stdout
        )
        for seed in ("1", "2")
    ]  # fmt: skip
    assert found[0] == found[1]
    assert found[0][0] == structure(net()).lines


def test_the_code_of_this_package_is_no_ones_own() -> None:
    lines = structure(whence.sample.SmallCNN()).lines
    assert not any(line.startswith(("code whence", "use of whence")) for line in lines)


def test_notes_that_a_model_takes_when_it_runs_do_not_count() -> None:
    model = net()
    before = structure(model)
    model(torch.ones(2, 5))
    after = structure(model)
    assert before.lines.keys() == after.lines.keys()
    kept, changed = settled(before, after)
    assert changed == {"attribute calls"}
    assert kept.lines.keys() == before.lines.keys() - changed
    assert not kept.doubts


def test_objects_that_point_at_each_other_have_a_digest() -> None:
    a, b = SimpleNamespace(name="a"), SimpleNamespace(name="b")
    a.other, b.other = b, a
    first, second = Digest(), Digest()
    first.add(a)
    second.add(b)
    assert first.hexdigest() != second.hexdigest()


class Touchy:
    """Does not like to be asked."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Generating(UserDict[str, int]):
    """A mapping whose items have no length, as torch has some."""

    def items(self) -> Any:
        return (item for item in self.data.items())


def digest_of(value: Any) -> str:
    digest = Digest()
    digest.add(value)
    return digest.hexdigest()


def test_packages_of_another_environment_are_not_the_users_own(tmp_path: Path) -> None:
    """A virtual environment may share the system's packages, which lie outside of its own folder."""
    text = "def double(x):\n    return 2 * x\n"
    for folder, own in [("mine", True), ("lib/python3/dist-packages/pkg", False), ("site-packages", False)]:
        path = tmp_path / folder / "part.py"
        inside: dict[str, Any] = {}
        exec(compile(text, str(path), "exec"), inside)
        assert code.is_own(inside["double"]) is own


def test_many_kinds_of_objects_are_told_apart_and_known_again() -> None:
    import pandas

    def cached(n: int) -> Any:
        return functools.lru_cache(lambda x: x + n)

    makes: list[Callable[[int], Any]] = [
        Touchy,
        lambda n: pandas.DataFrame({"path": ["a", "b"], "label": [0, n]}),
        cached,
        lambda n: functools.partial(max, n),
        lambda n: {"a": {7, n}},
        lambda n: [("name", n)] * 5000,
        lambda n: {str(i): i * n for i in range(5000)},
        lambda n: Generating({str(i): i * n for i in range(5000)}),
        lambda n: Path(f"/nowhere/{n}"),
        lambda n: nn.Linear(n, 1, bias=False).requires_grad_(False),
        lambda n: torch.zeros(3, dtype=[torch.int8, torch.uint8][n - 1]),
        lambda n: Scaled(n).__call__,
    ]
    for make in makes:
        torch.manual_seed(0)
        one, other = make(1), make(2)
        torch.manual_seed(0)
        assert digest_of(one) == digest_of(make(1))
        assert digest_of(one) != digest_of(other)


def test_source_is_known_by_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "made_for_this.py"
    found = []
    for text in ('"""A."""\nX = 1\n', '"""B."""\n\n# why\nX = 1\n', "X = 2\n"):
        file.write_text(text)
        source.cache_clear()
        found.append(source("made_for_this"))
    assert found[0] == found[1] != found[2]


# What is outside of the set


class FromFile(Dataset[tuple[Tensor, int]]):
    """Samples in a file that the set does not hold."""

    def __init__(self, path: Path) -> None:
        self.name, self.targets = str(path), np.arange(N) % K

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        x, labels = torch.load(self.name, weights_only=True)
        return x[i], int(labels[i])


@pytest.mark.parametrize("change", [lambda x, y: x[PLACE].mul_(1.5), lambda x, y: y[PLACE].add_(1)])
def test_a_change_outside_of_the_set_is_seen(tmp_path: Path, change: Any) -> None:
    x, y = Lazy().x, torch.arange(N) % K
    torch.save((x, y), tmp_path / "x.pt")
    for note in ("computed", "reused"):
        assert quiet(net(), FromFile(tmp_path / "x.pt"), cache_dir=tmp_path / "cache").note == note
    change(x, y)
    torch.save((x, y), tmp_path / "x.pt")
    found = quiet(net(), FromFile(tmp_path / "x.pt"), cache_dir=tmp_path / "cache")
    fresh = quiet(net(), FromFile(tmp_path / "x.pt"))
    assert "samples 64 to 127 have other inputs or labels than before" in found.note
    assert np.array_equal(found.features, fresh.features)
    assert np.array_equal(found.labels, fresh.labels)
    assert quiet(net(), FromFile(tmp_path / "x.pt"), cache_dir=tmp_path / "cache").note == "reused"


# Features that are altered while they are in use


@pytest.mark.parametrize("damage", ["cut", "zeros", "bit"])
@pytest.mark.parametrize("large", [False, True])
def test_features_altered_during_a_fit_never_make_a_wrong_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool, damage: str
) -> None:
    monkeypatch.setattr("whence.features.rows.free_memory", lambda: 0 if large else 1 << 30)

    def fit() -> whence.DualDA:
        return whence.DualDA(C=0.1, show_progress=False).fit(net(), Lazy(), cache_dir=tmp_path)

    def damaging(*args: Any, **options: Any) -> Any:
        (file,) = tmp_path.glob("bank-*/features.npy")
        whole = file.read_bytes()
        with open(file, "r+b") as handle:  # in place: whoever mapped it sees the change
            if damage == "cut":
                handle.truncate(len(whole) - 600)  # in the last page: what lies behind it ends the process
            elif damage == "zeros":
                handle.seek(len(whole) // 2)
                handle.write(bytes(600))
            else:
                handle.seek(len(whole) // 2 + 2)  # in the mantissa
                handle.write(bytes([whole[len(whole) // 2 + 2] ^ 16]))
        return solve(*args, **options)

    expected = whence.DualDA(C=0.1, show_progress=False).fit(net(), Lazy())
    with monkeypatch.context() as patch:
        patch.setattr("whence.surrogate.shards.solve", damaging)
        if large:
            with pytest.raises(StoreError, match="altered on disk while they were in use"):
                fit()
        else:  # which has read them before
            np.testing.assert_array_equal(fit().coef_, expected.coef_)
    kept = [entry for entry in Cache(tmp_path).entries() if entry.kind == "solution" and entry.complete]
    assert len(kept) == (not large)
    again = fit()
    assert again.origins_["features"].startswith("computed again, since")
    np.testing.assert_array_equal(again.coef_, expected.coef_)
    assert fit().origins_ == {"features": "reused", "solution": "reused"}


# Other code than made it


def test_another_solver_solves_anew_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit() -> dict[str, str]:
        return whence.DualDA(C=0.1, show_progress=False).fit(net(), Lazy(), cache_dir=tmp_path).origins_

    fit()
    original = source
    monkeypatch.setattr(
        "whence.core.fingerprint.source",
        lambda *names: "other" if "whence.svm" in names else original(*names),
    )
    found = fit()
    assert found["features"] == "reused"
    assert found["solution"].startswith("computed, since the code of the solver differs")


def test_another_extraction_computes_anew_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(net(), Lazy(), cache_dir=tmp_path)
    monkeypatch.setattr("whence.core.fingerprint.source", lambda *names: "other")
    note = quiet(net(), Lazy(), cache_dir=tmp_path).note
    assert note.startswith("computed, since the code of the extraction differs")


def test_cells_and_trained_models_are_kept_by_the_code_that_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whence.core.cache import Cache
    from whence_studies.scenes import training
    from whence_studies.suite import run
    from whence_studies.suite.protocol import parse

    protocol = {
        "data": {"name": "sample", "train": 60, "test": 10, "held_out": 20},
        "model": {"name": "narrow-cnn", "steps": 5},
        "methods": [{"name": "similarity"}],
        "metrics": {"identical_class": {}},
    }

    def kept() -> dict[str, str]:
        run.run(parse(protocol), tmp_path, tmp_path / "out", show_progress=False)
        return {entry.name: entry.kind for entry in Cache(tmp_path / "out" / "cache").entries()}

    before = kept()
    assert kept() == before
    for module in (run, training):
        monkeypatch.setattr(module, "source", lambda *names: "other")
    after = kept()
    new = [kind for name, kind in after.items() if name not in before]
    assert sorted(new) == sorted(before.values())
    assert set(new) == {"cell", "model"}
