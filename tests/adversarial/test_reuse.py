"""Reused features are those of this model and this data; what cannot be compared is computed again."""

from __future__ import annotations

import array
import dataclasses
import functools
import io
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from tests.adversarial import models
from tests.adversarial.models import BLIND, CHANGES, Descriptor, package
from whence.core.fingerprint import Digest, key_of, structure
from whence.data import as_training_set
from whence.features import FeatureBank, extract

N, K = 500, 3


def arrays() -> tuple[Tensor, Tensor]:
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(0)), torch.arange(N) % K


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, K))


def quiet(model: nn.Module, data: Any, **options: Any) -> FeatureBank:
    return extract(model, data, show_progress=False, **options)


# Changes of one sample of 500. A data set is made twice, with 0.0 and with what to add to the sample


class Samples(Dataset[tuple[Tensor, int]]):
    """Samples that are what they are by something else: ``more(i)`` is added to sample i."""

    def __init__(self, more: Callable[[int], Any]) -> None:
        self.x, self.targets = arrays()
        self.more = more

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i] + float(self.more(i)), int(self.targets[i])


class Adder:
    def __init__(self, place: int, by: float) -> None:
        self.place, self.by = place, by

    def of_items(self, items: list[Any]) -> Any:
        xs = [x + (self.by if torch.equal(x, arrays()[0][self.place]) else 0.0) for x, _ in items]
        return torch.stack(xs), torch.tensor([int(y) for _, y in items])

    def of_batch(self, x: Tensor) -> Tensor:
        return x + self.by * (x == arrays()[0][self.place]).all(1, keepdim=True)

    def of_place(self, i: int) -> float:
        return self.by if i == self.place else 0.0


class Stream(IterableDataset[Any]):
    def __init__(self, values: Samples) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return (self.values[i] for i in range(N))


@dataclasses.dataclass
class Options:
    name: str

    def __call__(self, i: int) -> float:
        return float(vars(self)["more"].of_place(i))


class Generated:
    def __init__(self, by: Adder) -> None:
        self.by = by

    def __getattr__(self, name: str) -> Any:
        if name.startswith("sample"):
            return self.by.of_place(int(name[6:]))
        raise AttributeError(name)


def row(place: int, by: float, dtype: Any = np.float32) -> np.ndarray:
    values = np.zeros(N, dtype)
    values[place] = by
    return values


def by_package(place: int, by: float) -> Any:
    package("changing", part=package("changing.part", MORE=row(place, by)))
    import changing  # type: ignore[import-not-found]

    return lambda i: changing.part.MORE[i]


def by_import(place: int, by: float) -> Any:
    package("changing", MORE=row(place, by))

    def more(i: int) -> float:
        from changing import MORE

        return float(MORE[i])

    return more


def by_descriptor(place: int, by: float) -> Any:
    kind = type("Described", (), {"more": Descriptor(row(place, by))})  # type: ignore[arg-type]
    return lambda i: kind().more[i]


def by_dataclass(place: int, by: float) -> Any:
    options = Options("options")
    options.more = Adder(place, by)  # type: ignore[attr-defined]
    return options


def by_pyarrow(place: int, by: float) -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"more": row(place, by)})
    return lambda i: table["more"][i].as_py()


def by_tokenizer(place: int, by: float) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {f"s{i}": i for i in range(N)}
    if by:
        vocabulary[f"s{place}"], vocabulary[f"s{(place + 1) % N}"] = (place + 1) % N, place
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="s0"))
    return lambda i: tokenizer.encode(f"s{i}").ids[0]


def by_file(place: int, by: float) -> Any:
    np.save("more.npy", row(place, by))
    return lambda i: np.load("more.npy")[i]


def by_environment(place: int, by: float) -> Any:
    os.environ["ATTACKED_RATE"] = f"{place} {by}"
    return lambda i: Adder(*map(float, os.environ["ATTACKED_RATE"].split())).of_place(i)  # type: ignore[arg-type]


def by_remembered(place: int, by: float) -> Any:
    kept = functools.lru_cache(Adder(place, by).of_place)
    return lambda i: kept(i)


def by_sparse_rows(place: int, by: float) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls them a beta
        rows = torch.from_numpy(row(place, by))[None].to_sparse_csr()
    return lambda i: rows.to_dense()[0, i]


def by_attribute(place: int, by: float) -> Any:
    made = Generated(Adder(place, by))
    return lambda i: getattr(made, f"sample{i}")


def by_bytes(place: int, by: float) -> Any:
    stream = io.BytesIO(row(place, by, np.uint8).tobytes())
    return lambda i: stream.getvalue()[i]


def by_mask(place: int, by: float) -> Any:
    masked = np.ma.masked_array(row(0, 0), row(place, by) > 0)
    return lambda i: 1.0 if np.ma.getmaskarray(masked)[i] else 0.0


def in_place(place: int, by: float) -> Any:
    x, y = arrays()
    x[place] += by
    return x, y


