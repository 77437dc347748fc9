"""The command ``demo``: train a small network, fit DualDA, explain test images, write a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from whence import __version__, sample
from whence.app.terminal import check_folder
from whence.core import store
from whence.core.files import replacing
from whence.data import as_training_set
from whence.methods.dualda import DualDA
from whence.model.modules import evaluating
from whence.project import Configuration, Project
from whence.sample.demo import MODEL
from whence.sample.network import EPOCHS
from whence.ui.explorer import Explorer
from whence.ui.pages import Note, report_page

_OTHERS = 20  # test images in the report besides those that a rule has chosen


@dataclass(frozen=True)
class Choice:
    """A test image that was chosen to be shown: a short name, a heading, and the rule that chose it."""

    name: str
    heading: str
    rule: str
    index: int


def run(
    out: Path,
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
    show_progress: bool = True,
    say: Callable[[str], None] = print,
) -> Path:
    """Write the demo's network, explainer, figures and page into a folder; return the path of the page.

    ``seed`` is that of the network's training and of DualDA; ``say`` gets a line after each step.
    """
    check_folder(out)
    data = sample.load()

    start = time.perf_counter()
    model = sample.train(seed, epochs=epochs, show_progress=show_progress)
    accuracy = sample.accuracy(model, data.test_images, data.test_labels)
    say(f"Trained a small network in {_since(start)}: {accuracy:.1%} of the test images are right.")

    with replacing(out / MODEL) as file:
        file.write(save(model.state_dict()))

    start = time.perf_counter()
    explainer = DualDA(seed=seed, show_progress=show_progress)
    explainer.fit(model, (data.train_images, data.train_labels), class_names=data.class_names)
    faithfulness = explainer.faithfulness(data.test_images)
    say(
        f"Fitted DualDA in {_since(start)}: {faithfulness.agreement:.1%} agreement with the network on the "
        f"test images, by {len(explainer.support_):,} of {explainer.n_train_:,} training images."
    )
    saved = out / "demo.whence"
    explainer.save(saved)
    configuration = Configuration(
        model="whence.sample.demo:network",
        data="whence.sample.demo:train",
        test="whence.sample.demo:test",
        options={"seed": seed},
        version=__version__,
    )
    configuration.write(saved)

    start = time.perf_counter()
    choices = choose(model, explainer, data.test_images, data.test_labels)
    chosen = [choice.index for choice in choices]
    explanations = explainer.explain(data.test_images[chosen], truth=data.test_labels[chosen])
    for choice, why in zip(choices, explanations, strict=True):
        with replacing(out / f"{choice.name}.png") as file:
            why.plot().savefig(file, format="png")
    tests = as_training_set((data.test_images, data.test_labels), explainer.batch_size)
    explorer = Explorer(Project(saved, configuration, explainer, tests))
    shown = list(dict.fromkeys([*chosen, *range(_OTHERS)]))
    notes = {choice.index: Note(choice.heading, choice.rule) for choice in choices}
    page = out / "index.html"
    store.write_text(page, report_page(explorer, shown, notes=notes))
    say(f"Explained {len(shown)} test images in {_since(start)}.")
    say(f"All {len(data.test_labels):,} of them, live: whence serve {saved}")
    return page


def choose(model: nn.Module, explainer: DualDA, images: Tensor, labels: Tensor) -> list[Choice]:
    """Choose a clear, a contested and a wrong prediction of images (B, …) to show, each by a rule.

    Only images where surrogate and model predict the same class are taken, so that what is explained is what
    the model does. A rule that no image meets is left out.
    """
    with evaluating(model):
        probabilities, predicted = model(images).double().softmax(dim=1).max(dim=1)
    first, second = explainer.decision_function(images).topk(2).values.unbind(1)
    margin = first - second
    faithful = explainer.predict(images) == predicted
    right = faithful & (predicted == labels)
    wrong = faithful & (predicted != labels)
    rules = (
        (
            "clear",
            "Right and clear",
            "Of all right predictions, the one whose logit is furthest above that of the runner-up.",
            right,
            margin,
        ),
        (
            "contested",
            "Right but contested",
            "Of all right predictions, the one whose logit is least above that of the runner-up: "
            "look at what the opponents have in common with it.",
            right,
            -margin,
        ),
        (
            "wrong",
            "Sure but wrong",
            "Of all wrong predictions, the one that the model is surest of: "
            "its proponents show what it was taken for, its opponents what supports another class.",
            wrong,
            probabilities,
        ),
    )
    return [
        Choice(name, heading, rule, int(torch.where(candidates, key, -torch.inf).argmax()))
        for name, heading, rule, candidates, key in rules
        if candidates.any()
    ]


def _since(start: float) -> str:
    return f"{time.perf_counter() - start:.1f} s"
