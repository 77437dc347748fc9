"""The recipes of dattri's benchmark, compared with dattri's own use of torch, and its table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.dattri import flips, protocol, removal, render, scores, truth
from benchmarks.dattri.methods import ROWS, Row, slug
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from whence.interop import read_bank

N, T = 40, 6
DOCS = Path(__file__).parents[2] / "docs"


def small() -> protocol.Data:
    torch.manual_seed(0)
    x, y = torch.randn(N + T, 1, 28, 28), torch.arange(N + T) % 10
    return protocol.Data(x[:N], y[:N], x[N:], y[N:])


def test_halves_are_those_that_dattri_publishes() -> None:
    """The first and the last indices of the files of its networks on halves 0 and 1."""
    first, second = protocol.halves()[:2]
    assert len(protocol.halves()) == 100
    assert first[:5].tolist() == [4306, 4026, 4684, 2688, 2504]
    assert (len(first), first[-1]) == (2_500, 3923)
    assert second[-3:].tolist() == [3906, 4664, 4956]


@pytest.mark.parametrize("kind", ["lr", "mlp"])
def test_the_published_truth_is_on_those_halves(kind: str) -> None:
    bank = read_bank(DOCS / "results" / f"dattri-{kind}-bank.parquet")
    assert bank.outputs.shape == (100, 500)
    assert (bank.outputs < 0).all()
    np.testing.assert_array_equal(bank.subsets, truth.masks(protocol.halves(), 5_000))


def test_draws_share_no_seed() -> None:
    seeds = [
        range(start, start + n)
        for draw in truth.DRAWS.values()
        for start, n in ((draw.seed, draw.n_halves), (draw.seed + protocol.MEMBER_SEED, truth.N_MEMBERS))
    ]
    assert len(set().union(*seeds)) == sum(map(len, seeds))


@pytest.mark.parametrize("kind", ["lr", "mlp"])
def test_training_is_that_of_a_shuffling_loader(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = protocol.Recipe(epochs=2, batch=8, rate=0.01, momentum=0.9 if kind == "mlp" else 0.0)
    monkeypatch.setitem(protocol.RECIPES, kind, recipe)
    data, rows = small(), protocol.subset(3, N, N // 2)
    found = protocol.train_on(kind, data, rows, 5)

    torch.manual_seed(5)
    model = protocol.make_model(kind)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=recipe.momentum)
    samples = Subset(TensorDataset(data.train, data.train_labels), rows.tolist())
    for _ in range(2):
        for inputs, labels in DataLoader(samples, batch_size=8, shuffle=True):
            optimiser.zero_grad()
            nn.CrossEntropyLoss()(model.train()(inputs), labels).backward()
            optimiser.step()
    for ours, theirs in zip(found.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    outputs = protocol.outputs(found, data.test, data.test_labels)
    expected = found(data.test).softmax(1).gather(1, data.test_labels[:, None]).log().squeeze(1)
    np.testing.assert_allclose(outputs, expected.detach().numpy(), rtol=1e-4)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = {name: protocol.Draw(N, T, seed=seed, n_halves=8) for name, seed in (("dattri", 0), ("dev", 50))}
    monkeypatch.setattr(truth, "DRAWS", draws)
    monkeypatch.setattr(truth, "N_MEMBERS", 2)
    monkeypatch.setattr(protocol, "load", lambda *_: small())
    monkeypatch.setitem(protocol.RECIPES, "lr", protocol.Recipe(2, 8, 0.01, 0.0))


@pytest.mark.usefixtures("tiny")
def test_a_truth_that_was_stopped_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = truth.run("lr", tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(truth.protocol, "train_on", stopping(protocol.train_on, after=2 + 2))
        with pytest.raises(KeyboardInterrupt):
            truth.run("lr", tmp_path / "stopped")
    again = truth.run("lr", tmp_path / "stopped")
    np.testing.assert_array_equal(again.subsets, whole.subsets)
    np.testing.assert_array_equal(again.outputs, whole.outputs)
    assert [used.sum() for used in whole.subsets] == [N // 2] * 8


def stopping(function, after: int):
    calls = []

    def call(*arguments, **options):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return call


@pytest.mark.usefixtures("tiny")
def test_rows_are_scored_tuned_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in truth.DRAWS:
        truth.run("lr", tmp_path, name)
    rows = [
        Row("Similarity", "similarity", grid={"metric": ("dot", "cosine")}),
        Row("TRAK-2", "trak", models=2),
    ]
    monkeypatch.setattr(scores, "ROWS", {row.label: row for row in rows})
    results = tmp_path / "results.json"
    scores.run(["Similarity", "TRAK-2"], "lr", tmp_path, tune=True, results=results)
    found = scores.load(results)["lr"]
    assert set(found) == {"Similarity", "Similarity, tuned", "TRAK-2"}
    tried = found["Similarity, tuned"]["development"]
    assert tried[f'{{"metric": "{found["Similarity, tuned"]["chosen"]["metric"]}"}}'] == max(tried.values())
    lines = render.lds_table(scores.load(results)).splitlines()
    assert any(line.startswith("| TRAK-50, published | 0.68 | – | 0.45 | – |") for line in lines)
    assert any(line.startswith(f"| TRAK-2 | {found['TRAK-2']['LDS']:.3f} ± ") for line in lines)
    check_other_parts(tmp_path, results, monkeypatch)


def check_other_parts(folder: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one out, remove the top samples and forecast flips, by the scores that are there."""
    for module in (flips, removal):
        monkeypatch.setattr(module, "ROWS", scores.ROWS)
    left_out = truth.leave_one_out("lr", folder, 5)
    assert (~left_out.subsets).sum(axis=1).tolist() == [1] * 5
    scores.leave_one_out(["TRAK-2"], "lr", folder, results)
    removal.run(["TRAK-2"], "lr", folder, results, n_tests=3)
    flips.run(["TRAK-2"], "lr", folder, results)
    found = scores.load(results)
    assert -1 <= found["lr leave-one-out"]["TRAK-2"] <= 1
    assert found["lr removal"]["TRAK-2"]["low"] <= found["lr removal"]["TRAK-2"]["high"]
    assert set(found["lr flips"]) == {"spread alone", "TRAK-2"}
    assert 0 <= found["lr flips"]["TRAK-2"]["coverage"] <= 1
    text = "\n".join(render.tables(found).values())
    for head in ("LDS", "Pearson, leave-one-out", "QLD", "Brier score"):
        assert f"| {head}" in text
    flips.figure(found["lr flips"], folder / "flips.svg")
    assert (folder / "flips.svg").read_text().count("TRAK-2") >= 1


def test_the_page_has_the_tables_of_the_results() -> None:
    page = (DOCS / "research" / "effects.md").read_text(encoding="utf-8")
    for name, text in render.tables(scores.load(DOCS / "results" / "dattri.json")).items():
        assert text in page, f"{name}: python -m benchmarks.dattri table"


def test_log_odds() -> None:
    p = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(flips.log_odds(np.log(p)), np.log(p / (1 - p)), atol=1e-12)
    assert np.isfinite(flips.log_odds(np.array([0.0, -800.0]))).all()


def test_rows_have_names_of_their_own() -> None:
    names = [slug(row.label, extra) for row in ROWS.values() for extra in (None, *row.variants)]
    assert len(set(names)) == len(names)