def of_more(make: Callable[[int, float], Any]) -> Callable[[int, float], Any]:
    return lambda place, by: Samples(make(place, by))


DATA: dict[str, Callable[[int, float], Any]] = {
    "array": in_place,
    "numpy": lambda place, by: tuple(part.numpy() for part in in_place(place, by)),
    "list": lambda place, by: list(zip(*in_place(place, by), strict=True)),
    "dataset": lambda place, by: TensorDataset(*in_place(place, by)),
    "loader": lambda place, by: DataLoader(TensorDataset(*in_place(place, by)), 64),
    "frame": lambda place, by: (
        pandas.DataFrame(in_place(place, by)[0].numpy()), pandas.Series(arrays()[1].numpy())
    ),
    "subset": lambda place, by: Subset(TensorDataset(*arrays()), [i if i != place or not by else (i + K) % N
                                                                  for i in range(N)]),
    "stream": lambda place, by: Stream(Samples(Adder(place, by).of_place)),
    "bound method as preprocess": lambda place, by: as_training_set(
        arrays(), preprocess=Adder(place, by).of_batch
    ),
    "bound method as collate_fn": lambda place, by: as_training_set(
        TensorDataset(*arrays()), collate_fn=Adder(place, by).of_items
    ),
    "collate_fn of a loader": lambda place, by: DataLoader(
        TensorDataset(*arrays()), 64, collate_fn=Adder(place, by).of_items
    ),
    "code without attributes": of_more(lambda place, by: eval(f"lambda i: {by} * (i == {place})")),
    "closure": of_more(lambda place, by: lambda i: by * (i == place)),
    "partial": of_more(lambda place, by: functools.partial(Adder.of_place, Adder(place, by))),
    "bound method": of_more(lambda place, by: Adder(place, by).of_place),
    "method of a builtin": of_more(lambda place, by: row(place, by).tolist().__getitem__),
    "part of a package": of_more(by_package),
    "import inside": of_more(by_import),
    "sparse tensor": of_more(lambda place, by: torch.from_numpy(row(place, by)).to_sparse().__getitem__),
    "sparse rows": of_more(by_sparse_rows),
    "series": of_more(lambda place, by: pandas.Series(row(place, by)).__getitem__),
    "descriptor": of_more(by_descriptor),
    "attribute made on request": of_more(by_attribute),
    "pyarrow": of_more(by_pyarrow),
    "stream of bytes": of_more(by_bytes),
    "memoryview": of_more(lambda place, by: memoryview(row(place, by)).__getitem__),
    "array of the standard library": of_more(lambda place, by: array.array("f", row(place, by)).__getitem__),
    "attribute of a dataclass": of_more(by_dataclass),
    "vocabulary of a tokenizer": of_more(by_tokenizer),
    "file": of_more(by_file),
    "environment": of_more(by_environment),
    "remembered": of_more(by_remembered),
    "masked array": of_more(by_mask),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_one_changed_sample_is_seen(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    place, by = int(rng.integers(N - 1)), float(rng.integers(1, 9))
    first = quiet(plain(), DATA[name](place, 0.0), cache_dir=tmp_path / "cache")
    assert quiet(plain(), DATA[name](place, 0.0), cache_dir=tmp_path / "cache").note == "reused"
    found = quiet(plain(), DATA[name](place, by), cache_dir=tmp_path / "cache")
    assert found.note != "reused"
    fresh = quiet(plain(), DATA[name](place, by))
    assert not np.array_equal(fresh.features, first.features), (
        "the change must matter, or the test says nothing"
    )
    assert np.array_equal(found.features, fresh.features)


# Changes of the model


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    quiet(models.Net(), arrays(), cache_dir=folder)
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """Holds the features of the network without a change."""
    shutil.copytree(filled, tmp_path / "cache")
    return tmp_path / "cache"


def test_a_network_of_many_parts_is_reused(cache: Path) -> None:
    assert structure(models.Net()).doubts == ""
    assert quiet(models.Net(), arrays(), cache_dir=cache).note == "reused"


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_model_is_seen(cache: Path, name: str) -> None:
    before = quiet(models.Net(), arrays(), cache_dir=cache)
    assert before.note == "reused"
    model = models.Net()
    CHANGES[name](model)
    fresh = quiet(model, arrays())
    assert not np.array_equal(fresh.features, before.features), (
        "the change must matter, or the test says nothing"
    )
    found = quiet(model, arrays(), cache_dir=cache)
    assert found.note.startswith("computed, since ")
    assert np.array_equal(found.features, fresh.features)


@pytest.mark.parametrize("name", BLIND)
def test_what_cannot_be_read_is_computed_again_and_says_so(tmp_path: Path, name: str) -> None:
    kind, change = BLIND[name]
    cache = tmp_path / "cache"
    before = quiet(kind(tmp_path), arrays(), cache_dir=cache)
    for bank in (before, quiet(kind(tmp_path), arrays(), cache_dir=cache)):
        assert bank.note.startswith("computed, since the ")
        assert "cannot be compared. Pass a cache_key" in bank.note
    model = kind(tmp_path)
    change(model)
    found = quiet(model, arrays(), cache_dir=cache)
    assert not np.array_equal(found.features, before.features)
    assert np.array_equal(found.features, quiet(model, arrays()).features)


def test_a_cache_key_vouches_for_what_cannot_be_read(tmp_path: Path) -> None:
    def note(key: str) -> str:
        model, data = models.OfFile(tmp_path), Reads()
        found = quiet(model, data, cache_dir=tmp_path / "cache", cache_key=key).note
        counts.append(data.read)
        return found

    class Reads(Samples):
        read = 0

        def __init__(self) -> None:
            super().__init__(lambda i: 0.0)

        def __getitem__(self, i: int) -> Any:
            self.read += 1
            return super().__getitem__(i)

    counts: list[int] = []
    assert [note("one"), note("one")] == ["computed", "reused"]
    assert counts[0] > N > 200 > counts[1]  # the samples are not read again
    assert note("two").startswith("computed, since the cache key is 'two', was 'one'")


# What must be reused


class Memoising(Samples):
    """Keeps what it has read, as many sets do."""

    def __init__(self) -> None:
        super().__init__(lambda i: 0.0)
        self.kept: dict[int, Any] = {}

    def __getitem__(self, i: int) -> Any:
        if i not in self.kept:
            self.kept[i] = super().__getitem__(i)
        return self.kept[i]


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = plain(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.inner(x)

    def training_step(self, batch: Any) -> Any:
        return losses.append(batch)  # noqa: F821, a name of the notebook


def vision_transform() -> Any:
    transforms = pytest.importorskip("torchvision.transforms")
    made = transforms.Compose([transforms.Normalize([0.0], [1.0])])
    return [(made(x.view(1, 1, 5)).view(5), int(y)) for x, y in zip(*arrays(), strict=True)]


def hugging_face() -> Any:
    datasets = pytest.importorskip("datasets")
    x, y = arrays()
    return datasets.Dataset.from_dict({"x": x.numpy(), "label": y.numpy()}).with_format("torch")


def gru() -> nn.Module:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.recurrent, self.fc = nn.GRU(5, 6, batch_first=True), nn.Linear(6, K)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.recurrent(x[:, None])[0][:, 0])

    return Recurrent()


def transformer() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(5, 1, 8, batch_first=True)
    return nn.Sequential(
        nn.Unflatten(1, (1, 5)),
        nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
        nn.Flatten(),
        nn.Linear(5, K),
    )


def weight_norm() -> nn.Module:
    model = plain()
    nn.utils.parametrizations.weight_norm(model[0])
    return model


REUSED: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    **{f"data: {name}": (plain, functools.partial(make, 3, 0.0)) for name, make in DATA.items()},
    "a set that keeps what it read": (plain, Memoising),
    "a set of transformed images": (plain, vision_transform),
    "a set of Hugging Face": (plain, hugging_face),
    "a model that counts": (Counting, arrays),
    "a recurrent model": (gru, arrays),
    "a transformer": (transformer, arrays),
    "weight normalisation": (weight_norm, arrays),
    "half the precision": (lambda: plain().bfloat16(), arrays),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in REUSED if not name.startswith("data: ")])
