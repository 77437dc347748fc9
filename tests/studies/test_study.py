"""The study: marks, pairs and wrong labels as the authors have them, κ next to C, long trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.studies.test_protocol import changed
from whence.core.cache import Cache
from whence.model.bound import BoundModel
from whence_studies import BoxAndFrame
from whence_studies.report import page
from whence_studies.report.summary import ResultSummary
from whence_studies.report.sweep import SweptResults
from whence_studies.scenes import networks, training, weights
from whence_studies.scenes.networks.whitened import whitening
from whence_studies.scenes.training import Recipe, Trainer
from whence_studies.scenes.weights import TrainingFile
from whence_studies.scenes.workshop import Workshop
from whence_studies.suite import costs, protocol, run
from whence_studies.suite.case import Case

DATA = {"name": "sample", "train": 80, "test": 20, "held_out": 40}
MODEL = {"name": "narrow-cnn", "steps": 30, "checkpoints": 3, "batch_size": 16}
DUAL = {"name": "dualda", "label": "Dual", "options": {"C": 1e-3}}


def small(**over: Any) -> protocol.Protocol:
    return protocol.parse({**changed(methods=[DUAL], data=DATA, model=MODEL), "sweep": {}, **over})


def workshop(tmp_path: Path, **over: Any) -> Workshop:
    return Workshop(small(**over), Path(), Cache(tmp_path / "cache"), show_progress=False)


# Scenes


def test_a_box_and_a_frame_at_once() -> None:
    expected = np.zeros((10, 12), bool)
    expected[:2], expected[-2:], expected[:, :2], expected[:, -2:] = True, True, True, True
    expected[3:7, 4:8] = True
    np.testing.assert_array_equal(BoxAndFrame(4, 2).covers(10, 12), expected)
    image = BoxAndFrame(4, 2, (1.0, 0.0, -1.0))(torch.full((3, 10, 12), 0.5), np.random.default_rng(0))
    for channel, value in zip(image, (1.0, 0.0, -1.0), strict=True):
        np.testing.assert_array_equal(channel, np.where(expected, value, 0.5))


def test_a_shortcut_on_a_share_of_a_class_whoever_it_fools(tmp_path: Path) -> None:
    asked = {"kind": "both", "size": 6, "width": 2, "class": 2, "shares": [0.3], "needed": 0.0}
    scene = workshop(tmp_path, metrics={"shortcut": asked}).scene("shortcut")
    marked, of_class = scene.train.poisoned_mask, scene.train.labels == 2
    assert marked.sum() == round(0.3 * of_class.sum())
    assert not marked[~of_class].any()
    inside = torch.from_numpy(BoxAndFrame(6, 2).covers(28, 28))
    assert (scene.inputs[torch.from_numpy(marked)][:, :, inside] == 1).all()
    assert 0 <= scene.facts["fooled"] <= 1
    assert scene.facts["n_fooled"] == len(scene.tests) or not scene.facts["n_fooled"]


def test_classes_are_paired_in_their_order_without_a_model(tmp_path: Path) -> None:
    shop = workshop(tmp_path, metrics={"identical_subclass": {"by": "order"}})
    scene = shop.scene("identical_subclass")
    np.testing.assert_array_equal(scene.train.labels, scene.train.true_labels // 2)
    assert len(shop.cache.entries()) == 1  # a single model
    by = {order: small(metrics={"identical_subclass": {"by": order}}) for order in ("order", "confusion")}
    assert len({sum(item.times for item in costs.plan(one)) for one in by.values()}) == 2


@pytest.mark.parametrize(("name", "share"), [("mislabeling_best", 0.1), ("mislabeling_30_memorised", 0.3)])
def test_wrong_labels_at_the_best_and_at_the_last_checkpoint(tmp_path: Path, name: str, share: float) -> None:
    scene = workshop(tmp_path, metrics={name: {}}).scene(name)
    marked, labels = scene.train.flipped_mask, scene.train.labels
    assert marked.mean() == pytest.approx(share, abs=0.01)
    with torch.no_grad():
        said = scene.trained.model(scene.inputs).argmax(1).numpy()
    assert scene.facts["wrong_labels_fitted"] == pytest.approx((said == labels)[marked].mean())
    assert scene.facts["right_labels_fitted"] == pytest.approx((said == labels)[~marked].mean())
    assert scene.facts["wrong_labels"] == pytest.approx(marked.mean())
    whole = workshop(tmp_path, metrics={"mislabeling": {"share": share}}).scene("mislabeling").trained
    right = []
    for state in whole.checkpoints:
        model = scene.trainer.build(3)
        model.load_state_dict(state)
        found = networks.logits(model.eval(), scene.held_out[0]).argmax(1).numpy()
        right.append((found == scene.held_out[1]).mean())
    own = scene.trained.model.state_dict()
    expected = whole.checkpoints[int(np.argmax(right))] if "best" in name else whole.model.state_dict()
    assert all(torch.equal(own[key], value) for key, value in expected.items())
    if "best" in name:
        assert len(scene.trained.checkpoints) == int(np.argmax(right)) + 1


def test_wrong_labels_by_margin_slack_and_length(tmp_path: Path) -> None:
    shop = workshop(tmp_path, metrics={"mislabeling": {}})
    scene = shop.scene("mislabeling")
    case = Case(scene, shop.protocol.methods[1], {"C": 1e-2})
    rows = {row.quantity: row.value for row in shop.protocol.metrics["mislabeling"].measure(case)}
    fitted, y = case.attributor, scene.train.labels
    f = scene.bank.features.astype(np.float64)
    scores = f @ fitted.coef_[:, :-1].T + fitted.coef_[:, -1]
    margin = np.array([s[c] - np.delete(s, c).max() for s, c in zip(scores, y, strict=True)])
    wrong, right = scene.marked, ~scene.marked

    def area(order: np.ndarray) -> float:
        """Share of pairs of a wrong and a right label in which the wrong one comes first, ties by half."""
        a, b = order[wrong][:, None], order[right]
        return float(((a > b) + 0.5 * (a == b)).mean())

    assert rows["by_margin"] == pytest.approx(area(-margin), abs=1e-3)
    assert rows["by_slack"] == pytest.approx(area(np.maximum(0, 1 - margin)), abs=1e-3)
    lam = fitted.lam_.toarray()[np.arange(len(y)), y]
    assert rows["by_length"] == pytest.approx(area(lam * np.linalg.norm(f, axis=1)), abs=1e-3)


def test_wrong_labels_read_the_training_set_once_for_all_of_dualda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop(tmp_path, metrics={"mislabeling": {}})
    scene, metric = shop.scene("mislabeling"), shop.protocol.metrics["mislabeling"]
    several = ({"C": 1e-2}, {"C": 1.0}, {"C": 1.0, "metric": "unit"})
    cases = [Case(scene, shop.protocol.methods[1], options) for options in several]
    for case in cases:
        case.attributor.self_influence()
    counted, read = [], BoundModel.read

    def counting(bound: BoundModel, x: Any, batch_size: int) -> Any:
        counted.append(len(x))
        return read(bound, x, batch_size)

    assert len(scene.bank.features) == len(scene.inputs)
    monkeypatch.setattr(BoundModel, "read", counting)
    areas = [[row.value for row in metric.measure(case) if row.quantity == "by_margin"] for case in cases]
    assert counted == []
    assert len({area for (area,) in areas}) > 1  # of surrogates that differ


# κ next to C


def test_kappa_is_told_of_every_cell_and_drawn(tmp_path: Path) -> None:
    sweep = {"method": "dualda", "option": "C", "values": [1e-6, 1e-4, 1e-3, 1.0]}
    asked = small(metrics={"identical_class": {}, "mislabeling": {}}, sweep=sweep)
    found = run.run(asked, Path(), tmp_path, show_progress=False, say=lambda line: None)
    shop = Workshop(asked, Path(), Cache(tmp_path / "cache"), show_progress=False)
    for metric in ("identical_class", "mislabeling"):
        f = shop.scene(metric).bank.features.astype(np.float64)
        for method in asked.methods[1:]:
            kappa = method.options["C"] * len(f) * (f**2).sum(axis=1).mean()
            assert found.value(metric, method.key, "kappa") == pytest.approx(kappa, rel=1e-5)
    assert found.value("identical_class", "random", "kappa") is None
    shown = SweptResults(ResultSummary(found))
    for by_C, by_kappa in zip(shown.columns(), shown.by_kappa(), strict=True):
        assert [value for _, value in by_C.points] == [value for _, value in by_kappa.points]
        ratios = {round(k / c, 6) for (c, _), (k, _) in zip(by_C.points, by_kappa.points, strict=True)}
        assert len(ratios) == 1  # N·mean‖f‖² of the scene
    assert "The same over κ" in page.render_page(found)


def test_what_methods_cost_is_told_once_of_any_scene_that_needs_scores(tmp_path: Path) -> None:
    asked = small(metrics={"identical_subclass": {"by": "order"}, "mislabeling": {}, "sparsity": {}})
    for _ in range(2):  # measured, and read from finished cells
        found = run.run(asked, Path(), tmp_path, show_progress=False, say=lambda line: None)
        for key in ("random", asked.methods[1].key):
            assert len(found.select("resources", key, "cpu_seconds")) == 1
    shown = ResultSummary(found)
    assert all(shown.seconds(method) > 0 for method in shown.methods)


# Networks and long trainings


def test_whitened_patches_have_variance_1_and_no_correlation() -> None:
    generator = torch.Generator().manual_seed(0)
    rough = torch.rand(40, 3, 12, 12, generator=generator)
    images = 20 * torch.nn.functional.avg_pool2d(rough, 3, 1)  # neighbours are alike
    outputs = torch.nn.functional.conv2d(images, whitening(images)).movedim(1, 0).flatten(1).double()
    torch.testing.assert_close(torch.cov(outputs), torch.eye(12).double(), rtol=0, atol=0.01)
    network = networks.find("whitened-cnn").build(images.repeat(1, 1, 3, 3)[:, :, :32, :32], 4)
    assert network(torch.rand(2, 3, 32, 32)).shape == (2, 4)


class StoppedError(Exception):
    """What ends a training in the middle."""


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "constant_sgd"])
def test_a_training_that_is_stopped_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: Any
) -> None:
    monkeypatch.setattr(weights, "WRITING_SECONDS", 0.0)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(50, 1, 28, 28, generator=generator), torch.arange(50) % 5
    recipe = Recipe(
        name="narrow-cnn", steps=20, batch_size=16, optimizer=optimizer, smoothing=0.1, augment="each"
    )
    trainer = Trainer(recipe, x, 5)
    whole = trainer.train(x, y, 3, 4)
    cache = Cache(tmp_path)
    cache.make()
    slot = cache.slot("training", {"a": "b"})
    calls = 0
    plain = training.cross_entropy

    def stopping(*args: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls in (9, 14):
            raise StoppedError
        return plain(*args, **options)

    monkeypatch.setattr(training, "cross_entropy", stopping)
    for _ in range(2):
        with pytest.raises(StoppedError):
            trainer.train(x, y, 3, 4, TrainingFile(slot, "a network"))
        entry = cache.entries()[0]
        assert (entry.kind, entry.title, entry.complete) == ("training", "a network", False)
        assert entry.progress["steps"] % 3 == 0  # three batches are a pass
    resumed = trainer.train(x, y, 3, 4, TrainingFile(slot, "a network"))
    assert calls < 20 + 9 + 5
    for one, other in zip(
        whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    assert resumed.learning_rates == whole.learning_rates
    for ours, theirs in zip(resumed.checkpoints, whole.checkpoints, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not cache.entries()


def test_a_damaged_state_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "WRITING_SECONDS", 0.0)
    x, y = torch.rand(30, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    trainer = Trainer(Recipe(name="narrow-cnn", steps=6, batch_size=15), x, 3)
    whole = trainer.train(x, y, 1)
    cache = Cache(tmp_path)
    cache.make()
    slot = cache.slot("training", {})
    slot.begin("a network")
    (slot.path / "state.safetensors").write_bytes(b"nothing")
    again = trainer.train(x, y, 1, 0, TrainingFile(slot, "a network"))
    assert all(
        torch.equal(one, other)
        for one, other in zip(
            whole.model.state_dict().values(), again.model.state_dict().values(), strict=True
        )
    )


def test_every_image_is_shifted_by_itself() -> None:
    images = torch.arange(2 * 3 * 16 * 16, dtype=torch.float32).reshape(2, 3, 16, 16) + 1
    recipe = Recipe(name="narrow-cnn", steps=1, augment="each")
    seen = set()
    for seed in range(40):
        batch = training.augment(recipe, images, torch.Generator().manual_seed(seed))
        for place, one in enumerate(batch):
            padded = torch.nn.functional.pad(images[place], (2, 2, 2, 2))
            shifts = [
                (down, right, mirrored)
                for down in range(5)
                for right in range(5)
                for mirrored in (False, True)
                if torch.equal(
                    one,
                    (torch.nn.functional.pad(images[place].flip(2), (2, 2, 2, 2)) if mirrored else padded)[
                        :, down : down + 16, right : right + 16
                    ],
                )
            ]
            assert len(shifts) == 1
            seen.add((place, *shifts[0]))
    assert len({shift for _, *shift in seen for shift in [tuple(shift)]}) > 20


def test_a_sweep_of_a_method_that_sees_several_layers_reads_them(tmp_path: Path) -> None:
    tables = {
        "name": "swept",
        "data": {"name": "sample", "train": 60, "test": 10, "held_out": 10},
        "model": {"name": "narrow-cnn", "steps": 5},
        "methods": [{"name": "effects", "options": {"C": 0.5}}],
        "metrics": {"identical_class": {}},
        "sweep": {"method": "effects", "option": "C", "values": [0.01, 0.5]},
    }
    found = run.run(protocol.parse(tables), Path(), tmp_path, show_progress=False)
    assert not found.select(quantity="error")
    assert found.value("identical_class", "effects(C=0.01)") is not None
    assert found.value("identical_class", "effects(C=0.5)") is not None


def test_constant_sgd_keeps_its_rate() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(50, 1, 28, 28, generator=generator), torch.arange(50) % 5
    recipe = Recipe(name="narrow-cnn", steps=6, batch_size=16, optimizer="constant_sgd", learning_rate=0.02)
    trained = Trainer(recipe, x, 5).train(x, y, 3, 3)
    assert trained.learning_rates == [0.02] * 3
