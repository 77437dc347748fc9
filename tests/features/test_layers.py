"""Banks of several layers: at one scale, whatever the batches, kept and taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.lazy import Lazy, N, arrays, net
from whence.errors import InvalidInputError
from whence.features import FeatureBank, extract


def deep() -> nn.Module:
    torch.manual_seed(0)
    body = nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4), nn.Tanh(), nn.Linear(4, 6), nn.ReLU()
    return nn.Sequential(*body, nn.Linear(6, 3))


def quiet(data: Any = None, **options: Any) -> FeatureBank:
    return extract(deep(), arrays() if data is None else data, show_progress=False, **options)


def expected() -> np.ndarray:
    """What goes into the layers, in float64, divided by the root of its mean squared norm."""
    model, z = deep().double(), torch.from_numpy(arrays()[0]).double()
    found = []
    with torch.no_grad():
        for place, layer in enumerate(model):
            if place in (2, 4, 6):
                found.append(z / z.square().sum(1).mean().sqrt())
            z = layer(z)
    return torch.cat(found, 1).numpy()


@pytest.mark.parametrize("batch_size", [1, 50, 500])
def test_layers_have_one_scale_whatever_the_batches(batch_size: int) -> None:
    bank = quiet(layers="all", batch_size=batch_size)
    np.testing.assert_allclose(bank.features, expected(), rtol=1e-3, atol=1e-5)  # scales have four digits
    assert bank.layers.names == ("2", "4", "6")
    assert bank.layers.widths == (7, 4, 6)
    norms = [np.square(bank.features[:, part]).sum(1).mean() for part in bank.layers.places.values()]
    np.testing.assert_allclose(norms, 1, rtol=2e-3)
    assert bank.layers == quiet(layers="all").layers  # scales, too, to the last digit
    with torch.no_grad():
        logits = deep()(torch.from_numpy(arrays()[0]))
    np.testing.assert_allclose(bank.features @ bank.head.weight.T + bank.head.bias, logits, atol=1e-5)


def test_scales_are_those_of_the_first_256_samples() -> None:
    x, y = arrays()
    x, y = np.concatenate([x, x, 100 * x]), np.concatenate([y, y, y])
    few = extract(deep(), (x[:256], y[:256]), layers="all", show_progress=False)
    for batch_size in (3, 256, 700):
        more = extract(deep(), (x, y), layers="all", batch_size=batch_size, show_progress=False)
        assert more.layers == few.layers


def test_the_last_layer_alone_is_as_it_is() -> None:
    plain = quiet()
    assert plain.layers is None
    for asked in ("last", 1, None):
        bank = quiet(layers=asked)
        assert np.array_equal(bank.features, plain.features)
        assert np.array_equal(bank.head.weight, plain.head.weight)
    only = extract(net(), arrays(), layers="all", show_progress=False)  # which has no other
    assert np.array_equal(only.features, extract(net(), arrays(), show_progress=False).features)


def test_other_samples_are_brought_to_the_same_features() -> None:
    bank, (x, y) = quiet(layers=2), arrays()
    other = extract(deep(), (3 * x[:20], y[:20]), layers=bank.layers, show_progress=False)
    assert other.layers == bank.layers
    np.testing.assert_allclose(other.features, bank.extractor(3 * x[:20]), rtol=1e-6)


def test_layers_of_another_model_are_refused() -> None:
    with pytest.raises(
        InvalidInputError, match=r"'layers' must be those of a bank of the same model.*'6' of 6"
    ):
        extract(net(), arrays(), layers=quiet(layers=2).layers, show_progress=False)


def test_skipped_samples_have_no_part_in_scales() -> None:
    bank = quiet(Lazy(bad=(0, 1, 7)), layers="all", on_error="skip", batch_size=2)
    kept = np.setdiff1d(np.arange(N), [0, 1, 7])
    alone = quiet((arrays()[0][kept], arrays()[1][kept]), layers="all")
    assert bank.layers == alone.layers
    assert not bank.features[[0, 1, 7]].any()
    np.testing.assert_allclose(bank.features[kept], alone.features, rtol=1e-5, atol=1e-6)


def test_layers_are_part_of_what_a_bank_depends_on(tmp_path: Path) -> None:
    first = quiet(layers="all", cache_dir=tmp_path)
    assert quiet(layers="all", cache_dir=tmp_path).note == "reused"
    assert quiet(layers=2, cache_dir=tmp_path).note.startswith("computed, since the layers is")
    assert quiet(cache_dir=tmp_path).note.startswith("computed, since layers is missing")
    assert quiet(layers=["2", "4"], cache_dir=tmp_path).note.startswith("computed")
    again = quiet(layers="all", cache_dir=tmp_path)
    assert again.note == "reused"
    assert np.array_equal(again.features, first.features)
    assert again.layers == first.layers


def test_half_precision_and_autocast() -> None:
    np.testing.assert_allclose(
        quiet(layers="all", dtype="float16").features, expected(), rtol=3e-3, atol=1e-3
    )
    mixed = quiet(layers="all", autocast="bfloat16").features
    np.testing.assert_allclose(mixed, expected(), rtol=0.1, atol=0.02)