def test_what_is_ordinary_is_reused(tmp_path: Path, name: str) -> None:
    model, data = REUSED[name]
    notes = [quiet(model(), data(), cache_dir=tmp_path).note for _ in range(2)]
    assert notes == ["computed", "reused"]


@pytest.mark.parametrize("family", ["bert", "llama", "vit"])
def test_models_of_transformers_can_be_read(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    small: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 16, "num_labels": K}
    kinds: dict[str, Any] = {
        "bert": lambda: transformers.BertForSequenceClassification(
            transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **small)
        ),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, **small)),
        "vit": lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(image_size=8, patch_size=4, **small)
        ),
    }
    found = [structure(kinds[family]().eval()) for _ in range(2)]
    assert found[0].doubts == ""
    assert found[0].lines == found[1].lines


# Digests


def test_large_arrays_and_long_lists_are_hashed_whole() -> None:
    large = np.zeros((130, 1 << 20), np.uint8)
    before = key_of(large)
    large[1, 5] = 1
    assert key_of(large) != before
    several = [torch.zeros(1) for _ in range(3)] * 70_000
    before = key_of(several)
    several[-1] = torch.ones(1)
    assert key_of(several) != before


@pytest.mark.parametrize(
    "thing",
    [(i for i in "ab"), models.ctypes.pointer(models.ctypes.c_int(3)), torch.zeros(2, device="meta"), open,
     os.environ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_what_has_no_digest_has_none_twice(thing: Any) -> None:
    digest = Digest()
    digest.add([1, {"a": thing}])
    assert digest.unread
    assert key_of([thing]) != key_of([thing])
