"""Localisation: how well maps of caught pairs find the box and the frame that fooled the network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.flipping.images import trained
from whence import DualDA
from whence.core.arrays import Mask
from whence.core.cache import Cache
from whence.metrics.localisation import caught_pairs, localisation
from whence.metrics.scores import fooled
from whence.model.extractor import Extractor, find_head
from whence_studies import add_shortcut
from whence_studies.scenes import datasets
from whence_studies.scenes.shortcuts import BoxAndFrame, CentreBox, Frame
from whence_studies.scenes.workshop import Materials, Workshop
from whence_studies.suite import protocol as protocols
from whence_studies.suite.localising import Marked, localise

CLASS, SHARE, PROPONENTS = 2, 0.3, 10
STUDY = "study-cifar10-shortcut"
SIDES = ("test", "train")


class Scene(NamedTuple):
    """A network, training images (N, …) of which some are marked (N,), and marked tests that it falls for.

    ``options`` are those of the DualDA that pairs come from.
    """

    model: nn.Module
    images: Tensor
    labels: Tensor
    marked: np.ndarray
    tests: Tensor
    mark: BoxAndFrame
    options: dict[str, Any]


class Found(NamedTuple):
    """Areas (method, pair) by column, and what else is known."""

    columns: dict[str, np.ndarray]
    facts: dict[str, float]


def grey(name: str, n_tests: int, begin: int, cache: Path) -> Scene:
    """MNIST or Fashion-MNIST: white marks on 30 % of class 2, the network as the example's for MNIST."""
    from examples import mnist_cnn

    data, other = mnist_cnn.read("train", mnist_cnn.N_TRAIN, name), mnist_cnn.read("t10k", 10_000, name)
    mark = BoxAndFrame()
    seen = add_shortcut(data, mark, share=SHARE, of_class=CLASS, seed=0)
    images = torch.stack([seen[i][0] for i in range(len(seen))])
    model = trained(cache / f"{name}-marked.safetensors", images, data.tensors[1])
    plain, truth = (part[begin : begin + n_tests] for part in other.tensors)
    with_mark = torch.stack([mark(image, np.random.default_rng(0)) for image in plain])
    with torch.inference_mode():
        before, after = (model(x).argmax(1).numpy() for x in (plain, with_mark))
    hit = fooled(before, after, truth.numpy(), CLASS)
    tests = with_mark[torch.from_numpy(hit)]
    return Scene(model, images, data.tensors[1], seen.poisoned_mask, tests, mark, {"C": 1e-5})


def colour(data: Path, cache: Path, n_train: int) -> Scene:
    """CIFAR-10 as in the study's protocol, whose trained network is read from its cache, or retrained."""
    protocol = protocols.load(STUDY)
    shop = Workshop(protocol, data, Cache(cache / STUDY), True)
    spec, seed = protocol.scene("shortcut"), protocol.seed
    assert spec.test is not None
    train, tests = datasets.load("cifar-10", data, spec.train, spec.test + protocol.data.held_out, seed)
    asked = datasets.draw(tests.labels, spec.test, seed, "test")
    rest = np.setdiff1d(np.arange(len(tests)), asked)
    test, held_out = (datasets.taken(tests, places, tests.class_names) for places in (asked, rest))
    metric: Any = protocol.metrics["shortcut"]
    scene = metric.stage(Materials(shop, train, test, held_out, spec.steps))
    mark = BoxAndFrame(metric.size, metric.width, metric.value)
    rows = slice(n_train)
    images, labels = scene.inputs[rows], torch.from_numpy(scene.train.labels[rows])
    # Long feature vectors hide the marked ones: without unit length no pair is caught, whatever C.
    options = {"C": 1e-3, "metric": "unit"}
    return Scene(scene.trained.model, images, labels, scene.marked[rows], scene.tests, mark, options)


def found(scene: Scene, methods: Mapping[str, Any], n_tests: int, regions: Mapping[str, Mask]) -> Found:
    """Measure areas (method, pair) by column, for each of the first tests that has a caught pair."""
    explainer = DualDA(**scene.options, show_progress=False).fit(scene.model, (scene.images, scene.labels))
    tests = scene.tests[:n_tests]
    target = torch.full((len(tests),), CLASS)
    pairs = caught_pairs(explainer.attribute(tests, target).numpy(), scene.marked, PROPONENTS)
    extractor = Extractor(scene.model, find_head(scene.model, tests[:1]))
    inside = scene.mark.covers(*tests.shape[-2:])
    rng = np.random.default_rng(0)

    def maps(method: Any, test: int, sample: int) -> tuple[np.ndarray, np.ndarray]:
        if method == "random":
            return rng.normal(size=inside.shape), rng.normal(size=inside.shape)
        both = Marked(tests[test][None], inside), Marked(scene.images[sample][None], inside)
        one = localise(explainer, extractor, *both, sample, CLASS, method)
        return one.on_test, one.on_train

    columns: dict[str, list[list[float]]] = {f"{side}{name}": [] for name in regions for side in SIDES}
    for test, sample in pairs.tolist():
        each = [maps(method, test, sample) for method in methods.values()]
        for name, region in regions.items():
            for s, side in enumerate(SIDES):
                columns[f"{side}{name}"].append([localisation(one[s], region).auc for one in each])
    facts = {"fooled": len(scene.tests), "looked at": len(tests), "caught": len(pairs)}
    return Found({name: np.array(values).T for name, values in columns.items()}, facts)


def whole(scene: Scene) -> dict[str, Mask]:
    """Return the places of the marks, as the criterion counts them."""
    return {"": scene.mark.covers(*scene.tests.shape[-2:])}


def parts(scene: Scene) -> dict[str, Mask]:
    """Return the places of the box and of the frame, each by itself."""
    size = scene.tests.shape[-2:]
    return {
        ", box": CentreBox(scene.mark.size).covers(*size),
        ", frame": Frame(scene.mark.width).covers(*size),
    }


def still_fooled(scene: Scene) -> dict[str, float]:
    """Share of the tests that stay in the class of the marks with the box or the frame painted over by 0."""
    shares = {}
    for name, region in parts(scene).items():
        painted = torch.where(torch.from_numpy(region), 0.0, scene.tests)
        with torch.inference_mode():
            shares[f"without{name[1:]}"] = float((scene.model(painted).argmax(1) == CLASS).float().mean())
    return shares
